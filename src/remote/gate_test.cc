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
#include <thread>

#include "remote/testing/scripted_store.h"

namespace hierlock::remote {
namespace {

using namespace std::chrono_literals;
using testing::open_scripted;
using testing::ScriptedServer;

constexpr auto patience = 20s;  // of a test for a fact

template <class F>
bool eventually(F fact, Clock::duration time = patience) {
  const Clock::time_point end = Clock::now() + time;
  while (!fact()) {
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
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
  EXPECT_TRUE(eventually([&] { return server.beats > 3; }, 5s)) << server.beats << " questions";
  EXPECT_TRUE(gate->held(grant));
  gate->release(grant);
}

TEST(Heartbeats, a_release_does_not_wait_for_the_thread_that_reads_the_answer) {  // B6
  ScriptedServer server;
  const auto gate = open_scripted(server);
  const spi::Grant grant = *acquire(*gate, {"u1"});
  server.be_silent(true);
  ASSERT_TRUE(eventually([&] { return server.beats > 0; }));
  std::thread answers([&] { server.be_silent(false); });
  const Clock::time_point begin = Clock::now();
  answers.join();
  gate->release(grant);
  EXPECT_LT(Clock::now() - begin, 500ms);
  EXPECT_TRUE(try_acquire(*gate, {"u1"}).has_value()) << "it was given back, not closed some time";
}

TEST(Heartbeats, a_release_at_a_silent_server_takes_less_than_a_second) {  // B6
  ScriptedServer server;
  const auto gate = open_scripted(server);
  const spi::Grant grant = *acquire(*gate, {"u1"});
  server.be_silent(true);
  const Clock::time_point begin = Clock::now();
  gate->release(grant);
  EXPECT_LT(Clock::now() - begin, 1s);
  server.be_silent(false);
  EXPECT_TRUE(eventually([&] { return server.holding() == 0; }));
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

TEST(Sessions, a_lock_released_during_an_extend_gives_its_session_back) {  // B6, B12
  ScriptedServer server;
  const auto other = open_scripted(server), gate = open_scripted(server, 1);
  const spi::Grant taken = *acquire(*other, {"u2"});
  const spi::Grant held = *acquire(*gate, {"u1"});
  std::thread extends([&] { error_of([&] { (void)extend(*gate, held, {"u2"}, patience); }); });
  ASSERT_TRUE(eventually([&] { return server.waiting() == 1; }));
  const Clock::time_point begin = Clock::now();
  gate->release(held);
  EXPECT_LT(Clock::now() - begin, 1s);
  other->release(taken);
  extends.join();
  EXPECT_TRUE(acquire(*gate, {"u3"}, patience).has_value()) << "the only session is free, or another was made";
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

// --- deadlines -------------------------------------------------------------------------------------------

TEST(Deadlines, end_a_wait_at_the_store_and_leave_nothing) {  // H2, H8
  ScriptedServer server;
  const auto one = open_scripted(server), two = open_scripted(server);
  const spi::Grant held = *acquire(*one, {"u1"});
  const Clock::time_point begin = Clock::now();
  EXPECT_FALSE(acquire(*two, {"u0", "u1"}, 100ms).has_value());
  EXPECT_GE(Clock::now() - begin, 100ms);
  EXPECT_LT(Clock::now() - begin, 2s);
  EXPECT_EQ(server.holding(), 1u) << "what it had reached was given back";
  one->release(held);
}

TEST(Deadlines, hold_across_waits_that_the_store_ends_itself) {  // B5, H2
  ScriptedServer server;
  server.longest_wait = 10ms;
  const auto one = open_scripted(server), two = open_scripted(server);
  const spi::Grant held = *acquire(*one, {"u1"});
  EXPECT_FALSE(acquire(*two, {"u1"}, 200ms).has_value());
  EXPECT_GT(server.asked.load(), 5u) << "it asked again and again";
  one->release(held);
  EXPECT_TRUE(acquire(*two, {"u1"}, patience).has_value());
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
  ScriptedServer server;
  auto gate = open_scripted(server);
  gate->release(*acquire(*gate, {"u1"}));
  server.be_silent(true);
  const Clock::time_point begin = Clock::now();
  gate->close();
  EXPECT_LT(Clock::now() - begin, 1s);
  server.be_silent(false);
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
