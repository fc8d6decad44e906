// Names on a server that does what the test says: who keeps them, who waits, how they are lost.
#include "remote/name_driver.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <random>
#include <thread>

#include "plan/test_random.h"
#include "remote/testing/scripted_names.h"

namespace hierlock::remote {
namespace {

using namespace std::chrono_literals;
using testing::NameServer;
using testing::ScriptedNameStore;
using testing::ScriptedServer;
using testing::ScriptedStore;

constexpr auto patience = 20s;  // of a test for a fact

template <class F>
bool eventually(F fact) {
  const Clock::time_point end = Clock::now() + patience;
  while (!fact()) {
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

// A process: a Gate of its own on the servers of the test.
class Process {
 public:
  Process(ScriptedServer& server, NameServer& names, std::chrono::nanoseconds lease = 10s, std::size_t sessions = 16)
      : store_(names) {
    const SessionDriver::Timing timing{.lease = lease, .ask_after = 100ms};
    auto paths = std::make_unique<SessionDriver>(
        std::make_unique<ScriptedStore>(server, ScriptedStore::Names::of_another_driver), sessions, timing);
    gate_ = make_gate(std::make_unique<NameDriver>(std::move(paths), store_, timing), {.publish_after = 20ms});
  }
  ~Process() { gate_->close(); }

  std::optional<spi::Grant> acquire(const std::vector<Target>& targets,
                                    std::optional<Clock::duration> timeout = std::nullopt, spi::OwnerId owner = {},
                                    const std::stop_token* cancel = nullptr) {
    const spi::Plan plan(targets);
    spi::Request request{.plan = plan, .cancel = cancel, .owner = owner};
    if (timeout) request.deadline = Clock::now() + *timeout;
    return gate_->acquire(request);
  }
  std::optional<spi::Grant> try_acquire(const std::vector<Target>& targets) {
    const spi::Plan plan(targets);
    return gate_->acquire({.plan = plan, .no_wait = true});
  }
  std::optional<spi::Grant> extend(const spi::Grant& grant, const std::vector<Target>& targets,
                                   std::optional<Clock::duration> timeout = patience) {
    const spi::Plan plan(targets);
    spi::Request request{.plan = plan};
    if (timeout) request.deadline = Clock::now() + *timeout;
    return gate_->extend(grant, request);
  }
  spi::Backend& gate() { return *gate_; }
  void release(const std::optional<spi::Grant>& grant) { gate_->release(*grant); }

 private:
  ScriptedNameStore store_;
  std::unique_ptr<spi::Backend> gate_;
};

class NameDrivers : public ::testing::Test {
 protected:
  bool nothing_left() {
    return eventually([&] { return names.held() == 0 && names.waiting() == 0; });
  }
  ScriptedServer server;
  NameServer names;
};

TEST_F(NameDrivers, a_name_is_one_question_and_its_release_another) {  // N1
  Process process(server, names);
  process.release(process.acquire({named("n")}));
  ASSERT_TRUE(nothing_left());
  const std::uint64_t before = names.questions;
  const auto grant = process.acquire({named("n")});
  EXPECT_EQ(names.questions, before + 1);
  process.release(grant);
  ASSERT_TRUE(nothing_left());
  EXPECT_EQ(names.questions, before + 2);
}

TEST_F(NameDrivers, an_answer_that_nobody_comes_for_is_read_soon) {  // B3: it may say that the name is still held
  Process process(server, names);
  Clock::duration shortest = Clock::duration::max();
  for (int round = 0; round < 10; ++round) {
    process.release(process.acquire({named("n")}));
    const Clock::time_point begin = Clock::now();
    ASSERT_TRUE(eventually([&] { return names.answers == names.questions; }));
    if (round > 0) shortest = std::min(shortest, Clock::now() - begin);
  }
  EXPECT_LT(shortest, 150ms);
}

TEST_F(NameDrivers, of_waits_that_are_in_no_cycle_some_are_published_and_counted) {
  constexpr std::size_t published = 64, count = published + 6;
  Process first(server, names), second(server, names);
  std::vector<spi::Grant> held;
  for (std::size_t i = 0; i < count; ++i) held.push_back(*first.acquire({named("n" + std::to_string(i))}));
  std::vector<std::thread> waiters;
  for (std::size_t i = 0; i < count; ++i) {
    waiters.emplace_back([&, i] { second.release(second.acquire({named("n" + std::to_string(i))})); });
  }
  const auto waits = [&] {
    std::vector<Notice> all;
    for (const auto& [id, notice] : server.notices()) {
      if (notice.waits) all.push_back(notice);
    }
    return all;
  };
  const auto counts = [](const Notice& notice) {
    return notice.note == "6 more requests of its process wait for other names";
  };
  EXPECT_TRUE(eventually([&] {
    const std::vector<Notice> all = waits();
    return all.size() == published && std::count_if(all.begin(), all.end(), counts) == 1;
  })) << waits().size();
  for (const spi::Grant& grant : held) first.release(grant);
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_TRUE(nothing_left());
}

TEST_F(NameDrivers, many_names_of_one_acquire_share_a_question) {
  Process process(server, names);
  std::vector<Target> many;
  for (int i = 0; i < 200; ++i) many.push_back(named("n" + std::to_string(i)));
  const auto grant = process.acquire(many);
  EXPECT_LE(names.questions, 2 * NameDriver::most_keepers);
  EXPECT_GT(names.most_at_once, 20u);
  process.release(grant);
  EXPECT_TRUE(nothing_left());
}

TEST_F(NameDrivers, ten_thousand_names_need_a_few_sessions) {  // N6
  Process process(server, names);
  std::vector<spi::Grant> grants;
  for (int i = 0; i < 10'000; ++i) grants.push_back(*process.acquire({named("n" + std::to_string(i))}));
  EXPECT_LE(server.open(), 8u);
  for (const spi::Grant& grant : grants) process.release(grant);
  EXPECT_TRUE(nothing_left());
}

TEST_F(NameDrivers, no_session_that_holds_a_name_ever_waits) {
  Process first(server, names), second(server, names);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      Process& process = i % 2 == 0 ? first : second;
      for (int round = 0; round < 60; ++round) {
        const auto one = process.acquire({named("n" + std::to_string((i + round) % 5))}, patience);
        process.release(one);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(names.waits_of_keepers, 0u);
  EXPECT_TRUE(nothing_left());
}

TEST_F(NameDrivers, a_session_that_dies_takes_its_names_and_no_others) {  // B4
  Process process(server, names);
  std::vector<spi::Grant> grants;
  std::vector<std::stop_token> lost;
  std::map<std::uint64_t, std::set<std::size_t>> by_session;
  for (std::size_t i = 0; i < 30; ++i) {
    const Target target = named("n" + std::to_string(i));
    grants.push_back(*process.acquire({target}));
    lost.push_back(process.gate().lost(grants.back()));
    by_session[*names.holder("B" + std::string(target.key(0)))].insert(i);
  }
  ASSERT_GT(by_session.size(), 1u);
  const auto& [session, its] = *by_session.begin();
  server.hang_up(session);
  for (std::size_t i = 0; i < grants.size(); ++i) {
    if (its.contains(i)) {
      EXPECT_TRUE(eventually([&] { return lost[i].stop_requested(); }));
    }
    EXPECT_EQ(process.gate().held(grants[i]), !its.contains(i));
  }
  for (std::size_t i = 0; i < grants.size(); ++i) {
    EXPECT_EQ(lost[i].stop_requested(), its.contains(i));
    process.release(grants[i]);
  }
  EXPECT_TRUE(process.acquire({named("n0")}, patience));
}

TEST_F(NameDrivers, a_silent_server_costs_the_names_when_the_lease_is_over) {  // B4
  Process process(server, names, 500ms);
  const auto grant = process.acquire({named("n")});
  const std::stop_token lost = process.gate().lost(*grant);
  names.silent = true;
  EXPECT_TRUE(eventually([&] { return !process.gate().held(*grant); }));
  EXPECT_TRUE(eventually([&] { return lost.stop_requested(); }));
  names.silent = false;
  process.release(grant);
  EXPECT_TRUE(process.acquire({named("n")}, patience));
}

TEST_F(NameDrivers, a_request_that_gives_up_on_a_silent_server_leaves_nothing) {  // H8
  Process process(server, names);
  process.release(process.acquire({named("n")}));
  for (int round = 0; round < 5; ++round) {
    names.silent = true;
    EXPECT_FALSE(process.acquire({named("n")}, 40ms));
    names.silent = false;
    EXPECT_TRUE(nothing_left());
  }
  std::stop_source stop;
  const std::stop_token token = stop.get_token();
  names.silent = true;
  std::future<bool> cancelled = std::async(std::launch::async, [&] {
    try {
      return process.acquire({named("n")}, std::nullopt, {}, &token) && false;
    } catch (const Error& error) {
      return error.kind() == ErrorKind::cancelled;
    }
  });
  stop.request_stop();
  EXPECT_TRUE(cancelled.get());
  names.silent = false;
  EXPECT_TRUE(nothing_left());
  EXPECT_TRUE(process.try_acquire({named("n")}));
}

TEST_F(NameDrivers, a_question_that_is_killed_half_way_is_undone_and_repeated) {  // N1
  Process process(server, names);
  process.release(process.acquire({named("n")}));
  std::vector<Target> many;
  for (int i = 0; i < 20; ++i) many.push_back(named("n" + std::to_string(i)));
  for (int kills = 1; kills <= 2; ++kills) {
    names.kills = kills;
    const auto grant = process.acquire(many);
    EXPECT_TRUE(process.gate().held(*grant));
    names.kills = 1;
    process.release(grant);
    EXPECT_TRUE(nothing_left()) << kills;
    names.kills = 0;
  }
}

TEST_F(NameDrivers, a_killed_question_for_a_fence_alone_releases_nothing) {  // B3
  Process process(server, names), other(server, names);
  const auto grant = process.acquire({named("n")});
  names.kills = 1;
  const auto extended = process.extend(*grant, {named("n")});  // it has that already
  ASSERT_TRUE(extended);
  EXPECT_GT(extended->fence, grant->fence);
  EXPECT_FALSE(other.try_acquire({named("n")})) << "two hold it";
  process.release(extended);
  EXPECT_TRUE(nothing_left());
}

TEST_F(NameDrivers, an_owner_of_names_does_not_stand_in_line_for_a_session) {  // B12
  Process process(server, names, 10s, 1);
  const auto name = process.acquire({named("n")});
  std::promise<void> holds;
  auto waits = std::async(std::launch::async, [&] {
    const auto path = process.acquire({Target("u2")});  // on the only session
    holds.set_value();
    const auto both = process.acquire({named("n")}, patience);
    process.release(path);
    if (both) process.release(both);
    return both.has_value();
  });
  holds.get_future().get();
  ASSERT_TRUE(eventually([&] { return process.gate().snapshot().waiters.size() == 1; }));
  try {
    (void)process.acquire({Target("u1")}, patience);
    ADD_FAILURE() << "there is no session for it";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::exhausted) << error.what();
  }
  process.release(name);
  EXPECT_TRUE(waits.get());
}

TEST_F(NameDrivers, a_name_is_nothing_that_a_failed_extend_leaves) {  // H8
  Process process(server, names), other(server, names);
  const auto held = other.acquire({named("n")});
  const auto mine = process.acquire({Target("u1")});
  EXPECT_FALSE(process.extend(*mine, {Target("u2"), named("n")}, 50ms));
  other.release(held);
  const auto name = process.acquire({named("n")}, patience);  // by the same owner
  ASSERT_TRUE(name);
  process.release(name);
  process.release(mine);
  EXPECT_TRUE(nothing_left());
}

TEST_F(NameDrivers, a_lock_that_an_usher_cannot_give_back_is_asked_for_anew) {
  Process process(server, names), other(server, names);
  const auto held = other.acquire({named("n")});
  auto waits = std::async(std::launch::async, [&] { return process.acquire({named("n")}, patience); });
  ASSERT_TRUE(eventually([&] { return names.waiting() > 0; }));
  names.stuck = 2;
  other.release(held);
  const auto got = waits.get();
  ASSERT_TRUE(got);
  process.release(got);
  EXPECT_TRUE(nothing_left());
}

TEST_F(NameDrivers, a_wait_ends_at_its_deadline_and_leaves_the_line) {  // H2
  Process first(server, names), second(server, names);
  const auto held = first.acquire({named("n")});
  const Clock::time_point begin = Clock::now();
  EXPECT_FALSE(second.acquire({named("n")}, 60ms));
  EXPECT_GE(Clock::now() - begin, 60ms);
  EXPECT_TRUE(eventually([&] { return names.waiting() == 0; }));
  EXPECT_EQ(names.held(), 1u) << "the turnstile is free";
  first.release(held);
  EXPECT_TRUE(second.acquire({named("n")}, patience));
}

// A wait needs a session of its own, which is made while the request's time runs.
TEST_F(NameDrivers, a_wait_ends_at_its_deadline_while_its_session_is_still_being_made) {  // H2
  Process first(server, names), second(server, names);
  second.release(second.acquire({named("n")}));  // it has a session for the name, but none to wait on
  const auto held = first.acquire({named("n")}, patience);
  server.connect_time = std::chrono::milliseconds(1h);
  Clock::duration shortest = Clock::duration::max(), shortest_cancel = shortest;
  for (int turn = 0; turn < 3; ++turn) {
    const Clock::time_point begin = Clock::now();
    EXPECT_FALSE(second.acquire({named("n")}, 100ms).has_value());
    shortest = std::min(shortest, Clock::now() - begin);

    std::stop_source stop;
    const std::stop_token token = stop.get_token();
    Clock::time_point stopped;
    const std::uint64_t before = server.connecting;
    std::thread cancels([&] {
      EXPECT_TRUE(eventually([&] { return server.connecting > before; }));
      stopped = Clock::now();
      stop.request_stop();
    });
    EXPECT_THROW(second.acquire({named("n")}, patience, {}, &token), Error);
    cancels.join();
    shortest_cancel = std::min(shortest_cancel, Clock::now() - stopped);
  }
  EXPECT_LT(shortest, 1s);
  EXPECT_LT(shortest_cancel, 1s);
  server.connect_time = 0ms;
  first.release(held);
  EXPECT_TRUE(second.acquire({named("n")}, patience).has_value());
}

TEST_F(NameDrivers, processes_are_served_in_the_order_they_came) {
  Process first(server, names);
  const auto held = first.acquire({named("n")});
  std::vector<std::unique_ptr<Process>> others;
  std::vector<std::future<std::int64_t>> fences;
  for (std::size_t i = 0; i < 4; ++i) {
    others.push_back(std::make_unique<Process>(server, names));
    fences.push_back(std::async(std::launch::async, [&names = *others.back()] {
      const auto grant = names.acquire({named("n")}, patience);
      const std::int64_t fence = grant->fence;
      names.release(grant);
      return fence;
    }));
    ASSERT_TRUE(eventually([&] { return names.waiting() == i + 1; }));
  }
  first.release(held);
  std::int64_t last = held->fence;
  for (auto& fence : fences) {
    const std::int64_t next = fence.get();
    EXPECT_GT(next, last);
    last = next;
  }
}

TEST_F(NameDrivers, a_thief_that_asks_all_the_time_gets_no_moving_name) {
  Process first(server, names), second(server, names), thief(server, names);
  std::atomic<int> done = 0, asked = 0;
  const auto work = [&](Process& process) {
    for (int i = 0; i < 200; ++i) process.release(process.acquire({named("n")}, patience));
    ++done;
  };
  const auto held = first.acquire({named("n")});
  std::thread two([&] { work(second); });
  EXPECT_TRUE(eventually([&] { return names.waiting() == 1; }));  // so that one name moves at least
  std::thread steals([&] {
    while (done < 2) {
      ++asked;
      if (const auto grant = thief.try_acquire({named("n")})) thief.release(grant);
    }
  });
  EXPECT_TRUE(eventually([&] { return asked > 10; }));
  first.release(held);
  work(first);
  two.join();
  steals.join();
  EXPECT_GT(names.moved, 0) << asked << " times asked";
  EXPECT_EQ(names.stolen, 0) << "of " << names.moved << " moves";
  EXPECT_TRUE(nothing_left());
}

TEST_F(NameDrivers, more_waits_than_ushers_are_sliced) {
  Process first(server, names), second(server, names);
  std::vector<spi::Grant> held;
  std::vector<std::future<bool>> waiters;
  constexpr std::size_t count = 3 * NameDriver::most_ushers;
  for (std::size_t i = 0; i < count; ++i) held.push_back(*first.acquire({named("n" + std::to_string(i))}));
  for (std::size_t i = 0; i < count; ++i) {
    waiters.push_back(std::async(std::launch::async, [&, i] {
      const auto grant = second.acquire({named("n" + std::to_string(i))}, patience);
      if (grant) second.release(grant);
      return grant.has_value();
    }));
  }
  ASSERT_TRUE(eventually([&] { return names.waiting() == NameDriver::most_ushers; }));
  for (const spi::Grant& grant : held) first.release(grant);
  for (auto& waiter : waiters) EXPECT_TRUE(waiter.get());
  EXPECT_TRUE(nothing_left());
}

TEST_F(NameDrivers, a_deadlock_between_a_name_and_a_path_is_found) {  // B11
  Process first(server, names), second(server, names);
  const spi::OwnerId one = first.gate().make_owner("one"), two = second.gate().make_owner("two");
  const auto name = first.acquire({named("n")}, std::nullopt, one);
  const auto path = second.acquire({"u1"}, std::nullopt, two);
  const auto wants = [](Process& process, const Target& target, spi::OwnerId owner, const auto& has) {
    std::optional<spi::Grant> grant;
    bool deadlock = false;
    try {
      grant = process.acquire({target}, patience, owner);
    } catch (const Error& error) {
      deadlock = error.kind() == ErrorKind::deadlock;
    }
    process.release(has);
    if (grant) process.release(grant);
    return deadlock;
  };
  std::future<bool> left = std::async(std::launch::async, [&] { return wants(first, "u1", one, name); });
  std::future<bool> right = std::async(std::launch::async, [&] { return wants(second, named("n"), two, path); });
  EXPECT_NE(left.get(), right.get());
  EXPECT_TRUE(nothing_left());
}

// Whether the request becomes the victim of a deadlock. In the end it has nothing, and what its owner held before is
// released.
template <class Ask>
bool is_a_victim(Process& process, const std::optional<spi::Grant>& has, Ask ask) {
  bool victim = false;
  try {
    const std::optional<spi::Grant> got = ask();
    EXPECT_TRUE(got) << "it has no value, and no time was up";
    if (got) process.release(got);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::deadlock) << error.what();
    victim = true;
  }
  process.release(has);
  return victim;
}

// An extend of a lock of names waits for rows on another session. It cannot queue again, as an acquire could, to undo a
// cycle that only the queue makes.
TEST_F(NameDrivers, an_extend_of_a_name_to_paths_does_not_let_others_pass) {  // B11
  Process first(server, names), second(server, names);
  const spi::OwnerId a = first.gate().make_owner("a"), b = first.gate().make_owner("b");
  const auto a_has = first.acquire({named("n")}, std::nullopt, a), b_has = first.acquire({"w"}, std::nullopt, b);
  const auto c_has = second.acquire({"x"});
  auto extends = std::async(std::launch::async, [&] {
    return is_a_victim(first, a_has, [&] { return first.extend(*a_has, {Target("x"), Target("y")}, std::nullopt); });
  });
  ASSERT_TRUE(eventually([&] { return server.waiting() == 1; }));
  auto behind = std::async(std::launch::async, [&] {
    EXPECT_TRUE(eventually([&] { return server.waiting() == 2; }));
    return is_a_victim(first, b_has, [&] { return first.acquire({"y"}, patience, b); });
  });
  const bool victim = is_a_victim(second, c_has, [&] { return second.acquire({"w"}, patience); });
  EXPECT_EQ((victim ? 1 : 0) + (extends.get() ? 1 : 0) + (behind.get() ? 1 : 0), 1);
  EXPECT_TRUE(nothing_left());
}

TEST_F(NameDrivers, a_fence_alone_that_a_silent_server_does_not_tell_is_an_error) {  // H2
  Process process(server, names);
  const auto grant = process.acquire({named("n")});
  names.silent = true;
  try {
    (void)process.extend(*grant, {named("n")}, std::nullopt);
    ADD_FAILURE() << "nobody has told a fence";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unavailable) << error.what();
  }
  names.silent = false;
  process.release(grant);
  EXPECT_TRUE(nothing_left());
}

// The rest of such a lock is locked until its owner gives it back, so others may wait for it.
TEST_F(NameDrivers, what_is_left_of_a_lost_lock_may_be_part_of_a_deadlock) {  // B4, B11
  for (const bool rows : {true, false}) {
    Process first(server, names), second(server, names);
    const spi::OwnerId one = first.gate().make_owner("one"), two = second.gate().make_owner("two");
    const auto session_of = [&](const Target& name) { return names.holder("B" + std::string(name.key(0))); };
    const Target lost = rows ? Target("u1") : named("lost");
    Target kept = named("kept");
    std::optional<spi::Grant> has = first.acquire({lost, kept}, std::nullopt, one);
    for (int i = 0; !rows && session_of(lost) == session_of(kept); ++i) {  // until both are on different sessions
      first.release(has);
      kept = named("kept" + std::to_string(i));
      has = first.acquire({lost, kept}, std::nullopt, one);
    }
    const std::uint64_t session = rows ? server.sessions_that_hold().front() : *session_of(lost);
    const auto other = second.acquire({"u2"}, std::nullopt, two);
    server.hang_up(session);
    ASSERT_TRUE(eventually([&] { return !first.gate().held(*has); }));
    auto crosses = std::async(std::launch::async, [&] {
      return is_a_victim(first, has, [&] { return first.acquire({"u2"}, patience, one); });
    });
    const bool victim = is_a_victim(second, other, [&] { return second.acquire({kept}, patience, two); });
    EXPECT_NE(victim, crosses.get());
    EXPECT_TRUE(nothing_left());
  }
}

TEST_F(NameDrivers, a_deadlock_that_the_server_finds_is_told_and_leaves_nothing) {  // H8, H9
  Process first(server, names), second(server, names);
  const auto held = first.acquire({named("n")});
  names.deadlocks = 1;
  try {
    (void)second.acquire({named("n")}, patience);
    ADD_FAILURE() << "it was granted, or asked again";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::deadlock) << error.what();
  }
  EXPECT_TRUE(eventually([&] { return names.waiting() == 0; }));
  EXPECT_EQ(names.held(), 1u) << "the other one keeps it";
  first.release(held);
  second.release(second.acquire({named("n")}, patience));
  EXPECT_TRUE(nothing_left());
}

TEST_F(NameDrivers, random_requests_of_processes_never_meet) {  // N3, M1, H8
  HIERLOCK_TELL_SEED();
  constexpr int processes = 3, threads = 3, rounds = 60;
  std::vector<std::unique_ptr<Process>> all;
  for (int i = 0; i < processes; ++i) all.push_back(std::make_unique<Process>(server, names));
  std::array<std::atomic<int>, 4> inside{};
  std::atomic<int> slots_inside = 0, wrong = 0;
  const std::uint64_t seed = plan::Random().below(1'000'000'000);
  std::vector<std::thread> workers;
  for (int worker = 0; worker < processes * threads; ++worker) {
    workers.emplace_back([&, worker] {
      std::mt19937_64 random(seed + static_cast<std::uint64_t>(worker));
      Process& process = *all[static_cast<std::size_t>(worker % processes)];
      for (int round = 0; round < rounds; ++round) {
        std::vector<Target> targets;
        const std::uint64_t which = random() % 15 + 1;
        for (std::size_t i = 0; i < inside.size(); ++i) {
          if ((which >> i & 1) != 0)
            targets.push_back(i == 3 ? Target("u1") : named(std::string(1, static_cast<char>('a' + i))));
        }
        const bool slot = random() % 3 == 0;
        if (slot) targets.push_back(slots("s", 2));
        std::optional<spi::Grant> grant;
        try {
          if (random() % 4 == 0) {
            grant = process.try_acquire(targets);
          } else {
            grant = process.acquire(targets, random() % 4 == 0 ? std::chrono::milliseconds(random() % 20) : patience);
          }
        } catch (const Error& error) {  // no session could be made in so short a time
          if (error.kind() != ErrorKind::timeout) ++wrong;
        }
        if (!grant) continue;
        for (std::size_t i = 0; i < inside.size(); ++i) {
          if ((which >> i & 1) != 0 && ++inside[i] != 1) ++wrong;
        }
        if (slot && ++slots_inside > 2) ++wrong;
        std::this_thread::yield();
        if (slot) --slots_inside;
        for (std::size_t i = 0; i < inside.size(); ++i) {
          if ((which >> i & 1) != 0) --inside[i];
        }
        process.release(grant);
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(nothing_left());
}

}  // namespace
}  // namespace hierlock::remote
