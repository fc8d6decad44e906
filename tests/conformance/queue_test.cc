// The queue: first come, first served, with shared batches; nobody is starved.
#include <algorithm>
#include <atomic>
#include <thread>

#include "support/suite.h"

namespace hierlock::conformance {
namespace {

class Queue : public Conformance {};

TEST_P(Queue, waiters_are_served_in_the_order_they_came) {
  HIERLOCK_NEEDS(fifo);
  Party& holder = party("holder");
  const Outcome held = granted(holder.acquire("u1/a1/r1"));
  std::vector<Pending> queue;
  for (int i = 0; i < 6; ++i) {
    queue.push_back(party("w" + std::to_string(i)).acquire("u1/a1/r1", {.then_release = true}));
    blocked(queue.back(), "u1/a1/r1");
  }
  holder.release(held);
  std::int64_t last = held.fence;
  for (Pending& waiter : queue) {
    const std::int64_t fence = granted(waiter).fence;
    EXPECT_GT(fence, last) << waiter.by->name() << " was overtaken";
    last = fence;
  }
}

TEST_P(Queue, the_order_holds_between_ancestors_and_descendants) {
  HIERLOCK_NEEDS(fifo);
  Party& holder = party("holder");
  const Outcome held = granted(holder.acquire("u1/a1/r1"));
  std::vector<Pending> queue;
  for (const char* target : {"u1", "u1/a1", "u1/a1/r1", "u1/a2", "u1"}) {
    queue.push_back(party("w" + std::to_string(queue.size())).acquire(target, {.then_release = true}));
    blocked(queue.back());
  }
  holder.release(held);
  std::vector<std::int64_t> fences;
  for (Pending& waiter : queue) fences.push_back(granted(waiter).fence);
  EXPECT_LT(held.fence, fences[0]);
  // The two writers of the user are the first and the last; what is between them may go side by side.
  for (const std::size_t between : {1, 2, 3}) {
    EXPECT_LT(fences[0], fences[between]);
    EXPECT_LT(fences[between], fences[4]);
  }
}

TEST_P(Queue, nobody_gets_in_between_a_release_and_the_waiter) {
  HIERLOCK_NEEDS(fifo);
  // Whoever releases and asks again at once, before the waiter could even wake up, comes after the waiter.
  const OnOneProcessor slow_waker;
  std::vector<Target> targets = {"u1/a1/r1", "u1", apart("n")};
  if (can().slots) targets.push_back(slots("s", 1));
  Party& waiter = party("waiter");
  for (const Target& target : targets) {
    for (int round = 0; round < 50; ++round) {
      Lock mine = locker().acquire(target);
      Pending asked = waiter.acquire(target);
      blocked(asked);
      mine.release();
      ASSERT_FALSE(locker().try_acquire(target).has_value()) << target.str() << " in round " << round;
      waiter.release(granted(asked));
    }
  }
}

TEST_P(Queue, a_release_wakes_those_who_wait_for_it) {
  HIERLOCK_NEEDS(wakes_waiters);
  // A waiter that is not woken looks for itself now and then, so nothing would hang: it would only take long.
  struct Case {
    Target held, asked;
  };
  std::vector<Case> cases = {{"u1/a1/r1", "u1/a1/r1"},
                             {"u1/a1/r1", "u1/a1"},
                             {"u1/a1/r1", "u1"},
                             {"u1", "u1/a1/r1"},
                             {"u1/a1", "u1/a1/r1"},
                             {shared("u1/a1/r1"), "u1/a1/r1"},
                             {"u1/a1/r1", shared("u1/a1/r1")},
                             {shared("u1/a1/r1"), "u1"},
                             {apart("n"), apart("n")}};
  if (can().shared_inner) {
    cases.push_back({shared("u1"), "u1/a1/r1"});
    cases.push_back({"u1/a1/r1", shared("u1")});
  }
  if (can().slots) cases.push_back({slots("s", 1), slots("s", 1)});
  constexpr int rounds = 5;
  for (const Case& one : cases) {
    for (const bool plain : {false, true}) {
      for (const bool together : {false, true}) {
        std::vector<std::chrono::nanoseconds> times;
        for (int round = 0; round < rounds; ++round) {
          Party &holder = party("holder"), &waiter = party("waiter");
          const Ask ask{.plain = plain};
          const Outcome held =
              granted(together ? holder.acquire_all({one.held, "elsewhere"}, ask) : holder.acquire(one.held, ask));
          Pending asked = waiter.acquire(one.asked);
          blocked(asked);
          const auto start = Clock::now();
          holder.release(held);
          const Outcome got = granted(asked);
          times.push_back(Clock::now() - start);
          waiter.release(got);
        }
        std::sort(times.begin(), times.end());
        ASSERT_LT(times[rounds / 2], 200ms * slowness)
            << one.held.str() << " to " << one.asked.str() << (plain ? ", plain" : "") << (together ? ", of many" : "");
      }
    }
  }
}

TEST_P(Queue, a_reader_does_not_overtake_a_waiting_writer) {
  HIERLOCK_NEEDS(fifo);
  Party &first = party("first"), &writer = party("writer"), &late = party("late");
  const Outcome held = granted(first.acquire(shared("u1/a1/r1")));
  Pending write = writer.acquire("u1/a1/r1");
  blocked(write, "u1/a1/r1");
  refused(late.try_acquire(shared("u1/a1/r1")), ErrorKind::busy);
  Pending read = late.acquire(shared("u1/a1/r1"));
  const Snapshot::Waiter shown = blocked(read, "u1/a1/r1");
  EXPECT_EQ(shown.blocked_by, std::vector<std::uint64_t>{owner_number(writer)}) << state();
  first.release(held);
  const Outcome written = granted(write);
  blocked(read, "u1/a1/r1");
  writer.release(written);
  EXPECT_GT(granted(read).fence, written.fence);
}

TEST_P(Queue, a_resource_does_not_overtake_a_writer_of_its_user) {
  HIERLOCK_NEEDS(fifo);
  Party &first = party("first"), &writer = party("writer"), &late = party("late");
  const Outcome held = granted(first.acquire("u1/a1/r1"));
  Pending user = writer.acquire("u1");
  blocked(user, "u1");
  Pending other_resource = late.acquire("u1/a2/r2");
  blocked(other_resource, "u1");
  first.release(held);
  const Outcome of_writer = granted(user);
  blocked(other_resource);
  writer.release(of_writer);
  granted(other_resource);
}

TEST_P(Queue, a_writer_gets_its_turn_among_a_stream_of_readers) {
  HIERLOCK_NEEDS(fifo);
  constexpr std::uint64_t readers = 4;
  const Target read = shared("u1/a1/r1");
  std::atomic<std::uint64_t> grants = 0;
  std::atomic<bool> written = false;
  std::vector<std::thread> stream;
  for (std::uint64_t i = 0; i < readers; ++i) {
    stream.emplace_back([&] {
      // Two handles, the next taken before the last is given back: without the queue there is always a reader.
      Locker& locker = this->locker();
      Lock last = locker.acquire(read);
      while (!written) {
        Owner fresh = locker.owner("reader");
        Lock next = locker.try_acquire(read, 0ns, {.owner = &fresh}).value_or(Lock());
        if (!next) {
          last.release();
          next = locker.acquire(read, {.owner = &fresh});
        }
        ++grants;
        last = std::move(next);
      }
    });
  }
  EXPECT_TRUE(eventually([&] { return grants > 100; }));
  Party& writer = thread("writer");
  Pending write = writer.acquire("u1/a1/r1");
  // Once it is seen in the queue nobody may pass; each reader may have one grant that it had not counted yet.
  std::uint64_t at_most = 0;
  eventually([&] {
    if (write.ready()) return true;
    if (waits_of(writer).empty()) return false;
    at_most = grants + readers;
    return true;
  });
  const bool got_it = eventually([&] { return write.ready(); });
  const std::uint64_t passed = grants;
  written = true;
  if (got_it) writer.release(result(write));
  for (std::thread& reader : stream) reader.join();
  ASSERT_TRUE(got_it) << "the writer starves";
  if (at_most != 0) {
    EXPECT_LE(passed, at_most);
  }
}

TEST_P(Queue, readers_behind_a_writer_that_gives_up_go_on) {
  Party &first = party("first"), &writer = thread("writer"), &late = party("late");
  granted(first.acquire(shared("u1/a1/r1")));
  std::stop_source stop;
  Pending write = writer.acquire("u1/a1/r1", {.cancel = stop.get_token()});
  blocked(write, "u1/a1/r1");
  Pending read = late.acquire(shared("u1/a1/r1"));
  if (can().fifo) blocked(read, "u1/a1/r1");
  stop.request_stop();
  refused(write, ErrorKind::cancelled);
  granted(read);
  EXPECT_TRUE(nothing_left(writer)) << state();
}

TEST_P(Queue, readers_behind_a_writer_that_times_out_go_on) {
  Party &first = party("first"), &writer = party("writer"), &late = party("late");
  granted(first.acquire(shared("u1/a1/r1")));
  Pending write = writer.acquire("u1/a1/r1", {.timeout = 20ms});
  Pending read = late.acquire(shared("u1/a1/r1"));
  refused(write, ErrorKind::timeout);
  granted(read);
  EXPECT_TRUE(nothing_left(writer)) << state();
}

TEST_P(Queue, giving_up_wakes_those_behind) {
  HIERLOCK_NEEDS(wakes_waiters);
  HIERLOCK_NEEDS(fifo);
  constexpr int rounds = 5;
  std::vector<std::chrono::nanoseconds> times;
  Party &first = party("first"), &writer = thread("writer"), &late = party("late");
  for (int round = 0; round < rounds; ++round) {
    const Outcome held = granted(first.acquire(shared("u1/a1/r1")));
    std::stop_source stop;
    Pending write = writer.acquire("u1/a1/r1", {.cancel = stop.get_token()});
    blocked(write, "u1/a1/r1");
    Pending read = late.acquire(shared("u1/a1/r1"));
    blocked(read, "u1/a1/r1");
    const auto start = Clock::now();
    stop.request_stop();
    refused(write, ErrorKind::cancelled);
    const Outcome reading = granted(read);
    times.push_back(Clock::now() - start);
    late.release(reading);
    first.release(held);
  }
  std::sort(times.begin(), times.end());
  EXPECT_LT(times[rounds / 2], 200ms * slowness);
}

TEST_P(Queue, a_waiter_in_the_middle_may_leave_without_harm) {
  Party &holder = party("holder"), &quitter = thread("quitter");
  const Outcome held = granted(holder.acquire("u1"));
  Pending before = party("before").acquire("u1", {.then_release = true});
  blocked(before, "u1");
  std::stop_source stop;
  Pending middle = quitter.acquire("u1", {.cancel = stop.get_token()});
  blocked(middle, "u1");
  Pending after = party("after").acquire("u1", {.then_release = true});
  blocked(after, "u1");
  stop.request_stop();
  refused(middle, ErrorKind::cancelled);
  holder.release(held);
  const std::int64_t first = granted(before).fence;
  EXPECT_GT(granted(after).fence, can().fifo ? first : held.fence);
  EXPECT_TRUE(nothing_left()) << state();
}

HIERLOCK_ON_EVERY_BACKEND(Queue);

}  // namespace
}  // namespace hierlock::conformance
