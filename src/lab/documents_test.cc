// The documents, read by the programs that know best whether they are well-formed: python's own parsers.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include <hierlock/version.h>

#include "lab/example_results.h"

namespace hierlock::lab {
namespace {

// What the script prints about the document, which it has as `text`.
std::string python(const std::string& document, const std::string& script) {
  char path[] = "/tmp/hierlock-lab-XXXXXX";
  const int made = mkstemp(path);
  EXPECT_GE(made, 0);
  close(made);
  std::ofstream(path, std::ios::binary) << document;
  const std::string command = "python3 -c 'text = open(\"" + std::string(path) +
                              "\", encoding=\"utf-8\", newline=\"\").read()\n" + script + "' 2>&1";
  std::string out;
  if (FILE* const pipe = popen(command.c_str(), "r")) {
    char buffer[4096];
    for (std::size_t got; (got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.append(buffer, got);
    EXPECT_EQ(pclose(pipe), 0) << out;
  }
  std::remove(path);
  return out;
}

class LabDocuments : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("python3 -c pass >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no python3 to read them with";
    results_ = example::all();
    results_.push_back(example::hostility());
  }
  std::vector<Result> results_;
};

TEST(LabJson, has_everything_that_a_result_has) {
  Result result = example::deadlock();
  result.facts = {{"level", "read committed"}};
  result.events = {result.events[6], result.events[7]};
  result.events[1].freed[0].event = 0;
  EXPECT_EQ(json({&result, 1}), R"json({
  "version": 1,
  "hierlock": ")json" HIERLOCK_VERSION R"json(",
  "results": [
    {
      "scenario": "two rows in opposite orders",
      "file": "scenarios/rows/opposite_orders.scenario",
      "proves": [
        "X8"
      ],
      "about": [
        "Each of two transfers locks the row that it takes from, then the row that it gives to.",
        "Whoever asks last closes the circle."
      ],
      "facts": {
        "level": "read committed"
      },
      "engine": "mysql",
      "engine_version": "9.7.0",
      "url": "mysql://lab@127.0.0.1/test",
      "verdict": "passed",
      "message": "",
      "sessions": [
        "T1",
        "T2"
      ],
      "schedule": [
        "a",
        "b",
        "c",
        "d",
        "e",
        "f",
        "g"
      ],
      "events": [
        {
          "kind": "step",
          "line": 11,
          "session": "T1",
          "name": "e",
          "text": "update t set v = v + 1 where id = 2",
          "sent": "update t set v = v + 1 where id = 2",
          "expected": "blocked by T2",
          "actual": "blocked by T2",
          "passed": true,
          "why": "T1 waits for t(2), which T2 holds since d.",
          "blocked": true,
          "freed": [],
          "locks": [
            {
              "session": "T1",
              "object": "t(1)",
              "mode": "X",
              "granted": true
            },
            {
              "session": "T2",
              "object": "t(2)",
              "mode": "X",
              "granted": true
            },
            {
              "session": "T1",
              "object": "t(2)",
              "mode": "X",
              "granted": false
            }
          ],
          "waits": [
            {
              "session": "T1",
              "blockers": [
                "T2"
              ],
              "object": "t(2)"
            }
          ],
          "cycle": [],
          "began_us": 22000,
          "took_us": 900
        },
        {
          "kind": "step",
          "line": 12,
          "session": "T2",
          "name": "f",
          "text": "update t set v = v + 1 where id = 1",
          "sent": "update t set v = v + 1 where id = 1",
          "expected": "deadlock, T2",
          "actual": "deadlock, T2",
          "passed": true,
          "why": "T2 asked for t(1), which T1 holds, while T1 waits for T2: nobody in the circle could go on, and the engine rolled T2 back.",
          "blocked": false,
          "freed": [
            {
              "event": 0,
              "actual": "ok"
            }
          ],
          "locks": [
            {
              "session": "T1",
              "object": "t(1)",
              "mode": "X",
              "granted": true
            },
            {
              "session": "T1",
              "object": "t(2)",
              "mode": "X",
              "granted": true
            }
          ],
          "waits": [],
          "cycle": [
            "T2",
            "T1"
          ],
          "began_us": 24000,
          "took_us": 900
        }
      ],
      "took_us": 31000
    }
  ]
}
)json");
}

TEST(LabJson, of_nothing_is_a_document) {
  EXPECT_EQ(json(std::span<const Result>{}),
            "{\n  \"version\": 1,\n  \"hierlock\": \"" HIERLOCK_VERSION "\",\n  \"results\": []\n}\n");
}

TEST_F(LabDocuments, json_is_json_whatever_it_tells) {
  EXPECT_EQ(python(json(results_), R"(
import json
results = json.loads(text)["results"]
print(len(results), results[0]["events"][7]["cycle"], results[-1]["scenario"] == results[-1]["events"][0]["text"])
print(ascii(results[-1]["scenario"]))
)"),
            std::to_string(results_.size()) +
                " ['T2', 'T1'] True\n"
                "'</script><script>window.hurt = 1</script><b onclick=\\'hurt()\\'>\"&amp;\\\\ \\x1b[31m\\x01 ]]> <!-- "
                "\\\\xFF \\u8cc7\\u6e90 \\u202e'\n");
}

TEST_F(LabDocuments, junit_is_xml_with_a_suite_for_each_engine_whatever_it_tells) {
  EXPECT_EQ(python(junit(results_), R"(
import xml.etree.ElementTree as tree
root = tree.fromstring(text.encode())
print(root.tag, root.attrib["tests"], root.attrib["failures"], root.attrib["errors"], root.attrib["skipped"])
for suite in root:
    cases = list(suite)
    print(ascii(suite.attrib["name"][:14]), len(cases) == int(suite.attrib["tests"]), suite.attrib["failures"],
          suite.attrib["errors"], suite.attrib["skipped"], suite.attrib["time"])
failure = root.find(".//testsuite[@name=\"postgres 15.13\"]//failure")
print(failure.attrib["message"])
print("expected blocked by T2" in failure.text, "<" in root.findall(".//failure")[-1].attrib["message"])
)"),
            R"(testsuites 60 2 1 11
'mysql 9.7.0' True 0 0 0 0.199
'mariadb 10.11.' True 0 1 0 0.157
'postgres 15.13' True 1 0 0 0.199
'sqlite 3.40.1' True 0 0 11 0.108
'mysql </script' True 1 0 0 0.031
line 9: e of T1 was expected to be blocked by T2, and was: affected 1
True True
)");
}

TEST_F(LabDocuments, html_has_no_element_that_a_scenario_made) {
  const std::string elements = R"(
from html.parser import HTMLParser
class Elements(HTMLParser):
    def __init__(self):
        super().__init__()
        self.count = {}
        self.data = ""
        self.inside = None
    def handle_starttag(self, tag, attributes):
        self.count[tag] = self.count.get(tag, 0) + 1
        self.inside = dict(attributes).get("id")
    def handle_data(self, data):
        if self.inside == "results": self.data += data
elements = Elements()
elements.feed(text)
elements.close()
import json
print(sorted(elements.count.items()), "version" in json.loads(elements.data))
)";
  const Result none[1] = {};
  const std::string expected = python(html({none, 0}), elements);
  EXPECT_NE(expected.find("('script', 2)"), expected.npos) << expected;
  EXPECT_EQ(python(html(results_), elements), expected);
}

TEST(LabHtml, loads_nothing) {
  const std::vector<Result> results = example::all();
  const std::string page = html(results);
  for (const char* part : {"http://", "https://", "src=", "@import", "url(\"", "{{"}) {
    std::size_t at = page.find(part);
    // The name of a namespace is not fetched.
    if (at != page.npos && page.compare(at, 26, "http://www.w3.org/2000/svg") == 0) at = page.find(part, at + 1);
    EXPECT_EQ(at, page.npos) << part << ": " << page.substr(at, 80);
  }
}

}  // namespace
}  // namespace hierlock::lab
