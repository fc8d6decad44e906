// Cell: the one way to change a word of the lock table.
//
// Every shared store of the engine goes through a Cell, so that a build can count the stores and stop the process
// between any two of them (HIERLOCK_STORE_HOOK), and so that no word of the table is ever read or written except
// atomically: other processes, and threads that lost a race, look at the same memory.
//
// Reads name their strength (relaxed, acquire, ordered); stores are at least release. `ordered` is sequentially
// consistent: the two-sided handshakes of table.cc ("I publish, then I look at you") rest on it.
#pragma once

#include <atomic>
#include <type_traits>

namespace hierlock::engine {

#ifdef HIERLOCK_STORE_HOOK
void on_shared_store() noexcept;  // provided by the test that asked for it
#else
inline void on_shared_store() noexcept {}
#endif

template <class T>
class Cell {
  static_assert(std::is_trivially_copyable_v<T> && std::atomic<T>::is_always_lock_free);

 public:
  [[gnu::always_inline]] T relaxed() const noexcept { return value_.load(std::memory_order_relaxed); }
  [[gnu::always_inline]] T acquire() const noexcept { return value_.load(std::memory_order_acquire); }
  [[gnu::always_inline]] T ordered() const noexcept { return value_.load(std::memory_order_seq_cst); }

  [[gnu::always_inline]] void set(T value) noexcept {
    on_shared_store();
    value_.store(value, std::memory_order_release);
  }
  [[gnu::always_inline]] bool cas(T& expected, T desired) noexcept {
    on_shared_store();
    return value_.compare_exchange_strong(expected, desired, std::memory_order_seq_cst);
  }
  [[gnu::always_inline]] T add(T amount) noexcept {
    on_shared_store();
    return value_.fetch_add(amount, std::memory_order_seq_cst);
  }
  [[gnu::always_inline]] T subtract(T amount) noexcept {
    on_shared_store();
    return value_.fetch_sub(amount, std::memory_order_seq_cst);
  }
  T exchange(T value) noexcept {
    on_shared_store();
    return value_.exchange(value, std::memory_order_seq_cst);
  }
  // Sets and clears bits in one step; returns what was there before.
  T change_bits(T clear, T set_bits) noexcept {
    on_shared_store();
    T old = value_.load(std::memory_order_relaxed);
    while (!value_.compare_exchange_weak(old, static_cast<T>((old & ~clear) | set_bits), std::memory_order_seq_cst)) {
    }
    return old;
  }

  // For the kernel's futex calls only.
  const void* address() const noexcept { return &value_; }

 private:
  std::atomic<T> value_;
};

// Nothing below is done before what is above is seen by everybody. (The thread sanitizer knows no fences, but locked
// instructions.)
inline void full_fence() noexcept {
#if defined(__SANITIZE_THREAD__)
  static constinit std::atomic<int> anything{0};
  anything.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// The same after a locked instruction (cas, add, exchange, …). On x86 that instruction has done it already.
inline void barrier_after_locked() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  std::atomic_signal_fence(std::memory_order_seq_cst);
#else
  full_fence();
#endif
}

}  // namespace hierlock::engine
