// The script itself, as a client that loses answers uses it: a question may come twice.
#include <iterator>
#include <sstream>

#include "on_valkey.h"

namespace hierlock::valkey_tests {
namespace {

class Script : public OnValkey {
 protected:
  std::string run(std::string words) {
    if (words.starts_with("take ")) {
      std::istringstream all(words);
      std::vector<std::string> each{std::istream_iterator<std::string>(all), {}};
      words.clear();
      for (const std::string& word : take_words(each)) words += "'" + word + "' ";
    }
    return ask("EVAL \"$(cat '" HIERLOCK_LOCKS_LUA "')\" 3 " + place() + " " + place() + ":l " + place() + ":q " +
               words);
  }
  std::string place() const { return "'hl:" + table() + ":{p000000}'"; }
  std::string take(const std::string& id, const std::string& nodes, bool wait = true, int lease_ms = 10'000,
                   const std::string& question = "1") {
    return run("take " + id + " 0 " + (wait ? "1 " : "0 ") + std::to_string(lease_ms) + " hl:x 7 0 0 " + question +
               " " + nodes);
  }
  std::string drop(const std::string& id) { return run("drop " + id + " 0 0 0"); }
  std::string keys() { return ask("KEYS 'hl:" + table() + "*'"); }
};

TEST_P(Script, a_question_that_comes_twice_has_one_answer) {
  const std::string first = take("a", "u1 2 0 u1/a1 4 0");
  EXPECT_TRUE(first.starts_with("granted")) << first;
  EXPECT_EQ(take("a", "u1 2 0 u1/a1 4 0"), first);
  EXPECT_EQ(take("b", "u1 4 0"), "waiting\n");
  EXPECT_EQ(take("b", "u1 4 0"), "waiting\n");
  EXPECT_EQ(drop("a"), "busy\n");
  EXPECT_EQ(drop("a"), "gone\n");
  EXPECT_TRUE(take("b", "u1 4 0").starts_with("granted")) << "one release was enough, and b was next";
  EXPECT_EQ(drop("b"), "busy\n");
  EXPECT_TRUE(take("c", "u1 4 0", false).starts_with("granted"));
}

// The client counts its lease from the question that was answered. So must the server.
TEST_P(Script, a_question_that_comes_twice_begins_its_lease_anew) {
  const auto end = [&] { return std::stoll(ask("ZSCORE 'hl:" + table() + ":{p000000}:l' a")); };
  take("a", "u1 4 0");
  take("a", "u1 4 0");  // its lease is in T:l from now on
  const long long first = end();
  EXPECT_TRUE(eventually([&] {
    take("a", "u1 4 0");
    return end() > first;
  }));
}

TEST_P(Script, only_the_id_that_holds_a_lock_releases_it) {
  take("a", "u1 4 0");
  EXPECT_EQ(drop("e"), "gone\n");
  EXPECT_EQ(take("b", "u1 4 0", false), "busy\n");
}

TEST_P(Script, a_lease_that_has_ended_gives_way_in_the_order_of_the_queue) {
  take("a", "u1 4 0", true, 1);
  EXPECT_TRUE(take("b", "u1 4 0").starts_with("granted"));
  EXPECT_EQ(run("renew 10000 a 0 0 0"), "gone\n");
  EXPECT_EQ(run("renew 10000 b 0 0 0"), "held\n");
}

// Its own renewal may be the first to come after the lease has ended.
TEST_P(Script, a_renewal_that_comes_too_late_does_not_keep_the_lock) {  // B4
  take("a", "u1 4 0", true, 1);
  EXPECT_EQ(run("renew 10000 a 0 0 0"), "gone\n") << "and nobody waits";
  EXPECT_TRUE(take("b", "u1 4 0", false).starts_with("granted"));
  EXPECT_EQ(take("c", "u1 4 0", true, 1), "waiting\n");
  EXPECT_EQ(run("renew 10000 c 1 0 0 b 0 0 0"), "gone\nheld\n") << "of a wait, too";
  drop("b");
  take("d", "u1 4 0", true, 1'000);
  EXPECT_EQ(take("e", "u1 4 0"), "waiting\n");
  std::string said;
  EXPECT_TRUE(eventually([&] {
    said = run("renew 1 d 0 0 0");  // until there is one that comes more than 1 ms after the last
    return said != "held\n";
  }));
  EXPECT_EQ(said, "gone\n") << "the same script has granted the lock to e";
  EXPECT_TRUE(take("e", "u1 4 0").starts_with("granted"));
}

// The same for a request that is alone: it has a shorter way.
TEST_P(Script, a_late_renewal_of_the_only_request_does_not_keep_the_lock) {  // B4
  take("a", "u1 4 0");
  drop("a");
  take("b", "u1 4 0", true, 1);
  EXPECT_EQ(run("renew 10000 b 0 0 0"), "gone\n");
  EXPECT_TRUE(take("c", "u1 4 0", false).starts_with("granted"));
}

// A client that has asked anew must not take the answer to its last question for that to the new one.
TEST_P(Script, an_answer_names_the_question_that_it_answers) {
  const std::string granted = take("a", "u1 4 0", true, 10'000, "5");
  EXPECT_TRUE(granted.ends_with("\n5\n")) << granted;
  EXPECT_EQ(take("b", "u1 4 0", true, 10'000, "6"), "waiting\n");
  EXPECT_EQ(take("b", "u1 4 0", true, 10'000, "7"), "waiting\n");
  drop("a");
  const std::string renewed = run("renew 10000 b 1 0 0");
  EXPECT_TRUE(renewed.starts_with("granted") && renewed.ends_with("\n7\n")) << renewed;
}

TEST_P(Script, slots_may_have_another_number_once_all_leases_have_ended) {  // M7
  take("a", "s 4 3", true, 1);
  EXPECT_TRUE(take("b", "s 4 5").starts_with("granted"));
  EXPECT_TRUE(take("c", "s 4 3").starts_with("slots")) << "but not before";
}

// An IS behind an X that waits for an S: it waits. An IS behind an IX that waits for an S: it goes ahead.
TEST_P(Script, modes_and_earlier_waiters_decide_as_on_memory) {
  take("a", "u1 3 0");
  EXPECT_EQ(take("b", "u1 2 0"), "waiting\n");
  EXPECT_TRUE(take("c", "u1 1 0").starts_with("granted"));
  EXPECT_EQ(take("d", "u1 3 0"), "waiting\n") << "behind b";
  EXPECT_EQ(drop("b"), "busy\n");
  EXPECT_TRUE(take("d", "u1 3 0").starts_with("granted")) << "b gave up";
}

// A question may be overtaken by the drop that follows it, if its connection was given up.
TEST_P(Script, a_question_that_comes_after_its_drop_gets_nothing) {
  EXPECT_EQ(drop("a"), "gone\n");
  EXPECT_EQ(take("a", "u1 4 0"), "gone\n");
  EXPECT_TRUE(take("b", "u1 4 0").starts_with("granted"));
  EXPECT_EQ(take("c", "u2 4 0").substr(0, 7), "granted");
  EXPECT_EQ(run("drop c 1 0 1"), "busy\n") << "an extend that the server has not seen";
  EXPECT_EQ(run("take c 1 1 10000 hl:x 7 0 1 2 u1 4 0"), "busy\n") << "which is over, and gets nothing";
  EXPECT_EQ(take("d", "u1 4 0", false), "busy\n");
  drop("b");
  EXPECT_TRUE(take("d", "u1 4 0", false).starts_with("granted")) << "c does not wait for it";
}

// The first of two equal questions was given up, the second was answered, and the lock was released. Then the first
// arrives.
TEST_P(Script, a_question_that_was_given_up_gets_nothing_after_the_release) {
  take("a", "u1 4 0");
  EXPECT_EQ(run("drop a 0 0 0 1"), "busy\n");
  EXPECT_EQ(take("a", "u1 4 0"), "gone\n");
  EXPECT_TRUE(take("b", "u1 4 0", false).starts_with("granted"));
}

// A client that gave an extend up, and asks for it again, must not take the answer for a grant.
TEST_P(Script, a_part_that_was_dropped_is_not_granted_again) {  // B4
  take("a", "u1 4 0");
  EXPECT_TRUE(run("take a 1 1 10000 hl:x 7 0 1 2 u2 4 0").starts_with("granted"));
  EXPECT_EQ(run("drop a 1 0 1"), "busy\n");
  EXPECT_EQ(run("take a 1 1 10000 hl:x 7 0 1 2 u2 4 0"), "busy\n");
  EXPECT_TRUE(take("b", "u2 4 0", false).starts_with("granted"));
  EXPECT_EQ(run("renew 10000 a 0 0 0"), "held\n") << "it keeps what it had before";
}

// The server comes back with what it had before the extend: its last writes were not on disk, or not at the replica.
TEST_P(Script, an_extend_that_the_server_has_forgotten_is_a_loss) {  // B4
  const auto copy = [&](const std::string& from, const std::string& to) {
    for (const std::string key : {"", ":l", ":q"}) ask("COPY " + from + key + " " + to + key + " REPLACE");
  };
  const std::string here = "hl:" + table() + ":{p000000}", aside = "hl:" + table() + ":{p000000}aside";
  take("a", "u1 4 0");
  copy(here, aside);
  EXPECT_TRUE(run("take a 1 1 10000 hl:x 7 0 1 2 u2 4 0").starts_with("granted"));
  EXPECT_EQ(run("renew 10000 a 0 0 1"), "held\n");
  copy(aside, here);
  EXPECT_TRUE(take("b", "u2 4 0", false).starts_with("granted")) << "nobody holds it here";
  EXPECT_EQ(run("renew 10000 a 0 0 1"), "gone\n") << "so its first holder must learn it";
  EXPECT_EQ(run("take a 2 1 10000 hl:x 7 0 2 3 u3 4 0"), "gone\n") << "also by its next question";
  EXPECT_EQ(run("drop a 2 0 1"), "busy\n");
  EXPECT_EQ(run("renew 10000 a 0 0 1"), "gone\n") << "and after a drop that came alone";
}

// The drop of an extend must not revive a lock whose lease has ended.
// A server that lost its last writes may have as waiting what its client knows to be granted.
TEST_P(Script, a_grant_that_the_server_has_forgotten_is_a_loss) {  // B4
  take("a", "u1 4 0");
  EXPECT_EQ(take("b", "u1 4 0"), "waiting\n");
  EXPECT_EQ(run("renew 10000 a 0 0 0 b 0 0 0"), "held\ngone\n");
  EXPECT_EQ(run("take b 1 1 10000 hl:x 7 0 1 2 u1 4 0"), "gone\n") << "nor can it be extended";
  EXPECT_EQ(run("renew 10000 b 1 0 0"), "waiting\n") << "one that knows that it waits goes on";
}

TEST_P(Script, a_drop_of_a_lost_lock_does_not_bring_it_back) {
  take("a", "u1 4 0", true, 1);
  EXPECT_EQ(run("drop a 1 0 1"), "gone\n");
  EXPECT_EQ(run("renew 10000 a 0 0 0"), "gone\n");
  EXPECT_TRUE(take("b", "u1 4 0", false).starts_with("granted"));
}

// The next extend comes before the drop of the last one.
TEST_P(Script, a_new_part_takes_the_place_of_one_that_waits) {
  take("a", "u1 4 0");
  take("b", "u2 4 0");
  EXPECT_EQ(run("take b 1 1 10000 hl:x 7 0 1 2 u1 4 0"), "waiting\n");
  EXPECT_TRUE(run("take b 2 1 10000 hl:x 7 0 1 3 u3 4 0").starts_with("granted"));
  EXPECT_EQ(drop("a"), "busy\n");
  EXPECT_TRUE(take("c", "u1 4 0", false).starts_with("granted")) << "b does not wait for u1 any more";
  EXPECT_EQ(take("d", "u3 4 0", false), "busy\n");
  EXPECT_EQ(drop("b"), "busy\n");
  EXPECT_TRUE(take("d", "u3 4 0", false).starts_with("granted"));
}

// As after the server's clock was set back: the lease ends before the time that the table had for the first end.
TEST_P(Script, a_renewal_may_let_a_lease_end_earlier) {  // B4
  take("a", "u1 4 0", true, 600'000);
  EXPECT_EQ(run("renew 1 a 0 0 0"), "held\n");
  EXPECT_TRUE(eventually([&] { return run("renew 1 a 0 0 0") == "gone\n"; }));
}

// The first extend of this place waits, and the drop of the next one overtakes its own.
TEST_P(Script, a_part_that_was_undone_while_it_waited_is_gone) {
  take("a", "u1 4 0", true, 600'000);
  EXPECT_EQ(run("take b 1 1 600000 hl:x 7 0 0 2 u1 4 0"), "waiting\n");
  EXPECT_EQ(run("drop b 2 0 1"), "busy\n");
  EXPECT_EQ(run("take b 1 1 600000 hl:x 7 0 0 2 u1 4 0"), "gone\n");
  EXPECT_EQ(run("renew 10000 b 1 0 0"), "gone\n");
  drop("a");
  EXPECT_TRUE(take("c", "u1 4 0", false).starts_with("granted"));
}

// Drops may come in any order, too.
TEST_P(Script, a_question_that_comes_after_two_drops_gets_nothing) {
  EXPECT_EQ(drop("a"), "gone\n");
  EXPECT_EQ(run("drop a 1 0 1"), "gone\n");
  EXPECT_EQ(run("take a 2 1 10000 hl:x 7 0 0 3 u1 4 0"), "gone\n");
  EXPECT_TRUE(take("b", "u1 4 0", false).starts_with("granted"));
}

// Its holder may rely on all of it until it acknowledges the break, or its lease ends.
TEST_P(Script, each_broken_target_of_a_silent_holder_stays_taken) {  // B13
  take("a", "u1 4 0 u2 4 0 u3 4 0", true, 600'000);
  EXPECT_EQ(run("break u1"), "1\na\n");
  EXPECT_EQ(run("break u2"), "1\na\n");
  EXPECT_EQ(run("break u2"), "0\n") << "it is broken once";
  EXPECT_EQ(run("free 0 a"), "1\n");
  EXPECT_EQ(take("b", "u1 4 0", false), "busy\n");
  EXPECT_EQ(take("b", "u2 4 0", false), "busy\n");
  run("free 1 a");
  EXPECT_EQ(run("free 0 a"), "0\n");
  EXPECT_TRUE(take("b", "u1 4 0 u2 4 0", false).starts_with("granted"));
  EXPECT_EQ(take("c", "u3 4 0", false), "busy\n") << "its client has not given it back";
  EXPECT_EQ(run("break u3"), "1\n") << "there is nothing to wait for";
  EXPECT_TRUE(take("c", "u3 4 0", false).starts_with("granted"));
  EXPECT_EQ(drop("a"), "gone\n");
}

TEST_P(Script, what_nobody_holds_is_kept_for_some_minutes_only) {
  take("a", "u1 2 0 u1/a1 4 0");
  take("b", "u1 4 0");
  EXPECT_EQ(ask("ZCARD " + place() + ":q"), "2\n") << "b, and the member that keeps the key";
  drop("b");
  drop("a");
  EXPECT_EQ(ask("ZCARD " + place() + ":l"), "1\n");
  EXPECT_EQ(ask("ZCARD " + place() + ":q"), "1\n");
  EXPECT_EQ(ask("HLEN " + place()), "2\n") << "the last place in a queue, and a";
  for (const char* key : {"", ":l", ":q"}) {
    const int left = std::stoi(ask("PTTL " + place() + key));
    EXPECT_GT(left, 600'000) << "longer than any lease" << key;
    EXPECT_LE(left, 1'260'000) << key;
  }
}

// The keys of locks that are in use live on.
TEST_P(Script, all_keys_are_kept_while_one_is_used) {
  take("a", "u1 4 0");
  take("b", "u2 4 0");
  ask("HSET " + place() + " x 1");
  for (const char* key : {"", ":l", ":q"}) ask("PEXPIRE " + place() + key + " 100000");
  EXPECT_EQ(run("renew 10000 a 0 0 0"), "held\n");
  for (const char* key : {"", ":l", ":q"}) EXPECT_GT(std::stoi(ask("PTTL " + place() + key)), 600'000) << key;
}

// They are three keys or none: a cluster that moves them can tell that one is missing.
TEST_P(Script, questions_that_change_nothing_make_no_keys) {
  EXPECT_EQ(run("renew 10000 a 0 0 0"), "gone\n");
  EXPECT_EQ(run("view 7"), "\n");
  EXPECT_EQ(keys(), "\n");
}

HIERLOCK_ON_VALKEY_AND_REDIS(Script);

}  // namespace
}  // namespace hierlock::valkey_tests
