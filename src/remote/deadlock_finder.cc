#include "remote/deadlock_finder.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "remote/components.h"

namespace hierlock::remote {

namespace {

using Index = Vertex;

// Which of two is the victim. All processes must choose the same. So only what is the same for all of them counts: ages
// differ a little from reader to reader.
bool rather(const Notice& a, const Notice& b) {
  if (a.queued() != b.queued()) return a.queued();
  if (a.since != 0 && b.since != 0 && a.since != b.since) return a.since > b.since;
  if ((a.since == 0 || b.since == 0) && a.age != b.age) return a.age < b.age;
  return a.session > b.session;
}

// Bounds the recursion that finds a cycle.
constexpr std::size_t longest_cycle = 10'000;
// Bounds the search for a cycle that passes each wait once, of which there may be exponentially many ways.
constexpr int most_steps = 10'000;

enum class Shown : std::uint8_t { yes, no, unknown };

}  // namespace

class DeadlockFinder::Graph {
 public:
  Graph(const std::vector<Notice>& all, const View* view) : all_(all), view_(view) {
    index_notices();
    index_view();
    connect();
  }

  bool suspicious(const Notice& waiter) const {
    return suspicious_.contains(component_[wait_vertex(index_of(waiter))]);
  }
  bool holds(const Notice& wait) const { return holding_owners_.contains(wait.owner); }

  std::vector<InTheWay> around(const Notice& waiter) {
    std::vector<InTheWay> result;
    if (waiter.queued()) {
      for (const std::uint64_t session : waiter.behind) {
        const auto [first, last] = waits_by_session_.equal_range(session);
        for (auto found = first; found != last; ++found) {
          const Notice& other = all_[found->second];
          if (&other != &waiter && other.same_process(waiter)) result.push_back({&other, true});
        }
      }
    }
    std::set<Index> others;
    for (const Node& wanted : waiter.nodes) {
      for (const Claim& claim : claims_at(place(wanted.cell))) {
        if (conflict(wanted.cell, claim.node->cell)) others.insert(claim.notice);
      }
    }
    add_holders_of_slots(waiter, result);
    for (const Index i : others) {
      const Notice& other = all_[i];
      if (&other == &waiter || (waiter.queued() && other.waits && other.same_process(waiter))) continue;
      if (!other.waits) {
        if (other.same_session(waiter)) continue;
        const Shown at_store = shown(waiter, other);
        if (at_store != Shown::no) result.push_back({&other, at_store == Shown::yes || surely_has(other, waiter)});
      } else if (other.owner != waiter.owner) {
        waits_before(waiter, other, result);
      }
    }
    // Holders first. A cycle without others that only stand in between was seen for longer, and is easier to read.
    std::stable_partition(result.begin(), result.end(), [](const InTheWay& one) { return !one.notice->waits; });
    return result;
  }

  std::optional<Cycle> find(const Notice& waiter, bool surely) {
    surely_ = surely;
    std::optional<Cycle> cycle = cycle_from(waiter);
    if (cycle && surely && passes_slots(*cycle)) look_at_knot(waiter, *cycle);
    return cycle;
  }

 private:
  std::optional<Cycle> cycle_from(const Notice& waiter) {
    start_ = &waiter;
    simple_ = false;
    if (!leads_back_from(waiter)) return std::nullopt;
    // A way back that passes a wait twice may lead through a cycle of others, which this wait only stands behind.
    const std::set<const Notice*> once(cycle_.members.begin(), cycle_.members.end());
    if (once.size() != cycle_.members.size()) {
      Cycle walk = cycle_;
      simple_ = true;
      steps_left_ = most_steps;
      const bool found = leads_back_from(waiter);
      if (!found && steps_left_ > 0) return std::nullopt;
      if (!found) cycle_ = std::move(walk);  // too many ways to try all: nothing may be missed
    }
    for (const Notice* member : cycle_.members) {
      if (holds(*member) && (cycle_.victim == nullptr || rather(*member, *cycle_.victim))) cycle_.victim = member;
    }
    return cycle_;
  }

  // A node of a notice, found by its place.
  struct Claim {
    Place at;
    Index notice;
    const Node* node;
  };

  // --- indexes ---------------------------------------------------------------------------------------------

  Index index_of(const Notice& notice) const { return static_cast<Index>(&notice - all_.data()); }

  void index_notices() {
    for (Index i = 0; i < all_.size(); ++i) {
      const Notice& notice = all_[i];
      for (const Node& node : notice.nodes) {
        claims_.push_back({place(node.cell), i, &node});
        if (!notice.waits) note_holder(notice, node);
      }
      owners_.try_emplace(notice.owner, static_cast<Index>(owners_.size()));
      if (notice.waits) {
        waits_by_owner_[notice.owner].push_back(i);
        waits_by_session_.emplace(notice.session, i);
      } else {
        holding_owners_.insert(notice.owner);
      }
    }
    std::stable_sort(claims_.begin(), claims_.end(), [](const Claim& a, const Claim& b) { return a.at < b.at; });
    limits_.resize(all_.size());
  }
  struct Range {
    const Claim *first, *last;
    const Claim* begin() const { return first; }
    const Claim* end() const { return last; }
  };
  Range claims_at(const Place& at) const {
    const auto first = std::lower_bound(claims_.begin(), claims_.end(), at,
                                        [](const Claim& claim, const Place& p) { return claim.at < p; });
    const auto last =
        std::upper_bound(first, claims_.end(), at, [](const Place& p, const Claim& claim) { return p < claim.at; });
    return {claims_.data() + (first - claims_.begin()), claims_.data() + (last - claims_.begin())};
  }

  // A view with a note is old, or not complete: it proves nothing.
  void index_view() {
    view_tells_ = view_ != nullptr && view_->seen && view_->note.empty();
    if (!view_tells_) return;
    for (const Locked& lock : view_->locks) {
      if (!lock.waits) continue;
      for (const std::size_t i : lock.blocked_by) shown_.emplace(lock.session, view_->locks[i].session);
    }
  }
  // Whether the store shows that the one waits for the other now.
  Shown shown(const Notice& waiter, const Notice& other) const {
    if (!view_tells_ || waiter.queued()) return Shown::unknown;
    if (shown_.contains({waiter.session, other.session})) return Shown::yes;
    // No view shows waits for names.
    if (meet_at_name(waiter, other)) return Shown::unknown;
    return shown_.contains({waiter.session, 0}) ? Shown::unknown : Shown::no;
  }

  // --- who is in the way -----------------------------------------------------------------------------------

  static bool surely_has(const Notice& holder, const Notice& waiter) {
    return std::any_of(waiter.nodes.begin(), waiter.nodes.end(), [&](const Node& wanted) {
      return std::any_of(holder.nodes.begin(), holder.nodes.end(),
                         [&](const Node& has) { return conflict(has.cell, wanted.cell) && !has.leftover; });
    });
  }

  void add_holders_of_slots(const Notice& waiter, std::vector<InTheWay>& result) const {
    for (const Node& wanted : waiter.nodes) {
      const auto found = wanted.slots > 0 ? slots_.find(place(wanted.cell)) : slots_.end();
      if (found == slots_.end() || !found->second.stuck) continue;
      for (const Claim& claim : claims_at(place(wanted.cell))) {
        if (!all_[claim.notice].waits) result.push_back({&all_[claim.notice], found->second.surely});
      }
    }
  }

  struct Limit {
    Place at;
    bool held = false;  // by a notice that conflicts with it; otherwise it is its last cell
  };
  const Limit& limit(const Notice& waiter) {
    std::optional<Limit>& known = limits_[index_of(waiter)];
    if (known) return *known;
    known.emplace();
    for (const Node& node : waiter.nodes) known->at = std::max(known->at, place(node.cell));
    for (const Node& wanted : waiter.nodes) {
      if (place(wanted.cell) <= known->at && held_against(wanted.cell, waiter)) *known = {place(wanted.cell), true};
    }
    return *known;
  }
  // Whether another session surely holds what conflicts with a cell. Two sessions for each mode are enough to know.
  bool held_against(const Cell& wanted, const Notice& waiter) const {
    const auto found = holding_sessions_.find(place(wanted));
    if (found == holding_sessions_.end()) return false;
    const auto other = [&](std::uint64_t session) {
      return session != no_session && ((session ^ waiter.session) & ~in_queue) != 0;
    };
    const auto& [first, second] = found->second[static_cast<std::size_t>(wanted.mode)];
    return other(first) || other(second);
  }
  void note_holder(const Notice& holder, const Node& node) {
    if (node.leftover) return;
    const auto [found, is_new] = holding_sessions_.try_emplace(place(node.cell));
    if (is_new) found->second.fill({no_session, no_session});
    for (const Mode mode : all_modes) {
      if (compatible(node.cell.mode, mode)) continue;
      auto& [first, second] = found->second[static_cast<std::size_t>(mode)];
      if (first == no_session || ((first ^ holder.session) & ~in_queue) == 0) {
        first = holder.session;
      } else {
        second = holder.session;
      }
    }
  }

  void waits_before(const Notice& waiter, const Notice& other, std::vector<InTheWay>& result) {
    if (waiter.queued() || other.queued()) return;  // see Notice::behind
    const Shown at_store = shown(waiter, other);
    if (at_store == Shown::no) return;
    const Limit mine = limit(waiter), others = limit(other);
    for (const Node& wanted : waiter.nodes) {
      for (const Node& asked : other.nodes) {
        if (!conflict(wanted.cell, asked.cell)) continue;
        const Place at = place(wanted.cell);
        // The limits come from notices, and a notice may be that of a dead process. What the store shows is so.
        const bool within_limits = at <= mine.at && at <= others.at;
        const bool may_have_passed = at < others.at;
        const bool may_stand_there = !(mine.held && at == mine.at);
        if (at_store == Shown::yes || (within_limits && (may_have_passed || may_stand_there))) {
          result.push_back({&other, at_store == Shown::yes, wanted.cell});
        }
      }
    }
  }

  // --- components ------------------------------------------------------------------------------------------

  // The graph has more edges than there really are, never fewer: it drops none because of the store's view. A wait is
  // in no cycle if its component has no `held` vertex.
  //
  // wait  -> held(cell, mode)     -> owners that hold the cell in a conflicting mode
  // wait  -> waited(cell, mode)   -> waits for the cell in a conflicting mode that may have passed it or stand there
  // wait  -> slots(cell)          -> owners that hold a slot, if all slots have holders
  // owner -> its waits
  Index wait_vertex(Index notice) const { return static_cast<Index>(owners_.size()) + notice; }
  Index new_vertex() {
    edges_.emplace_back();
    return static_cast<Index>(edges_.size() - 1);
  }

  // Nobody may really wait for those that it leads to.
  Index new_unsure_vertex() {
    unsure_.push_back(new_vertex());
    return unsure_.back();
  }

  void connect() {
    edges_.resize(owners_.size() + all_.size());
    for (const auto& [owner, waits] : waits_by_owner_) {
      for (const Index wait : waits) edges_[owners_.at(owner)].push_back(wait_vertex(wait));
    }
    for (const Notice& wait : all_) {
      if (!wait.waits || !wait.queued()) continue;
      for (const std::uint64_t session : wait.behind) {
        const auto [first, last] = waits_by_session_.equal_range(session);
        for (auto found = first; found != last; ++found) {
          edges_[wait_vertex(index_of(wait))].push_back(wait_vertex(found->second));
        }
      }
    }
    std::vector<Index> held_vertices;
    for (std::size_t i = 0; i < claims_.size();) {
      const Range range = claims_at(claims_[i].at);
      connect_cell(range, held_vertices);
      i += static_cast<std::size_t>(range.last - range.first);
    }
    reduce_slots();
    component_ = components(edges_);
    for (const Index vertex : held_vertices) {
      // A component of one vertex is no cycle: nothing leads from it to itself.
      for (const Index next : edges_[vertex]) {
        if (component_[next] == component_[vertex]) suspicious_.insert(component_[vertex]);
      }
    }
  }

  void connect_cell(const Range& claims, std::vector<Index>& held_vertices) {
    const Place at = claims.first->at;
    connect_slots(claims, held_vertices);
    std::vector<const Claim*> waits;  // at the store
    std::array<bool, all_modes.size()> wanted{};
    bool may_be_passed = false;  // by a wait
    for (const Claim& claim : claims) {
      const Notice& notice = all_[claim.notice];
      if (!notice.waits) continue;
      wanted[static_cast<std::size_t>(claim.node->cell.mode)] = true;
      if (notice.queued() || (!view_tells_ && limit(notice).at < at)) continue;  // see waits_before()
      waits.push_back(&claim);
      may_be_passed = may_be_passed || limit(notice).at > at;
    }
    for (const Mode mode : all_modes) {
      if (!wanted[static_cast<std::size_t>(mode)]) continue;
      const Index held = new_vertex(), perhaps_held = new_unsure_vertex(), waited = new_unsure_vertex();
      held_vertices.insert(held_vertices.end(), {held, perhaps_held});
      for (const Claim& claim : claims) {
        const Notice& notice = all_[claim.notice];
        if (!notice.waits && !compatible(claim.node->cell.mode, mode)) {
          edges_[claim.node->leftover ? perhaps_held : held].push_back(owners_.at(notice.owner));
        } else if (notice.waits && claim.node->cell.mode == mode) {
          std::vector<Index>& next = edges_[wait_vertex(claim.notice)];
          next.insert(next.end(), {held, perhaps_held});
        }
      }
      for (const Claim* claim : waits) {
        const Index vertex = wait_vertex(claim->notice);
        if (!compatible(claim->node->cell.mode, mode)) edges_[waited].push_back(vertex);
        if (claim->node->cell.mode != mode) continue;
        const Limit& mine = limit(all_[claim->notice]);
        const bool behind_holder = mine.held && at == mine.at;
        if (view_tells_ || may_be_passed || !behind_holder) edges_[vertex].push_back(waited);
      }
    }
  }

  // --- slots -----------------------------------------------------------------------------------------------

  void connect_slots(const Range& claims, std::vector<Index>& held_vertices) {
    std::size_t slots = 0, holders = 0;
    for (const Claim& claim : claims) {
      slots = std::max<std::size_t>(slots, claim.node->slots);
      if (!all_[claim.notice].waits) ++holders;
    }
    if (slots == 0 || holders < slots) return;  // one is free, or its holder has not published: it may be released soon
    const Index vertex = new_vertex();
    held_vertices.push_back(vertex);
    slots_[claims.first->at] = {vertex};
    for (const Claim& claim : claims) {
      const Notice& notice = all_[claim.notice];
      if (notice.waits) {
        edges_[wait_vertex(claim.notice)].push_back(vertex);
      } else {
        edges_[vertex].push_back(owners_.at(notice.owner));
      }
    }
  }

  // Takes slots that will be free out of the graph.
  void reduce_slots() {
    if (slots_.empty()) return;
    const std::vector<bool> stuck = stuck_vertices({}), surely_stuck = stuck_vertices(unsure_);
    for (auto& [at, slots] : slots_) {
      slots.stuck = stuck[slots.vertex];
      slots.surely = surely_stuck[slots.vertex];
      if (!slots.stuck) edges_[slots.vertex].clear();
    }
  }

  // By vertex: false if it will go on by itself. Slots go on if one of those that they lead to does, any other vertex
  // if all do. `free` are taken for free.
  std::vector<bool> stuck_vertices(const std::vector<Index>& free) const {
    std::vector<std::vector<Index>> back(edges_.size());
    std::vector<std::size_t> left(edges_.size());  // so many must go on before it does
    std::vector<Index> going_on = free;
    for (Index vertex = 0; vertex < edges_.size(); ++vertex) {
      left[vertex] = edges_[vertex].size();
      if (left[vertex] == 0) going_on.push_back(vertex);
      for (const Index next : edges_[vertex]) back[next].push_back(vertex);
    }
    for (const auto& [at, slots] : slots_) left[slots.vertex] = 1;
    std::vector<bool> stuck(edges_.size(), true);
    while (!going_on.empty()) {
      const Index vertex = going_on.back();
      going_on.pop_back();
      if (!stuck[vertex]) continue;
      stuck[vertex] = false;
      for (const Index before : back[vertex]) {
        if (left[before] > 0 && --left[before] == 0) going_on.push_back(before);
      }
    }
    return stuck;
  }

  // --- the cycle itself ------------------------------------------------------------------------------------

  bool same_component(const Notice& wait) const {
    return component_[wait_vertex(index_of(wait))] == component_[wait_vertex(index_of(*start_))];
  }

  bool passes_slots(const Cycle& cycle) const {
    for (std::size_t i = 0; i < cycle.members.size(); ++i) {
      if (cycle.between[i]->waits || conflict(*cycle.members[i], *cycle.between[i]) != nullptr) continue;
      if (meeting(*cycle.members[i], *cycle.between[i]) != nullptr) return true;
    }
    return false;
  }

  // A wait for slots waits for all of their holders. So it may be in several cycles, and what one of them shows is not
  // all that makes it a deadlock. The rest is the cycle's evidence. It is enough to end one wait of these cycles: all
  // of their members choose the same one.
  void look_at_knot(const Notice& start, Cycle& cycle) {
    std::map<const Notice*, std::vector<const Notice*>> before;  // who surely waits for it
    std::set<const Notice*> reached{&start}, evidence;
    std::vector<const Notice*> todo{&start};
    for (int steps = most_steps; !todo.empty() && steps > 0;) {
      const Notice& wait = *todo.back();
      todo.pop_back();
      for (const InTheWay& next : around_once(wait)) {
        if (!next.surely || --steps < 0) continue;
        evidence.insert(next.notice);
        for (const Notice* then : waits_after(*next.notice)) {
          before[then].push_back(&wait);
          if (reached.insert(then).second) todo.push_back(then);
        }
      }
    }
    evidence.insert(reached.begin(), reached.end());
    cycle.evidence.assign(evidence.begin(), evidence.end());

    std::set<const Notice*> knot{&start};  // those that lead back
    for (todo = {&start}; !todo.empty();) {
      const Notice* const wait = todo.back();
      todo.pop_back();
      for (const Notice* one : before[wait]) {
        if (knot.insert(one).second) todo.push_back(one);
      }
    }
    std::vector<const Notice*> rather_ended;
    for (const Notice* wait : knot) {
      if (holds(*wait) && (cycle.victim == nullptr || rather(*wait, *cycle.victim))) rather_ended.push_back(wait);
    }
    std::sort(rather_ended.begin(), rather_ended.end(), [](auto* a, auto* b) { return rather(*a, *b); });
    for (const Notice* wait : rather_ended) {
      if (!cycle_from(*wait)) continue;  // its process finds no cycle, and would not end it
      cycle.victim = wait;
      return;
    }
  }
  // The waits that end only after this notice: itself, or those of its owner.
  std::vector<const Notice*> waits_after(const Notice& notice) const {
    if (notice.waits) return {&notice};
    std::vector<const Notice*> waits;
    if (const auto found = waits_by_owner_.find(notice.owner); found != waits_by_owner_.end()) {
      for (const Index wait : found->second) waits.push_back(&all_[wait]);
    }
    return waits;
  }

  bool leads_back_from(const Notice& waiter) {
    seen_.clear();
    cycle_ = {};
    cycle_.surely = surely_;
    return leads_back(waiter, std::nullopt, false);
  }

  // Whether the wait, which has got to `reached` at least, leads back to where it began. `through_holder`: a notice was
  // on the way that holds a lock.
  bool leads_back(const Notice& wait, const std::optional<Place>& reached, bool through_holder) {
    if (!same_component(wait) || cycle_.members.size() >= longest_cycle) return false;
    if (simple_) {
      if (steps_left_ == 0 || std::find(cycle_.members.begin(), cycle_.members.end(), &wait) != cycle_.members.end()) {
        return false;
      }
      --steps_left_;
    } else if (!seen_.emplace(&wait, reached, through_holder).second) {
      return false;
    }
    cycle_.members.push_back(&wait);
    for (const InTheWay& next : around_once(wait)) {
      if (surely_ && !next.surely) continue;
      const std::optional<Place> at = next.cell ? std::optional(place(*next.cell)) : std::nullopt;
      if (at && reached && *at < *reached) continue;
      cycle_.between.push_back(next.notice);
      if (next.notice->waits) {
        const bool back = next.notice == start_;
        if (back ? through_holder : leads_back(*next.notice, at, through_holder)) return true;
      } else if (next.notice->owner == start_->owner) {
        return true;
      } else if (const auto waits = waits_by_owner_.find(next.notice->owner); waits != waits_by_owner_.end()) {
        for (const Index more : waits->second) {
          if (leads_back(all_[more], std::nullopt, true)) return true;
        }
      }
      cycle_.between.pop_back();
    }
    cycle_.members.pop_back();
    return false;
  }
  const std::vector<InTheWay>& around_once(const Notice& wait) {
    const auto [found, is_new] = around_.try_emplace(&wait);
    if (is_new) found->second = around(wait);
    return found->second;
  }

  const std::vector<Notice>& all_;
  const View* const view_;
  std::vector<Claim> claims_;  // by place
  std::unordered_map<std::string_view, Index> owners_;
  std::unordered_map<std::string_view, std::vector<Index>> waits_by_owner_;
  std::multimap<std::uint64_t, Index> waits_by_session_;
  std::set<std::string_view> holding_owners_;
  // By place and mode: up to two sessions that hold what conflicts with the mode.
  static constexpr std::uint64_t no_session = ~std::uint64_t{0};
  std::map<Place, std::array<std::pair<std::uint64_t, std::uint64_t>, all_modes.size()>> holding_sessions_;
  std::vector<std::optional<Limit>> limits_;
  struct Slots {
    Index vertex = 0;
    bool stuck = false, surely = false;  // no holder can go on, perhaps or certainly
  };
  std::map<Place, Slots> slots_;  // those that all have holders
  std::vector<Index> unsure_;
  bool view_tells_ = false;
  std::set<std::pair<std::uint64_t, std::uint64_t>> shown_;

  std::vector<std::vector<Index>> edges_;
  std::vector<Index> component_;
  std::set<Index> suspicious_;

  std::map<const Notice*, std::vector<InTheWay>> around_;
  const Notice* start_ = nullptr;
  bool surely_ = false;
  bool simple_ = false;  // each wait once
  int steps_left_ = 0;
  std::set<std::tuple<const Notice*, std::optional<Place>, bool>> seen_;
  Cycle cycle_;
};

DeadlockFinder::DeadlockFinder(const std::vector<Notice>& all, const View* view)
    : graph_(std::make_unique<Graph>(all, view)) {}
DeadlockFinder::~DeadlockFinder() = default;

std::optional<Cycle> DeadlockFinder::find(const Notice& waiter) {
  if (!graph_->suspicious(waiter)) return std::nullopt;
  std::optional<Cycle> cycle = graph_->find(waiter, true);
  return cycle ? cycle : graph_->find(waiter, false);
}
bool DeadlockFinder::suspicious(const Notice& waiter) const { return graph_->suspicious(waiter); }
std::vector<InTheWay> DeadlockFinder::in_the_way(const Notice& waiter) { return graph_->around(waiter); }
bool DeadlockFinder::holds(const Notice& wait) const { return graph_->holds(wait); }

std::string Cycle::text() const {
  const auto name = [](const Notice& n) {
    return n.owner_name + " of process " + std::to_string(n.process) + " on " + n.host;
  };
  std::string words;
  if (members.size() == 1) {
    return name(*members[0]) + " waits for " + members[0]->nodes.back().text +
           ", a row of which it holds already, in another lock";
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Notice& wait = *members[i];
    words += (i == 0 ? "" : ", ") + name(wait) + " waits for " + wait.nodes.back().text;
  }
  return words + ", and all of them for each other";
}

std::vector<Error::Wait> Cycle::waits() const {
  std::vector<Error::Wait> all;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Notice& wait = *members[i];
    const std::size_t before = (i + members.size() - 1) % members.size();
    const Notice& had = *between[before];
    std::string holds;
    if (const Node* const wanted = had.waits ? nullptr : meeting(*members[before], had)) {
      for (const Node& node : had.nodes) {
        if (remote::in_the_way(wanted->cell, node.cell)) holds = node.text;
      }
    }
    all.push_back({wait.owner_name, wait.process, wait.host, wait.nodes.back().text, std::move(holds)});
  }
  return all;
}

}  // namespace hierlock::remote
