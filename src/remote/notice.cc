#include "remote/notice.h"

#include <algorithm>
#include <span>
#include <utility>

namespace hierlock::remote {

std::vector<Node> nodes_of(const spi::Plan& plan, const CellOf& cell_of) {
  std::vector<Node> nodes;
  for (const spi::Step& step : plan.steps()) {
    nodes.push_back({.cell = cell_of(step.space, step.level, step.key, cell_mode(step.mode, step.slots)),
                     .asked = step.asked,
                     .text = spi::describe_key(step.space, step.key),
                     .slots = several(step.slots)});
  }
  return nodes;
}

void HeldNodes::keep(const spi::Plan& plan) {
  std::size_t size = 0;
  for (const spi::Step& step : plan.steps()) size += step.key.size();
  keys_.reserve(size);
  kept_.reserve(plan.steps().size());
  for (const spi::Step& step : plan.steps()) {
    keys_ += step.key;
    kept_.push_back({keys_.size(), step.level, step.space, step.mode, step.asked, step.slots});
  }
}

bool HeldNodes::are(const spi::Plan& plan) const noexcept {
  const std::span<const spi::Step> steps = plan.steps();
  std::size_t begin = 0;
  return std::equal(steps.begin(), steps.end(), kept_.begin(), kept_.end(), [&](const spi::Step& a, const Kept& b) {
    const std::string_view key = std::string_view(keys_).substr(begin, b.end - begin);
    begin = b.end;
    return a.key == key && a.space == b.space && a.mode == b.mode && a.asked == b.asked && a.slots == b.slots;
  });
}

std::vector<Node>& HeldNodes::read(const CellOf& cell_of) {
  if (made_) return nodes_;
  std::vector<Node> nodes;
  std::size_t begin = 0;
  for (const Kept& kept : kept_) {
    const std::string_view key = std::string_view(keys_).substr(begin, kept.end - begin);
    begin = kept.end;
    nodes.push_back({.cell = cell_of(kept.space, kept.level, key, cell_mode(kept.mode, kept.slots)),
                     .asked = kept.asked,
                     .text = spi::describe_key(kept.space, key),
                     .slots = several(kept.slots)});
  }
  nodes_ = std::move(nodes);
  made_ = true;
  return nodes_;
}

const Node* conflict(const Notice& waiter, const Notice& other) noexcept {
  for (const Node& wanted : waiter.nodes) {
    for (const Node& held : other.nodes) {
      if (conflict(wanted.cell, held.cell)) return &wanted;
    }
  }
  return nullptr;
}

const Node* meeting(const Notice& waiter, const Notice& other) noexcept {
  for (const Node& wanted : waiter.nodes) {
    for (const Node& held : other.nodes) {
      if (in_the_way(wanted.cell, held.cell)) return &wanted;
    }
  }
  return nullptr;
}

bool meet_at_name(const Notice& waiter, const Notice& other) noexcept {
  return std::any_of(waiter.nodes.begin(), waiter.nodes.end(), [&](const Node& wanted) {
    return by_name(wanted.cell) && std::any_of(other.nodes.begin(), other.nodes.end(),
                                               [&](const Node& node) { return in_the_way(wanted.cell, node.cell); });
  });
}

bool stands_before(const Notice& other, const Notice& waiter) noexcept {
  if (!waiter.queued()) return !other.queued() && other.age > waiter.age;
  return !other.queued() || (other.same_process(waiter) && other.age > waiter.age);
}

std::vector<const Notice*> in_the_way(const Notice& waiter, const std::vector<Notice>& all) {
  std::vector<const Notice*> holders, waiters;
  for (const Notice& other : all) {
    if (meeting(waiter, other) == nullptr) continue;
    if (!other.waits) {
      if (!other.same_session(waiter)) holders.push_back(&other);
    } else if (other.owner != waiter.owner && stands_before(other, waiter)) {
      waiters.push_back(&other);
    }
  }
  return holders.empty() ? waiters : holders;
}

}  // namespace hierlock::remote
