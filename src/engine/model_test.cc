// The table against a model so naive that one can see it is right, over millions of random steps.
//
// The model keeps plain lists of holds and waiters and decides by the sentences of table.h. Whether a wait can end it
// finds out by playing it: owners that do not wait release everything, waiters that may go are let go, until nobody
// waits or nothing moves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <hierlock/spi/plan.h>

#include "engine/fast_path.h"
#include "engine/table.h"

namespace hierlock::engine {
namespace {

struct Hold {
  int lock;
  int owner;
  Mode mode;
  bool asked;
};

struct ModelWaiter {
  int lock;
  int owner;
  std::string node;
  Mode mode;
  bool converter;
  std::uint64_t ticket;
  std::uint32_t slots;
  bool before(const ModelWaiter& other) const {
    return converter != other.converter ? converter : ticket < other.ticket;
  }
};

struct Model {
  std::map<std::string, std::vector<Hold>> holds;  // by node
  std::vector<ModelWaiter> waiters;
  std::map<std::string, std::uint32_t> capacity;  // of slots nodes in use
  std::uint64_t tickets = 0;

  bool holds_node(int owner, const std::string& node) const {
    const auto at = holds.find(node);
    return at != holds.end() &&
           std::any_of(at->second.begin(), at->second.end(), [&](const Hold& h) { return h.owner == owner; });
  }
  bool covered(int owner, const std::string& node, Mode mode) const {
    const auto at = holds.find(node);
    return at != holds.end() && std::any_of(at->second.begin(), at->second.end(),
                                            [&](const Hold& h) { return h.owner == owner && covers(h.mode, mode); });
  }

  // I4, for somebody who stands where `me` says.
  // `strict`: its owner's other locks do not help it past the queue; they may be gone by then.
  bool may_take(const ModelWaiter& me, bool queued, bool strict = false) const {
    const auto at = holds.find(me.node);
    if (me.slots != 0) {
      // Those ahead will be served first: there must be a slot beside theirs.
      const std::size_t held = at == holds.end() ? 0 : at->second.size();
      const auto ahead = std::count_if(waiters.begin(), waiters.end(), [&](const ModelWaiter& w) {
        return w.node == me.node && w.lock != me.lock && (!queued || w.before(me));
      });
      return held + static_cast<std::size_t>(ahead) < me.slots;
    }
    if (at != holds.end()) {
      for (const Hold& h : at->second) {
        if (h.lock != me.lock && !compatible(h.mode, me.mode)) return false;
      }
    }
    if (!strict && covered(me.owner, me.node, me.mode)) return true;
    const bool jumps = !queued && holds_node(me.owner, me.node);
    return std::none_of(waiters.begin(), waiters.end(), [&](const ModelWaiter& w) {
      if (w.node != me.node || w.lock == me.lock || compatible(w.mode, me.mode)) return false;
      if (jumps) return w.converter;
      return !queued || w.before(me);
    });
  }

  // The owner itself holds or awaits, through another lock, what this would wait for.
  bool own_hold_conflicts(const ModelWaiter& me) const {
    const auto at = holds.find(me.node);
    return at != holds.end() && std::any_of(at->second.begin(), at->second.end(), [&](const Hold& h) {
             return h.owner == me.owner && h.lock != me.lock && !compatible(h.mode, me.mode);
           });
  }
  bool own_waiter_conflicts(const ModelWaiter& me) const {
    return std::any_of(waiters.begin(), waiters.end(), [&](const ModelWaiter& w) {
      return w.owner == me.owner && w.lock != me.lock && w.node == me.node && !compatible(w.mode, me.mode);
    });
  }

  void take(int lock, int owner, const std::string& node, Mode mode, bool asked) {
    for (Hold& h : holds[node]) {
      if (h.lock == lock) {
        h.mode = strongest(h.mode, mode);
        h.asked = h.asked || asked;
        return;
      }
    }
    holds[node].push_back({lock, owner, mode, asked});
  }
  void drop(int lock) {
    for (auto at = holds.begin(); at != holds.end();) {
      std::erase_if(at->second, [&](const Hold& h) { return h.lock == lock; });
      at = at->second.empty() ? holds.erase(at) : std::next(at);
    }
  }
  void stop_waiting(int lock) {
    std::erase_if(waiters, [&](const ModelWaiter& w) { return w.lock == lock; });
  }
  bool waits(int owner) const {
    return std::any_of(waiters.begin(), waiters.end(), [&](const ModelWaiter& w) { return w.owner == owner; });
  }

  // Played on a copy. True if some waiter would wait for ever.
  bool somebody_is_stuck() const {
    Model play = *this;
    for (bool moved = true; moved && !play.waiters.empty();) {
      moved = false;
      for (auto at = play.holds.begin(); at != play.holds.end();) {
        moved = std::erase_if(at->second, [&](const Hold& h) { return !play.waits(h.owner); }) > 0 || moved;
        at = at->second.empty() ? play.holds.erase(at) : std::next(at);
      }
      for (std::size_t i = 0; i < play.waiters.size(); ++i) {
        const ModelWaiter w = play.waiters[i];
        if (!play.may_take(w, true, true)) continue;
        play.stop_waiting(w.lock);
        play.take(w.lock, w.owner, w.node, w.mode, false);
        moved = true;
        break;
      }
    }
    return !play.waiters.empty();
  }
};

// A lock or an attempt, in both worlds.
struct Item {
  int number = 0;
  int owner = 0;
  Index record = none;
  bool held = false;  // otherwise waiting
  std::int64_t fence = 0;
  std::set<std::string> exclusive;  // targets held in X, for the fences
  std::vector<Target> targets;      // of the attempt under way
  std::unique_ptr<spi::Plan> plan;
  std::unique_ptr<Attempt> attempt;
  std::map<std::string, std::pair<Mode, bool>> before;  // extending: what was held, to be put back
};

class Player {
 public:
  Player(std::uint64_t seed, std::uint32_t idle_nodes) : random_(seed) {
    Capacity capacity = Capacity::for_locks(5000);
    capacity.idle_nodes = idle_nodes;
    capacity.idle_pages = idle_nodes;
    table_ = std::make_unique<Table>(capacity);
    for (int i = 0; i < owner_count; ++i) {
      owners_.push_back(
          table_->records().make_owner("owner " + std::to_string(i), crowd(i) ? OwnerKind::crowd : OwnerKind::thread));
    }
    lanes_ = {table_->enter_lane(), table_->enter_lane(), table_->common_lane()};
  }

  void run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
      step();
      if (i % 64 == 0) compare();
    }
    while (!items_.empty()) finish_with(items_.size() - 1);
    compare();
    EXPECT_TRUE(model_.holds.empty() && model_.waiters.empty());
  }

  int granted = 0, waited = 0, deadlocks = 0, refused = 0, extended = 0, given = 0, at_once = 0, by_text = 0;

 private:
  static constexpr int owner_count = 7;
  static bool crowd(int owner) { return owner >= 5; }

  // Threads come and go between the calls for one lock: what one lane counted, another gives back.
  std::uint32_t any_lane() { return lanes_[static_cast<std::size_t>(below(3))]; }

  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  Target random_target() {
    static const char* const parts[] = {"u0", "u1", "a0",
                                        "a1", "r0", "a resource with a long name, longer than a line"};
    const int kind = below(20);
    if (kind == 0) return slots("pool", 2);
    if (kind == 1) return named("u0");
    if (kind == 2) return shared(named("u0"));
    std::string path = parts[below(2)];
    if (below(5) != 0) {
      path += "/" + std::string(parts[2 + below(2)]);
      if (below(4) != 0) path += "/" + std::string(parts[4 + below(2)]);
    }
    return below(4) == 0 ? shared(path) : Target(path);
  }

  static std::string text(const spi::Step& s) { return spi::describe_key(s.space, s.key); }

  bool owner_waits(int owner) const { return model_.waits(owner); }

  void step() {
    const int what = below(100);
    if (items_.empty() || what < 35) return acquire();
    const auto pick = static_cast<std::size_t>(below(static_cast<int>(items_.size())));
    Item& item = *items_[pick];
    if (what < 60) {
      if (!item.held) {
        go_on(pick, true);
      } else if (below(2) == 0) {
        finish_with(pick);
      }
    } else if (what < 75) {
      if (item.held) extend(pick);
    } else if (what < 80) {
      if (item.held) give(item);
    } else {
      finish_with(pick);
    }
  }

  void acquire() {
    const int owner = below(owner_count);
    if (owner_waits(owner) && !crowd(owner)) return;
    if (items_.size() > 30) return;
    auto item = std::make_unique<Item>();
    item->number = ++numbers_;
    item->owner = owner;
    item->record = table_->records().take_record(owners_[static_cast<std::size_t>(owner)]);
    ASSERT_NE(item->record, none);
    prepare(*item, false);
    items_.push_back(std::move(item));
    Item& fresh = *items_.back();
    if (fresh.targets.size() == 1 && fresh.targets[0].space() != Space::slots &&
        fresh.attempt->lane != table_->common_lane() && below(2) == 0) {
      // It may decline whenever it likes, but what it grants must be right.
      const Target& target = fresh.targets[0];
      const Nodes::Found found = find_at_once(target);
      if (const std::int64_t fence = table_
                                         ->take_at_once(found, target.is_shared() ? Mode::S : Mode::X, fresh.record,
                                                        fresh.attempt->lane, coarse_time())
                                         .fence;
          fence != 0) {
        const Progress expected = expect(fresh, false);
        ASSERT_EQ(static_cast<int>(expected), static_cast<int>(Progress::granted)) << "at once: " << describe(fresh);
        ++at_once;
        return finished(fresh, fence);
      }
      ASSERT_EQ(table_->look().check(), "") << "after declining: " << describe(fresh);
    }
    table_->begin(*fresh.attempt);
    go_on(items_.size() - 1, below(5) != 0);
  }

  // By a Target that is kept, or from the text of a path, as Locker::acquire() does.
  Nodes::Found find_at_once(const Target& target) {
    if (target.space() != Space::path || target.is_shared() || below(2) == 0)
      return table_->find_at_once(spi::Chain::of(kept(target)));
    const std::string text = target.str();
    const Nodes::Found found = table_->nodes().find_text(text);
    if (found.node == none) return table_->find_at_once(spi::PathText(text).chain());
    ++by_text;
    return found;
  }

  void extend(std::size_t pick) {
    Item& item = *items_[pick];
    if (owner_waits(item.owner) && !crowd(item.owner)) return;
    item.before.clear();
    for (const auto& [node, holds] : model_.holds) {
      for (const Hold& h : holds) {
        if (h.lock == item.number) item.before[node] = {h.mode, h.asked};
      }
    }
    item.held = false;
    prepare(item, true);
    table_->begin(*item.attempt);
    ++extended;
    go_on(pick, below(5) != 0);
  }

  void prepare(Item& item, bool extending) {
    item.targets.clear();
    const int count = extending || below(3) != 0 ? 1 : 1 + below(3);
    for (int i = 0; i < count; ++i) item.targets.push_back(random_target());
    item.plan = item.targets.size() == 1 ? std::make_unique<spi::Plan>(item.targets[0])
                                         : std::make_unique<spi::Plan>(std::span<const Target>(item.targets));
    item.attempt = std::make_unique<Attempt>();
    Attempt& a = *item.attempt;
    a.steps = item.plan->steps();
    a.owner = owners_[static_cast<std::size_t>(item.owner)];
    a.record = item.record;
    a.crowd = crowd(item.owner);
    a.extending = extending;
    a.lane = any_lane();
  }

  // What the model says `advance` must answer; changes the model accordingly.
  Progress expect(Item& item, bool queue) {
    Attempt& a = *item.attempt;
    for (std::size_t i = a.next; i < a.steps.size(); ++i) {
      const spi::Step& step = a.steps[i];
      const std::string node = text(step);
      Mode mode = step.mode;
      bool done = false;
      for (const Hold& h : model_.holds[node]) {
        if (h.lock != item.number) continue;
        mode = strongest(h.mode, step.mode);
        done = mode == h.mode;
      }
      if (model_.holds[node].empty()) model_.holds.erase(node);
      if (!done) {
        const auto at = std::find_if(model_.waiters.begin(), model_.waiters.end(),
                                     [&](const ModelWaiter& w) { return w.lock == item.number; });
        const bool queued = at != model_.waiters.end();
        ModelWaiter me{item.number,      item.owner, node, mode, model_.holds_node(item.owner, node),
                       ++model_.tickets, step.slots};
        if (step.slots != 0) me.converter = false;
        if (queued) me = *at;
        if (model_.may_take(me, queued) && (queued || me.slots != 0 || !model_.own_waiter_conflicts(me))) {
          // Passing a queue for a crowd may close a cycle by itself.
          if (!queued && crowd(item.owner) && me.slots == 0) {
            Model play = model_;
            play.take(item.number, item.owner, node, mode, false);
            if (play.somebody_is_stuck()) return Progress::deadlock;
          }
          model_.stop_waiting(item.number);
        } else {
          if (!queued) {
            if (me.slots == 0 && (model_.own_hold_conflicts(me) || model_.own_waiter_conflicts(me))) {
              return Progress::deadlock;
            }
            if (!queue) return Progress::blocked;
            model_.waiters.push_back(me);
            if (model_.somebody_is_stuck()) {
              model_.stop_waiting(item.number);
              return Progress::deadlock;
            }
          }
          return Progress::blocked;
        }
      }
      model_.take(item.number, item.owner, node, mode, step.asked);
    }
    return Progress::granted;
  }

  void go_on(std::size_t pick, bool queue) {
    Item& item = *items_[pick];
    const bool was_waiting = item.attempt->waiter != none;
    queue = queue || was_waiting;
    const Progress expected = expect(item, queue);
    Progress actual = table_->advance(*item.attempt, queue);
    const std::string cycle = item.attempt->cycle.words;
    if (actual == Progress::self_deadlock) actual = Progress::deadlock;
    ASSERT_EQ(static_cast<int>(actual), static_cast<int>(expected)) << describe(item) << "\ncycle: " << cycle;
    switch (actual) {
      case Progress::granted:
        return finished(item, table_->finish(*item.attempt));
      case Progress::blocked:
        if (queue) {
          ++waited;
          return;
        }
        ++refused;
        return undo(pick);
      default:
        ++deadlocks;
        EXPECT_FALSE(cycle.empty());
        if (item.attempt->extending) {
          table_->abandon(*item.attempt);
          table_->release(item.record, any_lane());
          return forget(pick);
        }
        return undo(pick);
    }
  }

  void finished(Item& item, std::int64_t fence) {
    ++granted;
    item.held = true;
    item.fence = fence;
    for (const spi::Step& s : item.attempt->steps) {
      if (s.asked && s.mode == Mode::X && s.slots == 0) item.exclusive.insert(text(s));
    }
    // B3: higher than every earlier fence of a target that is this one, above it or below it.
    for (const std::string& target : item.exclusive) {
      for (const auto& [other, earlier] : fences_) {
        const bool related = other == target || other.starts_with(target + "/") || target.starts_with(other + "/");
        if (related) {
          EXPECT_GT(item.fence, earlier) << target << " after " << other;
        }
      }
    }
    for (const std::string& target : item.exclusive) fences_[target] = item.fence;
    item.attempt.reset();
  }

  void undo(std::size_t pick) {
    Item& item = *items_[pick];
    const bool extending = item.attempt->extending;
    table_->abandon(*item.attempt);
    model_.stop_waiting(item.number);
    if (!extending) return forget(pick);
    model_.drop(item.number);
    for (const auto& [node, hold] : item.before) model_.take(item.number, item.owner, node, hold.first, hold.second);
    item.held = true;
    item.attempt.reset();
  }

  void finish_with(std::size_t pick) {
    Item& item = *items_[pick];
    if (!item.held) return undo(pick);
    const std::uint32_t lane = any_lane();
    if (lane == table_->common_lane() || below(2) == 0 ||
        !table_->release_at_once(item.record, table_->record_state_word(item.record), lane)) {
      table_->release(item.record, lane);
    }
    forget(pick);
  }

  // The same target as it was used before, which may remember its node.
  const Target& kept(const Target& target) { return kept_.try_emplace(target.str(), target).first->second; }

  void forget(std::size_t pick) {
    Item& item = *items_[pick];
    table_->records().return_record(item.record);
    model_.stop_waiting(item.number);
    model_.drop(item.number);
    items_.erase(items_.begin() + static_cast<std::ptrdiff_t>(pick));
  }

  void give(Item& item) {
    const int to = below(owner_count);
    if (to == item.owner) return;
    Model after = model_;
    for (auto& [node, holds] : after.holds) {
      for (Hold& h : holds) {
        if (h.lock == item.number) h.owner = to;
      }
    }
    const bool stuck = after.somebody_is_stuck();
    const Index record = table_->records().take_record(owners_[static_cast<std::size_t>(to)]);
    FoundCycle cycle;
    const bool done = table_->give(item.record, record, cycle) == Progress::granted;
    ASSERT_EQ(done, !stuck) << describe(item) << " to owner " << to << "\ncycle: " << cycle.words;
    if (done) {
      table_->records().return_record(item.record);
      item.record = record;
      item.owner = to;
      model_ = after;
      ++given;
    } else {
      table_->records().return_record(record);
    }
  }

  std::string describe(const Item& item) const {
    std::string s = "lock " + std::to_string(item.number) + " of owner " + std::to_string(item.owner);
    if (item.attempt) {
      s += " wants";
      for (const spi::Step& step : item.attempt->steps) s += " " + text(step) + ":" + std::string(to_string(step.mode));
    }
    for (const auto& [node, holds] : model_.holds) {
      s += "\n  " + node + " held by";
      for (const Hold& h : holds)
        s += " #" + std::to_string(h.lock) + "(" + std::to_string(h.owner) + ")" + std::string(to_string(h.mode));
    }
    for (const ModelWaiter& w : model_.waiters) {
      s += "\n  #" + std::to_string(w.lock) + "(" + std::to_string(w.owner) + ") waits for " + w.node + ":" +
           std::string(to_string(w.mode)) + (w.converter ? " converting" : "");
    }
    return s;
  }

  // Everything that can be seen of both worlds is the same.
  void compare() {
    ASSERT_EQ(table_->look().check(), "");
    std::map<Index, int> by_record;
    for (const auto& item : items_) by_record[item->record] = item->number;
    const Look::Copy copy = table_->look().copy();
    std::multiset<std::string> actual;
    for (const Look::HolderCopy& h : copy.holders) {
      actual.insert(table_->names().node_text(h.node) + " #" + std::to_string(by_record[h.record]) + " " +
                    std::string(to_string(h.mode)) + " by " + table_->names().owner_text(h.owner));
    }
    for (const Look::WaiterCopy& w : copy.waiters) {
      std::string line = table_->names().node_text(w.node) + " #" + std::to_string(by_record[w.record]) + " waits " +
                         std::string(to_string(w.mode));
      for (const Index o : table_->look().blockers(copy, w)) line += " " + table_->names().owner_text(o);
      actual.insert(line);
    }
    std::multiset<std::string> expected;
    for (const auto& [node, holds] : model_.holds) {
      for (const Hold& h : holds) {
        expected.insert(node + " #" + std::to_string(h.lock) + " " + std::string(to_string(h.mode)) + " by owner " +
                        std::to_string(h.owner));
      }
    }
    for (const ModelWaiter& w : model_.waiters) {
      std::set<int> blockers;
      std::size_t held = 0;
      const auto at = model_.holds.find(w.node);
      if (at != model_.holds.end()) {
        for (const Hold& h : at->second) {
          if (h.lock == w.lock || (w.slots == 0 && compatible(h.mode, w.mode))) continue;
          blockers.insert(h.owner);
          ++held;
        }
      }
      if (w.slots != 0 && held < w.slots) blockers.clear();
      for (const ModelWaiter& other : model_.waiters) {
        if (other.node == w.node && other.lock != w.lock && other.before(w) && !compatible(other.mode, w.mode))
          blockers.insert(other.owner);
      }
      std::string line = w.node + " #" + std::to_string(w.lock) + " waits " + std::string(to_string(w.mode));
      for (const int o : blockers) line += " owner " + std::to_string(o);
      expected.insert(line);
    }
    ASSERT_EQ(actual, expected);
    // I5: whoever may go was told to look, so that nobody has to wait until they look by themselves.
    for (const ModelWaiter& w : model_.waiters) {
      if (!model_.may_take(w, true, true)) continue;
      const auto item = std::find_if(items_.begin(), items_.end(), [&](const auto& i) { return i->number == w.lock; });
      ASSERT_TRUE(table_->queues().told((*item)->attempt->waiter))
          << "#" << w.lock << " may have " << w.node << " and sleeps";
    }
  }

  std::mt19937_64 random_;
  std::map<std::string, Target> kept_;
  std::unique_ptr<Table> table_;
  Model model_;
  std::vector<Index> owners_;
  std::vector<std::uint32_t> lanes_;
  std::vector<std::unique_ptr<Item>> items_;
  std::map<std::string, std::int64_t> fences_;
  int numbers_ = 0;
};

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int default_steps = 40'000;
#else
constexpr int default_steps = 2'000'000;
#endif

void play(std::uint32_t idle_nodes) {
  const std::uint64_t seed = number_from("HIERLOCK_SEED", std::random_device{}());
  const auto steps = static_cast<int>(number_from("HIERLOCK_STEPS", default_steps));
  SCOPED_TRACE("HIERLOCK_SEED=" + std::to_string(seed));
  constexpr int games = 50;
  int granted = 0, waited = 0, deadlocks = 0, refused = 0, extended = 0, given = 0, at_once = 0, by_text = 0;
  for (int game = 0; game < games && !::testing::Test::HasFailure(); ++game) {
    SCOPED_TRACE("game " + std::to_string(game));
    Player player(seed + static_cast<std::uint64_t>(game), idle_nodes);
    player.run(steps / games);
    granted += player.granted;
    waited += player.waited;
    deadlocks += player.deadlocks;
    refused += player.refused;
    extended += player.extended;
    given += player.given;
    at_once += player.at_once;
    by_text += player.by_text;
  }
  std::printf(
      "seed %llu, %d steps: %d granted (%d at once), %d found by text, %d looks that had to wait, %d deadlocks, "
      "%d refused, %d extends, %d handed over\n",
      static_cast<unsigned long long>(seed), steps, granted, at_once, by_text, waited, deadlocks, refused, extended,
      given);
  EXPECT_GT(deadlocks, steps / 1000);
  EXPECT_GT(by_text, 0);
}

// H5, H8, B3, B10, B11
TEST(Model, the_table_does_what_the_model_does) { play(1'000); }

TEST(Model, the_table_does_what_the_model_does_while_nodes_are_reused_all_the_time) { play(0); }

}  // namespace
}  // namespace hierlock::engine
