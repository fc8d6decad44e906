// The Gate and the session driver on a server that does what the test says: loss, deadlines, sessions, deadlocks,
// closing.
#include "remote/gate.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <future>
#include <latch>
#include <numeric>
#include <random>
#include <set>
#include <thread>

#include "remote/testing/scripted_store.h"

namespace hierlock::remote {
namespace {

using namespace std::chrono_literals;
using testing::open_scripted;
using testing::ScriptedServer;

constexpr auto patience = 20s;  // of a test for a fact
constexpr auto stall = 5s;      // what a machine that stalls may add to a time that is measured once

// Whether an attempt, which returns how long it took, is that quick at least once: a machine that stalls makes one
// late.
bool once_within(Clock::duration bound, const std::function<Clock::duration()>& attempt) {
  for (int i = 0; i < 5; ++i) {
    if (attempt() < bound) return true;
  }
  return false;
}

template <class F>
bool eventually(F fact, Clock::duration time = patience) {
  const Clock::time_point end = Clock::now() + time;
  while (!fact()) {
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

// The waits that processes have published.
std::vector<Notice> waits_of(const ScriptedServer& server) {
  std::vector<Notice> waits;
  for (const auto& [id, notice] : server.notices()) {
    if (notice.waits) waits.push_back(notice);
  }
  return waits;
}

// A plan refers to its targets.
class PlanOf {
 public:
  explicit PlanOf(const std::vector<std::string>& paths) {
    for (const std::string& path : paths) targets_.push_back(Target::parse(path));
    plan_.emplace(targets_);
  }
  const spi::Plan& plan() const { return *plan_; }

 private:
  std::vector<Target> targets_;
  std::optional<spi::Plan> plan_;
};

std::optional<spi::Grant> acquire(spi::Backend& gate, const std::vector<std::string>& paths,
                                  std::optional<Clock::duration> timeout = std::nullopt, spi::OwnerId owner = {}) {
  const PlanOf wanted(paths);
  spi::Request request{.plan = wanted.plan(), .owner = owner};
  if (timeout) request.deadline = Clock::now() + *timeout;
  return gate.acquire(request);
}
std::optional<spi::Grant> try_acquire(spi::Backend& gate, const std::vector<std::string>& paths) {
  const PlanOf wanted(paths);
  return gate.acquire({.plan = wanted.plan(), .no_wait = true});
}
std::optional<spi::Grant> extend(spi::Backend& gate, const spi::Grant& grant, const std::vector<std::string>& paths,
                                 std::optional<Clock::duration> timeout = std::nullopt) {
  const PlanOf wanted(paths);
  spi::Request request{.plan = wanted.plan()};
  if (timeout) request.deadline = Clock::now() + *timeout;
  return gate.extend(grant, request);
}
template <class F>
std::optional<Error> error_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

// --- loss ------------------------------------------------------------------------------------------------

TEST(Loss, of_a_session_is_told_to_its_holder_and_to_no_other) {  // B4
  ScriptedServer server;
  const auto gate = open_scripted(server);
  const spi::Grant one = *acquire(*gate, {"u1"});
  const std::uint64_t session = server.sessions_that_hold().front();
  const spi::Grant other = *acquire(*gate, {"u2"}, std::nullopt, gate->make_owner("other"));
  const std::stop_token lost = gate->lost(one), kept = gate->lost(other);
  server.hang_up(session);
  EXPECT_TRUE(eventually([&] { return lost.stop_requested(); }));
  EXPECT_FALSE(gate->held(one));
  EXPECT_TRUE(gate->held(other));
  EXPECT_FALSE(kept.stop_requested());
  gate->release(one);
  gate->release(other);
}

// The server is found unfit while a lock on it is granted, or handed over, at whatever moment that asks for its name.
TEST(Loss, of_a_lock_whose_server_is_found_unfit_just_then_is_told) {  // B4
  for (const bool handed_over : {false, true}) {
    int moments = 0;
    for (bool over = false; !over; ++moments) {
      ScriptedServer server;
      const auto gate = open_scripted(server);
      gate->release(*acquire(*gate, {"hot"}));  // it has a session
      std::optional<spi::Grant> first = handed_over ? acquire(*gate, {"hot"}) : std::nullopt;
      std::optional<spi::Grant> next;
      std::thread asks([&] {
        if (!handed_over) server.be_demoted_at(moments + 1);
        next = acquire(*gate, {"hot"}, patience);
      });
      if (handed_over) {
        EXPECT_TRUE(eventually([&] { return gate->snapshot().waiters.size() == 1; }));
        server.be_demoted_at(moments + 1);
        gate->release(*first);
      }
      asks.join();
      ASSERT_TRUE(next.has_value());
      server.be_demoted_at(0);
      over = !server.was_demoted();
      const bool made_anew = server.connected > 1;  // for a server that is fit
      if (!over && !made_anew) {
        EXPECT_TRUE(eventually([&] { return !gate->held(*next); })) << handed_over << ", moment " << moments;
      }
      gate->release(*next);
    }
    EXPECT_GT(moments, 1) << handed_over;
  }
}

// A demoted primary refuses all writes. That it is one is found by the housekeeping.
TEST(Loss, is_looked_for_while_no_notice_can_be_written_and_waits_end_all_the_time) {  // B4
  constexpr int waiters = 8;
  ScriptedServer server;
  server.refuses_notices = true;
  const auto gate = open_scripted(server);
  std::vector<spi::Grant> held;
  for (int i = 0; i < waiters; ++i) held.push_back(*acquire(*gate, {"u" + std::to_string(i)}));
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < waiters; ++i) {
    threads.emplace_back([&, i] {
      const spi::OwnerId owner = gate->make_owner("waiter");
      const spi::Grant own = *acquire(*gate, {"v" + std::to_string(i)}, std::nullopt, owner);
      while (!over) EXPECT_FALSE(acquire(*gate, {"u" + std::to_string(i)}, 40ms, owner).has_value());
      gate->release(own);
    });
  }
  EXPECT_TRUE(eventually([&] { return server.notices_refused >= 4; }));
  const std::uint64_t before = server.housekept;
  EXPECT_TRUE(eventually([&] { return server.housekept >= before + 8; }, 3s)) << server.housekept - before;
  over = true;
  for (std::thread& thread : threads) thread.join();
  for (const spi::Grant& grant : held) gate->release(grant);
}

TEST(Loss, of_a_lock_that_is_extended_is_an_error) {  // B4
  ScriptedServer server;
  const auto gate = open_scripted(server);
  const spi::Grant grant = *acquire(*gate, {"u1"});
  server.hang_up(server.sessions_that_hold().front());
  const auto error = error_of([&] { (void)extend(*gate, grant, {"u2"}); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::lost) << error->what();
  gate->release(grant);
  EXPECT_TRUE(try_acquire(*gate, {"u1"}).has_value());
}

// As MariaDB does with innodb_rollback_on_timeout=ON.
TEST(Loss, of_a_lock_whose_extend_the_store_refuses_is_an_error) {  // B3, B4
  for (const bool waits : {false, true}) {
    ScriptedServer server;
    const auto gate = open_scripted(server), other = open_scripted(server);
    const spi::Grant taken = *acquire(*other, {"u2"});
    const spi::Grant grant = *acquire(*gate, {"u1"});
    server.unlocks_if_busy = true;
    const PlanOf wanted({"u2"});
    spi::Request request{.plan = wanted.plan()};
    request.no_wait = !waits;
    if (waits) request.deadline = Clock::now() + 50ms;
    const auto error = error_of([&] { (void)gate->extend(grant, request); });
    EXPECT_FALSE(gate->held(grant)) << waits;
    ASSERT_TRUE(error.has_value()) << waits;
    EXPECT_EQ(error->kind(), ErrorKind::lost) << error->what();
    gate->release(grant);
    EXPECT_TRUE(try_acquire(*other, {"u1"}).has_value()) << waits;
    other->release(taken);
  }
}

TEST(Loss, a_session_of_a_proxy_that_mixes_them_is_refused) {  // H17
  ScriptedServer server;
  server.mixes_sessions = true;
  const auto gate = open_scripted(server);
  const auto error = error_of([&] { (void)acquire(*gate, {"u1"}); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::unsafe_topology);
  EXPECT_TRUE(eventually([&] { return server.holding() == 0; }));
}

// --- heartbeats ------------------------------------------------------------------------------------------

TEST(Heartbeats, go_on_while_notices_take_for_ever) {  // B4, B12: a healthy server loses no lock
  ScriptedServer server;
  server.notice_time = std::chrono::milliseconds(1h);
  const auto gate = open_scripted(server);
  const spi::Grant grant = *acquire(*gate, {"u1"});
  EXPECT_TRUE(eventually([&] { return server.beats > 3; }));
  EXPECT_TRUE(gate->held(grant));
  gate->release(grant);
}

TEST(Heartbeats, whose_answer_was_read_with_the_question_count) {  // B4: held() must not be false meanwhile
  ScriptedServer server;
  server.answers_at_once = true;
  const auto gate = open_scripted(server);
  const spi::Grant grant = *acquire(*gate, {"u1"});
  EXPECT_TRUE(eventually([&] { return server.beats > 3; })) << server.beats << " questions";
  EXPECT_TRUE(gate->held(grant));
  gate->release(grant);
}

// The answer to a heartbeat comes just before the release, or while that is on its way. A release that waited until
// somebody else had read it took 0.9 s, and the next holder had the lock after 1.1 s.
TEST(Heartbeats, a_release_does_not_wait_for_the_thread_that_reads_the_answer) {  // B6
  const auto next_holds_after = [](std::chrono::milliseconds late) {
    ScriptedServer server;
    const auto gate = open_scripted(server), other = open_scripted(server);
    const spi::Grant grant = *acquire(*gate, {"u1"});
    server.be_silent(true);
    EXPECT_TRUE(eventually([&] { return server.beats > 0; }));
    const Clock::time_point begin = Clock::now();
    std::thread answers([&] {
      std::this_thread::sleep_until(begin + late);
      server.be_silent(false);
    });
    if (late == 0ms) answers.join();
    gate->release(grant);
    const std::optional<spi::Grant> next = acquire(*other, {"u1"}, patience);
    const Clock::duration took = Clock::now() - begin;
    if (answers.joinable()) answers.join();
    EXPECT_TRUE(next.has_value());
    if (next) other->release(*next);
    return took;
  };
  EXPECT_TRUE(once_within(300ms, [&] {
    auto late = std::async(std::launch::async, next_holds_after, 20ms);
    const Clock::duration soon = next_holds_after(0ms);
    return std::max(soon, late.get());
  }));
}

TEST(Heartbeats, a_release_at_a_silent_server_takes_less_than_a_second) {  // B6
  EXPECT_TRUE(once_within(1s, [] {
    ScriptedServer server;
    const auto gate = open_scripted(server);
    const spi::Grant grant = *acquire(*gate, {"u1"});
    server.be_silent(true);
    const Clock::time_point begin = Clock::now();
    gate->release(grant);
    const Clock::duration took = Clock::now() - begin;
    server.be_silent(false);
    EXPECT_TRUE(eventually([&] { return server.holding() == 0; }));
    return took;
  }));
}

// The lease counts from the question. A wait at the store is part of the time between question and answer.
TEST(Grants, after_a_wait_of_a_second_count_as_they_are) {  // B4
  ScriptedServer server;
  const auto one = open_scripted(server), two = open_scripted(server);
  const spi::Grant held = *acquire(*one, {"u1"});
  auto waits = std::async(std::launch::async, [&] { return acquire(*two, {"u1"}, patience); });
  EXPECT_EQ(waits.wait_for(1200ms), std::future_status::timeout);
  server.silent_after_wait = true;
  one->release(held);
  const std::optional<spi::Grant> grant = waits.get();  // although the server says nothing more
  ASSERT_TRUE(grant);
  EXPECT_TRUE(two->held(*grant));
  server.be_silent(false);
}

TEST(Grants, that_come_after_half_of_the_lease_are_confirmed_first) {  // B4
  for (const bool answers : {true, false}) {
    ScriptedServer server;
    const auto one = open_scripted(server), two = open_scripted(server, 16, 20ms, Owners::per_thread, true, 600ms);
    const spi::Grant held = *acquire(*one, {"u1"});
    auto waits = std::async(std::launch::async, [&] { return acquire(*two, {"u1"}, patience); });
    EXPECT_EQ(waits.wait_for(400ms), std::future_status::timeout);
    server.silent_after_wait = !answers;
    const std::uint64_t beats = server.beats;
    one->release(held);
    if (answers) {
      const std::optional<spi::Grant> grant = waits.get();
      ASSERT_TRUE(grant);
      EXPECT_TRUE(two->held(*grant));
      EXPECT_GT(server.beats.load(), beats);
    } else {
      const std::optional<Error> error = error_of([&] { (void)waits.get(); });
      ASSERT_TRUE(error);
      EXPECT_EQ(error->kind(), ErrorKind::unavailable);
      server.be_silent(false);
      EXPECT_TRUE(eventually([&] { return server.holding() == 0; }));
    }
  }
}

// --- sessions --------------------------------------------------------------------------------------------

// How many requests wait for a session, as the note of a snapshot says.
std::size_t in_line(const spi::Backend& gate) {
  const std::vector<std::string> notes = gate.snapshot().notes;
  return notes.empty() ? 0 : std::stoul(notes.front());
}

TEST(Sessions, that_wait_leave_room_for_a_request_that_need_not) {  // B12
  ScriptedServer server;
  const auto other = open_scripted(server, 64), gate = open_scripted(server, 16);
  std::vector<spi::Grant> taken;
  std::vector<std::thread> waiting;
  for (int i = 0; i < 32; ++i) {
    const std::string path = "busy" + std::to_string(i);
    taken.push_back(*acquire(*other, {path}, std::nullopt, other->make_owner(path)));
  }
  for (int i = 0; i < 32; ++i) {
    waiting.emplace_back([&, i] {
      const auto grant = acquire(*gate, {"busy" + std::to_string(i)}, patience);
      EXPECT_TRUE(grant.has_value());
      if (grant) gate->release(*grant);
    });
  }
  ASSERT_TRUE(eventually([&] { return server.waiting() == 12 && in_line(*gate) == 20; })) << "three quarters wait";
  const auto free = acquire(*gate, {"free"}, patience);
  EXPECT_TRUE(free.has_value());
  if (free) gate->release(*free);
  EXPECT_TRUE(try_acquire(*gate, {"free2"}).has_value());
  EXPECT_EQ(server.waiting(), 12u);
  for (const spi::Grant& grant : taken) other->release(grant);
  for (std::thread& thread : waiting) thread.join();
}

TEST(Sessions, are_given_in_the_order_of_asking) {  // B12
  ScriptedServer server;
  const auto gate = open_scripted(server, 1);
  const spi::Grant first = *acquire(*gate, {"u0"});
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::vector<int> order;
  constexpr int many = 8;
  for (int i = 1; i <= many; ++i) {
    threads.emplace_back([&, i] {
      const auto grant = acquire(*gate, {"u" + std::to_string(i)}, patience);
      ASSERT_TRUE(grant.has_value());
      {
        const std::lock_guard guard(mutex);
        order.push_back(i);
      }
      gate->release(*grant);
    });
    // It stands in line when it is shown.
    ASSERT_TRUE(eventually([&] { return static_cast<int>(gate->snapshot().waiters.size()) == i; }));
  }
  gate->release(first);
  for (std::thread& thread : threads) thread.join();
  std::vector<int> expected(many);
  std::iota(expected.begin(), expected.end(), 1);
  EXPECT_EQ(order, expected);
}

TEST(Sessions, a_wait_for_one_is_shown_and_said_to_be_that) {  // B7
  ScriptedServer server;
  const auto gate = open_scripted(server, 1);
  const spi::Grant first = *acquire(*gate, {"u1"});
  std::thread waits([&] { EXPECT_FALSE(acquire(*gate, {"u2"}, 500ms).has_value()); });
  ASSERT_TRUE(eventually([&] { return !gate->snapshot().waiters.empty(); }));
  const Snapshot snapshot = gate->snapshot();
  ASSERT_EQ(snapshot.waiters.size(), 1u);
  EXPECT_EQ(snapshot.waiters[0].wanted, "u2");
  EXPECT_TRUE(snapshot.waiters[0].blocked_by.empty()) << "no holder is to blame";
  ASSERT_EQ(snapshot.notes.size(), 1u);
  EXPECT_NE(snapshot.notes[0].find("1 request waits for a connection"), std::string::npos);
  waits.join();
  gate->release(first);
}

TEST(Sessions, an_owner_that_holds_one_does_not_stand_in_line_for_another) {  // B12
  ScriptedServer server;
  const auto gate = open_scripted(server, 1);
  const spi::Grant first = *acquire(*gate, {"u1"});
  const auto error = error_of([&] { (void)acquire(*gate, {"u2"}); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::exhausted);
  gate->release(first);
}

TEST(Sessions, a_request_in_line_lets_those_pass_who_wait_for_it_and_have_the_sessions) {  // B11
  ScriptedServer server;
  const auto gate = open_scripted(server, 1);
  const spi::OwnerId a = gate->make_owner("a"), b = gate->make_owner("b");
  const spi::Grant held = *acquire(*gate, {"u1"}, std::nullopt, a);
  std::thread in_line([&] {  // has its place in the queue for u2, and waits for a session
    const auto grant = acquire(*gate, {"u2"}, patience, b);
    EXPECT_TRUE(grant.has_value());
    if (grant) gate->release(*grant);
  });
  ASSERT_TRUE(eventually([&] { return !gate->snapshot().waiters.empty(); }));
  const auto more = extend(*gate, held, {"u2"}, patience);
  EXPECT_TRUE(more.has_value()) << "the extend has a session";
  gate->release(more ? *more : held);
  in_line.join();
}

TEST(Sessions, those_who_want_one_target_keep_their_order_while_there_are_none) {  // B8
  ScriptedServer server;
  const auto gate = open_scripted(server, 1);
  const spi::Grant first = *acquire(*gate, {"other"});
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::vector<int> order;
  constexpr int many = 6;
  for (int i = 0; i < many; ++i) {
    threads.emplace_back([&, i] {
      const auto grant = acquire(*gate, {"hot"}, patience);
      ASSERT_TRUE(grant.has_value());
      {
        const std::lock_guard guard(mutex);
        order.push_back(i);
      }
      gate->release(*grant);
    });
    ASSERT_TRUE(eventually([&] { return static_cast<int>(gate->snapshot().waiters.size()) == i + 1; }));
  }
  // Time in which the first of them must keep its place, although five others wait for it.
  const Clock::time_point begin = Clock::now();
  EXPECT_TRUE(eventually([&] { return Clock::now() - begin > 700ms; }));
  gate->release(first);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5}));
}

TEST(Sessions, a_request_that_let_others_pass_keeps_its_place_in_line) {  // B8
  ScriptedServer server;
  const auto gate = open_scripted(server, 1);
  const spi::OwnerId a = gate->make_owner("a");
  const spi::Grant held = *acquire(*gate, {"u1"}, std::nullopt, a);
  std::mutex mutex;
  std::vector<std::string> order;
  std::vector<std::thread> threads;
  for (const char* path : {"u2", "u3", "u4"}) {
    threads.emplace_back([&, path] {
      const auto grant = acquire(*gate, {path}, patience);
      ASSERT_TRUE(grant.has_value());
      {
        const std::lock_guard guard(mutex);
        order.push_back(path);
      }
      if (path == std::string("u3")) {  // unless u2 was served before, it is in line again by now
        EXPECT_TRUE(eventually([&] {
          const std::lock_guard guard(mutex);
          return order.size() == 2 || in_line(*gate) == 3;
        }));
      }
      gate->release(*grant);
    });
    ASSERT_TRUE(eventually([&] { return gate->snapshot().waiters.size() == threads.size(); }));
  }
  const auto more = extend(*gate, held, {"u2"}, patience);  // u2's request is the first in line, and lets it pass
  EXPECT_TRUE(more.has_value());
  // It comes to wait in the local queue. When the extended lock ends, it is in line again, before those that came
  // later.
  EXPECT_TRUE(eventually([&] { return gate->snapshot().waiters.size() == 3; }));
  std::thread later([&] {
    const auto grant = acquire(*gate, {"u5"}, patience);
    ASSERT_TRUE(grant.has_value());
    const std::lock_guard guard(mutex);
    order.push_back("u5");
    gate->release(*grant);
  });
  EXPECT_TRUE(eventually([&] { return in_line(*gate) == 3; }));
  gate->release(more ? *more : held);
  for (std::thread& thread : threads) thread.join();
  later.join();
  const auto place_of = [&](const char* path) { return std::find(order.begin(), order.end(), path) - order.begin(); };
  EXPECT_LT(place_of("u2"), 2) << "it came before u4 and u5, and stands before them";
  EXPECT_EQ(order.back(), "u5");
}

// The pool alone, with notices that stand as the test says.
struct PoolOf {
  explicit PoolOf(std::size_t most)
      : pool(most, [this](WaitLimit&) { return std::make_unique<testing::ScriptedSession>(server, open); }) {
    pool.set_stands([this](std::uint64_t session) { return session == standing; });
  }
  ~PoolOf() { pool.close(Clock::now()); }
  SessionPool::Taken take(std::uint64_t owner, SessionPool::Place place = SessionPool::Place::any) {
    std::uint64_t ticket = 0;
    return pool.take({owner, {.plan = wanted.plan()}, owner, &ticket}, place);
  }
  void granted(SessionPool::Taken& taken) {
    pool.granted(taken);
    taken.may_wait = false;
  }

  ScriptedServer server;
  const std::shared_ptr<OpenSessions> open = std::make_shared<OpenSessions>();
  const PlanOf wanted{{"u1"}};
  std::atomic<std::uint64_t> standing = 0;
  SessionPool pool;
};

TEST(Sessions, that_come_back_are_given_although_another_is_kept_aside) {  // B12
  PoolOf of(2);
  SessionPool::Taken one = of.take(1), two = of.take(2);
  of.granted(one);
  of.granted(two);
  of.standing = one.session->id();
  of.pool.put_back(std::move(one), 1);  // its notice stands
  auto waits = std::async(std::launch::async, [&] { of.pool.put_back(of.take(3), 3); });
  ASSERT_TRUE(eventually([&] { return of.pool.in_line().size() == 1; }));
  of.pool.put_back(std::move(two), 2);
  EXPECT_EQ(waits.wait_for(500ms), std::future_status::ready);
  waits.wait();
}

TEST(Sessions, that_are_kept_aside_free_a_place_among_the_waiting) {  // B12
  PoolOf of(4);
  std::vector<SessionPool::Taken> waiting;
  for (std::uint64_t owner = 1; owner <= 3; ++owner) waiting.push_back(of.take(owner));
  ASSERT_TRUE(waiting[2].may_wait) << "three of four may wait";
  auto waits = std::async(std::launch::async, [&] { of.pool.put_back(of.take(9, SessionPool::Place::waiting), 9); });
  ASSERT_TRUE(eventually([&] { return of.pool.in_line().size() == 1; }));
  of.standing = waiting[0].session->id();
  of.pool.put_back(std::move(waiting[0]), 1);  // a wait that has ended; its notice stands
  EXPECT_EQ(waits.wait_for(500ms), std::future_status::ready);
  waits.wait();
  of.pool.put_back(std::move(waiting[1]), 2);
  of.pool.put_back(std::move(waiting[2]), 3);
}

TEST(Sessions, of_nobody_that_still_hold_are_waited_for_by_an_owner_that_cannot_stand_in_line) {  // B8, B12
  PoolOf of(2);
  SessionPool::Taken one = of.take(1), two = of.take(2);
  of.granted(one);
  of.granted(two);
  of.pool.give(2, SessionPool::nobody);  // its lock is released, and parked for the next owner
  auto waits = std::async(std::launch::async, [&] { return error_of([&] { of.pool.put_back(of.take(1), 1); }); });
  EXPECT_NE(waits.wait_for(10ms), std::future_status::ready);
  of.pool.put_back(std::move(two), SessionPool::nobody);
  const auto error = waits.get();
  EXPECT_FALSE(error) << error->what();
  of.pool.put_back(std::move(one), 1);
}

TEST(Sessions, of_nobody_that_the_next_owner_takes_over_are_in_use) {  // B8, B12
  PoolOf of(2);
  SessionPool::Taken one = of.take(1), two = of.take(2);
  of.granted(one);
  of.granted(two);
  of.pool.give(2, SessionPool::nobody);
  of.pool.give(SessionPool::nobody, 3);
  const auto error = error_of([&] { (void)of.take(1); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::exhausted);
  of.pool.put_back(std::move(one), 1);
  of.pool.put_back(std::move(two), 3);
}

TEST(Sessions, whose_notices_stay_are_replaced_for_an_owner_that_cannot_stand_in_line) {  // B12
  PoolOf of(2);
  SessionPool::Taken one = of.take(1), two = of.take(2);
  of.granted(one);
  of.granted(two);
  const std::uint64_t aside = two.session->id();
  of.standing = aside;
  of.pool.put_back(std::move(two), 2);
  const auto error = error_of([&] {
    SessionPool::Taken other = of.take(1);
    EXPECT_NE(other.session->id(), aside) << "others know it by its notice";
    of.pool.put_back(std::move(other), 1);
  });
  EXPECT_FALSE(error) << error->what();
  of.pool.put_back(std::move(one), 1);
}

// Each look at a session asks whether its notice stands.
TEST(Sessions, that_were_kept_aside_are_let_in_in_linear_time) {  // B12
  constexpr std::uint64_t many = 100;
  PoolOf of(many);
  std::vector<SessionPool::Taken> all;
  for (std::uint64_t owner = 1; owner <= many; ++owner) all.push_back(of.take(owner));
  std::set<std::uint64_t> standing;
  std::uint64_t asked = 0;
  of.pool.set_stands([&](std::uint64_t session) { return ++asked, standing.contains(session); });
  for (const SessionPool::Taken& taken : all) standing.insert(taken.session->id());
  for (std::uint64_t owner = 1; owner <= many; ++owner) of.pool.put_back(std::move(all[owner - 1]), owner);
  while (standing.size() > many / 2) standing.erase(std::prev(standing.end()));
  asked = 0;
  of.pool.let_in();
  EXPECT_LE(asked, 2 * many);
  for (std::uint64_t owner = 1; owner <= many / 2; ++owner) {
    all[owner - 1] = of.take(owner);
    EXPECT_FALSE(standing.contains(all[owner - 1].session->id()));
  }
  EXPECT_EQ(of.server.connected, many) << "none was made anew";
  for (std::uint64_t owner = 1; owner <= many / 2; ++owner) of.pool.put_back(std::move(all[owner - 1]), owner);
}

TEST(Sessions, that_were_kept_aside_go_to_the_first_in_line) {  // B8
  PoolOf of(1);
  SessionPool::Taken one = of.take(1);
  of.granted(one);
  of.standing = one.session->id();
  of.pool.put_back(std::move(one), 1);
  std::mutex mutex;
  std::vector<std::uint64_t> order;
  std::vector<std::thread> threads;
  for (std::uint64_t owner = 2; owner <= 6; ++owner) {
    threads.emplace_back([&, owner] {
      SessionPool::Taken taken = of.take(owner);
      {
        const std::lock_guard guard(mutex);
        order.push_back(owner);
      }
      of.pool.put_back(std::move(taken), owner);
    });
    ASSERT_TRUE(eventually([&] { return of.pool.in_line().size() == owner - 1; }));
  }
  of.standing = 0;
  of.pool.let_in();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(order, (std::vector<std::uint64_t>{2, 3, 4, 5, 6}));
}

// --- releases whose answer is still to come ----------------------------------------------------------------

TEST(Release, returns_before_the_store_has_answered) {  // B6
  ScriptedServer server;
  const auto gate = open_scripted(server);
  const spi::Grant grant = *acquire(*gate, {"u1"});
  server.unlock_late(true);
  gate->release(grant);
  EXPECT_EQ(server.holding(), 1U);
  server.unlock_late(false);
  EXPECT_EQ(server.holding(), 0U);
  EXPECT_TRUE(try_acquire(*gate, {"u1"}).has_value());
  EXPECT_EQ(server.connected, 1U) << "the same session is used again";
}

TEST(Release, a_session_without_an_answer_is_taken_last) {
  PoolOf of(3);
  SessionPool::Taken one = of.take(1), two = of.take(2);
  const std::uint64_t first = one.session->id(), second = two.session->id();
  one.unlock = SessionPool::begun;
  of.pool.put_back(std::move(one), 1);
  of.pool.put_back(std::move(two), 2);
  SessionPool::Taken next = of.take(3), last = of.take(4);
  EXPECT_EQ(next.session->id(), second);
  EXPECT_EQ(next.unlock, 0U);
  EXPECT_EQ(last.session->id(), first);
  EXPECT_NE(last.unlock, 0U);
  EXPECT_EQ(next.before, last.unlock) << "a request that does not wait knows what is still to be answered";
  of.pool.unlocked(std::exchange(last.unlock, 0));
  of.pool.put_back(std::move(next), 3);
  of.pool.put_back(std::move(last), 4);
  EXPECT_EQ(of.server.connected, 2U) << "a store that is near is worth no third session";
}

TEST(Release, if_the_store_is_far_away_another_session_is_made_meanwhile) {
  PoolOf of(2);
  const auto again_and_again = [&] {
    SessionPool::Taken one = of.take(1);
    of.pool.unlocked(std::exchange(one.unlock, 0));
    one.unlock = SessionPool::begun;
    one.session->usual_answer = 1h;
    of.pool.put_back(std::move(one), 1);
    return of.server.connected == 2U;
  };
  EXPECT_FALSE(again_and_again());
  EXPECT_TRUE(eventually(again_and_again));
}

// As many threads as there are need one more session each.
TEST(Release, if_the_store_is_far_away_sessions_are_made_as_long_as_they_are_missed) {
  PoolOf of(3);
  const auto again_and_again = [&] {
    SessionPool::Taken one = of.take(1);
    of.pool.unlocked(std::exchange(one.unlock, 0));
    one.unlock = SessionPool::begun;
    one.session->usual_answer = 1h;
    of.pool.put_back(std::move(one), 1);
    return of.server.connected == 3U;
  };
  EXPECT_TRUE(eventually(again_and_again));
}

TEST(Release, what_was_released_before_is_not_busy_for_a_request_that_does_not_wait) {  // H8, B6
  ScriptedServer server;
  const auto gate = open_scripted(server);
  const spi::Grant other = *acquire(*gate, {"u9"});  // so that there is a second session
  const spi::Grant grant = *acquire(*gate, {"u1"}, std::nullopt, gate->make_owner("one"));
  gate->release(other);
  server.unlock_late(true);
  gate->release(grant);
  auto tries = std::async(std::launch::async, [&] { return try_acquire(*gate, {"u1"}).has_value(); });
  EXPECT_TRUE(eventually([&] { return server.asked == 3U; }));
  server.unlock_late(false);
  EXPECT_TRUE(tries.get());
}

TEST(Release, what_was_released_before_is_not_busy_for_an_extend_that_does_not_wait) {  // H8, B6
  ScriptedServer server;
  const auto gate = open_scripted(server);
  const spi::Grant kept = *acquire(*gate, {"u9"});
  const spi::Grant grant = *acquire(*gate, {"u1"}, std::nullopt, gate->make_owner("one"));
  server.unlock_late(true);
  gate->release(grant);
  auto tries = std::async(std::launch::async, [&] {
    const PlanOf wanted({"u1"});
    return gate->extend(kept, {.plan = wanted.plan(), .no_wait = true}).has_value();
  });
  EXPECT_TRUE(eventually([&] { return server.asked == 3U; }));
  server.unlock_late(false);
  EXPECT_TRUE(tries.get());
  gate->release(kept);
}

// A request beside the waiting asks without waiting. It must not have to wait for a place among them if nobody holds
// what it asks for.
TEST(Release, what_was_released_before_needs_no_place_among_the_waiting) {  // B12
  ScriptedServer server;
  const auto other = open_scripted(server), gate = open_scripted(server, 8);
  const spi::Grant one = *acquire(*gate, {"u1"}, std::nullopt, gate->make_owner("one"));
  const spi::Grant two = *acquire(*gate, {"u2"}, std::nullopt, gate->make_owner("two"));
  std::vector<spi::Grant> taken;
  std::vector<std::thread> waiting;
  for (int i = 0; i < 6; ++i) {
    const std::string path = "busy" + std::to_string(i);
    taken.push_back(*acquire(*other, {path}, std::nullopt, other->make_owner(path)));
    waiting.emplace_back([&gate, path] {
      const auto got = acquire(*gate, {path}, 3 * patience);
      EXPECT_TRUE(got.has_value());
      if (got) gate->release(*got);
    });
  }
  ASSERT_TRUE(eventually([&] { return server.waiting() == 6; })) << "three quarters wait";
  gate->release(two);  // so that there is a session to ask on
  server.unlock_late(true);
  gate->release(one);
  const std::uint64_t asked = server.asked;
  auto asks = std::async(std::launch::async, [&] {
    const auto got = acquire(*gate, {"u1"}, patience);
    if (got) gate->release(*got);
    return got.has_value();
  });
  EXPECT_TRUE(eventually([&] { return server.asked == asked + 1; })) << "it has overtaken the unlock";
  server.unlock_late(false);
  EXPECT_TRUE(asks.get());
  for (const spi::Grant& grant : taken) other->release(grant);
  for (std::thread& thread : waiting) thread.join();
}

// Its answer is late: a request that is cancelled does not wait for it.
TEST(Release, whose_answer_is_late_does_not_keep_a_cancelled_request_beside_the_waiting) {  // H2
  PoolOf of(1);
  SessionPool::Taken taken = of.take(1);
  of.server.unlock_late(true);
  taken.session->begin_unlock_all();
  taken.unlock = SessionPool::begun;
  of.pool.put_back(std::move(taken), 1);
  std::stop_source cancel;
  auto waits = std::async(std::launch::async, [&] {
    of.pool.wait_for_unlocks(SessionPool::begun, Clock::now() + patience, cancel.get_token());
  });
  cancel.request_stop();
  EXPECT_EQ(waits.wait_for(patience / 2), std::future_status::ready);
  of.server.unlock_late(false);
  taken = of.take(2);
  EXPECT_NE(taken.unlock, 0U) << "the session is left to the next one";
  Deadline limit(patience);
  EXPECT_EQ(taken.session->wait_for_answer(limit), Session::Answer::good);
  of.pool.put_back(std::move(taken), 2);
  EXPECT_EQ(of.server.connected, 1U);
}

TEST(Release, of_a_lock_that_others_hold_still_finds_it_busy) {  // H8
  ScriptedServer server;
  const auto gate = open_scripted(server), elsewhere = open_scripted(server);
  const spi::Grant taken = *acquire(*elsewhere, {"u1"});
  gate->release(*acquire(*gate, {"u2"}));
  EXPECT_FALSE(try_acquire(*gate, {"u1"}).has_value());
  elsewhere->release(taken);
}

TEST(Release, that_the_store_never_answers_ends_with_the_session) {  // B6
  ScriptedServer server;
  const auto gate = open_scripted(server);
  const spi::Grant grant = *acquire(*gate, {"u1"});
  server.unlock_late(true);
  gate->release(grant);
  EXPECT_TRUE(eventually([&] { return server.holding() == 0; }));
  server.unlock_late(false);
  EXPECT_TRUE(try_acquire(*gate, {"u1"}).has_value());
  EXPECT_EQ(server.connected, 2U);
}

TEST(Release, whose_session_is_ended_by_the_store_costs_the_next_request_nothing) {  // B4
  ScriptedServer server;
  const auto gate = open_scripted(server);
  const spi::Grant grant = *acquire(*gate, {"u1"});
  server.unlock_late(true);
  gate->release(grant);
  server.hang_up(server.sessions_that_hold().front());
  server.unlock_late(false);
  EXPECT_TRUE(try_acquire(*gate, {"u1"}).has_value());
}

TEST(Release, whose_answer_is_late_does_not_keep_the_next_request_past_its_deadline) {  // B3
  ScriptedServer server;
  const auto gate = open_scripted(server, 1);
  const spi::Grant grant = *acquire(*gate, {"u1"});
  server.unlock_late(true);
  gate->release(grant);
  const Clock::time_point begin = Clock::now();
  EXPECT_FALSE(acquire(*gate, {"u2"}, 10ms).has_value());
  EXPECT_LT(Clock::now() - begin, stall);
  server.unlock_late(false);
  EXPECT_TRUE(acquire(*gate, {"u2"}, patience).has_value());
}

TEST(Release, whose_answer_is_late_does_not_keep_a_request_that_is_cancelled) {  // B3
  ScriptedServer server;
  const auto gate = open_scripted(server, 1);
  const spi::Grant grant = *acquire(*gate, {"u1"});
  server.unlock_late(true);
  gate->release(grant);
  std::stop_source cancel;
  cancel.request_stop();
  const PlanOf wanted({"u2"});
  const std::stop_token token = cancel.get_token();
  const auto error = error_of([&] { (void)gate->acquire({.plan = wanted.plan(), .cancel = &token}); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::cancelled);
  server.unlock_late(false);
  EXPECT_TRUE(acquire(*gate, {"u2"}, patience).has_value());
}

TEST(Release, is_over_when_the_gate_is_closed) {  // B6
  ScriptedServer server;
  auto gate = open_scripted(server);
  const spi::Grant grant = *acquire(*gate, {"u1"});
  server.unlock_late(true);
  gate->release(grant);
  auto closes = std::async(std::launch::async, [&] { gate->close(); });
  EXPECT_EQ(closes.wait_for(20ms), std::future_status::timeout);
  server.unlock_late(false);
  closes.wait();
  EXPECT_EQ(server.holding(), 0U);
}

TEST(Release, that_the_store_does_not_answer_leaves_no_session_when_the_pool_is_closed) {  // B6
  PoolOf of(3);
  std::vector<SessionPool::Taken> all;
  for (std::uint64_t owner = 1; owner <= 3; ++owner) all.push_back(of.take(owner));
  of.server.unlock_late(true);
  for (std::uint64_t owner = 1; SessionPool::Taken & one : all) {
    one.session->begin_unlock_all();
    one.unlock = SessionPool::begun;
    of.pool.put_back(std::move(one), owner++);
  }
  EXPECT_EQ(of.server.open(), 3U);
  of.pool.close(Clock::now());
  EXPECT_EQ(of.server.open(), 0U);
}

// Its notice came to stand while it was released.
TEST(Release, of_a_session_that_is_kept_aside_does_not_hold_up_the_closing) {  // B6
  PoolOf of(1);
  SessionPool::Taken one = of.take(1);
  of.standing = one.session->id();
  one.session->begin_unlock_all();
  one.unlock = SessionPool::begun;
  of.pool.put_back(std::move(one), 1);
  const Clock::time_point begin = Clock::now();
  of.pool.close(begin + patience);
  EXPECT_LT(Clock::now() - begin, patience / 2);
  EXPECT_EQ(of.server.open(), 0U);
}

// --- sessions and extends ---------------------------------------------------------------------------------

TEST(Sessions, a_lock_released_during_an_extend_gives_its_session_back) {  // B6, B12
  ScriptedServer server;
  const auto other = open_scripted(server), gate = open_scripted(server, 1);
  const spi::Grant taken = *acquire(*other, {"u2"});
  const spi::Grant held = *acquire(*gate, {"u1"});
  std::thread extends([&] { error_of([&] { (void)extend(*gate, held, {"u2"}, patience); }); });
  ASSERT_TRUE(eventually([&] { return server.waiting() == 1; }));
  const Clock::time_point begin = Clock::now();
  gate->release(held);
  EXPECT_LT(Clock::now() - begin, 1s + stall);
  other->release(taken);
  extends.join();
  EXPECT_TRUE(acquire(*gate, {"u3"}, patience).has_value()) << "the only session is free, or another was made";
}

// OpenOptions::long_wait may be as long as the user likes.
TEST(Sessions, a_wait_for_one_keeps_its_deadline_if_the_user_is_never_told_again) {  // H2
  struct Once final : spi::WaitObserver {
    std::chrono::nanoseconds waits(const spi::Waiting&) noexcept override {
      ++told;
      return std::chrono::nanoseconds::max();
    }
    std::atomic<int> told = 0;
  } observer;
  ScriptedServer server;
  const auto gate = open_scripted(server, 1);
  const spi::Grant first = *acquire(*gate, {"u1"});
  const PlanOf wanted({"u2"});
  std::stop_source cancel;  // so that the test comes to its end
  const std::stop_token token = cancel.get_token();
  auto waits = std::async(std::launch::async, [&] {
    spi::Request request{.plan = wanted.plan(), .deadline = Clock::now() + 50ms};
    request.cancel = &token;
    request.observer = &observer;
    return !error_of([&] { EXPECT_FALSE(gate->acquire(request).has_value()); });
  });
  EXPECT_EQ(waits.wait_for(patience / 4), std::future_status::ready);
  cancel.request_stop();
  EXPECT_TRUE(waits.get()) << "it was not cancelled";
  EXPECT_EQ(observer.told, 1);
  gate->release(first);
}

TEST(Signals, that_are_waited_for_until_a_moment_before_the_clock_began_are_late) {
  timed::Signal signal;
  EXPECT_FALSE(signal.wait_until(Clock::time_point(-1s)));
  signal.set();
  EXPECT_TRUE(signal.wait_until(Clock::time_point(-1s)));
}

TEST(Sessions, a_cancelled_wait_for_one_ends_at_once) {  // H2
  ScriptedServer server;
  const auto gate = open_scripted(server, 1);
  const spi::Grant first = *acquire(*gate, {"u1"});
  std::stop_source cancel;
  const std::stop_token token = cancel.get_token();
  std::optional<Error> error;
  std::thread waits([&] {
    const PlanOf wanted({"u2"});
    error = error_of([&] { (void)gate->acquire({.plan = wanted.plan(), .cancel = &token}); });
  });
  ASSERT_TRUE(eventually([&] { return !gate->snapshot().waiters.empty(); }));
  cancel.request_stop();
  waits.join();
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::cancelled);
  gate->release(first);
}

// --- hand-over -------------------------------------------------------------------------------------------

// Threads of one process that take turns on one lock.
struct Turns {
  std::mutex mutex;
  std::vector<int> order;
  std::vector<std::int64_t> fences;
  std::vector<std::thread> threads;

  // Starts threads one after the other; each is seen in the queue before the next begins.
  void wait_in_order(spi::Backend& gate, int many, const std::string& path, std::size_t others = 0) {
    for (int i = 0; i < many; ++i) {
      threads.emplace_back([&, i, path] {
        const auto grant = acquire(gate, {path}, patience);
        ASSERT_TRUE(grant.has_value());
        {
          const std::lock_guard guard(mutex);
          order.push_back(i);
          fences.push_back(grant->fence);
        }
        gate.release(*grant);
      });
      ASSERT_TRUE(eventually([&] { return gate.snapshot().waiters.size() == others + threads.size(); }));
    }
  }
  void join() {
    for (std::thread& thread : threads) thread.join();
    threads.clear();
  }
};

TEST(HandOvers, go_to_the_next_in_the_queue_without_asking_the_store) {  // B8
  ScriptedServer server;
  const auto gate = open_scripted(server);
  const spi::Grant first = *acquire(*gate, {"hot"});
  Turns turns;
  turns.wait_in_order(*gate, 5, "hot");
  // The store's grant is old by now: the first to come asks the store, the others take over from it.
  const std::uint64_t asked = server.asked;
  gate->release(first);
  turns.join();
  EXPECT_EQ(turns.order, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_LE(server.asked - asked, 2u) << "five grants";
  for (std::size_t i = 0; i < turns.fences.size(); ++i) {  // B3
    EXPECT_GT(turns.fences[i], i == 0 ? first.fence : turns.fences[i - 1]);
  }
  EXPECT_EQ(server.holding(), 0u) << "nothing is left";
}

TEST(HandOvers, can_be_switched_off_and_the_queue_keeps_its_order) {  // B8
  ScriptedServer server;
  const auto gate = open_scripted(server, 16, 20ms, Owners::per_thread, false);
  const spi::Grant first = *acquire(*gate, {"hot"});
  Turns turns;
  turns.wait_in_order(*gate, 5, "hot");
  const std::uint64_t asked = server.asked;
  gate->release(first);
  turns.join();
  EXPECT_EQ(turns.order, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(server.asked - asked, 5u) << "every lock comes from the store";
  EXPECT_EQ(server.holding(), 0u);
}

// The wait of the one before was published, and its notice is still there. That need not keep the next one from taking
// over, unless the one before holds something else: others may wait for that.
TEST(HandOvers, do_not_wait_for_the_notice_of_a_wait_to_go) {  // B8
  for (const bool holds_more : {false, true}) {
    const auto handed_over = [&] {
      ScriptedServer server;
      const auto gate = open_scripted(server, 16, 1s), other = open_scripted(server, 16, 1s);
      const spi::Grant before = *acquire(*other, {"hot"});
      const spi::OwnerId owner = gate->make_owner("waits first");
      std::optional<spi::Grant> more, first, next;
      if (holds_more) more = acquire(*gate, {"more"}, patience, owner);
      std::thread waits([&] { first = acquire(*gate, {"hot"}, patience, owner); });
      EXPECT_TRUE(eventually([&] { return waits_of(server).size() == 1; }));
      std::thread queues([&] { next = acquire(*gate, {"hot"}, patience); });
      EXPECT_TRUE(eventually([&] { return gate->snapshot().waiters.size() == 2; }));
      server.notice_time = 200ms;  // to remove it
      other->release(before);
      waits.join();
      const std::uint64_t asked = server.asked;
      gate->release(*first);
      queues.join();
      const bool from_the_store = server.asked > asked;
      server.notice_time = 0ms;
      EXPECT_GT(next->fence, first->fence);
      gate->release(*next);
      if (more) gate->release(*more);
      return !from_the_store;
    };
    bool any = false;  // the machine may stall, and a lock is handed over only for 50 ms
    for (int i = 0; i < (holds_more ? 1 : 5) && !any; ++i) any = handed_over();
    EXPECT_NE(any, holds_more);
  }
}

TEST(HandOvers, are_at_most_a_hundred_in_a_row_and_fences_rise_across_processes) {  // B3, B8
  ScriptedServer server;
  const auto one = open_scripted(server), two = open_scripted(server);
  std::atomic<bool> over = false;
  std::mutex mutex;
  std::vector<std::pair<std::int64_t, int>> log;  // fence and process, in the order of grants
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&, i] {
      spi::Backend& gate = i % 2 == 0 ? *one : *two;
      while (!over) {
        const auto grant = acquire(gate, {"hot"}, patience);
        if (!grant) continue;
        {
          const std::lock_guard guard(mutex);
          log.emplace_back(grant->fence, i % 2);
        }
        gate.release(*grant);
      }
    });
  }
  EXPECT_TRUE(eventually([&] {
    const std::lock_guard guard(mutex);
    return log.size() > server.asked + 1000;
  })) << "a thousand hand-overs";
  over = true;
  for (std::thread& thread : threads) thread.join();
  std::size_t changes = 0, in_a_row = 0, most = 0;
  for (std::size_t i = 1; i < log.size(); ++i) {
    ASSERT_GT(log[i].first, log[i - 1].first) << "grant " << i;
    const bool handed_over = log[i].first / 128 == log[i - 1].first / 128;
    in_a_row = handed_over ? in_a_row + 1 : 0;
    most = std::max(most, in_a_row);
    if (handed_over) {
      ASSERT_EQ(log[i].second, log[i - 1].second) << "inside of a process";
    }
    changes += log[i].second != log[i - 1].second ? 1 : 0;
  }
  EXPECT_EQ(most, 100u);
  EXPECT_GE(changes, 1u) << "both get turns; whose it is the scripted server leaves to chance";
}

TEST(HandOvers, stop_when_another_plan_is_next_and_its_rows_are_free_then) {  // B8
  ScriptedServer server;
  const auto gate = open_scripted(server);
  const spi::Grant first = *acquire(*gate, {"u1/a1"});
  std::vector<std::thread> threads;
  const auto asks = [&](const std::string& path) {
    threads.emplace_back([&, path] {
      const auto grant = acquire(*gate, {path}, patience);
      EXPECT_TRUE(grant.has_value()) << path;
      if (grant) gate->release(*grant);
    });
    ASSERT_TRUE(eventually([&] { return gate->snapshot().waiters.size() == threads.size(); }));
  };
  asks("u1/a1");
  asks("u1");  // behind the former, before the next
  asks("u1/a1");
  gate->release(first);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(server.holding(), 0u);
}

TEST(HandOvers, leave_nothing_locked_when_the_one_that_waited_gives_up) {  // B8
  ScriptedServer server;
  const auto gate = open_scripted(server);
  for (int turn = 0; turn < 200; ++turn) {
    const auto first = acquire(*gate, {"hot"}, patience);
    ASSERT_TRUE(first.has_value());
    std::stop_source cancel;
    const std::stop_token token = cancel.get_token();
    std::thread waits([&] {
      const PlanOf wanted({"hot"});
      const auto error = error_of([&] {
        const auto grant = gate->acquire({.plan = wanted.plan(), .cancel = &token});
        if (grant) gate->release(*grant);
      });
      EXPECT_TRUE(!error || error->kind() == ErrorKind::cancelled);
    });
    std::thread cancels([&] { cancel.request_stop(); });
    gate->release(*first);
    waits.join();
    cancels.join();
  }
  EXPECT_TRUE(eventually([&] { return server.holding() == 0; }));
}

// A request may be next for a part of its plan and wait for long for the rest. The parked lock must not stay locked.
TEST(HandOvers, of_a_lock_whose_waiter_is_held_up_elsewhere_are_given_back) {  // B8
  ScriptedServer server;
  const auto gate = open_scripted(server), other = open_scripted(server);
  const spi::OwnerId a = gate->make_owner("a"), b = gate->make_owner("b");
  const spi::Grant long_one = *acquire(*gate, {"z"}, std::nullopt, a);
  const spi::Grant first = *acquire(*gate, {"m"}, std::nullopt, b);
  std::vector<std::thread> threads;
  threads.emplace_back([&] {  // gets m when it is released, and waits for z then
    const auto grant = acquire(*gate, {"m", "z"}, patience);
    if (grant) gate->release(*grant);
  });
  ASSERT_TRUE(eventually([&] { return gate->snapshot().waiters.size() == 1; }));
  threads.emplace_back([&] {
    const auto grant = acquire(*gate, {"m"}, patience);
    if (grant) gate->release(*grant);
  });
  ASSERT_TRUE(eventually([&] { return gate->snapshot().waiters.size() == 2; }));
  gate->release(first);
  const auto theirs = acquire(*other, {"m"}, patience);
  EXPECT_TRUE(theirs.has_value()) << "another process must get it";
  if (theirs) other->release(*theirs);
  gate->release(long_one);
  for (std::thread& thread : threads) thread.join();
}

TEST(HandOvers, of_a_lost_lock_do_not_happen_and_only_its_holder_is_told) {  // B4, B8
  ScriptedServer server;
  const auto gate = open_scripted(server);
  const spi::Grant first = *acquire(*gate, {"hot"});
  const std::stop_token lost = gate->lost(first);
  std::atomic<int> granted = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const auto grant = acquire(*gate, {"hot"}, patience);
      ASSERT_TRUE(grant.has_value());
      ++granted;
      EXPECT_TRUE(gate->held(*grant));
      EXPECT_FALSE(gate->lost(*grant).stop_requested());
      gate->release(*grant);
    });
  }
  ASSERT_TRUE(eventually([&] { return gate->snapshot().waiters.size() == 4; }));
  server.hang_up(server.sessions_that_hold().front());
  EXPECT_TRUE(eventually([&] { return lost.stop_requested(); }));
  EXPECT_EQ(granted, 0) << "the lost lock keeps its place until it is released";
  gate->release(first);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(granted, 4);
  EXPECT_EQ(server.holding(), 0u);
}

// The session ends between two hand-overs. The next holder must not get a lock that another process may have by then.
TEST(HandOvers, of_a_session_that_has_just_ended_do_not_happen) {  // B3, B4
  for (int turn = 0; turn < 10; ++turn) {
    ScriptedServer server;
    const auto gate = open_scripted(server);
    std::optional<spi::Grant> first = acquire(*gate, {"hot"});
    std::latch second_holds(1), ended(1);
    std::int64_t theirs = 0, last = 0;
    std::thread second([&] {
      const auto grant = acquire(*gate, {"hot"}, patience);
      second_holds.count_down();
      ended.wait();
      gate->release(*grant);
    });
    ASSERT_TRUE(eventually([&] { return gate->snapshot().waiters.size() == 1; }));
    std::thread third([&] {
      const auto grant = acquire(*gate, {"hot"}, patience);
      last = grant->fence;
      gate->release(*grant);
    });
    ASSERT_TRUE(eventually([&] { return gate->snapshot().waiters.size() == 2; }));
    gate->release(*first);
    second_holds.wait();
    const auto other = open_scripted(server);
    server.hang_up(server.sessions_that_hold().front());
    const auto grant = acquire(*other, {"hot"}, patience);
    theirs = grant->fence;
    other->release(*grant);
    ended.count_down();
    second.join();
    third.join();
    EXPECT_GT(last, theirs) << "turn " << turn;
  }
}

TEST(HandOvers, do_not_happen_for_a_lock_that_was_extended) {  // B8
  ScriptedServer server;
  const auto gate = open_scripted(server);
  const spi::Grant first = *acquire(*gate, {"hot"});
  const spi::Grant more = *extend(*gate, first, {"extra"});
  Turns turns;
  turns.wait_in_order(*gate, 1, "hot");
  const std::uint64_t asked = server.asked;
  gate->release(more);
  turns.join();
  EXPECT_EQ(server.asked - asked, 1u);
  EXPECT_TRUE(try_acquire(*gate, {"extra"}).has_value()) << "it went with the lock";
}

// Other processes know the session by its notice, and with it the owner.
TEST(HandOvers, do_not_happen_for_a_lock_while_its_notice_stands) {  // B8, B11
  ScriptedServer server;
  const auto gate = open_scripted(server, 16, 0ms);
  const spi::Grant first = *acquire(*gate, {"hot"});
  Turns turns;
  turns.wait_in_order(*gate, 5, "hot");
  const std::uint64_t asked = server.asked;
  gate->release(first);
  turns.join();
  EXPECT_EQ(turns.order, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(server.asked - asked, 5u) << "every lock comes from the store";
  EXPECT_TRUE(eventually([&] { return server.notices().empty() && server.holding() == 0; }));
}

// --- deadlines -------------------------------------------------------------------------------------------

TEST(Deadlines, end_a_wait_at_the_store_and_leave_nothing) {  // H2, H8
  ScriptedServer server;
  const auto one = open_scripted(server), two = open_scripted(server);
  const spi::Grant held = *acquire(*one, {"u1"});
  const Clock::time_point begin = Clock::now();
  EXPECT_FALSE(acquire(*two, {"u0", "u1"}, 100ms).has_value());
  EXPECT_GE(Clock::now() - begin, 100ms);
  EXPECT_LT(Clock::now() - begin, stall);
  EXPECT_EQ(server.holding(), 1u) << "what it had reached was given back";
  one->release(held);
}

TEST(Deadlines, hold_across_waits_that_the_store_ends_itself) {  // B5, H2
  ScriptedServer server;
  server.longest_wait = 10ms;
  const auto one = open_scripted(server), two = open_scripted(server);
  const spi::Grant held = *acquire(*one, {"u1"});
  // A machine that stalls leaves less time to ask.
  EXPECT_TRUE(eventually([&] {
    const auto before = server.asked.load();
    EXPECT_FALSE(acquire(*two, {"u1"}, 200ms).has_value());
    return server.asked.load() > before + 5;
  })) << "it asks again and again";
  one->release(held);
  EXPECT_TRUE(acquire(*two, {"u1"}, patience).has_value());
}

// The request gives nothing back that it shares with another lock of its owner: somebody may have come to wait for
// that.
TEST(Waits, that_the_store_ends_keep_what_they_have) {  // B5, B11
  ScriptedServer server;
  server.cells_may_be_missing = true;
  server.longest_wait = 10ms;
  const auto gate = open_scripted(server), other = open_scripted(server);
  const auto unlocks_while_waiting = [&](const std::string& path, const std::string& held) {
    const spi::Grant before = *acquire(*other, {held});
    const std::uint64_t unlocks = server.unlocks, asked = server.asked;
    std::thread waits([&] { gate->release(*acquire(*gate, {path}, patience)); });
    EXPECT_TRUE(eventually([&] { return server.asked >= asked + 8; }));
    const std::uint64_t since = server.unlocks - unlocks;
    other->release(before);
    waits.join();
    return since;
  };
  EXPECT_EQ(unlocks_while_waiting("u1/a9", "u1/a9"), 0u) << "what is before the last cell is there";
  EXPECT_EQ(unlocks_while_waiting("u2/a9", "u2"), 1u) << "it may have passed something that was not there";
  EXPECT_EQ(unlocks_while_waiting("u2/a9", "u2"), 0u) << "all is there, as it has seen before";
}

TEST(Deadlines, a_try_does_not_wait) {  // H2
  ScriptedServer server;
  const auto one = open_scripted(server), two = open_scripted(server);
  const spi::Grant held = *acquire(*one, {"u1"});
  EXPECT_FALSE(try_acquire(*two, {"u1"}).has_value());
  one->release(held);
  EXPECT_TRUE(try_acquire(*two, {"u1"}).has_value());
}

TEST(Deadlines, hold_while_a_connection_is_made) {  // H2
  ScriptedServer server;
  server.connect_time = 500ms;
  const auto gate = open_scripted(server);
  const auto error = error_of([&] { (void)acquire(*gate, {"u1"}, 50ms); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::timeout);
  EXPECT_NE(std::string(error->what()).find("u1"), std::string::npos) << error->what();
  EXPECT_TRUE(eventually([&] { return server.connected == 1; }));
  EXPECT_TRUE(acquire(*gate, {"u1"}, patience).has_value());
  EXPECT_EQ(server.connected.load(), 1u) << "what was begun for the first served the second";
}

// --- deadlocks -------------------------------------------------------------------------------------------

// Two processes, each holds one lock and asks for the other's.
TEST(Deadlocks, between_two_processes_end_one_of_them_with_the_cycle_in_words) {  // B11
  for (const bool shows_waits : {true, false}) {
    ScriptedServer server;
    server.shows_waits = shows_waits;
    const auto one = open_scripted(server), two = open_scripted(server);
    const auto crosses = [](spi::Backend& gate, const std::string& mine, const std::string& next, std::latch& held) {
      return error_of([&] {
        const spi::Grant grant = *acquire(gate, {mine});
        held.arrive_and_wait();
        std::optional<spi::Grant> more;
        const auto error = error_of([&] { more = acquire(gate, {next}, patience); });
        if (more) gate.release(*more);
        gate.release(grant);
        if (error) throw *error;
      });
    };
    std::latch held(2);
    auto a = std::async(std::launch::async, [&] { return crosses(*one, "p", "q", held); });
    auto b = std::async(std::launch::async, [&] { return crosses(*two, "q", "p", held); });
    const std::optional<Error> errors[] = {a.get(), b.get()};
    ASSERT_NE(errors[0].has_value(), errors[1].has_value()) << "exactly one is the victim";
    const Error& error = errors[0] ? *errors[0] : *errors[1];
    EXPECT_EQ(error.kind(), ErrorKind::deadlock) << error.what();
    EXPECT_NE(std::string(error.what()).find("waits for p"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("waits for q"), std::string::npos) << error.what();
    ASSERT_EQ(error.cycle().size(), 2u);
    EXPECT_EQ(error.cycle()[0].waits_for, error.cycle()[1].holds);
    EXPECT_EQ(error.cycle()[1].waits_for, error.cycle()[0].holds);
    EXPECT_EQ(error.cycle()[0].process, getpid());
    EXPECT_EQ(server.holding(), 0u);
  }
}

// Other processes may wait for what it holds. And if it stood behind those who hold nothing, each of them could be part
// of a cycle that is none without the queue, one after the other.
TEST(LocalQueue, serves_owners_that_hold_a_lock_before_those_that_hold_none) {  // B8, B11
  ScriptedServer server;
  const auto gate = open_scripted(server);
  const spi::Grant first = *acquire(*gate, {"u1"});
  std::mutex mutex;
  std::vector<std::string> order;
  const auto waits_for_u1 = [&](const std::string& name, bool holds) {
    return std::async(std::launch::async, [&, name, holds] {
      std::optional<spi::Grant> other;
      if (holds) other = acquire(*gate, {"u2"});
      const std::optional<spi::Grant> grant = acquire(*gate, {"u1"}, patience);
      {
        const std::lock_guard guard(mutex);
        order.push_back(grant ? name : name + " did not get it");
      }
      if (grant) gate->release(*grant);
      if (other) gate->release(*other);
    });
  };
  const auto waiting = [&] { return gate->snapshot().waiters.size(); };
  std::vector<std::future<void>> all;
  for (const char* name : {"one", "two", "three"}) {
    all.push_back(waits_for_u1(name, false));
    ASSERT_TRUE(eventually([&] { return waiting() == all.size(); }));
  }
  all.push_back(waits_for_u1("holder", true));
  ASSERT_TRUE(eventually([&] { return waiting() == all.size(); }));
  gate->release(first);
  for (auto& one : all) one.get();
  EXPECT_EQ(order, (std::vector<std::string>{"holder", "one", "two", "three"}));
}

TEST(LocalQueue, lets_nobody_be_passed_for_ever) {  // B8
  ScriptedServer server;
  const auto gate = open_scripted(server);
  std::atomic<bool> over = false;
  std::atomic<int> rounds = 0;
  std::vector<std::thread> holders;
  for (const char* own : {"own1", "own2", "own3"}) {
    holders.emplace_back([&, own] {
      const spi::Grant mine = *acquire(*gate, {own});
      for (; !over; ++rounds) gate->release(*acquire(*gate, {"hot"}));
      gate->release(mine);
    });
  }
  ASSERT_TRUE(eventually([&] { return rounds > 100; }));
  for (int i = 0; i < 3; ++i) {
    const std::optional<spi::Grant> grant = acquire(*gate, {"hot"}, patience);  // it holds nothing else
    EXPECT_TRUE(grant.has_value());
    if (grant) gate->release(*grant);
  }
  over = true;
  for (std::thread& holder : holders) holder.join();
}

TEST(Deadlocks, that_the_store_sees_make_an_ordered_acquire_ask_again) {  // B11: it holds nothing, so it is no victim
  ScriptedServer server;
  const auto one = open_scripted(server), two = open_scripted(server);
  const spi::Grant held = *acquire(*one, {"u1"});
  auto waits = std::async(std::launch::async, [&] { return acquire(*two, {"u1"}, patience); });
  ASSERT_TRUE(eventually([&] { return server.waiting() == 1; }));
  server.choose_as_victim(5);
  EXPECT_TRUE(eventually([&] { return server.asked > 5; }));
  one->release(held);
  const std::optional<spi::Grant> grant = waits.get();
  EXPECT_TRUE(grant.has_value());
  if (grant) two->release(*grant);
}

TEST(Deadlocks, that_the_store_sees_release_the_whole_lock_of_an_extend) {  // H9
  ScriptedServer server;
  const auto one = open_scripted(server), two = open_scripted(server);
  const spi::Grant taken = *acquire(*one, {"u2"}), mine = *acquire(*two, {"u1"});
  auto waits =
      std::async(std::launch::async, [&] { return error_of([&] { (void)extend(*two, mine, {"u2"}, patience); }); });
  ASSERT_TRUE(eventually([&] { return server.waiting() == 1; }));
  server.choose_as_victim(1);
  const std::optional<Error> error = waits.get();
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::deadlock);
  EXPECT_TRUE(try_acquire(*two, {"u1"}).has_value()) << "nothing of it is held";
  one->release(taken);
}

TEST(Deadlocks, are_not_seen_in_a_crowd_that_only_waits) {  // B11, B12
  ScriptedServer server;
  const auto one = open_scripted(server), two = open_scripted(server, 64), three = open_scripted(server, 64);
  const spi::Grant held = *acquire(*one, {"hot"});
  std::vector<std::thread> threads;
  std::atomic<int> granted = 0, failed = 0;
  constexpr int each = 20;
  for (spi::Backend* const gate : {two.get(), three.get()}) {
    for (int i = 0; i < each; ++i) {
      threads.emplace_back([&, gate, i] {  // each holds a lock, and waits for the hot one
        const spi::Grant own = *acquire(*gate, {"own" + std::to_string(i) + (gate == two.get() ? "a" : "b")});
        const auto error = error_of([&] {
          const auto hot = acquire(*gate, {"hot"}, patience);
          if (hot) ++granted;
          if (hot) gate->release(*hot);
        });
        if (error) ++failed;
        gate->release(own);
      });
    }
  }
  EXPECT_TRUE(eventually([&] { return server.notices().size() > each; })) << "they are published, and looked at";
  const std::uint64_t read = server.notices_read.load();
  EXPECT_TRUE(eventually([&] { return server.notices_read > read + 10; }));
  EXPECT_EQ(failed, 0);
  one->release(held);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(granted, 2 * each);
  EXPECT_EQ(failed, 0);
}

// Paths whose order is the same in the local queue (by name) and at the scripted store (by cell): the longest such
// list.
std::vector<std::string> paths_in_one_order() {
  std::vector<std::pair<std::string, std::size_t>> all;
  for (char c = 'a'; c <= 'z'; ++c) {
    const PlanOf wanted({std::string(1, c)});
    all.emplace_back(std::string(1, c), std::hash<std::string_view>()(wanted.plan().steps().front().key));
  }
  std::vector<std::vector<std::string>> longest(all.size());  // by the path that it ends with
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      if (all[k].second < all[i].second && longest[k].size() > longest[i].size()) longest[i] = longest[k];
    }
    longest[i].push_back(all[i].first);
  }
  return *std::max_element(longest.begin(), longest.end(),
                           [](const auto& a, const auto& b) { return a.size() < b.size(); });
}

// An acquire of two targets has its place at the second one in the queue of its process, while it waits at the store
// for the first one. An owner behind it there waits for a lock that comes before all that it waits for itself. Two such
// waits close a cycle, although all locks are taken in one order. The acquire lets the owner pass, and nobody is a
// victim.
TEST(Deadlocks, that_only_the_queues_of_processes_make_are_undone_without_a_victim) {  // B11
  for (const bool shows_waits : {true, false}) {
    ScriptedServer server;
    server.shows_waits = shows_waits;
    const auto one = open_scripted(server), two = open_scripted(server);
    const std::vector<std::string> p = paths_in_one_order();
    ASSERT_GE(p.size(), 3u);
    std::latch held(2), all_ask(1);
    std::atomic<int> granted = 0;
    const auto holder = [&](spi::Backend& gate, const std::string& first) {
      return error_of([&] {
        const spi::Grant grant = *acquire(gate, {first});
        held.count_down();
        all_ask.wait();
        const auto error = error_of([&] {
          const auto more = acquire(gate, {p[2]}, patience);
          if (more) ++granted;
          if (more) gate.release(*more);
        });
        gate.release(grant);
        if (error) throw *error;
      });
    };
    const auto pair = [&](spi::Backend& gate, const std::string& first) {
      return error_of([&] {
        const auto both = acquire(gate, {first, p[2]}, patience);
        if (both) ++granted;
        if (both) gate.release(*both);
      });
    };
    std::future<std::optional<Error>> all[] = {
        std::async(std::launch::async, [&] { return holder(*one, p[0]); }),
        std::async(std::launch::async, [&] { return holder(*two, p[1]); }),
        std::async(std::launch::async, [&] { return held.wait(), pair(*one, p[1]); }),
        std::async(std::launch::async, [&] { return held.wait(), pair(*two, p[0]); }),
    };
    EXPECT_TRUE(eventually([&] { return server.waiting() == 2; }));
    const Clock::time_point begin = Clock::now();
    all_ask.count_down();
    for (auto& one_of_them : all) {
      const std::optional<Error> error = one_of_them.get();
      EXPECT_FALSE(error) << error->what();
    }
    EXPECT_EQ(granted, 4) << (shows_waits ? "with" : "without") << " the store's view";
    EXPECT_LT(Clock::now() - begin, patience / 4);
    EXPECT_TRUE(eventually([&] { return server.holding() == 0; }));
  }
}

// The owner of `c` stands behind an acquire of two targets that has its place at the first, and waits in the queue for
// a lock. The holder of that lock waits at the store. It cannot help by letting others pass, so there must be a victim.
TEST(Deadlocks, that_letting_others_pass_does_not_undo_have_a_victim) {  // B11
  ScriptedServer server;
  const auto one = open_scripted(server), two = open_scripted(server);
  std::latch held(3), pair_waits(1);
  std::atomic<int> victims = 0;
  const auto crosses = [&](spi::Backend& gate, const std::string& mine, const std::string& next, std::latch* first) {
    return [&, mine, next, first] {
      const spi::Grant grant = *acquire(gate, {mine});
      held.arrive_and_wait();
      if (first != nullptr) first->wait();
      std::optional<spi::Grant> more;
      const auto error = error_of([&] { more = acquire(gate, {next}, patience); });
      if (error) {
        EXPECT_EQ(error->kind(), ErrorKind::deadlock) << error->what();
        ++victims;
      }
      if (more) gate.release(*more);
      gate.release(grant);
    };
  };
  std::thread a(crosses(*one, "m", "b", nullptr)), b(crosses(*two, "b", "c", nullptr)),
      x(crosses(*one, "c", "k", &pair_waits));
  ASSERT_TRUE(eventually([&] { return server.waiting() == 2; }));
  std::thread pair([&] {
    const auto error = error_of([&] { one->release(*acquire(*one, {"k", "m"}, patience)); });
    EXPECT_FALSE(error) << error->what();
  });
  EXPECT_TRUE(eventually([&] { return one->snapshot().waiters.size() >= 2; }));
  const Clock::time_point begin = Clock::now();
  pair_waits.count_down();
  for (std::thread* const thread : {&a, &b, &x, &pair}) thread->join();
  EXPECT_EQ(victims, 1);
  EXPECT_LT(Clock::now() - begin, patience / 4);
}

// An acquire of two targets waits at the store for the first one. Owners come to stand behind it at the second one, one
// after the other. Each of them goes on once it was let pass, so letting others pass does help.
TEST(Deadlocks, that_the_queues_make_are_undone_for_each_that_comes) {  // B11
  ScriptedServer server;
  const auto one = open_scripted(server), two = open_scripted(server);
  const std::vector<std::string> p = paths_in_one_order();
  ASSERT_GE(p.size(), 2u);
  const spi::Grant first = *acquire(*two, {p[0]});
  std::thread pair([&] {
    const auto error = error_of([&] { one->release(*acquire(*one, {p[0], p[1]}, 3 * patience)); });
    EXPECT_FALSE(error) << error->what();
  });
  EXPECT_TRUE(eventually([&] { return server.waiting() == 1; }));
  for (int i = 0; i < 7 && !HasFailure(); ++i) {
    const std::string path = "own" + std::to_string(i);
    std::latch holds(1);
    std::thread behind([&] {
      const spi::Grant own = *acquire(*one, {path});
      holds.count_down();
      EXPECT_TRUE(eventually([&] { return server.waiting() == 2; }));
      const auto error = error_of([&] { one->release(*acquire(*one, {p[1]}, patience)); });
      EXPECT_FALSE(error) << i << ": " << error->what();
      one->release(own);
    });
    holds.wait();
    const auto error = error_of([&] { two->release(*acquire(*two, {path}, patience)); });
    EXPECT_FALSE(error) << i << ": " << error->what();
    behind.join();
  }
  two->release(first);
  pair.join();
}

// Locks that all processes take in one order close no cycle, however they wait. HIERLOCK_RUNS sets how many are tried.
TEST(Deadlocks, are_never_seen_where_locks_are_taken_in_one_order) {  // B11
  const char* const set = std::getenv("HIERLOCK_RUNS");
  const int most = set != nullptr ? std::atoi(set) : 4000;
  const std::uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::vector<std::string> paths = paths_in_one_order();
  ASSERT_GE(paths.size(), 5u);
  paths.resize(5);
  for (const bool shows_waits : {true, false}) {
    ScriptedServer server;
    server.shows_waits = shows_waits;
    server.notice_time = 3ms;  // so that notices are late
    const std::unique_ptr<spi::Backend> gates[] = {open_scripted(server, 64, 200ms), open_scripted(server, 64, 200ms),
                                                   open_scripted(server, 64, 200ms)};
    std::atomic<int> runs = 0, victims = 0, slow = 0;
    std::mutex mutex;
    std::string told;
    std::vector<std::thread> threads;
    for (std::uint32_t i = 0; i < 24; ++i) {
      threads.emplace_back([&, i] {
        std::mt19937 random(seed + i);
        spi::Backend& gate = *gates[i % 3];
        while (runs.fetch_add(1) < most) {
          std::vector<spi::Grant> held;
          const Clock::time_point begin = Clock::now();
          for (std::size_t target = 0; target < paths.size(); ++target) {
            if (random() % 2 == 0) continue;
            std::vector<std::string> wanted{paths[target]};
            if (random() % 4 == 0 && target + 1 < paths.size()) wanted.push_back(paths[++target]);
            const auto error = error_of([&] { held.push_back(*acquire(gate, wanted)); });
            if (error) {
              ++victims;
              const std::lock_guard guard(mutex);
              told = error->what();
            }
          }
          if (Clock::now() - begin > 40ms) ++slow;
          if (random() % 40 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(random() % 60));  // it works
          for (const spi::Grant& grant : held) gate.release(grant);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(victims, 0) << (shows_waits ? "with" : "without") << " the server's view: " << told;
    EXPECT_GT(slow, most / 100) << "there was nothing to be seen";
    EXPECT_GT(server.notices_read, 0u);
  }
}

// --- notices ---------------------------------------------------------------------------------------------

TEST(Notices, that_are_written_stay_although_others_are_not) {  // B12: publishing must come to an end
  ScriptedServer server;
  server.notices_a_call = 7;
  const auto gate = open_scripted(server, 64, 1ms);
  std::vector<spi::Grant> held;
  for (int i = 0; i < 20; ++i) {
    const std::string path = "u" + std::to_string(i);
    held.push_back(*acquire(*gate, {path}, std::nullopt, gate->make_owner(path)));
  }
  EXPECT_TRUE(eventually([&] { return server.notices().size() == 20; })) << server.notices().size();
  for (const spi::Grant& grant : held) gate->release(grant);
  EXPECT_TRUE(eventually([&] { return server.notices().empty(); }));
}

TEST(Notices, of_a_wait_that_begins_shortly_after_another_are_not_late) {  // B11
  ScriptedServer server;
  const auto gate = open_scripted(server, 16, 1s), other = open_scripted(server, 16, 1s);
  EXPECT_TRUE(once_within(100ms, [&] {
    const spi::Grant held[] = {*acquire(*other, {"u1"}), *acquire(*other, {"u2"})};
    const auto waits = [&](const std::string& path) { gate->release(*acquire(*gate, {path}, patience)); };
    std::thread one(waits, "u1");
    EXPECT_TRUE(eventually([&] { return server.waiting() == 1; }));
    std::this_thread::sleep_for(30ms);  // half of the time after which a wait is published
    std::thread two(waits, "u2");
    EXPECT_TRUE(eventually([&] { return waits_of(server).size() == 2; }));
    Clock::duration oldest{};  // when it was published
    for (const Notice& wait : waits_of(server)) oldest = std::max<Clock::duration>(oldest, wait.age);
    for (const spi::Grant& grant : held) other->release(grant);
    one.join();
    two.join();
    EXPECT_TRUE(eventually([&] { return server.notices().empty(); }));
    return oldest;
  }));
}

// If its process were killed now, nothing would show that the wait is over.
TEST(Notices, of_a_queued_wait_go_with_the_last_lock_of_its_owner) {  // B7
  ScriptedServer server;
  const auto gate = open_scripted(server, 16, 1ms);
  const spi::Grant first = *acquire(*gate, {"u1"});
  const spi::OwnerId owner = gate->make_owner("holds and waits");
  const spi::Grant held = *acquire(*gate, {"u2"}, std::nullopt, owner);
  std::thread waits([&] {
    const auto grant = acquire(*gate, {"u1"}, patience, owner);
    ASSERT_TRUE(grant.has_value());
    gate->release(*grant);
  });
  const auto told = [&] {
    const auto notices = server.notices();
    return std::any_of(notices.begin(), notices.end(), [](const auto& one) { return one.second.queued(); });
  };
  EXPECT_TRUE(eventually(told));
  gate->release(held);
  EXPECT_TRUE(eventually([&] { return !told(); }));
  EXPECT_EQ(gate->snapshot().waiters.size(), 1u) << "it still waits";
  gate->release(first);
  waits.join();
}

TEST(Notices, go_when_the_locker_closes) {  // B6
  ScriptedServer server;
  auto gate = open_scripted(server, 16, 1ms);
  const spi::Grant held = *acquire(*gate, {"u1"});
  EXPECT_TRUE(eventually([&] { return server.notices().size() == 1; }));
  gate->release(held);
  gate->close();
  EXPECT_TRUE(server.notices().empty());
}

// --- closing ---------------------------------------------------------------------------------------------

TEST(Closing, ends_sessions_when_the_last_lock_is_released) {  // B6
  ScriptedServer server;
  auto gate = open_scripted(server);
  const spi::Grant held = *acquire(*gate, {"u1"});
  gate->close();
  EXPECT_EQ(server.holding(), 1u) << "a lock outlives its Locker";
  gate->release(held);
  EXPECT_EQ(server.holding(), 0u);
  gate.reset();
}

TEST(Closing, takes_less_than_a_second_at_a_silent_server) {  // B6
  EXPECT_TRUE(once_within(1s, [] {
    ScriptedServer server;
    auto gate = open_scripted(server);
    gate->release(*acquire(*gate, {"u1"}));
    server.be_silent(true);
    const Clock::time_point begin = Clock::now();
    gate->close();
    const Clock::duration took = Clock::now() - begin;
    server.be_silent(false);
    return took;
  }));
}

// --- scale -----------------------------------------------------------------------------------------------

TEST(Scale, a_thousand_threads_share_sixteen_sessions) {  // B12
  ScriptedServer server;
  const auto gate = open_scripted(server, 16);
  std::atomic<int> done = 0;
  std::vector<std::thread> threads;
  constexpr int many = 1000;
  for (int i = 0; i < many; ++i) {
    threads.emplace_back([&, i] {
      const auto grant = acquire(*gate, {"u" + std::to_string(i)}, 2 * patience);
      ASSERT_TRUE(grant.has_value());
      gate->release(*grant);
      ++done;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, many);
  EXPECT_LE(server.connected.load(), 16u + 2u);
}

}  // namespace
}  // namespace hierlock::remote
