// Queues: who waits for a node, in which order, and who is told to look again.
//
// A waiter is in the queue from the moment it has a process until it has none, or its process is dead: that one word
// decides, and everything else is found again from it. A process that dies in the middle of a change leaves the latch,
// and whoever takes the latch over makes the rings and the free places of the stripe again (relink). A waiter that has
// to leave while a stopped process has the latch clears the word, and is unlinked by whoever meets it later.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "engine/attempt.h"
#include "engine/holders.h"
#include "engine/parts.h"

namespace hierlock::engine {

// Waiters to wake once the latch is free again. A waiter's signal says:
//
//     0       not told
//     1       told, woken a second time, and still there: its process is stopped or very slow
//     other   told, at this time (in milliseconds, from a clock that all processes share)
class WakeList {
 public:
  // So many of a queue are told at a time. Each that goes on tells the next, so neither the latch nor the scheduler
  // ever meets a crowd.
  static constexpr int most_at_once = 16;

  explicit WakeList(Reach reach) : reach_(reach) {}
  // True if the waiter is on its way, now or for a short time. One that was told long ago is woken again, because
  // whoever told it may have died before it woke it, and does not count as being on its way.
  bool add(Waiter& waiter);
  ~WakeList();
  WakeList(const WakeList&) = delete;
  WakeList& operator=(const WakeList&) = delete;

  static std::uint32_t told_now() noexcept;

 private:
  const Reach reach_;
  std::array<Waiter*, most_at_once> waiters_;
  std::size_t count_ = 0;
};

class Queues : Parts {
 public:
  Queues(const Parts& parts, const Holders& holders);

  // Holds the latch of a node's stripe, or all of them; or none, if another process has had one for too long. Whoever
  // takes a latch over from a dead process settles the node it was taken for: see "At a crash" in docs/engine.md.
  class Latched {
   public:
    struct OneStripe {
      unsigned number;
    };
    Latched(Queues& queues, Index node, bool all, std::int64_t patience) noexcept;
    // Whatever is decided there; does not wait.
    Latched(Queues& queues, OneStripe one) noexcept;
    ~Latched();
    Latched(const Latched&) = delete;
    Latched& operator=(const Latched&) = delete;
    bool taken() const noexcept { return first_ < end_; }

   private:
    bool take(unsigned end, std::int64_t patience) noexcept;

    Queues& queues_;
    unsigned first_, end_;  // stripes
  };
  // How long a latch is waited for by those who only want to tell others something, which can be left out (I5). In
  // private memory the latch's owner cannot be stopped alone.
  std::int64_t patience() const noexcept { return patience_; }

  // --- under the latch of the stripe ---
  // none if there is no room.
  Index enqueue(const Attempt& attempt, Index node, Mode mode, QueueKey key, bool entangled);
  void leave_queue(Attempt& attempt) noexcept;
  // Whether anybody waits for the node. Those at the front who died or left are unlinked.
  bool anybody_waits(Index node) noexcept;
  // Whether somebody waits before `key` who conflicts.
  bool queue_conflicts(Index node, Mode mode, QueueKey key) const noexcept;
  bool own_waiter_conflicts(const Attempt& attempt, Index node, Mode mode) const noexcept;
  // After any change: sets `queued` to whether anybody waits, and tells those who may go now (I5). `slots_held`: how
  // many slots are taken, if that is known.
  void settle(Index node, WakeList& wake, std::optional<std::uint64_t> slots_held = {}) noexcept;

  // --- without it ---
  // Settles the node, unless a stopped process has the latch.
  void tell_queue(Index node) noexcept;
  // Removes the waiters of dead processes from a stripe, and tells those who may go now. Also takes the latch over, if
  // it names a dead process. False if another process has it.
  bool tidy_stripe(unsigned stripe) noexcept;
  Index node_awaited(Index index) const { return waiter(index).node.relaxed(); }
  // Sleeps until the waiter is told to look again, for at most so long.
  void sleep(Index waiter, std::int64_t nanoseconds) const noexcept;
  // Tells it.
  void tell(Index waiter) noexcept;
  // Tells whoever waits for this record, so that it finds out that its lock was taken away.
  void tell_waiter_of(Index record) noexcept;
  // Settles the node that has this number now.
  void tell_queue_of_number(Index number) noexcept;
  bool told(Index index) const noexcept { return waiter(index).signal.acquire() != 0; }

 private:
  Index take_place(unsigned stripe) noexcept;
  void free_place(Waiter& waiter) noexcept;
  void drop_waiter(Waiter& waiter) noexcept;
  void join_ring(Waiter& waiter) noexcept;
  void leave_ring(Waiter& waiter) noexcept;
  void relink(unsigned stripe) noexcept;
  std::uint64_t queue_counts(Index node) const noexcept;
  bool tell_slots(Index node, WakeList& wake, std::optional<std::uint64_t> slots_held) noexcept;
  bool tell_modes(Index node, WakeList& wake) noexcept;

  const Holders& holders_;
  const std::int64_t patience_;
  std::array<std::atomic<std::int64_t>, stripe_count> last_late_{};  // coarse_time() when a queue was not told

  std::mutex relink_mutex_;  // guards what follows
  struct Relinked {
    QueueKey key;
    Index waiter;
  };
  std::unique_ptr<Relinked[]> relinked_;  // as many as a stripe has places
};

}  // namespace hierlock::engine
