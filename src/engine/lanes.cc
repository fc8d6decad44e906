#include "engine/lanes.h"

#include <algorithm>

namespace hierlock::engine {

Lanes::Lanes(const Parts& parts) : Parts(parts) { idle_lanes_.reserve(capacity_.lanes); }

void Lanes::set_common(std::uint32_t lane) noexcept {
  common_lane_ = lane;
  processes_.slot(processes_.self_slot()).common_lane.set(lane);
}

std::optional<std::uint32_t> Lanes::take_idle() noexcept {
  const std::lock_guard guard(idle_mutex_);
  if (idle_lanes_.empty()) return std::nullopt;
  const std::uint32_t lane = idle_lanes_.back();
  idle_lanes_.pop_back();
  return lane;
}

// It stays this process's: what was counted in it may still be held.
void Lanes::leave_lane(std::uint32_t lane) noexcept {
  if (lane == common_lane_) return;
  const std::lock_guard guard(idle_mutex_);
  idle_lanes_.push_back(lane);  // there is room for all lanes
}

// Under index_latch, so that two threads do not look at the same lane.
std::optional<std::uint32_t> Lanes::claim_lane(std::uint32_t end) noexcept {
  for (std::uint32_t lane = 0; lane < end; ++lane) {
    if (header_->lanes[lane].process.ordered() != 0) continue;
    raise(header_->lanes_used, lane + 1);  // ordered: a writer that misses this lane is seen by its user (I2)
    ProcessRef nobody = 0;
    if (!header_->lanes[lane].process.cas(nobody, processes_.self())) continue;
    return lane;
  }
  return std::nullopt;
}

std::int64_t Lanes::highest_fence() const noexcept {
  std::int64_t highest = 0;
  const std::uint32_t lanes = lanes_used();
  for (std::uint32_t lane = 0; lane < lanes; ++lane)
    highest = std::max(highest, header_->lanes[lane].last_fence.acquire());
  return highest;
}

void Lanes::note_fence(std::uint32_t lane, std::int64_t fence) noexcept {
  Cell<std::int64_t>& highest = header_->lanes[lane].last_fence;
  std::int64_t seen = highest.relaxed();
  if (lane != common_lane_) {
    if (seen < fence) highest.set(fence);
    return;
  }
  while (seen < fence && !highest.cas(seen, fence)) {
  }
}

}  // namespace hierlock::engine
