// hierlock itself, in the shape of a peer. Only the public headers are used: what is measured is what a user gets.
#pragma once

#include <hierlock/hierlock.h>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "keys.h"

namespace bench {

inline hierlock::Target target(const Path& path, std::size_t depth = 3) { return path.nodes[depth - 1]; }

class Ours {
 public:
  explicit Ours(const std::string& url = "memory:") : locker_(hierlock::open(url)) {}

  hierlock::Locker& locker() noexcept { return locker_; }

  // Targets prepared outside the loop. The owner is the thread that calls, except in try_hold.
  class Worker {
   public:
    Worker(Ours& store, const std::vector<Path>& keys)
        : locker_(store.locker_), owner_(store.locker_.owner("self-check")) {
      for (const Path& path : keys) targets_.push_back(target(path));
    }
    Worker(Ours& store, std::vector<hierlock::Target> targets)
        : locker_(store.locker_), owner_(store.locker_.owner("self-check")), targets_(std::move(targets)) {}

    std::size_t size() const noexcept { return targets_.size(); }
    void pair(std::size_t i) { const hierlock::Lock lock = locker_.acquire(targets_[i]); }

    bool try_hold(const Path& path, std::size_t depth) {
      held_ = locker_.try_acquire(target(path, depth), {}, {.owner = &owner_});
      return held_.has_value();
    }
    void drop() { held_.reset(); }

   private:
    hierlock::Locker& locker_;
    hierlock::Owner owner_;
    std::vector<hierlock::Target> targets_;
    std::optional<hierlock::Lock> held_;
  };

  // The same from plain strings, parsed in the call.
  class StringWorker {
   public:
    StringWorker(Ours& store, const std::vector<Path>& keys) : locker_(store.locker_) {
      for (const Path& path : keys) paths_.push_back(path.nodes[2]);
    }
    std::size_t size() const noexcept { return paths_.size(); }
    void pair(std::size_t i) { const hierlock::Lock lock = locker_.acquire(paths_[i]); }

   private:
    hierlock::Locker& locker_;
    std::vector<std::string> paths_;
  };

 private:
  hierlock::Locker locker_;
};

// One lock that two threads, or two processes, hand to each other.
class OurTurns {
 public:
  explicit OurTurns(const std::string& url = "memory:") : locker_(hierlock::open(url)) {}

  void acquire(std::size_t self) { locks_[self].lock = locker_.acquire(target_); }
  void release(std::size_t self) { locks_[self].lock.release(); }

 private:
  struct alignas(64) Held {
    hierlock::Lock lock;
  };
  hierlock::Locker locker_;
  hierlock::Target target_ = "u0/a0/r0";
  std::array<Held, 2> locks_;
};

}  // namespace bench
