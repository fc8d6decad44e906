// Specs of isolationtester become scenarios: with an order for each permutation, and what happened as the expectation.
#include <gtest/gtest.h>

#include "packs.h"
#include "support/needs_server.h"
#ifdef HIERLOCK_BIN
#include "support/tool.h"
#endif

namespace hierlock::lab_tests {
namespace {

using lab::Result;
using lab::Scenario;

std::string spec(const std::string& name) { return HIERLOCK_SCENARIOS "/../tests/lab/specs/" + name + ".spec"; }

std::string output_of(const std::string& name) { return HIERLOCK_SCENARIOS "/../tests/lab/specs/" + name + ".out"; }

TEST(Import, a_spec_becomes_a_scenario_with_an_order_for_each_permutation) {
  const std::string text = lab::import_spec(text_of(spec("two-rows")), "two-rows.spec");
  const std::vector<Scenario> orders = lab::parse(text).orders();
  ASSERT_EQ(orders.size(), 3u) << text;
  EXPECT_EQ(orders[0].name(), "two-rows: permutation 1");
  for (const std::string part :
       {"engines   postgres\n", "setup     s1: BEGIN;\n", "teardown  DROP TABLE account;\n", "s_2 s2c: COMMIT;\n",
        "s1 s1_second: UPDATE account\n    |      SET balance = balance + 10\n    |    WHERE id = 2;\n",
        "s_2 s_check: SELECT id, balance FROM account ORDER BY id;\n"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  EXPECT_EQ(text.find("it's"), std::string::npos) << text;
}

TEST(Import, a_spec_without_permutations_has_every_interleaving) {
  EXPECT_EQ(lab::parse(lab::import_spec(text_of(spec("all-orders")), "f")).orders().size(), 3u);
}

TEST(Import, what_is_wrong_is_told_with_its_line) {
  const auto complaint = [](const std::string& text) -> std::string {
    try {
      lab::import_spec(text, "f");
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_EQ(complaint(""), "f:1: session expected");
  EXPECT_EQ(complaint("# x\nsession a\nstep b SELECT 1"), "f:3: SQL in braces expected");
  EXPECT_EQ(complaint("session a\nstep b { SELECT 1"), "f:2: `}` expected");
  EXPECT_EQ(complaint("session a step b { } permutation c"), "f: there is no step c");
  EXPECT_EQ(complaint("session a step b { } step b { }"), "f: there are two steps b");
  EXPECT_EQ(complaint("session a step b { }\n\npermutation b(c"), "f:3: `)` expected");
}

lab::TesterOutput output(const std::string& name) { return {text_of(output_of(name)), output_of(name)}; }
std::string expected_by_the_tester(const std::string& name) {
  return lab::import_spec(text_of(spec(name)), spec(name), output(name));
}

TEST(Import, what_the_tester_prints_is_expected) {
  const std::string text = expected_by_the_tester("messages");
  ASSERT_EQ(lab::parse(text).orders().size(), 4u) << text;
  for (const std::string part :
       {"say  => ok, notice 'it''s 42'\n", "read  => rows 1,'  two blanks'\n", "void  => rows null or rows ''\n",
        "fail  => error 'duplicate key value violates unique constraint \"item_pkey\"'\n",
        "nulls  => rows null, notify news 'hello' or rows '', notify news 'hello'\n",
        "write  => error 'canceling statement due to lock timeout'\n",
        // The marked step may have ended before the tester says so.
        "write  => ok or blocked\nend  => ok, unblocks perhaps s2\nread  => rows 1,y\n"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST(Import, waits_and_deadlocks_of_the_tester_are_expected) {
  const std::string two = "session a step x { X } step z { Z } session b step y { Y } ";
  const auto steps = [](const std::string& spec, const std::string& lines) {
    const std::string text = lab::import_spec(spec, "f", {"starting permutation: x y z\n" + lines, "f.out"});
    return text.substr(text.find("\norder") + 1);
  };
  EXPECT_EQ(steps(two + "permutation x y z",
                  "step x: X\nstep y: Y <waiting ...>\nstep z: Z\nn\n-\n2\n(1 row)\n\nstep y: <... completed>\nn|m\n"
                  "-+-\n1|a\n2|b\n(2 rows)\n\n"),
            "order  permutation 1\nx  => ok\ny  => blocked\nz  => rows 2, unblocks b (rows 1,a; 2,b)\n");
  EXPECT_EQ(steps(two + "permutation x y z",
                  "step x: X\nstep y: Y <waiting ...>\nstep y: <... completed>\nERROR:  too late\nstep z: Z\n"),
            "order  permutation 1\nx  => ok\ny  => blocked, then error 'too late'\nz  => ok\n");
  EXPECT_EQ(steps(two + "permutation x y z",
                  "step x: X\nstep y: Y <waiting ...>\nstep z: Z <waiting ...>\nstep y: <... completed>\nERROR:  "
                  "deadlock detected\nstep z: <... completed>\n"),
            "order  permutation 1\nx  => ok\ny  => blocked\nz  => deadlock, b\n");
  EXPECT_EQ(steps(two + "permutation x y(*) z",
                  "step x: X\nstep y: Y <waiting ...>\nstep z: Z\nERROR:  in public.t\nstep y: <... completed>\n"),
            "order  permutation 1\nx  => ok\ny  => ok or blocked\n"
            "z  => error 'in hierlock_lab.t', unblocks perhaps b\n");
}

TEST(Import, what_is_wrong_in_the_testers_output_is_told_with_its_line) {
  const std::string spec = "session a step x { X } step y { Y }";
  const auto complaint = [&](const std::string& text) -> std::string {
    try {
      lab::import_spec(spec, "f", {text, "f.out"});
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_EQ(complaint(""), "f.out:1: `starting permutation: x y` expected");
  EXPECT_EQ(complaint("\nstarting permutation: y\n"), "f.out:2: `starting permutation: x y` expected");
  EXPECT_EQ(complaint("starting permutation: x y\nstep x: X\n"), "f.out:3: step y expected");
  EXPECT_EQ(complaint("starting permutation: x y\nstep x: Z\n"), "f.out:2: step x, as it is in the spec expected");
  EXPECT_EQ(complaint("starting permutation: x y\nstep x: X\nstep y: Y <waiting ...>\n"),
            "f.out:4: the end of a step of session a expected");
  EXPECT_EQ(complaint("starting permutation: x y\nstep x: X\na\n-\n1\n"), "f.out:6: how many rows there are expected");
  EXPECT_EQ(complaint("starting permutation: x y\nstep x: X\nstep y: Y\nstarting permutation: x y\n"),
            "f.out:4: the end: the spec has no more permutations expected");
}

TEST(Import, what_the_tester_does_not_expect_fails) {
  const std::optional<std::string> url = url_of("postgres");
  if (!url) HIERLOCK_NEEDS_SERVER("POSTGRES");
  for (const std::string what : {"it's 42", "  two blanks", "unique constraint", "\"hello\""}) {
    lab::TesterOutput wrong = output("messages");
    wrong.text.replace(wrong.text.find(what) + 2, 1, "?");
    const Scenario order = lab::parse(lab::import_spec(text_of(spec("messages")), "f", wrong)).orders().front();
    EXPECT_EQ(lab::run(order, *url).verdict, Result::Verdict::failed) << what;
  }
}

// --- the tool -----------------------------------------------------------------------------------------------------

#ifdef HIERLOCK_BIN

// What `hierlock lab import` says of a spec that it plays on PostgreSQL, and its exit code. Of a step without an
// expectation it waits out the patience if the step is blocked.
struct Imported {
  int code = 0;
  std::string text;
};
Imported imported(const std::string& name, const std::string& expected = "") {
  tests::Tool tool("lab import '" + spec(name) + "' --patience 3s --on '" + *url_of("postgres") + "'" +
                   (expected.empty() ? "" : " --expected '" + output_of(expected) + "'"));
  const int code = tool.ends();
  return {code, tool.said()};
}

TEST(ImportTool, prints_what_the_tester_expects_if_it_happens) {
  if (!url_of("postgres")) HIERLOCK_NEEDS_SERVER("POSTGRES");
  const auto [code, text] = imported("messages", "messages");
  EXPECT_EQ(code, 0) << text;
  EXPECT_EQ(lab::parse(text).orders().size(), 4u) << text;
  for (const std::string part : {"void  => rows ''\n", "nulls  => rows null, notify news 'hello'\n",
                                 "write  => blocked by s1\nend  => ok, unblocks s2 (affected 1)\n"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

// What the tester prints may differ, and the outputs beside the named one are right, too.
TEST(ImportTool, wants_each_order_as_one_of_the_outputs_says) {
  if (!url_of("postgres")) HIERLOCK_NEEDS_SERVER("POSTGRES");
  const auto [code, text] = imported("either", "either");
  EXPECT_EQ(code, 0) << text;
  EXPECT_TRUE(text.ends_with("order  permutation 1\none  => rows 1\n\norder  permutation 2\ntwo  => rows 2\n")) << text;
  // Beside this one there is none.
  const auto [alone, complaint] = imported("either", "either_1");
  EXPECT_EQ(alone, 1);
  EXPECT_NE(complaint.find("either: permutation 1: "), std::string::npos) << complaint;
  EXPECT_EQ(complaint.find("=> rows 2\n"), std::string::npos) << "a draft is printed: " << complaint;
}

TEST(ImportTool, fills_in_what_happened_and_happens_again) {
  const std::optional<std::string> url = url_of("postgres");
  if (!url) HIERLOCK_NEEDS_SERVER("POSTGRES");
  for (const std::string name : {"two-rows", "all-orders"}) {
    std::string text, differs;
    // PostgreSQL's victim is another one if the machine stalls for a second between the two waits of a circle, and a
    // machine may stall for as long as the patience. The next attempt shows whether that was it.
    for (int attempt = 0; attempt < 5 && (attempt == 0 || !differs.empty()); ++attempt) {
      Imported import = imported(name);
      text = std::move(import.text);
      differs = import.code == 0 ? "" : text;
      if (import.code != 0) continue;
      EXPECT_EQ(text.find(lab::not_played), std::string::npos) << text;
      for (const Scenario& order : lab::parse(text).orders()) {
        const Result result = lab::run(order, *url);
        if (!result.passed()) differs += result.str();
        EXPECT_TRUE(result.passed() || result.message.find("victim") != std::string::npos) << result.str();
      }
    }
    ASSERT_EQ(differs, "");
    if (name == "all-orders") {
      EXPECT_NE(text.find("look  => rows 0\n"), std::string::npos) << text;
      EXPECT_NE(text.find("look  => rows 1\n"), std::string::npos) << text;
    } else {
      EXPECT_NE(text.find("s2b  => blocked by s1\n"), std::string::npos) << text;
      EXPECT_NE(text.find("unblocks s_2 (affected 1)"), std::string::npos) << text;
      EXPECT_NE(text.find("=> deadlock, s"), std::string::npos) << text;
    }
  }
}

#endif

}  // namespace
}  // namespace hierlock::lab_tests
