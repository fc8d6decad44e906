// Waits for each other that no server sees, and what is left of an extend that was given up (B11, H15).
#include <cstdint>
#include <future>
#include <latch>
#include <map>
#include <random>
#include <set>

#include "on_server.h"

namespace hierlock::mysql_tests {
namespace {

constexpr auto soon = 8s;  // found within 2 s (B11), and what a busy machine adds

class Cycles : public OnServer {
 protected:
  // A request of somebody else, on a thread of its own; whoever holds is given back when `over` is.
  struct Request {
    std::future<std::optional<Error>> result;
    bool done() const { return result.wait_for(0s) == std::future_status::ready; }
  };
  static Request ask(const std::function<void()>& what) {
    return {std::async(std::launch::async, [what] { return error_of(what); })};
  }
  // How many wait at the server.
  int waiting() { return how_many_wait(); }
  // Does `what` for each of `several` at the same time, each with a table and a session of its own.
  template <class Case>
  void at_once(std::initializer_list<Case> several,
               const std::function<void(const Case&, const std::string& table, Plain&)>& what) {
    std::vector<std::future<void>> all;
    for (const Case& one : several) {
      all.push_back(std::async(std::launch::async, [&what, &one, &table = another_table(), this] {
        Plain plain(operator_server());
        what(one, table, plain);
      }));
    }
    for (std::future<void>& one : all) one.get();
  }
  // Whether somebody waits for this path, be it among others.
  static bool asks_for(const Locker& locker, const std::string& path) {
    const Snapshot snapshot = locker.snapshot();
    return std::any_of(snapshot.waiters.begin(), snapshot.waiters.end(),
                       [&](const Snapshot::Waiter& w) { return w.wanted.find(path) != std::string::npos; });
  }
  static bool says(const std::optional<Error>& error, const std::string& text) {
    return error && std::string(error->what()).find(text) != std::string::npos;
  }
  // Each holds something and then asks for what the other has; `between` is done when both hold.
  void two_in_a_cycle(Locker& one, Locker& two, const std::function<void()>& between) {
    std::latch held(2), go(1);
    const auto party = [&](Locker& locker, const char* first, const char* second) {
      return ask([&, first, second] {
        const Lock lock = locker.acquire(first);
        held.count_down();
        go.wait();
        const Lock more = locker.acquire(second, {.timeout = 20s});
      });
    };
    Request a = party(one, "p", "q"), b = party(two, "q", "p");
    held.wait();
    between();
    const auto begin = Clock::now();
    go.count_down();
    const std::optional<Error> first = a.result.get(), second = b.result.get();
    EXPECT_LT(Clock::now() - begin, soon);
    EXPECT_NE(first.has_value(), second.has_value()) << "one is the victim";
    for (const auto& error : {first, second}) {
      if (error) {
        EXPECT_EQ(error->kind(), ErrorKind::deadlock) << error->what();
      }
    }
  }
  // The row of a user, as docs/format.md has it.
  static std::uint32_t bucket_of(const std::string& user, std::uint32_t buckets) {
    std::uint32_t hash = 2166136261u;
    const std::string key = std::string(3, '\0') + static_cast<char>(user.size()) + user;
    for (const char byte : key) hash = (hash ^ static_cast<unsigned char>(byte)) * 16777619u;
    return hash % buckets;
  }
  // A user in that row whose name begins so.
  static std::string in_bucket(std::uint32_t bucket, std::uint32_t buckets, const std::string& prefix) {
    for (int i = 0;; ++i) {
      const std::string user = prefix + std::to_string(i);
      if (bucket_of(user, buckets) == bucket) return user;
    }
  }
};

// --- some of the waits are in a process, some at the server ------------------------------------------------

TEST_P(Cycles, through_a_wait_inside_of_a_process_and_waits_at_the_server_is_found) {  // B11
  Locker one = open(), two = open();
  std::latch held(1), over(1);
  std::optional<Lock> p = one.acquire("p");
  Request holder = ask([&] {  // of two: holds q, then asks for p
    const Lock q = two.acquire("q");
    held.count_down();
    const Lock more = two.acquire("p");
  });
  held.wait();
  ASSERT_TRUE(eventually([&] { return waiting() == 1; }));
  Request queued = ask([&] { const Lock q = one.acquire("q"); });  // of one: holds nothing, and waits at the server
  ASSERT_TRUE(eventually([&] { return waiting() == 2; }));
  const auto begin = Clock::now();
  const std::optional<Error> mine = error_of([&] { (void)one.acquire("q", {.timeout = 20s}); });  // behind that one
  EXPECT_LT(Clock::now() - begin, soon);
  if (mine) {
    EXPECT_EQ(mine->kind(), ErrorKind::deadlock) << mine->what();
    EXPECT_TRUE(p->held());
  }
  p.reset();
  const std::optional<Error> others = holder.result.get();
  EXPECT_NE(mine.has_value(), others.has_value()) << "one of them is the victim, and only one";
  if (others) {
    EXPECT_EQ(others->kind(), ErrorKind::deadlock) << others->what();
  }
  EXPECT_FALSE(queued.result.get()) << "who holds nothing is nobody's victim";
  EXPECT_TRUE(all_free());
}

TEST_P(Cycles, through_an_extend_that_waits_inside_of_a_process_is_found) {  // B11
  Locker one = open(), two = open();
  std::latch held(1);
  Lock p = one.acquire("p");
  Request holder = ask([&] {
    const Lock q = two.acquire("q");
    held.count_down();
    const Lock more = two.acquire("p");
  });
  held.wait();
  Request queued = ask([&] { const Lock q = one.acquire("q"); });
  ASSERT_TRUE(eventually([&] { return waiting() == 2; }));
  const auto begin = Clock::now();
  const std::optional<Error> mine = error_of([&] { p.extend("q", {.timeout = 20s}); });
  EXPECT_LT(Clock::now() - begin, soon);
  if (mine) {
    EXPECT_EQ(mine->kind(), ErrorKind::deadlock) << mine->what();
    EXPECT_TRUE(says(mine, "released")) << mine->what();
    EXPECT_FALSE(p.held());
  }
  p.release();
  EXPECT_NE(mine.has_value(), holder.result.get().has_value());
  EXPECT_FALSE(queued.result.get());
  EXPECT_TRUE(all_free());
}

TEST_P(Cycles, through_a_row_that_two_paths_share_and_a_wait_inside_of_the_process_is_undone) {  // B11, H15
  Locker locker = open("buckets=1");
  Lock p = locker.acquire("p");
  Request queued = ask([&] { const Lock q = locker.acquire("q"); });  // waits for the row of p
  ASSERT_TRUE(eventually([&] { return asks_for(locker, "q"); }));
  const auto begin = Clock::now();
  const std::optional<Error> mine = error_of([&] { p.extend("q", {.timeout = 20s}); });  // waits in the process
  EXPECT_LT(Clock::now() - begin, soon);
  EXPECT_FALSE(mine) << mine->what();  // the other one lets it pass
  EXPECT_FALSE(queued.done());
  p.release();
  const std::optional<Error> others = queued.result.get();
  EXPECT_FALSE(others) << others->what();
  EXPECT_TRUE(all_free());
}

TEST_P(Cycles, through_somebody_who_waits_inside_of_a_process_and_holds_nothing_is_undone) {  // B11
  Locker one = open(), two = open();
  std::optional<Lock> p = one.acquire("p");
  std::latch held(1);
  Request holder = ask([&] {  // of two: holds n, then asks for p
    const Lock n = two.acquire("n");
    held.count_down();
    const Lock more = two.acquire("p");
  });
  held.wait();
  Request at_server = ask([&] { const Lock n = one.acquire("n"); });
  ASSERT_TRUE(eventually([&] { return waiting() == 2; }));
  Request between = ask([&] { const Lock both = one.acquire({"m", "n"}); });  // has its place at m, stands behind at n
  ASSERT_TRUE(eventually([&] { return asks_for(one, "m"); }));
  const auto begin = Clock::now();
  const std::optional<Error> mine = error_of([&] { (void)one.acquire("m", {.timeout = 20s}); });  // behind that one
  EXPECT_LT(Clock::now() - begin, soon);
  EXPECT_FALSE(mine) << mine->what();  // those before it, who hold nothing, let it pass
  p.reset();
  const std::optional<Error> others = holder.result.get();
  EXPECT_FALSE(others) << others->what();
  EXPECT_FALSE(at_server.result.get());
  EXPECT_FALSE(between.result.get());
  EXPECT_TRUE(all_free());
}

TEST_P(Cycles, a_wait_inside_of_a_process_is_not_behind_one_that_is_stuck_elsewhere) {  // B11
  Locker one = open(), two = open();
  const Owner somebody = one.owner("somebody");
  std::optional<Lock> p = one.acquire("p"), z = one.acquire("z", {.owner = &somebody});
  std::latch held(1), held_too(1);
  Request holder = ask([&] {  // of two: holds m, then asks for p
    const Lock m = two.acquire("m");
    held.count_down();
    const Lock more = two.acquire("p");
  });
  held.wait();
  Request at_server = ask([&] { const Lock m = one.acquire("m"); });
  ASSERT_TRUE(eventually([&] { return waiting() == 2; }));
  Request between = ask([&] {  // stuck at m: in nobody's way at z
    const Lock something = one.acquire("w");
    held_too.count_down();
    const Lock both = one.acquire({"m", "z"});
  });
  held_too.wait();
  ASSERT_TRUE(eventually([&] { return asks_for(one, "z"); }));
  std::thread later([&] {
    std::this_thread::sleep_for(5s);  // longer than anything that only may be a cycle is watched
    z.reset();
  });
  const std::optional<Error> mine = error_of([&] { (void)one.acquire("z", {.timeout = 20s}); });
  EXPECT_FALSE(mine) << mine->what();
  later.join();
  p.reset();
  for (Request* request : {&holder, &at_server, &between}) {
    const std::optional<Error> error = request->result.get();
    EXPECT_FALSE(error) << error->what();
  }
  EXPECT_TRUE(all_free());
}

TEST_P(Cycles, a_wait_inside_of_a_process_that_is_no_cycle_is_left_alone) {
  Locker one = open(), two = open();
  const Lock p = one.acquire("p");
  std::optional<Lock> q = two.acquire("q");
  Request queued = ask([&] { const Lock lock = one.acquire("q"); });
  ASSERT_TRUE(eventually([&] { return waiting() == 1; }));
  Request mine = ask([&] {
    const Lock r = one.acquire("r");
    const Lock more = one.acquire("q");
  });
  EXPECT_FALSE(eventually([&] { return mine.done() || queued.done(); }, 5s));
  q.reset();
  EXPECT_FALSE(queued.result.get());
  EXPECT_FALSE(mine.result.get());
}

TEST_P(Cycles, a_wait_inside_of_a_process_keeps_its_deadline_and_can_be_cancelled) {  // H2
  Locker locker = open();
  const Lock own = locker.acquire("p");
  std::latch held(1), over(1);
  Request holder = ask([&] {
    const Lock q = locker.acquire("q");
    held.count_down();
    over.wait();
  });
  held.wait();
  EXPECT_TRUE(once_within(2500ms, [&] {
    const auto took =
        time_of([&] { EXPECT_FALSE(locker.try_acquire("q", 1500ms)) << "longer than it takes to be written down"; });
    EXPECT_GE(took, 1500ms);
    return took;
  }));
  std::stop_source stop;
  std::thread stops([&] {
    (void)eventually([&] { return !locker.snapshot().waiters.empty(); });
    stop.request_stop();
  });
  EXPECT_TRUE(fails_with(ErrorKind::cancelled, [&] { (void)locker.acquire("q", {.cancel = stop.get_token()}); }));
  stops.join();
  over.count_down();
  EXPECT_FALSE(holder.result.get());
}

// --- waits for several rows ----------------------------------------------------------------------------------

// Rows are locked in one order, by level first: "h", "m/a", "m2/b/c".
TEST_P(Cycles, through_a_row_that_a_younger_wait_has_passed_is_found_with_and_without_the_servers_views) {  // B11
  at_once<bool>({true, false}, [&](bool views, const std::string& table, Plain& plain) {
    const std::string where = views ? url_of(table, operator_server()) : url_of(table, server(), "views=off");
    Locker one = hierlock::open(where), two = hierlock::open(where), three = hierlock::open(where);
    (void)one.acquire({"h", "m/a", "m2/b/c"});  // the rows are there
    Lock first = three.acquire("h");
    std::latch held(1);
    Request older = ask([&] {
      const Lock last = one.acquire("m2/b/c");
      held.count_down();
      const Lock more = one.acquire({"h", "m/a"}, {.timeout = 20s});
    });
    held.wait();
    ASSERT_TRUE(eventually([&] { return how_many_wait(plain, table) == 1; }));
    std::this_thread::sleep_for(100ms);  // so as to be younger by any clock
    Request younger = ask([&] { const Lock both = two.acquire({"m/a", "m2/b/c"}, {.timeout = 20s}); });
    ASSERT_TRUE(eventually([&] { return how_many_wait(plain, table) == 2 && !three.try_acquire("m/a"); }))
        << "it has passed that row";
    EXPECT_FALSE(eventually([&] { return older.done() || younger.done(); }, 3s)) << "not yet: \"h\" is another's";
    const auto begin = Clock::now();
    first.release();
    const std::optional<Error> a = older.result.get(), b = younger.result.get();
    EXPECT_LT(Clock::now() - begin, soon) << (views ? "with" : "without") << " views";
    ASSERT_NE(a.has_value(), b.has_value()) << "one of them is the victim, and only one";
    EXPECT_EQ((a ? a : b)->kind(), ErrorKind::deadlock) << (a ? a : b)->what();
    EXPECT_TRUE(eventually([&] { return locked_rows(plain, table).empty(); }))
        << "the victim's rollback is not waited for";
  });
}

TEST_P(Cycles, a_wait_that_has_not_come_to_a_row_yet_is_in_nobodys_way_there) {  // B11
  struct Case {
    bool extends, views;
  };
  at_once<Case>(
      {{false, true}, {false, false}, {true, true}, {true, false}},
      [&](const Case& how, const std::string& table, Plain& plain) {
        const std::string where = how.views ? url_of(table, operator_server()) : url_of(table, server(), "views=off");
        Locker one = hierlock::open(where), two = hierlock::open(where);
        (void)one.acquire({"h", "m2/b/c"});
        Lock mine = one.acquire("h");
        // They hold the last row one after the other: the first until all others wait, and none of these for so long
        // that it is written down.
        std::vector<Locker> lockers;
        std::vector<Request> others;
        for (int i = 0; i < 7; ++i) lockers.push_back(hierlock::open(where));
        std::optional<Lock> first = lockers.front().acquire("m2/b/c");
        for (std::size_t i = 1; i < lockers.size(); ++i) {
          others.push_back(ask([&, i] {
            const Lock lock = lockers[i].acquire("m2/b/c");
            std::this_thread::sleep_for(900ms);
          }));
        }
        EXPECT_TRUE(eventually([&] { return how_many_wait(plain, table) == 6; }));
        Request older = ask([&] { const Lock both = two.acquire({"h", "m2/b/c"}, {.timeout = 60s}); });  // stuck at "h"
        EXPECT_TRUE(eventually([&] { return how_many_wait(plain, table) == 7; }));
        first.reset();
        const std::optional<Error> error = error_of([&] {
          if (how.extends) {
            mine.extend("m2/b/c", {.timeout = 60s});
          } else {
            const Lock lock = one.acquire("m2/b/c", {.timeout = 60s});
          }
        });
        EXPECT_FALSE(error) << error->what();
        EXPECT_TRUE(mine.held());
        mine.release();
        EXPECT_FALSE(older.result.get());
        for (Request& other : others) EXPECT_FALSE(other.result.get());
      });
}

// --- what cannot be written down ------------------------------------------------------------------------------

TEST_P(Cycles, of_waits_whose_notes_are_not_utf8_are_found_and_the_notes_are_shown_as_far_as_they_can_be) {  // B11, B7
  Locker one = open(), two = open(), other = open();
  {  // the cycle is over too soon to be seen from outside
    const Lock lasts = one.acquire("r", {.note = "caf\xe9 r"});
    EXPECT_TRUE(eventually([&] {
      for (const Snapshot::Holder& holder : other.snapshot().holders) {
        if (holder.who.note == "caf? r") return true;
      }
      return false;
    }));
  }
  std::latch held(2);
  const auto crosses = [&](Locker& locker, const std::string& mine, const std::string& next) {
    return [&, mine, next] {
      const Lock lock = locker.acquire(mine, {.note = "caf\xe9 " + mine});
      held.arrive_and_wait();
      const Lock more =
          locker.acquire(next, {.timeout = 20s, .note = std::string(254, 'x') + "\xc3\xa9"});  // cut in a character
    };
  };
  const auto begin = Clock::now();
  Request first = ask(crosses(one, "p", "q")), second = ask(crosses(two, "q", "p"));
  const std::optional<Error> a = first.result.get(), b = second.result.get();
  EXPECT_LT(Clock::now() - begin, soon);
  ASSERT_NE(a.has_value(), b.has_value());
  EXPECT_EQ((a ? a : b)->kind(), ErrorKind::deadlock) << (a ? a : b)->what();
}

TEST_P(Cycles, are_found_although_something_else_of_the_process_cannot_be_written_down) {  // B11
  Locker one = open(), two = open();
  plain().ask("ALTER TABLE `" + table() + "_notices` MODIFY note VARCHAR(3) NOT NULL");
  const Lock unwritable = one.acquire("x", {.note = "longer than that"}),
             another = two.acquire("y", {.note = "longer than that"});
  std::latch held(2);
  const auto crosses = [&](Locker& locker, const std::string& mine, const std::string& next) {
    return [&, mine, next] {
      const Lock lock = locker.acquire(mine);
      held.arrive_and_wait();
      const Lock more = locker.acquire(next, {.timeout = 20s});
    };
  };
  const auto begin = Clock::now();
  Request first = ask(crosses(one, "p", "q")), second = ask(crosses(two, "q", "p"));
  const std::optional<Error> a = first.result.get(), b = second.result.get();
  EXPECT_LT(Clock::now() - begin, soon);
  ASSERT_NE(a.has_value(), b.has_value());
  EXPECT_EQ((a ? a : b)->kind(), ErrorKind::deadlock) << (a ? a : b)->what();
}

// --- two paths in one row -----------------------------------------------------------------------------------

TEST_P(Cycles, are_found_although_somebody_has_emptied_what_was_written_down) {  // B11
  Locker one = open(), two = open();
  const auto both_hold = [&] { return plain().one("SELECT COUNT(*) FROM `" + table() + "_notices`") == "2"; };
  two_in_a_cycle(one, two, [&] {
    ASSERT_TRUE(eventually(both_hold));
    plain().ask("DELETE FROM `" + table() + "_notices`");
  });
}

TEST_P(Cycles, are_found_in_whatever_time_zones_the_sessions_are) {  // B11
  const std::string before = plain().one("SELECT @@global.time_zone");
  Locker one = open();
  plain().ask("SET GLOBAL time_zone='+05:00'");
  Locker two = open();
  two_in_a_cycle(one, two, [] {});
  plain().ask("SET GLOBAL time_zone='" + before + "'");
}

TEST_P(Cycles, a_wait_that_is_over_and_still_written_down_is_no_reason_for_a_deadlock) {  // B11
  Locker one = open(), two = open();
  std::optional<Lock> q = two.acquire("q");
  std::latch done(1), over(1);
  Request holder = ask([&] {  // has waited for q while it held p, which it keeps
    const Lock p = one.acquire("p");
    one.acquire("q").release();
    done.count_down();
    over.wait();
  });
  const std::string waits = "SELECT id FROM `" + table() + "_notices` WHERE waits=1";
  ASSERT_TRUE(eventually([&] { return plain().ask(waits).size() == 1; }));
  plain().ask("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED");
  plain().ask("BEGIN");
  ASSERT_EQ(plain().ask(waits + " FOR UPDATE").size(), 1u);  // nobody can take it out
  q.reset();
  done.wait();
  q = two.acquire("q");
  EXPECT_TRUE(fails_with(ErrorKind::timeout, [&] { (void)two.acquire("p", {.timeout = 4s}); }));
  plain().ask("ROLLBACK");
  over.count_down();
  EXPECT_FALSE(holder.result.get());
}

TEST_P(Cycles, an_owner_that_asks_for_a_row_it_holds_for_another_path_is_told_at_once) {  // B11, H15
  Locker locker = open("buckets=1");
  Lock first = locker.acquire("alpha");
  for (const bool waits : {true, false}) {
    std::optional<Error> error;
    EXPECT_TRUE(once_within(900ms, [&] {
      return time_of([&] {
        error = error_of([&] { (void)(waits ? locker.acquire("beta") : locker.acquire("beta", {.timeout = 0s})); });
      });
    }));
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->kind(), ErrorKind::deadlock) << error->what();
    for (const char* const part : {"alpha", "beta", "bucket 0", "one acquire"}) {
      EXPECT_TRUE(says(error, part)) << part << ": " << error->what();
    }
  }
  EXPECT_TRUE(first.held());
  EXPECT_TRUE(only_stay_locked(1));
  first.extend("beta", {.timeout = 5s});  // on its own session it is no conflict
  first.release();
  EXPECT_TRUE(locker.acquire({"alpha", "beta"}).held());
  EXPECT_TRUE(locker.acquire("beta").held());
}

TEST_P(Cycles, an_extend_to_a_row_that_the_same_owner_holds_in_another_lock_is_told_at_once) {  // B11, H15
  const std::string p = "p", q = in_bucket((bucket_of("p", 7) + 1) % 7, 7, "q"),
                    like_p = in_bucket(bucket_of("p", 7), 7, "r");
  Locker locker = open("buckets=7");
  Lock first = locker.acquire(p), second;
  std::optional<Error> error;
  EXPECT_TRUE(once_within(900ms, [&] {
    second = locker.acquire(q);
    return time_of([&] { error = error_of([&] { second.extend(like_p); }); });
  }));
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::deadlock) << error->what();
  EXPECT_TRUE(says(error, "released")) << error->what();
  EXPECT_TRUE(first.held());
  EXPECT_FALSE(second.held()) << "as every deadlock in an extend";
  EXPECT_TRUE(only_stay_locked(1));
}

TEST_P(Cycles, an_owner_may_share_a_row_that_it_holds_shared) {  // H15
  Locker locker = open("buckets=1&levels=2");
  const Lock first = locker.acquire(shared("u1/r1"));
  EXPECT_TRUE(locker.acquire(shared("u2/r2"), {.timeout = 5s}).held());
}

TEST_P(Cycles, of_two_owners_whose_paths_share_rows_crosswise_are_found) {  // B11, H15
  constexpr std::uint32_t buckets = 7;
  const std::string p = "p", q = in_bucket((bucket_of(p, buckets) + 1) % buckets, buckets, "q");
  const std::string like_p = in_bucket(bucket_of(p, buckets), buckets, "r");
  const std::string like_q = in_bucket(bucket_of(q, buckets), buckets, "s");
  Locker locker = open("buckets=7");
  std::latch held(2);
  const auto crosses = [&](const std::string& mine, const std::string& next) {
    return [&, mine, next] {
      const Lock lock = locker.acquire(mine);
      held.arrive_and_wait();
      const Lock more = locker.acquire(next, {.timeout = 20s});
    };
  };
  const auto begin = Clock::now();
  Request first = ask(crosses(p, like_q)), second = ask(crosses(q, like_p));
  const std::optional<Error> a = first.result.get(), b = second.result.get();
  EXPECT_LT(Clock::now() - begin, soon);
  ASSERT_NE(a.has_value(), b.has_value()) << "one of them is the victim, and only one";
  EXPECT_EQ((a ? a : b)->kind(), ErrorKind::deadlock) << (a ? a : b)->what();
  EXPECT_TRUE(all_free());
}

// --- an extend that was given up ----------------------------------------------------------------------------

TEST_P(Cycles, an_extend_that_was_given_up_keeps_nobody_of_its_process_from_the_target) {  // B11, H2
  Locker one = open(), two = open();
  Lock mine = one.acquire("u1");
  for (const bool cancelled : {false, true}) {
    std::optional<Lock> others = two.acquire("u2/a1/r1");
    std::stop_source stop;
    std::thread stops([&] {
      if (!cancelled) return;
      (void)eventually([&] { return somebody_waits(); });
      stop.request_stop();
    });
    const std::int64_t fence = mine.fence();
    EXPECT_TRUE(fails_with(cancelled ? ErrorKind::cancelled : ErrorKind::timeout, [&] {
      mine.extend("u2/a1/r1",
                  cancelled ? AcquireOptions{.cancel = stop.get_token()} : AcquireOptions{.timeout = 100ms});
    }));
    stops.join();
    EXPECT_TRUE(mine.held());
    EXPECT_EQ(mine.fence(), fence);
    for (const Snapshot::Holder& holder : one.snapshot().holders) {
      EXPECT_TRUE(holder.leftover || !holder.target.starts_with("u2")) << holder.target;
    }
    others.reset();
    Request next = ask([&] {
      const Lock lock = one.acquire("u2/a1/r1", {.timeout = 5s});
      EXPECT_TRUE(lock.held());
      EXPECT_FALSE(two.try_acquire("u2/a1/r1"));
    });
    const std::optional<Error> error = next.result.get();
    EXPECT_FALSE(error) << error->what();
  }
  mine.extend("u2/a1/r1", {.timeout = 5s});
  EXPECT_FALSE(two.try_acquire("u2/a1/r1"));
  mine.release();
  EXPECT_TRUE(all_free());
}

// InnoDB gives back no row before the transaction ends: what the statement had reached stays locked.
TEST_P(Cycles, what_an_extend_had_reached_stays_locked_at_the_server_and_status_says_so) {  // B7, H15
  Locker one = open("publish_after=0"), two = open("publish_after=0");
  Lock mine = one.acquire("u1");
  std::optional<Lock> others = two.acquire("u2/a1/r1");
  EXPECT_TRUE(fails_with(ErrorKind::timeout, [&] { mine.extend("u2/a1/r1", {.timeout = 100ms}); }));
  others.reset();
  EXPECT_TRUE(only_stay_locked(3)) << "u1, and the ancestors shared";
  for (Locker* const locker : {&one, &two}) {
    EXPECT_TRUE(eventually([&] {
      int left = 0;
      for (const Snapshot::Holder& holder : locker->snapshot().holders) {
        if (holder.leftover && (holder.target == "u2" || holder.target == "u2/a1")) ++left;
      }
      return left == 2;
    }));
  }
  EXPECT_TRUE(two.acquire("u2/a1/r1", {.timeout = 5s}).held());
  EXPECT_FALSE(two.try_acquire("u2/a1", 100ms)) << "contention without need, never a missing lock";
  // The owner itself is told at once.
  std::optional<Error> error;
  EXPECT_TRUE(once_within(900ms, [&] { return time_of([&] { error = error_of([&] { (void)one.acquire("u2"); }); }); }));
  EXPECT_TRUE(error && error->kind() == ErrorKind::deadlock) << (error ? error->what() : "granted");
  mine.release();
  EXPECT_TRUE(two.acquire("u2", {.timeout = 5s}).held());
  EXPECT_TRUE(all_free());
}

TEST_P(Cycles, through_what_is_left_of_an_extend_is_found) {  // B11
  Locker one = open(), two = open();
  Lock mine = one.acquire("u1");
  std::optional<Lock> others = two.acquire("u2/a1/r1");
  EXPECT_TRUE(fails_with(ErrorKind::timeout, [&] { mine.extend("u2/a1/r1", {.timeout = 100ms}); }));
  others.reset();
  std::latch held(1);
  Request next = ask([&] {  // holds u3, waits at the server for what is left of u2
    const Lock lock = one.acquire("u3");
    held.count_down();
    const Lock more = one.acquire("u2", {.timeout = 20s});
  });
  held.wait();
  ASSERT_TRUE(eventually([&] { return waiting() == 1; }));
  const auto begin = Clock::now();
  const std::optional<Error> error = error_of([&] { (void)one.acquire("u3", {.timeout = 20s}); });  // in the process
  EXPECT_LT(Clock::now() - begin, soon);
  if (error) {
    EXPECT_EQ(error->kind(), ErrorKind::deadlock) << error->what();
  }
  mine.release();
  EXPECT_NE(error.has_value(), next.result.get().has_value());
  EXPECT_TRUE(all_free());
}

TEST_P(Cycles, of_an_extend_tried_again_and_somebody_who_waits_for_what_it_left_is_undone) {  // B11
  Locker one = open(), two = open();
  Lock mine = one.acquire("u1");
  std::optional<Lock> others = two.acquire("u2/a1/r1");
  EXPECT_TRUE(fails_with(ErrorKind::timeout, [&] { mine.extend("u2/a1/r1", {.timeout = 100ms}); }));
  others.reset();
  Request next =
      ask([&] { const Lock lock = one.acquire("u2", {.timeout = 20s}); });  // behind the row of u2 that is left
  ASSERT_TRUE(eventually([&] { return waiting() == 1; }));
  const auto begin = Clock::now();
  const std::optional<Error> error = error_of([&] { mine.extend("u2/a1/r1", {.timeout = 20s}); });  // behind that one
  EXPECT_LT(Clock::now() - begin, soon);
  EXPECT_FALSE(error) << error->what();  // the other one lets it pass
  EXPECT_TRUE(mine.held());
  EXPECT_FALSE(next.done());
  mine.release();
  const std::optional<Error> nothing = next.result.get();
  EXPECT_FALSE(nothing) << nothing->what();
  EXPECT_TRUE(all_free());
}

TEST_P(Cycles, extends_that_are_given_up_at_any_moment_never_make_two_holders) {  // H8, B11
  const std::vector<std::string> paths = {"u1/a1/r1", "u1/a1/r2", "u1/a2", "u2", "u2/a1/r1"};
  const auto below = [](const std::string& a, const std::string& b) { return a == b || b.starts_with(a + "/"); };
  std::mutex mutex;
  std::multiset<std::string> inside;
  const auto enter = [&](const std::string& path) {
    const std::lock_guard guard(mutex);
    for (const std::string& other : inside) {
      EXPECT_FALSE(below(path, other) || below(other, path)) << path << " while somebody holds " << other;
    }
    inside.insert(path);
  };
  const auto leave = [&](const std::string& path) {
    const std::lock_guard guard(mutex);
    inside.erase(inside.find(path));
  };
  Locker one = open(), two = open();
  std::atomic<int> extended = 0, given_up = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      std::minstd_rand random(t + 1);
      Locker& locker = t % 2 == 0 ? one : two;
      for (int i = 0; i < 60; ++i) {
        const std::string first = paths[random() % paths.size()], second = paths[random() % paths.size()];
        if (below(first, second) || below(second, first)) continue;
        std::optional<Lock> lock;
        if (error_of([&] { lock = locker.try_acquire(first, 2s); }) || !lock) continue;
        enter(first);
        leave(first);  // a deadlock would release it at some moment of the extend
        bool both = false;
        const std::optional<Error> error = error_of([&] {
          lock->extend(second, {.timeout = std::chrono::microseconds(random() % 4000)});
          both = true;
        });
        if (lock->held()) enter(first);
        if (both) {
          enter(second);
          ++extended;
          std::this_thread::yield();
          leave(second);
        } else {
          const ErrorKind kind = error->kind();
          EXPECT_TRUE(kind == ErrorKind::timeout || kind == ErrorKind::busy || kind == ErrorKind::deadlock)
              << error->what();
          EXPECT_EQ(lock->held(), kind != ErrorKind::deadlock) << error->what();
          ++given_up;
        }
        if (lock->held()) leave(first);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(extended, 0);
  EXPECT_GT(given_up, 0);
  EXPECT_TRUE(eventually([&] { return one.snapshot().holders.empty(); }));  // a ROLLBACK may be under way
  EXPECT_TRUE(all_free());
}

HIERLOCK_ON_BOTH_SERVERS(Cycles);

}  // namespace
}  // namespace hierlock::mysql_tests
