#include "engine/names.h"

#include <algorithm>

#include <hierlock/spi/plan.h>

namespace hierlock::engine {

std::string Names::node_text(Index node) const {
  std::string key;
  Space space = Space::path;
  for (std::size_t i = 0; node != none && i < max_depth; ++i) {
    const Node& n = node_at(node);
    const std::uint32_t meta = n.meta.acquire();
    space = meta_space(meta);
    std::string segment(inline_text, '\0');
    for (std::size_t w = 0; w < inline_text / 8; ++w) {
      for (std::size_t b = 0; b < 8; ++b) segment[w * 8 + b] = static_cast<char>(n.text[w].acquire() >> (8 * b) & 0xFF);
    }
    segment += read_long_segment(n.more.acquire());
    segment.resize(std::min(segment.size(), meta_length(meta)));
    const auto size = static_cast<std::uint32_t>(segment.size());
    const char length[4] = {static_cast<char>(size >> 24), static_cast<char>(size >> 16), static_cast<char>(size >> 8),
                            static_cast<char>(size)};
    key.insert(0, segment);
    key.insert(0, length, 4);
    node = n.parent.acquire();
  }
  return spi::describe_key(space, key);
}

std::vector<std::string> Names::record_targets(Index record) const {
  std::vector<std::string> targets;
  std::size_t size = 0;
  any_hold(record_at(record), [&](Index node, Mode, bool asked) {
    if (!asked) return false;
    size += targets.emplace_back(node_text(node)).size();
    return size > 1000;
  });
  return targets;
}

std::string Names::record_text(Index record) const {
  std::string text;
  for (const std::string& target : record_targets(record)) text += (text.empty() ? "" : ", ") + target;
  return text;
}

std::string Names::owner_name(Index owner) const {
  const OwnerSlot& slot = owner_at(owner);
  std::string name = read_text(slot.name.acquire());
  if (!name.empty()) return name;
  if (owner_kind(owner) == OwnerKind::handle) return "handle " + std::to_string(owner);
  return "thread " + std::to_string(slot.thread.acquire());
}

std::string Names::owner_text(Index owner) const {
  const ProcessRef process = owner_at(owner).process.acquire();
  if (process == processes_.self()) return owner_name(owner);
  return owner_name(owner) + " of process " + std::to_string(process_of(owner));
}

std::int64_t Names::process_of(Index owner) const {
  return processes_.slot(slot_of(owner_at(owner).process.acquire())).pid.acquire();
}

std::uint64_t Names::owner_identity(Index owner) const {
  return (owner_at(owner).word.acquire() >> 32 & 0xFFFFFFFF) << 32 | owner;
}

}  // namespace hierlock::engine
