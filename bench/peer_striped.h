// Striped std::shared_mutex: the floor. It has no queue, no deadline, no owner, no deadlock detection and no exact keys
// (two nodes may share a stripe), and there is nothing faster to build from the standard library.
//
// Each level has stripes of its own, so that a path never meets itself, each on a cache line of its own; which stripes
// a key has is computed outside the loop. As many stripes as keys: fewer would be more contended, more would miss the
// cache.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "keys.h"

namespace bench {

class Striped {
 public:
  class Worker {
   public:
    Worker(Striped& store, const std::vector<Path>& keys) : store_(store) {
      for (const Path& path : keys) paths_.push_back(store.stripes(path));
    }

    std::size_t size() const noexcept { return paths_.size(); }

    void pair(std::size_t i) {
      const Stripes& s = paths_[i];
      s[0]->lock_shared();
      s[1]->lock_shared();
      s[2]->lock();
      s[2]->unlock();
      s[1]->unlock_shared();
      s[0]->unlock_shared();
    }

    bool try_hold(const Path& path, std::size_t depth) {
      const Stripes s = store_.stripes(path);
      for (std::size_t level = 0; level < depth; ++level) {
        const bool exclusive = level + 1 == depth;
        if (!(exclusive ? s[level]->try_lock() : s[level]->try_lock_shared())) {
          drop();
          return false;
        }
        held_.emplace_back(s[level], exclusive);
      }
      return true;
    }

    void drop() {
      for (auto& [mutex, exclusive] : held_) exclusive ? mutex->unlock() : mutex->unlock_shared();
      held_.clear();
    }

   private:
    using Stripes = std::array<std::shared_mutex*, 3>;

    Striped& store_;
    std::vector<Stripes> paths_;
    std::vector<std::pair<std::shared_mutex*, bool>> held_;
  };

 private:
  struct alignas(64) Stripe {
    std::shared_mutex mutex;
  };

  std::array<std::shared_mutex*, 3> stripes(const Path& path) {
    std::array<std::shared_mutex*, 3> result{};
    for (std::size_t level = 0; level < 3; ++level) {
      result[level] = &stripes_[level][std::hash<std::string>()(path.nodes[level]) % key_count].mutex;
    }
    return result;
  }

  std::array<std::unique_ptr<Stripe[]>, 3> stripes_{std::make_unique<Stripe[]>(key_count),
                                                    std::make_unique<Stripe[]>(key_count),
                                                    std::make_unique<Stripe[]>(key_count)};
};

}  // namespace bench
