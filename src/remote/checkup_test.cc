// The frame of doctor alone, with a store that does not exist.
#include "remote/checkup.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace hierlock::remote {
namespace {

using Verdict = Finding::Verdict;
using namespace std::chrono_literals;

struct Seen {
  std::vector<std::string> rows;
};
struct Wish {
  std::string what;
};

Judgement first(const Seen& seen, const Wish&) { return good(seen.rows.at(0)); }
Judgement second(const Seen& seen, const Wish& wish) {
  return seen.rows.at(1) == wish.what ? good("") : unsafe("it is " + seen.rows.at(1), "make it " + wish.what);
}
Judgement third(const Seen&, const Wish&) { return unknown("nobody knows"); }

constexpr Check<Seen, Wish> checks[] = {{"first", first}, {"second", second}, {"third", third}};

TEST(Checkup, every_check_becomes_a_finding_in_its_order) {
  const std::vector<Finding> found = judge_all(checks, Seen{{"a", "b"}}, Wish{"c"});
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].check, "first");
  EXPECT_EQ(found[0].verdict, Verdict::good);
  EXPECT_EQ(found[0].text, "a");
  EXPECT_EQ(found[0].fix, "");
  EXPECT_EQ(found[1].check, "second");
  EXPECT_EQ(found[1].verdict, Verdict::unsafe);
  EXPECT_EQ(found[1].text, "it is b");
  EXPECT_EQ(found[1].fix, "make it c");
  EXPECT_EQ(found[2].check, "third");
  EXPECT_EQ(found[2].fix, "ask its operator") << "what is not good has a fix";
}

TEST(Checkup, an_answer_that_cannot_be_read_spoils_only_its_own_check) {
  const std::vector<Finding> found = judge_all(checks, Seen{{"a"}}, Wish{"c"});
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].verdict, Verdict::good);
  EXPECT_EQ(found[1].verdict, Verdict::unknown);
  EXPECT_NE(found[1].text.find("cannot be read"), std::string::npos) << found[1].text;
  EXPECT_NE(found[1].fix, "");
  EXPECT_EQ(found[2].text, "nobody knows");
}

TEST(Checkup, settings_are_read_by_name) {
  const Settings settings{{"a", "ON"}, {"b", "12"}, {"c", "off"}, {"d", "yes"}};
  EXPECT_EQ(settings.value("a"), "ON");
  EXPECT_EQ(settings.value("z"), "");
  EXPECT_TRUE(settings.is_on("a") && settings.is_on("d"));
  EXPECT_FALSE(settings.is_on("c") || settings.is_on("z") || settings.is_on("b"));
  EXPECT_EQ(settings.number("b"), 12u);
  EXPECT_EQ(settings.number("z"), 0u);
}

TEST(Checkup, tls_is_judged_by_who_can_listen) {
  const auto verdict = [](const char* cipher, bool verified, bool local) {
    return judge_tls({.cipher = cipher, .verified = verified, .local = local, .place = "db:1"}).verdict;
  };
  EXPECT_EQ(verdict("AES", true, false), Verdict::good);
  EXPECT_EQ(verdict("AES", false, true), Verdict::good);
  EXPECT_EQ(verdict("AES", false, false), Verdict::unknown);
  EXPECT_EQ(verdict("", false, true), Verdict::good);
  EXPECT_EQ(verdict("", false, false), Verdict::unsafe);
}

TEST(Checkup, a_session_that_changes_its_number_is_behind_a_proxy) {
  const auto verdict = [](std::vector<std::uint64_t> asked, const char* greeted, const char* version) {
    return judge_proxy({.logged_in_as = 7, .asked = std::move(asked), .greeted_as = greeted, .version = version})
        .verdict;
  };
  EXPECT_EQ(verdict({7, 7}, "1.0", "1.0"), Verdict::good);
  EXPECT_EQ(verdict({7, 8}, "1.0", "1.0"), Verdict::unsafe);
  EXPECT_EQ(verdict({7}, "1.0-PgBouncer", ""), Verdict::unsafe);
  EXPECT_EQ(verdict({7}, "1.0", "1.1"), Verdict::unknown);
  EXPECT_EQ(verdict({7}, "1.0", ""), Verdict::good) << "not asked";
}

TEST(Checkup, a_switch_is_right_wrong_or_not_said) {
  const Settings settings{{"a", "ON"}, {"b", "OFF"}};
  const auto judged = [&](const char* name, bool wanted) { return judge_switch(settings, name, wanted, "bad", "fix"); };
  EXPECT_EQ(judged("a", true).verdict, Verdict::good);
  EXPECT_EQ(judged("b", false).verdict, Verdict::good);
  EXPECT_EQ(judged("a", false).verdict, Verdict::unsafe);
  EXPECT_EQ(judged("a", false).text, "a is on: bad");
  EXPECT_EQ(judged("b", true).text, "b is off: bad");
  EXPECT_EQ(judged("z", true).verdict, Verdict::unknown);
}

TEST(Checkup, connections_need_room_at_the_server_and_for_the_account) {
  const auto verdict = [](Room room) { return judge_connections(room, "fix").verdict; };
  EXPECT_EQ(verdict({.need = 10, .most = 20, .used = 10}), Verdict::good);
  EXPECT_EQ(verdict({.need = 10, .most = 20, .used = 11}), Verdict::slow);
  EXPECT_EQ(verdict({.need = 10, .most = 20, .used = 30}), Verdict::slow);
  EXPECT_EQ(verdict({.need = 10, .most = 100, .of_account = 9}), Verdict::slow);
  EXPECT_EQ(verdict({.need = 10, .most = 100, .of_account = 10}), Verdict::good);
  EXPECT_EQ(verdict({.need = 10}), Verdict::unknown);
  const Judgement several = judge_connections({.need = 10, .most = 100, .used = 5}, "fix");
  EXPECT_NE(several.text.find("room for 9 such"), std::string::npos) << several.text;
}

TEST(Checkup, a_right_that_could_not_be_tried_is_not_called_missing) {
  using End = Attempt::End;
  const auto judged = [](End end) { return judge_attempt({end, "no (1)"}, "may", "may not", "grant"); };
  EXPECT_EQ(judged(End::done).text, "may");
  EXPECT_EQ(judged(End::no_table).fix, "see tables");
  EXPECT_EQ(judged(End::read_only).fix, "see read_only");
  EXPECT_EQ(judged(End::refused).verdict, Verdict::unsafe);
  EXPECT_EQ(judged(End::refused).text, "may not: no (1)");
  EXPECT_EQ(judged(End::refused).fix, "grant");
}

TEST(Checkup, a_refusal_says_what_a_check_says) {
  const Error error = refusal(ErrorKind::unsafe_topology, unsafe("it is a replica", "connect to the primary"));
  EXPECT_EQ(error.kind(), ErrorKind::unsafe_topology);
  EXPECT_EQ(std::string(error.what()), "it is a replica. Connect to the primary");
}

TEST(Checkup, without_notices_locks_are_slow_and_not_unsafe) {
  using End = Attempt::End;
  const auto judged = [](End end, const char* missing) { return judge_notices({end, "no"}, missing, "make", "grant"); };
  EXPECT_EQ(judged(End::done, "").verdict, Verdict::good);
  EXPECT_EQ(judged(End::refused, "").verdict, Verdict::slow);
  EXPECT_EQ(judged(End::refused, "").fix, "grant");
  EXPECT_EQ(judged(End::no_table, "there is no t").verdict, Verdict::slow);
  EXPECT_EQ(judged(End::no_table, "there is no t").fix, "make");
  EXPECT_EQ(judged(End::no_table, "").verdict, Verdict::unknown) << "there is no table at all";
  EXPECT_EQ(judged(End::read_only, "").verdict, Verdict::unknown);
}

TEST(Checkup, waits_that_cannot_be_ended_are_unsafe) {
  using End = Attempt::End;
  EXPECT_EQ(judge_interrupting({End::done, ""}, {End::done, ""}).verdict, Verdict::good);
  EXPECT_NE(judge_interrupting({End::refused, "no"}, {}).text.find("no second session"), std::string::npos);
  EXPECT_EQ(judge_interrupting({End::refused, "no"}, {}).verdict, Verdict::unsafe);
  EXPECT_EQ(judge_interrupting({End::done, ""}, {End::refused, "no"}).verdict, Verdict::unsafe);
}

TEST(Checkup, a_failover_is_never_certain) {
  EXPECT_EQ(judge_failover("").verdict, Verdict::good);
  EXPECT_EQ(judge_failover("a replica follows").verdict, Verdict::unknown);
}

TEST(Checkup, a_session_is_as_it_was_set) {
  const auto judged = [](const Setting& setting) { return judge_session({setting}); };
  EXPECT_EQ(judged({"a", "1", "1"}).text, "its 1 settings are as they should be");
  EXPECT_EQ(judged({"a", "2", "1"}).text, "what was set in the session is not so: a is 2 in place of 1");
  EXPECT_EQ(judged({"a", "", "1"}).text, "what was set in the session is not so: a is ? in place of 1");
  EXPECT_EQ(judged({"a", "x=on,y=off", "y=off", true}).verdict, Verdict::good);
  EXPECT_EQ(judged({"a", "x=on,y=on", "y=off", true}).verdict, Verdict::unsafe);
  EXPECT_EQ(judged({"a", "x=on", "y=off", true}).verdict, Verdict::good) << "a word that this version does not have";
  EXPECT_EQ(judged({"a", "", "y=off", true}).verdict, Verdict::unsafe);
}

TEST(Checkup, clocks_agree_within_five_seconds) {
  const std::pair<std::chrono::milliseconds, Verdict> cases[] = {{0ms, Verdict::good},
                                                                 {5s, Verdict::good},
                                                                 {-5s, Verdict::good},
                                                                 {5001ms, Verdict::unknown},
                                                                 {-5001ms, Verdict::unknown}};
  for (const auto& [ahead, verdict] : cases) EXPECT_EQ(judge_clock(ahead, "").verdict, verdict) << ahead.count();
  EXPECT_NE(judge_clock(-7s, "").text.find("7000 ms behind"), std::string::npos);
}

}  // namespace
}  // namespace hierlock::remote
