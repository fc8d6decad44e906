#include <hierlock/spi/plan.h>

#include <algorithm>
#include <new>

#include <hierlock/error.h>

#include "plan/path.h"
#include "plan/text.h"

namespace hierlock::spi {
namespace {

template <class Path>
Step* fill_path(Step* out, const Path& path, std::size_t depth, Mode mode) {
  const Mode above = intention(mode);
  std::size_t begin = 4;
  for (std::size_t level = 0; level < depth; ++level) {
    const std::string_view key = path.key(level);
    const bool asked = level + 1 == depth;
    ::new (static_cast<void*>(out++)) Step{.key = key,
                                           .segment = {key.data() + begin, key.size() - begin},
                                           .hash = path.hash(level),
                                           .parent = static_cast<std::int32_t>(level) - 1,
                                           .slots = 0,
                                           .level = static_cast<std::uint8_t>(level),
                                           .space = Space::path,
                                           .mode = asked ? mode : above,
                                           .asked = asked};
    begin = key.size() + 4;
  }
  return out;
}

Step* fill(Step* out, const Target& target) {
  const Mode mode = target.is_shared() ? Mode::S : Mode::X;
  if (target.space() == Space::path) return fill_path(out, target, target.depth(), mode);
  ::new (static_cast<void*>(out++)) Step{.key = target.key(0),
                                         .segment = target.segment(0),
                                         .hash = target.hash(0),
                                         .parent = -1,
                                         .slots = target.slot_count(),
                                         .level = 0,
                                         .space = target.space(),
                                         .mode = mode,
                                         .asked = true};
  return out;
}

bool same_node(const Step& a, const Step& b) noexcept {
  return a.hash == b.hash && a.space == b.space && a.key == b.key;
}

void merge(Step& into, const Step& from) {
  if (into.slots != from.slots) {
    const auto [fewer, more] = std::minmax(into.slots, from.slots);
    throw Error(ErrorKind::incompatible, describe_key(into.space, into.key) + " is asked for with " +
                                             std::to_string(fewer) + " and with " + std::to_string(more) +
                                             " slots in one call; use one number");
  }
  into.mode = strongest(into.mode, from.mode);
  into.asked = into.asked || from.asked;
}

}  // namespace

bool exact_before(const Step& a, const Step& b) noexcept {
  if (a.space != b.space) return a.space < b.space;
  return a.key < b.key;
}

Plan::Plan(const Target& target) {
  Step* const first = reinterpret_cast<Step*>(few_);
  count_ = static_cast<std::size_t>(fill(first, target) - first);
  first_ = std::launder(first);
}

Plan::Plan(const PathText& path, bool shared) {
  Step* const first = reinterpret_cast<Step*>(few_);
  count_ = static_cast<std::size_t>(fill_path(first, path, path.depth(), shared ? Mode::S : Mode::X) - first);
  first_ = std::launder(first);
}

Plan::Plan(std::span<const Target> targets) {
  if (targets.empty()) throw Error(ErrorKind::invalid_argument, "no target was given; ask for at least one");
  std::size_t steps = 0;
  for (const Target& target : targets) steps += target.depth();
  Step* first = reinterpret_cast<Step*>(few_);
  if (steps > max_depth) {
    many_.resize(steps);
    first = many_.data();
  }
  Step* end = first;
  for (const Target& target : targets) end = fill(end, target);
  std::sort(first, end, exact_before);

  Step* last = first;
  for (Step* step = first + 1; step != end; ++step) {
    if (same_node(*last, *step)) {
      merge(*last, *step);
    } else {
      *++last = *step;
    }
  }
  // Everything below a node follows it without a gap, because its key is a prefix of theirs: the parent of a step is
  // the latest step one level up.
  std::int32_t latest[max_depth];
  count_ = static_cast<std::size_t>(last + 1 - first);
  for (std::size_t i = 0; i < count_; ++i) {
    Step& step = first[i];
    step.parent = step.level == 0 ? -1 : latest[step.level - 1];
    latest[step.level] = static_cast<std::int32_t>(i);
  }
  first_ = std::launder(first);
}

std::string describe_key(Space space, std::string_view key) {
  const auto cut_segment = [&key]() -> std::string_view {
    if (key.size() < 4) return {};
    std::size_t size = 0;
    for (std::size_t i = 0; i < 4; ++i) size = size << 8 | static_cast<unsigned char>(key[i]);
    if (size > key.size() - 4) return {};
    const std::string_view segment = key.substr(4, size);
    key.remove_prefix(4 + size);
    return segment;
  };
  const std::string_view whole = key;
  std::string text;
  do {
    const std::string_view segment = cut_segment();
    // Keys may come out of memory that another process damaged: whatever the bytes are, they are told.
    if (segment.empty() || (space != Space::path && !key.empty())) return "malformed key " + plan::excerpt(whole);
    if (space == Space::name) return "named " + plan::quote(segment);
    if (space == Space::slots) return "slots " + plan::quote(segment);
    if (!text.empty()) text += '/';
    plan::append_to_text(text, segment);
  } while (!key.empty());
  plan::escape_lookalike(text);
  return text;
}

std::string describe(std::span<const Step> steps) {
  constexpr std::size_t longest_target = 200;
  constexpr std::size_t longest_list = 1000;
  std::string list;
  for (const Step& step : steps) {
    if (!step.asked) continue;
    if (!list.empty()) list += ", ";
    if (list.size() > longest_list) return list + "…";
    if (step.mode == Mode::S) list += "shared ";
    const std::string target = describe_key(step.space, step.key);
    list += plan::cut_short(target, longest_target);
    if (target.size() > longest_target) list += "…";
    if (step.slots != 0) list += " " + std::to_string(step.slots);
  }
  return list;
}

}  // namespace hierlock::spi
