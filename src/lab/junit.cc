// Junit: results as the XML that build servers read (the form of Ant's JUnit task, which Jenkins and GitLab document).
#include <algorithm>
#include <cstdio>
#include <vector>

#include <hierlock/lab.h>

#include "plan/text.h"
#include "print/text.h"

namespace hierlock::lab {
namespace {

// What XML 1.0 cannot have at all, escaped or not, is told as `\xHH` (2.2, "Characters").
std::string escaped(std::string_view text, bool attribute) {
  const std::string characters = print::valid(text);
  std::string out;
  for (std::string_view rest = characters; !rest.empty();) {
    const std::string_view character = rest.substr(0, plan::utf8_character(rest));
    rest.remove_prefix(character.size());
    const char c = character[0];
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\r' || (attribute && (c == '\n' || c == '\t'))) {  // a reader would make blanks of them
      out += "&#" + std::to_string(static_cast<int>(c)) + ";";
    } else if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || character == "\xEF\xBF\xBE" ||
               character == "\xEF\xBF\xBF") {
      for (const char byte : character) out += "\\x" + plan::hex_byte(byte).substr(2);
    } else {
      out += character;
    }
  }
  return out;
}

std::string attribute(std::string_view name, std::string_view value) {
  return " " + std::string(name) + "=\"" + escaped(value, true) + "\"";
}

std::string seconds(std::chrono::nanoseconds time) {
  const auto ms = std::max<std::int64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(time).count(), 0);
  const std::string fraction = std::to_string(ms % 1'000);
  return std::to_string(ms / 1'000) + "." + std::string(3 - fraction.size(), '0') + fraction;
}

struct Suite {
  std::string name;
  std::vector<const Result*> results;
};

// How many of each, as the attributes of a suite, or of all of them.
std::string counts(const std::vector<const Result*>& results) {
  const auto count = [&](Result::Verdict verdict) {
    return std::to_string(
        std::count_if(results.begin(), results.end(), [&](const Result* each) { return each->verdict == verdict; }));
  };
  std::chrono::nanoseconds took{};
  for (const Result* result : results) took += result->took;
  return attribute("tests", std::to_string(results.size())) + attribute("failures", count(Result::Verdict::failed)) +
         attribute("errors", count(Result::Verdict::error)) + attribute("skipped", count(Result::Verdict::skipped)) +
         attribute("time", seconds(took));
}

std::string test_case(const Result& result) {
  std::string out = "    <testcase" + attribute("name", result.scenario) +
                    attribute("classname", "lab." + result.engine) + attribute("file", result.file) +
                    attribute("time", seconds(result.took));
  const char* const element = result.verdict == Result::Verdict::failed    ? "failure"
                              : result.verdict == Result::Verdict::error   ? "error"
                              : result.verdict == Result::Verdict::skipped ? "skipped"
                                                                           : nullptr;
  if (element == nullptr) return out + "/>\n";
  out += ">\n      <" + std::string(element) + attribute("message", result.message);
  if (result.verdict == Result::Verdict::skipped) return out + "/>\n    </testcase>\n";
  return out + attribute("type", to_string(result.verdict)) + ">" + escaped(result.str(), false) + "</" + element +
         ">\n    </testcase>\n";
}

}  // namespace

std::string junit(std::span<const Result> results) {
  std::vector<Suite> suites;
  std::vector<const Result*> all;
  for (const Result& result : results) {
    const std::string name = result.engine + (result.version.empty() ? "" : " " + result.version);
    auto suite = std::find_if(suites.begin(), suites.end(), [&](const Suite& each) { return each.name == name; });
    if (suite == suites.end()) suite = suites.insert(suites.end(), Suite{name, {}});
    suite->results.push_back(&result);
    all.push_back(&result);
  }
  std::string out =
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"hierlock lab\"" + counts(all) + ">\n";
  for (const Suite& suite : suites) {
    out += "  <testsuite" + attribute("name", suite.name) + counts(suite.results) + ">\n";
    for (const Result* result : suite.results) out += test_case(*result);
    out += "  </testsuite>\n";
  }
  return out + "</testsuites>\n";
}

}  // namespace hierlock::lab
