#include "threads/registry.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include <hierlock/error.h>

namespace hierlock::threads {

namespace {

// Trivial, so that it can be read after the thread's other variables are gone.
constinit thread_local bool is_ending = false;

struct Mine {
  std::vector<std::unique_ptr<Keepsake>> kept;

  ~Mine() {
    is_ending = true;
    while (!kept.empty()) {
      const std::unique_ptr<Keepsake> last = std::move(kept.back());
      kept.pop_back();
      const std::lock_guard guard(mutex());
      last->thread_ends();
    }
  }
};

std::vector<std::unique_ptr<Keepsake>>& mine() noexcept {
  thread_local Mine mine;
  return mine.kept;
}

// Never destroyed: threads may end after static destructors ran.
std::vector<void (*)() noexcept>& children_call() {
  static auto* const calls = new std::vector<void (*)() noexcept>;
  return *calls;
}

template <class Which>
std::unique_ptr<Keepsake> take(Which which) noexcept {
  auto& kept = mine();
  const auto found = std::find_if(kept.begin(), kept.end(), which);
  if (found == kept.end()) return nullptr;
  std::unique_ptr<Keepsake> taken = std::move(*found);
  kept.erase(found);  // in order: the newest stays last
  return taken;
}

}  // namespace

std::uint64_t next_number() noexcept {
  static constinit std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

std::mutex& mutex() noexcept {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

void notice_forks(void (*in_child)() noexcept) {
  static const bool noticed = pthread_atfork([] { mutex().lock(); }, [] { mutex().unlock(); },
                                             [] {
                                               for (const auto call : children_call()) call();
                                               mutex().unlock();
                                             }) == 0;
  if (!noticed) throw Error(ErrorKind::exhausted, "no memory to watch for forks");
  const std::lock_guard guard(mutex());
  auto& calls = children_call();
  if (std::find(calls.begin(), calls.end(), in_child) == calls.end()) calls.push_back(in_child);
}

bool ending() noexcept { return is_ending; }

Keepsake* find(std::uint64_t object) noexcept {
  if (is_ending) return nullptr;
  for (const auto& keepsake : mine()) {
    if (keepsake->object() == object) return keepsake.get();
  }
  return nullptr;
}

void keep(std::unique_ptr<Keepsake> keepsake) {
  tidy();
  mine().push_back(std::move(keepsake));
}

// One at a time: what a Keepsake ends may take its time, and may come back here.
void tidy() noexcept {
  if (is_ending) return;
  while (take([](const auto& keepsake) { return keepsake->useless(); }) != nullptr) {
  }
}

void drop(std::uint64_t object) noexcept {
  if (is_ending) return;
  take([object](const auto& keepsake) { return keepsake->object() == object; });
}

}  // namespace hierlock::threads
