// Reduction: which waits can never end. It knows waits and holds, not the table; wait_graph.cc fills it.
//
//   add() each wait, arrange(), reach() the owners in question, reduce(), then ask.
//
// Time and memory are linear in the waits and in the holds that reach() is told.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "engine/layout.h"

namespace hierlock::engine {

// Numbers things that have an Index, in the order in which they are first seen: 0, 1, 2, …
class Numbering {
 public:
  static constexpr std::uint32_t unknown = ~std::uint32_t{0};

  std::uint32_t find(Index index) const noexcept {
    if (places_.empty()) return unknown;
    const Place& place = places_[place_of(index)];
    return place.number;
  }
  void reserve(std::size_t count);
  // Its number, and whether it is new.
  std::pair<std::uint32_t, bool> add(Index index);
  std::uint32_t size() const noexcept { return size_; }

 private:
  struct Place {
    Index index = none;
    std::uint32_t number = unknown;
  };
  std::size_t place_of(Index index) const noexcept {
    constexpr std::uint32_t golden = 0x9E3779B1;
    std::size_t at = std::size_t{index * golden} >> shift_;
    while (places_[at].number != unknown && places_[at].index != index) at = (at + 1) & (places_.size() - 1);
    return at;
  }
  void resize(unsigned log2);

  std::vector<Place> places_;  // open addressing, at most half full
  unsigned shift_ = 32;
  std::uint32_t size_ = 0;
};

class Reduction {
 public:
  struct Wait {
    Index waiter, owner, node, record;
    Mode mode;
    QueueKey key;
  };
  struct Hold {
    Index record, node;
    Mode mode;
  };

  // Room for so many waits, so that nothing is moved while they are added.
  void reserve(std::size_t waits);
  // `slots`: how many slots the node has; 0 if it is none of that kind. A record has at most one wait.
  void add(const Wait& wait, std::uint64_t slots);
  // After the last add(): puts the waits of each node in the order of their keys.
  void arrange();

  // The nodes that somebody waits for, numbered from 0.
  std::uint32_t nodes() const noexcept { return nodes_.size(); }
  Index node(std::uint32_t number) const noexcept { return queues_[number].node; }
  bool awaited(Index node) const noexcept { return nodes_.find(node) != Numbering::unknown; }
  // The owners that wait, numbered from 0.
  std::uint32_t owners() const noexcept { return owners_.size(); }
  std::uint32_t number_of(Index owner) const noexcept { return owners_.find(owner); }
  bool waits(Index owner) const noexcept { return number_of(owner) != Numbering::unknown; }

  // Reaches the owner, then everybody who waits for somebody reached. `holds_of(owner, hold)` calls hold(Hold) for
  // everything that the owner holds of the awaited nodes; it is called once for each owner.
  //
  // Those who are not reached count as able to go on. So nothing is lost if every deadlock there is contains the
  // owner: all members of a cycle wait for each of them.
  template <class HoldsOf>
  void reach(Index owner, HoldsOf&& holds_of) {
    reach_number(owners_.find(owner));
    while (!to_walk_.empty()) {
      const std::uint32_t number = to_walk_.back();
      to_walk_.pop_back();
      Owner& reached = parties_[number];
      for (std::uint32_t w = reached.first_wait; w != no_wait; w = waits_[w].next_of_owner) {
        record_waits(w);
        reach_behind(waits_[w].queue, waits_[w].position + 1);
      }
      holds_of(reached.owner, [&](const Hold& hold) { add_hold(number, hold); });
    }
  }

  // Lets go whoever can go, until nobody else can. What is stuck then is deadlocked.
  void reduce();

  struct Stuck {
    const Wait* wait;
    bool by_hold;  // how the wait before it leads here: its owner holds the node, or only stands before in the queue
  };
  // A wait of the owner that is stuck, `waiter` if that is one.
  std::optional<Stuck> stuck_of(Index owner, Index waiter) const;
  // Whom a stuck wait waits for. A walk along these comes to an owner for the second time, in at most as many steps as
  // there are owners.
  std::optional<Stuck> next_of(const Wait& wait);
  // All stuck waits, as waiters, in no particular order.
  std::vector<Index> stuck() const;

 private:
  static constexpr std::uint32_t no_wait = ~std::uint32_t{0};
  static constexpr std::uint32_t no_hold = ~std::uint32_t{0};
  static constexpr std::size_t modes = all_modes.size();

  struct Entry : Wait {
    std::uint32_t queue = 0, party = 0;
    std::uint32_t position = 0;  // in its queue
    std::uint32_t next_of_owner = no_wait;
    std::uint32_t next_of_mode = no_wait;  // the next one in the queue that waits in the same mode
    bool stuck = false;
    bool upgrades = false;  // its own record holds the node in a mode that conflicts with what it wants
  };
  struct HeldNode {
    std::uint32_t queue, party;
    Index record;
    Mode mode;
    std::uint32_t next_of_mode;  // of the same queue
    bool waits;                  // so does its record
  };
  struct Owner {
    Index owner = none;
    std::uint32_t first_wait = no_wait;
    std::uint32_t stuck = 0;  // how many of its waits are
    std::uint32_t holds_begin = 0, holds_end = 0;
    bool reached = false;
  };
  // The waits for one node.
  struct Queue {
    Index node = none;
    std::uint64_t slots = 0;
    std::uint32_t begin = 0, size = 0;              // in order_
    std::uint32_t reached_from = 0;                 // those from this position on are reached
    std::array<std::uint32_t, modes> first{};       // by mode: the first wait
    std::array<std::uint32_t, modes> next_to_go{};  // the first one that has not ended; none before it is stuck
    std::array<std::uint32_t, modes> blocking{};    // the first one whose owner is stuck
    std::array<std::uint32_t, modes> held{};        // how many holds of stuck owners
    std::array<std::uint32_t, modes> holds{};       // a list of all holds of reached owners
    std::uint32_t next_slot = 0;                    // slots: the position of the first one that has not ended
    std::uint64_t served = 0;                       // waits that ended and whose owner is stuck
    std::uint32_t first_stuck = 0;                  // slots, when asked: nobody before this position is stuck
    bool dirty = false;
  };

  void reach_number(std::uint32_t party);
  void reach_behind(std::uint32_t queue, std::uint32_t position);
  void record_waits(std::uint32_t wait);
  void add_hold(std::uint32_t party, const Hold& hold);
  void touch(std::uint32_t queue);
  void let_go(std::uint32_t queue);
  bool can_end(Queue& queue, const Entry& wait);
  std::uint32_t blocker(Queue& queue, const Entry& wait);
  void end(Entry& wait);

  std::vector<Entry> waits_;
  std::vector<std::uint32_t> order_;  // waits, by queue and position
  Numbering nodes_, owners_, records_;
  std::vector<Queue> queues_;
  std::vector<Owner> parties_;
  std::vector<std::uint32_t> wait_of_record_;
  std::vector<HeldNode> holds_;
  std::vector<std::uint32_t> to_walk_, to_look_at_;
};

}  // namespace hierlock::engine
