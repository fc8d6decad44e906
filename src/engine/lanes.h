// Lanes: who counts where. A thread has a lane of its own, in which it counts what it shares (IS, IX, S). A process has
// a common lane for all other threads.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/parts.h"

namespace hierlock::engine {

class Lanes : Parts {
 public:
  explicit Lanes(const Parts& parts);

  // For threads that came too late for a lane of their own, or that only release.
  std::uint32_t common() const noexcept { return common_lane_; }
  void set_common(std::uint32_t lane) noexcept;
  // A lane that a thread of this process has left.
  std::optional<std::uint32_t> take_idle() noexcept;
  // A lane below `end` that is nobody's. Under index_latch, so that two threads do not look at the same lane.
  std::optional<std::uint32_t> claim_lane(std::uint32_t end) noexcept;
  void leave_lane(std::uint32_t lane) noexcept;

  // Where a lane counts, for somebody who holds or has prepared something there: if the lane has no page, then this
  // process's common lane has one. Others may write to that, so it takes locked instructions.
  Tally& locked_tally_of(std::uint32_t lane, Index number) const noexcept {
    Tally* tally = tally_of(lane, number);
    if (tally == nullptr) tally = tally_of(common_lane_, number);
    return tally != nullptr ? *tally : nowhere_;
  }

  // Whether a thread of this process, which has this lane, has a place to count.
  bool can_count(std::uint32_t lane, Index number) const noexcept {
    return number != none && (counts(lane, number) || counts(common_lane_, number));
  }

  // The highest of all lanes.
  std::int64_t highest_fence() const noexcept;
  void note_fence(std::uint32_t lane, std::int64_t fence) noexcept;

 private:
  std::uint32_t common_lane_ = 0;
  mutable Tally nowhere_{};  // where those count whom a damaged table leaves without a place
  std::mutex idle_mutex_;    // guards what follows
  std::vector<std::uint32_t> idle_lanes_;
};

}  // namespace hierlock::engine
