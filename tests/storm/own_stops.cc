#include "own_stops.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace storm {

namespace {

const Witness* witness = nullptr;
Row* row = nullptr;
std::uint32_t mean = 0;
std::atomic<std::uint64_t> state{0};     // of the generator below
std::atomic<std::int64_t> countdown{0};  // stores until the next stop

std::uint64_t next_random() {
  std::uint64_t x = state.fetch_add(0x9E3779B97F4A7C15u) + 0x9E3779B97F4A7C15u;  // splitmix64
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

void stop() {
  countdown.store(static_cast<std::int64_t>(1 + next_random() % (2 * std::uint64_t{mean})));
  if (witness->all().stop.load() != 0) return;
  std::int64_t runs = 0;
  if (!row->stopped_itself.compare_exchange_strong(runs, now_ns())) return;  // another thread does
  row->own_stops.fetch_add(1);
  // To this thread: it then stops here, and the others with it. A signal to the process may be taken by another thread,
  // after this one has gone on.
  tgkill(getpid(), gettid(), SIGSTOP);
  row->stopped_itself.store(0);
}

}  // namespace

void stop_oneself_now_and_then(const Witness& all, Row& mine, std::uint64_t seed, std::uint32_t stores) {
  if (stores == 0) return;
  state.store(seed);
  mean = stores;
  countdown.store(static_cast<std::int64_t>(1 + next_random() % (2 * std::uint64_t{mean})));
  witness = &all;
  row = &mine;
}

}  // namespace storm

namespace hierlock::engine {

void on_shared_store() noexcept {
  if (storm::row != nullptr && storm::countdown.fetch_sub(1, std::memory_order_relaxed) == 1) storm::stop();
}

}  // namespace hierlock::engine
