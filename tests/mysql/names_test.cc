// Names and slots by GET_LOCK: what goes over the wire, which sessions hold them, who gets them next, and how they are
// lost. A Locker has sessions of its own, so two of them are as two processes.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <hierlock/operate.h>
#include <iomanip>
#include <iostream>
#include <set>
#include <sstream>

#include "on_server.h"
#include "program.h"
#include "relay.h"

namespace hierlock::mysql_tests {
namespace {

class ServerNames : public OnServer {
 protected:
  // Sessions that wait in GET_LOCK.
  int how_many_wait_for_names() {
    return std::stoi(
        plain().one("SELECT COUNT(*) FROM information_schema.processlist WHERE INFO LIKE '%GET_LOCK(%' AND "
                    "STATE LIKE 'User lock%' AND ID<>CONNECTION_ID()"));
  }
  bool wait_for_names(int count) {
    return eventually([&] { return how_many_wait_for_names() == count; });
  }
  // An account of its own, so that its sessions can be counted and ended.
  Server own_user() { return make_user("ALL", "`" + server().database + "`.*"); }
  std::vector<std::string> sessions_of(const Server& user) {
    std::vector<std::string> ids;
    for (const auto& row :
         plain().ask("SELECT ID FROM information_schema.processlist WHERE USER='" + user.user + "' ORDER BY ID")) {
      ids.push_back(row.at(0));
    }
    return ids;
  }
  // The session that a lock of names is on.
  static std::string keeper_of(const Locker& locker, const std::string& target) {
    const Snapshot now = locker.snapshot();
    for (const Snapshot::Holder& holder : now.holders) {
      if (holder.target == target) return std::to_string(holder.who.session);
    }
    return "0";
  }
};

// --- the wire --------------------------------------------------------------------------------------------

TEST_P(ServerNames, an_uncontended_name_takes_one_round_trip_each_way) {  // N1, B3
  Relay relay(server().host, server().port);
  Server behind = server();
  behind.port = relay.port();
  Locker locker = hierlock::open(url(behind, "tls=off"));
  const auto said = [&] {
    std::vector<std::string> words;
    for (const Relay::Command& command : relay.commands()) {
      if (!is_heartbeat(command)) words.push_back(command.text);
    }
    return words;
  };
  // A name is asked for by prepared statements: what is sent are the locks.
  const auto counts = [&](const Target& target, const char* asks, const char* gives) {
    SCOPED_TRACE(target.str());
    (void)locker.acquire(target);  // connects
    for (int turn = 0; turn < 3; ++turn) {
      eventually([&] { return !said().empty() && said().back().find(asks) == std::string::npos; });
      relay.forget();
      Lock lock = locker.acquire(target);
      EXPECT_GT(lock.fence(), 0);
      ASSERT_EQ(said().size(), 1u) << "acquire, with its fence";
      EXPECT_NE(said()[0].find(asks), std::string::npos);
      relay.forget();
      lock.release();
      ASSERT_TRUE(eventually([&] { return !said().empty(); }));
      EXPECT_EQ(said().size(), 1u);
      EXPECT_NE(said()[0].find(gives), std::string::npos);
    }
  };
  counts(named("token-refresh"), "hla", "hlb");
  counts(slots("import", 3), "UUID_SHORT()", "RELEASE_LOCK");
}

// --- sessions --------------------------------------------------------------------------------------------

TEST_P(ServerNames, ten_thousand_names_are_held_on_at_most_8_connections) {  // N6
  constexpr int threads = 4, each = 2'500;
  const Server user = own_user();
  Locker locker = hierlock::open(url(user));
  std::vector<std::vector<Lock>> held(threads);
  std::vector<std::future<void>> workers;
  for (std::size_t worker = 0; worker < threads; ++worker) {
    workers.push_back(std::async(std::launch::async, [&, worker] {
      for (int i = 0; i < each; ++i) {
        held[worker].push_back(locker.acquire(named("n" + std::to_string(worker) + "/" + std::to_string(i))));
      }
    }));
  }
  for (std::future<void>& worker : workers) worker.get();
  EXPECT_LE(sessions_of(user).size(), 8u);
  Locker other = open();
  EXPECT_FALSE(other.try_acquire(named("n3/2499")));
  for (const auto& locks : held) {
    EXPECT_TRUE(std::all_of(locks.begin(), locks.end(), [](const Lock& lock) { return lock.held(); }));
  }
  std::set<std::int64_t> fences;
  for (const auto& locks : held) {
    for (const Lock& lock : locks) fences.insert(lock.fence());
  }
  EXPECT_EQ(fences.size(), static_cast<std::size_t>(threads * each)) << "each has a fence of its own";
  held.clear();
  EXPECT_TRUE(other.try_acquire(named("n3/2499"), 20s));
}

TEST_P(ServerNames, a_session_that_holds_names_never_waits) {
  const Server user = own_user();
  Locker first = open(), second = hierlock::open(url(user));
  Lock taken = first.acquire(named("taken"));
  Lock mine = second.acquire(named("mine"));
  const std::string keeper = keeper_of(second, "named \"mine\"");
  std::future<void> waiter =
      std::async(std::launch::async, [&] { (void)second.acquire(named("taken"), {.timeout = 30s}); });
  ASSERT_TRUE(wait_for_names(1));
  EXPECT_EQ(
      plain().one("SELECT COUNT(*) FROM information_schema.processlist WHERE STATE LIKE 'User lock%' AND ID=" + keeper),
      "0");
  // So what it holds can be released while another thread waits.
  mine.release();
  EXPECT_TRUE(first.try_acquire(named("mine"), 5s));
  taken.release();
  waiter.get();
}

TEST_P(ServerNames, when_a_session_dies_exactly_its_names_are_lost) {  // B4
  Locker locker = open();
  std::vector<Lock> locks;
  for (int i = 0; i < 40; ++i) locks.push_back(locker.acquire(named("n" + std::to_string(i))));
  std::atomic<int> told = 0;
  std::deque<std::stop_callback<std::function<void()>>> callbacks;
  for (Lock& lock : locks) callbacks.emplace_back(lock.lost(), [&] { ++told; });
  const Snapshot before = locker.snapshot();
  std::map<std::uint64_t, std::set<std::string>> by_session;
  for (const Snapshot::Holder& holder : before.holders) by_session[holder.who.session].insert(holder.target);
  ASSERT_GT(by_session.size(), 1u) << "names are spread over several sessions";
  const auto& [session, its] = *by_session.begin();
  plain().ask("KILL " + std::to_string(session));
  ASSERT_TRUE(eventually([&] { return told == static_cast<int>(its.size()); })) << told << " of " << its.size();
  for (std::size_t i = 0; i < locks.size(); ++i) {
    EXPECT_EQ(locks[i].held(), !its.contains("named \"n" + std::to_string(i) + "\"")) << i;
  }
  // They are free for others, and for this Locker once they are released.
  Locker other = open();
  for (std::size_t i = 0; i < locks.size(); ++i) {
    if (locks[i].held()) continue;
    const Target target = named("n" + std::to_string(i));
    EXPECT_TRUE(fails_with(ErrorKind::lost, [&] { (void)locks[i].fence(); }));
    EXPECT_TRUE(other.try_acquire(target, 5s));
    locks[i].release();
    EXPECT_TRUE(locker.try_acquire(target, 5s));
  }
  EXPECT_EQ(told, static_cast<int>(its.size()));
}

TEST_P(ServerNames, a_killed_statement_neither_grants_twice_nor_leaks) {  // N1
  const Server user = own_user();
  Locker locker = hierlock::open(url(user)), other = open();
  (void)locker.acquire(named("n"));
  std::atomic<bool> stop = false;
  std::future<void> killer = std::async(std::launch::async, [&] {
    Plain plain(operator_server());
    while (!stop) {
      for (const auto& row :
           plain.ask("SELECT ID FROM information_schema.processlist WHERE USER='" + user.user + "'")) {
        plain.code_of("KILL QUERY " + row.at(0));
      }
    }
  });
  std::atomic<int> inside = 0, together = 0, granted = 0;
  const auto work = [&](Locker& by) {
    const auto begin = Clock::now();
    while (Clock::now() - begin < 3s || (granted <= 10 && Clock::now() - begin < 30s)) {
      try {
        const Lock lock = by.acquire(named("n"), {.timeout = 5s});
        if (++inside != 1) ++together;
        std::this_thread::yield();
        --inside;
        ++granted;
      } catch (const Error& error) {  // killed too often
        EXPECT_NE(error.kind(), ErrorKind::deadlock) << error.what();
      }
    }
  };
  std::future<void> others = std::async(std::launch::async, [&] { work(other); });
  work(locker);
  others.get();
  stop = true;
  killer.get();
  EXPECT_EQ(together, 0);
  EXPECT_GT(granted, 10);
  EXPECT_TRUE(other.try_acquire(named("n"), 10s)) << "nothing is left";
}

// --- who is next -----------------------------------------------------------------------------------------

TEST_P(ServerNames, processes_are_served_in_the_order_they_came) {
  Locker holder = open();
  std::optional<Lock> held = holder.acquire(named("n"));
  constexpr int count = 5;
  std::deque<Locker> lockers;
  std::mutex mutex;
  std::vector<int> order;
  std::vector<std::future<void>> waiters;
  for (int i = 0; i < count; ++i) {
    Locker& locker = lockers.emplace_back(open());
    waiters.push_back(std::async(std::launch::async, [&, i] {
      const Lock lock = locker.acquire(named("n"), {.timeout = 30s});
      const std::lock_guard guard(mutex);
      order.push_back(i);
    }));
    ASSERT_TRUE(wait_for_names(i + 1));
  }
  held.reset();
  for (std::future<void>& waiter : waiters) waiter.get();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST_P(ServerNames, a_name_that_moves_beside_a_thief_has_one_holder) {
  // The name goes from a session that waits to one that keeps it, again and again, while a third process asks for it
  // all the time.
  constexpr int moves = 300;
  Locker first = open("gate=off"), second = open("gate=off"), thief = open("gate=off");
  std::atomic<int> inside = 0, together = 0, done = 0;
  const auto enter = [&](Lock& lock) {
    if (++inside != 1) ++together;
    EXPECT_TRUE(lock.held());
    --inside;
  };
  const auto work = [&](Locker& locker) {
    for (int i = 0; i < moves; ++i) {
      Lock lock = locker.acquire(named("n"));
      enter(lock);
    }
    ++done;
  };
  std::future<void> one = std::async(std::launch::async, [&] { work(first); });
  std::future<void> two = std::async(std::launch::async, [&] { work(second); });
  std::future<void> steals = std::async(std::launch::async, [&] {
    while (done < 2) {
      if (auto lock = thief.try_acquire(named("n"))) enter(*lock);
    }
  });
  one.get();
  two.get();
  steals.get();
  EXPECT_EQ(together, 0);
}

TEST_P(ServerNames, a_thief_that_asks_all_the_time_gets_nothing_before_the_one_in_line) {
  constexpr int turns = 50;
  Locker first = open("gate=off"), second = open("gate=off"), thief = open("gate=off");
  std::atomic<int> stolen = 0, asked = 0;
  std::atomic<bool> over = false;
  std::future<void> steals = std::async(std::launch::async, [&] {
    for (; !over; ++asked) {
      if (thief.try_acquire(named("n"))) ++stolen;
    }
  });
  for (int turn = 0; turn < turns; ++turn) {
    Lock held = first.acquire(named("n"), {.timeout = 30s});
    std::future<Lock> waits =
        std::async(std::launch::async, [&] { return second.acquire(named("n"), {.timeout = 30s}); });
    EXPECT_TRUE(wait_for_names(1));
    const int before = asked;
    EXPECT_TRUE(eventually([&] { return asked >= before + 2; })) << "what it asked before is over";
    const int had = stolen;
    held.release();
    const Lock got = waits.get();
    EXPECT_EQ(stolen, had) << "turn " << turn;
  }
  over = true;
  steals.get();
  EXPECT_GT(asked, turns);
}

TEST_P(ServerNames, more_names_than_waiting_sessions_are_waited_for) {
  constexpr int names = 12;
  const Server user = own_user();
  Locker holder = open(), locker = hierlock::open(url(user));
  EXPECT_TRUE(locker.capabilities().sliced_names);
  std::vector<Lock> held;
  std::vector<std::future<std::int64_t>> waiters;
  for (int i = 0; i < names; ++i) held.push_back(holder.acquire(named("n" + std::to_string(i))));
  for (int i = 0; i < names; ++i) {
    waiters.push_back(std::async(std::launch::async, [&, i] {
      return locker.acquire(named("n" + std::to_string(i)), {.timeout = 30s}).fence();
    }));
  }
  ASSERT_TRUE(eventually([&] { return locker.snapshot().waiters.size() == names; }));
  EXPECT_LE(sessions_of(user).size(), 12u);
  for (int i = names - 1; i >= 0; --i) {
    const std::int64_t before = held[static_cast<std::size_t>(i)].fence();
    held[static_cast<std::size_t>(i)].release();
    EXPECT_GT(waiters[static_cast<std::size_t>(i)].get(), before);
  }
}

TEST_P(ServerNames, deadlines_and_cancellation_are_kept) {  // H2
  Locker first = open(), second = open();
  const Lock held = first.acquire(named("n"));
  for (int turn = 0; turn < 5; ++turn) {
    EXPECT_TRUE(once_within(1500ms, [&] {
      const auto took = time_of([&] { EXPECT_FALSE(second.try_acquire(named("n"), 100ms)); });
      EXPECT_GE(took, 100ms);
      return took;
    }));
  }
  std::stop_source stop;
  std::future<std::optional<Error>> waiter = std::async(std::launch::async, [&] {
    return error_of([&] { (void)second.acquire(named("n"), {.cancel = stop.get_token()}); });
  });
  ASSERT_TRUE(wait_for_names(1));
  stop.request_stop();
  const std::optional<Error> error = waiter.get();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), ErrorKind::cancelled);
  EXPECT_TRUE(wait_for_names(0)) << "nobody is left in line";
  EXPECT_TRUE(held.held());
}

// What `explain` prints takes the same lock, and gives it back.
TEST_P(ServerNames, explain_prints_statements_that_take_the_same_name) {
  Locker locker = open();
  for (const Target& target : {named("n"), slots("s", 1)}) {
    SCOPED_TRACE(target.str());
    std::vector<std::string> said;
    std::istringstream text(hierlock::statements(url(), std::vector<Target>{target}));
    for (std::string line; std::getline(text, line);) {
      if (line.starts_with("SELECT")) said.push_back(line.substr(0, line.rfind(';')));
    }
    ASSERT_EQ(said.size(), 2u);
    Plain by_hand(server());
    by_hand.ask(said[0]);
    EXPECT_FALSE(locker.try_acquire(target));
    by_hand.ask(said[1]);
    EXPECT_TRUE(locker.try_acquire(target, 20s));
  }
}

TEST_P(ServerNames, a_child_that_ends_takes_no_name_from_its_parent) {  // B6
  std::optional<Locker> locker = open();
  std::optional<Lock> lock = locker->acquire({named("n"), slots("s", 1)});
  const pid_t child = fork();
  if (child == 0) {
    const bool inert = !lock->held();
    lock.reset();
    locker.reset();
    _exit(inert ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "it was held in the child";
  Locker other = open();
  EXPECT_FALSE(other.try_acquire(named("n")));
  EXPECT_TRUE(lock->held());
  EXPECT_FALSE(lock->lost().stop_requested());
  lock.reset();
  EXPECT_TRUE(other.try_acquire({named("n"), slots("s", 1)}, 20s));
}

// --- several, and with paths -----------------------------------------------------------------------------

TEST_P(ServerNames, names_paths_and_slots_are_all_or_nothing) {  // H8
  Locker first = open(), second = open();
  const Lock held = first.acquire(named("b"));
  EXPECT_FALSE(second.try_acquire({named("a"), named("b"), named("c"), "u1/a1", slots("s", 1)}, 200ms));
  EXPECT_TRUE(first.try_acquire({named("a"), named("c"), "u1/a1", slots("s", 1)}, 20s)) << "nothing is left";
  const Lock other = second.acquire({named("a"), named("c"), "u1/a1", slots("s", 1)});
  EXPECT_GT(other.fence(), 0);
  for (const Target& target : {named("a"), named("c"), Target("u1"), slots("s", 1)}) {
    EXPECT_FALSE(first.try_acquire(target)) << target.str();
  }
}

TEST_P(ServerNames, opposite_orders_in_one_acquire_never_deadlock) {  // H5
  Locker first = open("gate=off"), second = open("gate=off");
  const auto work = [](Locker& locker, std::vector<Target> targets) {
    for (int i = 0; i < 60; ++i) (void)locker.acquire(targets);
  };
  std::future<void> one = std::async(std::launch::async, [&] { work(first, {named("a"), named("b"), "u1", "u2"}); });
  std::future<void> two = std::async(std::launch::async, [&] { work(second, {"u2", named("b"), named("a"), "u1"}); });
  one.get();
  two.get();
}

TEST_P(ServerNames, fences_rise_over_names_with_and_without_paths) {  // B3
  Locker first = open(), second = open();
  std::int64_t last = 0;
  for (int turn = 0; turn < 20; ++turn) {
    Locker& locker = turn % 2 == 0 ? first : second;
    const Lock lock = turn % 3 == 0   ? locker.acquire({named("n"), "u1/a1"})
                      : turn % 3 == 1 ? locker.acquire(named("n"))
                                      : locker.acquire({named("m"), named("n")});
    EXPECT_GT(lock.fence(), last);
    last = lock.fence();
  }
}

TEST_P(ServerNames, a_lock_is_extended_by_names_and_by_paths) {
  Locker first = open(), second = open();
  Lock path = first.acquire("u1/a1");
  const std::int64_t before = path.fence();
  path.extend(named("n"));
  EXPECT_GT(path.fence(), before);
  path.extend("u2");
  path.extend(named("m"));
  Lock name = second.acquire(named("k"));
  name.extend("u3");
  EXPECT_FALSE(second.try_acquire(named("n")));
  EXPECT_FALSE(second.try_acquire(named("m")));
  EXPECT_FALSE(second.try_acquire("u2"));
  EXPECT_FALSE(first.try_acquire("u3"));
  EXPECT_TRUE(fails_with(ErrorKind::timeout, [&] { name.extend(named("n"), {.timeout = 100ms}); }));
  EXPECT_TRUE(name.held()) << "a timeout keeps what was held";
  path.release();
  name.release();
  EXPECT_TRUE(second.try_acquire({named("n"), named("m"), "u1/a1", "u2"}, 5s));
  EXPECT_TRUE(first.try_acquire({named("k"), "u3"}, 5s));
}

TEST_P(ServerNames, a_lock_of_both_is_lost_with_either_session) {  // B4
  for (const bool row : {true, false}) {
    SCOPED_TRACE(row ? "the session of the row ends" : "the session of the name ends");
    const Server user = own_user();
    Locker locker = hierlock::open(url(user));
    Lock both = locker.acquire({named("n"), "u1"});
    const std::string of_row = keeper_of(locker, "u1");
    for (const std::string& id : sessions_of(user)) {
      if ((id == of_row) == row) plain().code_of("KILL " + id);
    }
    EXPECT_TRUE(eventually([&] { return !both.held(); }));
    EXPECT_TRUE(eventually([&] { return both.lost().stop_requested(); }));
    both.release();
    EXPECT_TRUE(locker.try_acquire({named("n"), "u1"}, 10s));
  }
}

// --- deadlocks -------------------------------------------------------------------------------------------

TEST_P(ServerNames, a_deadlock_across_names_paths_and_processes_is_found) {  // B11
  const std::pair<Target, Target> cases[] = {
      {named("a"), named("b")}, {named("a"), "u1/a1"}, {"u1", named("b")}, {slots("s", 1), named("b")}};
  for (const auto& [left, right] : cases) {
    SCOPED_TRACE(left.str() + " and " + right.str());
    Locker first = open(), second = open();
    std::optional<Lock> mine = first.acquire(left), its = second.acquire(right);
    const auto begin = Clock::now();
    const auto wants = [](Locker& locker, const Owner& owner, std::optional<Lock>& has, const Target& target) {
      const std::optional<Error> error =
          error_of([&] { (void)locker.acquire(target, {.timeout = 20s, .owner = &owner}); });
      has.reset();
      return error ? std::optional(error->kind()) : std::nullopt;
    };
    // Owners are threads: these hand their locks to those who wait.
    Owner one = first.owner("one"), two = second.owner("two");
    mine->give_to(one);
    its->give_to(two);
    auto left_waits = std::async(std::launch::async, [&] { return wants(first, one, mine, right); });
    auto right_waits = std::async(std::launch::async, [&] { return wants(second, two, its, left); });
    const std::optional<ErrorKind> a = left_waits.get(), b = right_waits.get();
    EXPECT_LT(Clock::now() - begin, 2s + stall);
    EXPECT_TRUE((a == ErrorKind::deadlock) != (b == ErrorKind::deadlock)) << "one is the victim";
    EXPECT_TRUE(!a || !b) << "the other goes on";
  }
}

// --- slots -----------------------------------------------------------------------------------------------

TEST_P(ServerNames, processes_that_disagree_on_slots_are_told_both_numbers) {  // M7
  Locker first = open(), second = open();
  std::vector<Lock> held;
  for (int i = 0; i < 4; ++i) held.push_back(first.acquire(slots("s", 4)));
  EXPECT_TRUE(fails_with(
      ErrorKind::incompatible, [&] { (void)second.acquire(slots("s", 2)); }, "with 4"));
  EXPECT_TRUE(fails_with(
      ErrorKind::incompatible, [&] { (void)second.acquire(slots("s", 17)); }, "17"));
  // Whichever of them is still held.
  for (int i = 0; i < 3; ++i) {
    held.erase(held.begin());
    EXPECT_TRUE(fails_with(
        ErrorKind::incompatible, [&] { (void)second.acquire(slots("s", 1)); }, "with 4"))
        << i;
  }
  held.clear();
  EXPECT_TRUE(eventually([&] { return !error_of([&] { (void)second.acquire(slots("s", 2)); }); }))
      << "it ends with the last holder";
}

TEST_P(ServerNames, slots_are_counted_across_processes) {  // M1
  constexpr std::uint32_t count = 3;
  constexpr int processes = 4, threads = 2, rounds = 40;
  std::atomic<std::uint32_t> inside = 0, most = 0;
  const auto note = [&most](std::uint32_t now) {
    for (std::uint32_t seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
  };
  std::deque<Locker> lockers;
  std::vector<std::future<void>> workers;
  for (int process = 0; process < processes; ++process) {
    Locker& locker = lockers.emplace_back(open());
    for (int thread = 0; thread < threads; ++thread) {
      workers.push_back(std::async(std::launch::async, [&] {
        for (int round = 0; round < rounds; ++round) {
          const Lock lock = locker.acquire(slots("s", count), {.timeout = 60s});
          note(++inside);
          // The first holders stay until all slots are taken.
          EXPECT_TRUE(eventually([&] { return most >= count; }));
          std::this_thread::yield();
          --inside;
        }
      }));
    }
  }
  for (std::future<void>& worker : workers) worker.get();
  EXPECT_EQ(most, count);
}

std::string percentiles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double part) {
    return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1))];
  };
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << "p50 " << at(0.5) << ", p90 " << at(0.9) << ", longest " << at(1)
       << " ms";
  return text.str();
}

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

TEST_P(ServerNames, a_waiter_for_slots_wakes_up_soon) {  // M7
  constexpr int rounds = 24;
  std::atomic<int> waits = 0;
  Locker holder = open(), other = open(), waiter = open("", {.on_event = [&](const Event&event) {
                                                          if (event.kind == Event::Kind::wait_begins) ++waits;
                                                        }});
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    Lock first = holder.acquire(slots("s", 2)), second = other.acquire(slots("s", 2));
    const int before = waits;
    std::future<Clock::time_point> granted = std::async(std::launch::async, [&] {
      const Lock lock = waiter.acquire(slots("s", 2), {.timeout = 20s});
      return Clock::now();
    });
    ASSERT_TRUE(eventually([&] { return waits > before; }));
    const Clock::time_point begin = Clock::now();
    first.release();
    times.push_back(std::chrono::duration<double, std::milli>(granted.get() - begin).count());
  }
  std::cout << GetParam() << ", from the release of a slot to the grant in another process: " << percentiles(times)
            << std::endl;
  std::sort(times.begin(), times.end());
  EXPECT_LE(times[rounds / 2], 200) << "the first in line looks every 10 ms, others every second";
}

TEST_P(ServerNames, slots_are_shared_among_processes) {  // M7
  constexpr std::size_t processes = 6;
  constexpr int all = 600;
  std::deque<Locker> lockers;
  std::vector<int> grants(processes);
  std::vector<std::vector<double>> waited(processes);
  std::atomic<int> left = all;
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < processes; ++i) {
    Locker& locker = lockers.emplace_back(open());
    (void)locker.acquire(slots("other", 2));  // connects
    threads.emplace_back([&, i] {
      while (left.fetch_sub(1) > 0) {
        const Clock::time_point begin = Clock::now();
        const Lock lock = locker.acquire(slots("s", 2), {.timeout = 60s});
        waited[i].push_back(milliseconds_since(begin));
        ++grants[i];
        std::this_thread::sleep_for(1ms);  // what is done under the lock
      }
    });
  }
  threads.clear();
  std::vector<double> times;
  std::ostringstream counts;
  for (std::size_t i = 0; i < processes; ++i) {
    times.insert(times.end(), waited[i].begin(), waited[i].end());
    counts << " " << grants[i];
  }
  std::cout << GetParam() << ", 6 processes on 2 slots, each held for 1 ms: waits " << percentiles(times)
            << "; grants by process:" << counts.str() << std::endl;
  EXPECT_GE(*std::min_element(grants.begin(), grants.end()), all / static_cast<int>(processes) / 10);
}

// --- waiters that vanish ---------------------------------------------------------------------------------

TEST_P(ServerNames, a_killed_waiter_leaves_the_line_of_a_name) {  // B5
  Process holder([&] { static const Lock held = open().acquire(named("n")); });
  ASSERT_TRUE(holder.ready());
  Process doomed([&] {
    std::thread([this] {
      static Locker locker = open();
      (void)locker.acquire(named("n"));
    }).detach();
  });
  ASSERT_TRUE(doomed.ready());
  ASSERT_TRUE(wait_for_names(1));
  Locker next = open();
  std::future<std::int64_t> waiter =
      std::async(std::launch::async, [&] { return next.acquire(named("n"), {.timeout = 60s}).fence(); });
  ASSERT_TRUE(wait_for_names(2));
  doomed.kill();
  EXPECT_TRUE(eventually([&] { return how_many_wait_for_names() == 1; }, 15s + stall));
  const Clock::time_point begin = Clock::now();
  holder.kill();
  EXPECT_GT(waiter.get(), 0);
  EXPECT_LT(Clock::now() - begin, 15s + stall);
}

// Its machine sends nothing any more, not even that the connection has ended.
TEST_P(ServerNames, a_waiter_of_a_vanished_machine_leaves_the_line_of_a_name) {  // B5
  Relay relay(server().host, server().port);
  Server behind = server();
  behind.port = relay.port();
  Lock held = open().acquire(named("n"));
  Locker vanishing = hierlock::open(url(behind, "tls=off")), next = open();
  std::future<std::optional<Lock>> lost =
      std::async(std::launch::async, [&] { return vanishing.try_acquire(named("n"), 40s); });
  ASSERT_TRUE(wait_for_names(1));
  std::future<std::int64_t> waiter =
      std::async(std::launch::async, [&] { return next.acquire(named("n"), {.timeout = 60s}).fence(); });
  ASSERT_TRUE(wait_for_names(2));
  relay.pause();
  const std::int64_t before = held.fence();
  const Clock::time_point begin = Clock::now();
  held.release();  // the server grants it to the session of the vanished machine
  EXPECT_GT(waiter.get(), before);
  std::cout << GetParam() << ", behind a waiter of a vanished machine: " << milliseconds_since(begin) / 1000 << " s"
            << std::endl;
  EXPECT_LT(Clock::now() - begin, 15s + stall);
  relay.cut();
  relay.resume();
  lost.wait();
}

TEST_P(ServerNames, a_killed_holders_slot_comes_back) {  // M7
  const Server user = own_user();
  Locker doomed = hierlock::open(url(user)), other = open();
  const Lock held = doomed.acquire(slots("s", 1));
  std::future<bool> waiter =
      std::async(std::launch::async, [&] { return other.try_acquire(slots("s", 1), 20s).has_value(); });
  ASSERT_TRUE(eventually([&] { return other.snapshot().anybody_waits(); }));
  for (const std::string& id : sessions_of(user)) plain().code_of("KILL " + id);
  EXPECT_TRUE(waiter.get());
  EXPECT_TRUE(eventually([&] { return !held.held(); }));
}

// --- the seed's traps, against a pool that does not know of them -------------------------------------------

// Hands out its sessions in turn, as pools do.
class NaivePool {
 public:
  NaivePool(const Server& server, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) sessions_.push_back(std::make_unique<Plain>(server));
  }
  Plain& next() { return *sessions_[turn_++ % sessions_.size()]; }

 private:
  std::vector<std::unique_ptr<Plain>> sessions_;
  std::size_t turn_ = 0;
};

TEST_P(ServerNames, a_release_on_another_session_releases_nothing) {  // N2
  const std::string name = "'naive " + table() + "'";
  NaivePool pool(server(), 2);
  ASSERT_EQ(pool.next().one("SELECT GET_LOCK(" + name + ",0)"), "1");
  EXPECT_EQ(pool.next().one("SELECT RELEASE_LOCK(" + name + ")"), "0") << "the trap: it is another session";
  EXPECT_EQ(plain().one("SELECT GET_LOCK(" + name + ",0)"), "0") << "and the lock stays";

  Locker locker = open(), other = open();
  std::vector<Lock> locks;
  for (int i = 0; i < 10; ++i) locks.push_back(locker.acquire(named("n" + std::to_string(i))));
  std::async(std::launch::async, [&] { locks.clear(); }).get();
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(other.try_acquire(named("n" + std::to_string(i)), 20s)) << i;
}

TEST_P(ServerNames, two_requests_that_share_a_session_do_not_both_get_a_name) {  // N3
  const std::string name = "'naive " + table() + "'";
  NaivePool pool(server(), 1);
  ASSERT_EQ(pool.next().one("SELECT GET_LOCK(" + name + ",0)"), "1");
  EXPECT_EQ(pool.next().one("SELECT GET_LOCK(" + name + ",0)"), "1") << "the trap: both have it";

  Locker locker = open("gate=off");
  const Owner first = locker.owner("first"), second = locker.owner("second");
  const Lock lock = locker.acquire(named("n"), {.owner = &first});
  EXPECT_FALSE(locker.try_acquire(named("n"), 0ns, {.owner = &second}));
  const Lock slot = locker.acquire(slots("s", 1), {.owner = &first});
  EXPECT_FALSE(locker.try_acquire(slots("s", 1), 0ns, {.owner = &second}));
}

TEST_P(ServerNames, what_was_read_before_the_lock_is_overwritten) {  // N7
  const std::string counter = "`" + another_table() + "`";
  plain().ask("CREATE TABLE " + counter + " (id INT PRIMARY KEY, v INT)");
  Locker locker = open();
  const auto count = [&](bool lock_first) {
    plain().ask("REPLACE INTO " + counter + " VALUES (1, 0)");
    const auto read = [&](Plain& session) {
      return std::stoi(session.one("SELECT v FROM " + counter + " WHERE id=1"));
    };
    Plain one(operator_server()), two(operator_server());
    for (Plain* const session : {&one, &two}) session->ask("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ");
    if (!lock_first) {
      two.ask("BEGIN");
      read(two);  // its snapshot is from now
    }
    for (Plain* const session : {&one, &two}) {
      const Lock lock = locker.acquire(named("counter"));
      if (lock_first || session == &one) session->ask("BEGIN");
      session->ask("UPDATE " + counter + " SET v=" + std::to_string(read(*session) + 1) + " WHERE id=1");
      session->ask("COMMIT");
    }
    return plain().one("SELECT v FROM " + counter);
  };
  EXPECT_EQ(count(false), "1") << "the trap: an update is lost under the lock";
  EXPECT_EQ(count(true), "2");
}

// --- looking ---------------------------------------------------------------------------------------------

TEST_P(ServerNames, status_shows_names_and_who_waits_for_them) {  // B7
  Locker first = open("publish_after=0"), second = open("publish_after=0"), watcher = open();
  Lock held = first.acquire(named("n"), {.note = "the holder"});
  std::future<void> waiter =
      std::async(std::launch::async, [&] { (void)second.acquire(named("n"), {.timeout = 30s}); });
  Snapshot seen;
  EXPECT_TRUE(eventually([&] {
    seen = watcher.snapshot();
    return seen.holders.size() == 1 && seen.waiters.size() == 1 && !seen.waiters[0].blocked_by.empty();
  }));
  ASSERT_EQ(seen.holders.size(), 1u);
  EXPECT_EQ(seen.holders[0].target, "named \"n\"");
  EXPECT_EQ(seen.holders[0].fence, held.fence());
  EXPECT_EQ(seen.holders[0].who.note, "the holder");
  ASSERT_EQ(seen.waiters.size(), 1u);
  EXPECT_EQ(seen.waiters[0].wanted, "named \"n\"");
  EXPECT_EQ(seen.waiters[0].blocked_by, std::vector{seen.holders[0].who.owner});
  held.release();
  waiter.get();
  EXPECT_TRUE(eventually([&] { return watcher.snapshot().holders.empty(); }));
}

TEST_P(ServerNames, tables_and_databases_have_names_of_their_own) {  // N6
  Locker first = open();
  Locker other = hierlock::open(url_of(another_table(), server()));
  const Lock held = first.acquire(named("n"));
  EXPECT_TRUE(other.try_acquire(named("n")));
}

HIERLOCK_ON_BOTH_SERVERS(ServerNames);

}  // namespace
}  // namespace hierlock::mysql_tests
