// Locks: the locks and waits of one Locker in a remote store.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <hierlock/spi/backend.h>

#include "remote/hold.h"
#include "remote/lock_wait.h"
#include "remote/notice.h"
#include "timed/brief_mutex.h"

namespace hierlock::remote {

// A lock that is held: in the local queue, and at the store.
struct Held {
  const std::shared_ptr<Hold> hold;
  const Clock::time_point since = Clock::now();
  std::uint64_t plan = 0;             // HandOver::number_of()
  std::vector<Cell> cells{};          // if it can be handed over
  Clock::time_point granted = since;  // by the store
  int handed_over = 0;                // how often, since then
  // `extended`: an extend was tried. `published`: its notice may be written. Such a lock is not handed over.
  std::atomic<bool> extended{false}, published{false};
  spi::Grant local;  // this and the rest are guarded by Locks::mutex
  std::uint64_t owner = 0;
  std::int64_t fence = 0;
  HeldNodes nodes;
  std::size_t place = 0;  // among its owner's locks

  explicit Held(std::shared_ptr<Hold> h) : hold(std::move(h)) {}
};

class Locks {
 public:
  std::uint64_t add(std::shared_ptr<Held> held) {
    const std::lock_guard guard(mutex);
    enlist(*held, held->owner);
    try {
      held_.emplace(last_id_ + 1, held);
    } catch (...) {
      forget(*held);
      throw;
    }
    changed();
    return ++last_id_;
  }
  std::shared_ptr<Held> find(std::uint64_t id) const noexcept {
    const std::lock_guard guard(mutex);
    const auto found = held_.find(id);
    return found == held_.end() ? nullptr : found->second;
  }
  std::shared_ptr<Held> take_out(std::uint64_t id) noexcept {
    const std::lock_guard guard(mutex);
    const auto found = held_.find(id);
    if (found == held_.end()) return nullptr;
    std::shared_ptr<Held> held = std::move(found->second);
    held_.erase(found);
    forget(*held);
    changed();
    return held;
  }
  // After this, give() to this owner needs no memory, unless the owner gets other locks meanwhile.
  void make_room(std::uint64_t owner) {
    const std::lock_guard guard(mutex);
    std::vector<Held*>& own = by_owner_[owner];
    own.reserve(own.size() + 1);
  }
  void give(Held& held, const spi::Grant& local, std::uint64_t to) {
    const std::lock_guard guard(mutex);
    held.local = local;  // whatever happens next
    std::vector<Held*>& own = by_owner_[to];
    own.reserve(own.size() + 1);  // nothing fails once it is taken from its owner
    forget(held);
    enlist(held, to);
    changed();
  }
  std::vector<std::shared_ptr<Held>> all_held() const {
    const std::lock_guard guard(mutex);
    std::vector<std::shared_ptr<Held>> all;
    all.reserve(held_.size());
    for (const auto& [id, held] : held_) all.push_back(held);
    return all;
  }
  bool any_of(std::uint64_t owner) const noexcept {
    const std::lock_guard guard(mutex);
    const auto own = by_owner_.find(owner);
    return own != by_owner_.end() && !own->second.empty();
  }
  // Whether a lock of an owner is on this session.
  bool has_session(std::uint64_t owner, std::uint64_t session) const noexcept {
    const std::lock_guard guard(mutex);
    const auto own = by_owner_.find(owner);
    return own != by_owner_.end() && std::any_of(own->second.begin(), own->second.end(),
                                                 [&](const Held* held) { return held->hold->session() == session; });
  }
  // The first cell that an owner holds, in another lock than `except`, and that conflicts with one of these nodes.
  struct Collision {
    std::string held;
    const Node* wanted;
  };
  std::optional<Collision> collision(std::uint64_t owner, const Held* except, const std::vector<Node>& wanted,
                                     const CellOf& cell_of) const {
    const std::lock_guard guard(mutex);
    const auto own = by_owner_.find(owner);
    if (own == by_owner_.end()) return std::nullopt;
    for (Held* const held : own->second) {
      if (held == except || held->hold->gone()) continue;
      for (const Node& has : held->nodes.read(cell_of)) {
        for (const Node& node : wanted) {
          if (conflict(has.cell, node.cell)) return Collision{has.text, &node};
        }
      }
    }
    return std::nullopt;
  }
  // The notices of locks with these fences are about to be written. Returns the fences of those that are still held.
  std::unordered_set<std::int64_t> mark_published(const std::unordered_set<std::int64_t>& fences) {
    std::unordered_set<std::int64_t> marked;
    const std::lock_guard guard(mutex);
    for (const auto& [id, held] : held_) {
      if (!fences.contains(held->fence)) continue;
      held->published = true;
      marked.insert(held->fence);
    }
    return marked;
  }
  // Whether an owner has a lock that is gone and was not released.
  bool lost_one(std::uint64_t owner) const noexcept {
    const std::lock_guard guard(mutex);
    const auto own = by_owner_.find(owner);
    return own != by_owner_.end() &&
           std::any_of(own->second.begin(), own->second.end(), [](const Held* held) { return !held->hold->surely(); });
  }
  bool empty() const noexcept { return size() == 0; }
  std::size_t size() const noexcept {
    const std::lock_guard guard(mutex);
    return held_.size();
  }

  void add(std::shared_ptr<Pending> pending) {
    const std::lock_guard guard(mutex);
    Pending* const key = pending.get();
    pending_.emplace(key, std::move(pending));
    changed();
  }
  void remove(Pending* pending) noexcept {
    const std::lock_guard guard(mutex);
    pending_.erase(pending);
    changed();
  }
  std::vector<std::shared_ptr<Pending>> all_pending() const {
    const std::lock_guard guard(mutex);
    std::vector<std::shared_ptr<Pending>> all;
    all.reserve(pending_.size());
    for (const auto& [key, pending] : pending_) all.push_back(pending);
    return all;
  }

  // Differs if anything was added or removed in between. No mutex is needed.
  std::uint64_t version() const noexcept { return version_.load(); }
  void changed() noexcept { version_.fetch_add(1); }

  mutable timed::BriefMutex mutex;

 private:
  void enlist(Held& held, std::uint64_t owner) {
    std::vector<Held*>& own = by_owner_[owner];
    own.push_back(&held);
    held.owner = owner;
    held.place = own.size() - 1;
  }
  void forget(Held& held) noexcept {
    const auto own = by_owner_.find(held.owner);
    Held* const last = own->second.back();
    last->place = held.place;
    own->second[held.place] = last;
    own->second.pop_back();
    if (own->second.empty()) by_owner_.erase(own);
  }

  std::unordered_map<std::uint64_t, std::shared_ptr<Held>> held_;
  std::unordered_map<std::uint64_t, std::vector<Held*>> by_owner_;
  std::unordered_map<Pending*, std::shared_ptr<Pending>> pending_;
  std::uint64_t last_id_ = 0;
  std::atomic<std::uint64_t> version_{0};
};

}  // namespace hierlock::remote
