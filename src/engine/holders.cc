#include "engine/holders.h"

#include <algorithm>
#include <array>

namespace hierlock::engine {

// Model: Q1 to Q3. The sum over the lanes of live processes. A process's lanes mean something only together (one may be
// below zero), so if one that was counted has died meanwhile, the rest of its lanes may have been left out: then once
// more.
Holders::Counts Holders::sum(Index index, bool without_broken) const noexcept {
  const Node& node = node_at(index);
  const Index number = node.tally.acquire();
  if (number == none || number >= capacity_.tallies) return {};
  for (std::uint32_t deaths = 0;; ++deaths) {
    std::uint64_t intents = 0;
    std::uint64_t shared = 0;
    std::array<ProcessRef, most_lanes> counted;  // not initialised
    std::size_t count = 0;
    const std::uint32_t lanes = lanes_used();
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      // Ordered: a lane whose page is missed here gets it after `queued` was set, and its user sees that (I2).
      if (!has_page(lane, number / arena_size)) continue;
      const ProcessRef process = header_->lanes[lane].process.ordered();  // before its tally: then it is its tally
      if (!processes_.live(process)) continue;
      const Tally& t = views_[lane].tallies[number];  // a page that is just given back reads as zeros
      const std::uint64_t i = t.intents.ordered();
      const std::uint64_t s = t.shared.ordered();
      if ((i | s) == 0) continue;
      intents += i;
      shared += s;
      counted[count++] = process;
    }
    // After the lanes (I8): a lock that is still broken now was counted, because its owner leaves `broken` before it
    // subtracts. So the result may be too high for a moment, and never too low.
    const std::uint64_t broken = without_broken ? broken_sharers(index) : 0;
    shared = is_slots(node) ? shared / Tally::slot : shared % Tally::slot;
    if (broken <= shared) shared -= broken;  // more than there are: damaged
    const bool all_live = std::all_of(counted.begin(), counted.begin() + static_cast<std::ptrdiff_t>(count),
                                      [this](ProcessRef process) { return processes_.live(process); });
    if (all_live) return {intents & 0xFFFFFFFF, intents >> 32, shared};
    if (deaths > process_count) return {1, 1, 1};  // damaged: in conflict with everything is what is safe
  }
}

// What the flags alone tell. Without the mark nobody shares (I3). S and IX are never held at once (I1), and `sharing`,
// which is turned under the latch after the last of the other kind is gone, says which of them may be.
static bool nobody_shares_against(std::uint64_t w, Mode mode) noexcept {
  if (mode == Mode::IS || (w & word::marked) == 0) return true;
  const bool sharing = (w & word::sharing) != 0;
  return (mode == Mode::S && sharing) || (mode == Mode::IX && !sharing);
}

bool Holders::holders_conflict(Index index, Mode mode, Index record) const noexcept {
  const std::uint64_t w = node_at(index).word.ordered();
  const auto holder = static_cast<Index>(w & word::holder);
  if (holder != none && holder != record && holds_words(holder)) return true;
  if (nobody_shares_against(w, mode)) return false;
  Counts counts = count_holders(index);
  const auto conflict = [&] {
    switch (mode) {
      case Mode::IX:
        return counts.s != 0;
      case Mode::S:
        return counts.ix != 0;
      default:
        return counts.is + counts.ix + counts.s != 0;
    }
  };
  if (!conflict()) return false;
  const std::optional<Mode> own = held_mode(record, index);
  if (own == Mode::IS && counts.is > 0) --counts.is;
  if (own == Mode::IX && counts.ix > 0) --counts.ix;
  if (own == Mode::S && counts.s > 0) --counts.s;
  return conflict();
}

bool Holders::seems_free(Index index) const noexcept {
  const Node& node = node_at(waiter(index).node.relaxed());
  const auto mode = mode_of(waiter(index).mode.relaxed());
  const std::uint64_t w = node.word.acquire();
  const auto holder = static_cast<Index>(w & word::holder);
  if (is_slots(node) || (holder != none && holds_words(holder))) return false;
  return nobody_shares_against(w, mode);
}

// --- broken locks ----------------------------------------------------------------------------------------

bool Holders::is_lock(Index record, std::uint32_t generation) const noexcept {
  const std::uint64_t w = record_at(record).word.ordered();
  return record_generation(w) == generation && record_state(w) != RecordState::free && live_record(record);
}

// Model: B5. Before the lock is broken. An entry belongs to the lock that it names until that lock is no more: a lock
// that is gone does not come back, so an entry that was found free stays free until it is taken here.
bool Holders::list_broken(Index index, std::uint32_t generation) noexcept {
  const BrokenEntry mine = make_broken(generation, index);
  Cell<std::uint32_t>& used = header_->broken_used;
  for (std::uint32_t i = 0; i < std::min(used.ordered(), most_broken); ++i) {
    if (header_->broken[i].ordered() == mine) return true;
  }
  for (std::uint32_t i = 0; i < most_broken; ++i) {
    BrokenEntry seen = header_->broken[i].ordered();
    if (is_lock(broken_record(seen), broken_generation(seen))) continue;
    for (std::uint32_t end = used.ordered(); end <= i && !used.cas(end, i + 1);) {
    }
    if (header_->broken[i].cas(seen, mine)) return true;
  }
  return false;
}

// Model: K1 and K2. How many of those that are counted at a node are broken.
std::uint64_t Holders::broken_sharers(Index node) const noexcept {
  const std::uint32_t used = std::min(header_->broken_used.ordered(), most_broken);
  std::array<Index, most_broken> found;  // not initialised
  std::size_t count = 0;
  for (std::uint32_t i = 0; i < used; ++i) {
    const BrokenEntry entry = header_->broken[i].ordered();
    const Index r = broken_record(entry);
    const Record& record = record_at(r);
    const std::uint64_t before = record.word.ordered();
    if (record_state(before) != RecordState::broken || record_generation(before) != broken_generation(entry)) continue;
    const bool here = live_record(r) && any_tally(record, [&](Index n, Mode m) { return n == node && m == Mode::S; });
    if (!here || record.word.ordered() != before) continue;
    if (std::find(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count), r) !=
        found.begin() + static_cast<std::ptrdiff_t>(count)) {
      continue;
    }
    found[count++] = r;
  }
  return count;
}

}  // namespace hierlock::engine
