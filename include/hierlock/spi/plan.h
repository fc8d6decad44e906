// Plan: the form of every lock request. It is an ordered list of steps; each step is a node and a mode. A backend
// grants the whole plan or nothing. Only backends need this header.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <hierlock/mode.h>
#include <hierlock/target.h>

namespace hierlock::spi {

// One node to lock. The string views point into the Targets, or the PathText, that the plan was made from.
struct Step {
  std::string_view key;      // canonical key bytes from the root down to this node
  std::string_view segment;  // the node's own segment, unescaped: the tail of `key`
  std::uint64_t hash = 0;    // Target::hash of this node
  std::int32_t parent = -1;  // index of the parent's step in the same plan; -1 for a root
  std::uint32_t slots = 0;   // capacity of a slots node; otherwise 0
  std::uint8_t level = 0;
  Space space = Space::path;
  Mode mode = Mode::X;
  bool asked = false;  // true: a target; false: only an ancestor of a target
};

// One path or one name, as stored in a Target or a PathText. For stores that can grant such a request at once
// (Backend::at_once).
struct Chain {
  const char* key;              // canonical key bytes of the deepest node
  const std::uint16_t* ends;    // the end of each level's key
  const std::uint64_t* hashes;  // the hash of each level
  std::uint8_t depth;
  Space space;
  Mode mode;              // of the deepest node; its ancestors are held in the intention mode
  Place* place;           // of the Target; null for a PathText
  std::string_view text;  // the path as written, for a PathText without escapes; otherwise empty

  std::size_t begin(std::size_t level) const noexcept { return (level == 0 ? 0u : ends[level - 1]) + 4u; }
  std::string_view segment(std::size_t level) const noexcept {
    return {key + begin(level), ends[level] - begin(level)};
  }

  static Chain of(const Target& target) noexcept {
    return {target.key_.data(),    target.ends_.data(),
            target.hashes_.data(), target.depth_,
            target.space_,         target.shared_ ? Mode::S : Mode::X,
            &target.place_,        {}};
  }
};

// The canonical order of stores with exact keys: by space, then by key bytes. Ancestors come before descendants,
// because a parent's key is a prefix of its child's key. The order is total: only steps for the same node are equal.
bool exact_before(const Step& a, const Step& b) noexcept;

// A parsed path with its own buffers on the stack, so that an acquire with a plain string does not allocate memory.
class PathText {
 public:
  explicit PathText(std::string_view text);  // throws Error(invalid_argument)

  PathText(const PathText&) = delete;
  PathText& operator=(const PathText&) = delete;

  std::size_t depth() const noexcept { return depth_; }
  std::string_view key(std::size_t level) const noexcept { return {key_.data(), ends_[level]}; }
  std::string_view segment(std::size_t level) const noexcept;
  std::uint64_t hash(std::size_t level) const noexcept { return hashes_[level]; }

  Chain chain() const noexcept {
    return {key_.data(), ends_.data(), hashes_.data(), static_cast<std::uint8_t>(depth_),
            Space::path, Mode::X,      nullptr,        text_};
  }

 private:
  // Only the first ends_[depth_-1] bytes are valid. The array is longer, because bytes are stored eight at a time.
  std::array<char, max_depth*(max_segment_bytes + 4) + 16> key_;
  std::array<std::uint64_t, max_depth> hashes_;
  std::array<std::uint16_t, max_depth> ends_;
  std::size_t depth_ = 0;
  std::string_view text_;  // empty if the text has escapes
};

class Plan {
 public:
  // For one target. Does not allocate.
  explicit Plan(const Target& target);
  explicit Plan(const PathText& path, bool shared = false);
  // For many targets, in the canonical order. If a node appears several times, the plan has it once, in the strongest
  // mode (H5). The result does not depend on the order of `targets`. Throws invalid_argument if there are no targets,
  // and incompatible if two of them have different numbers of slots for one name.
  explicit Plan(std::span<const Target> targets);

  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  std::span<const Step> steps() const noexcept { return {first_, count_}; }

 private:
  // Raw storage: every acquire makes a plan, and zeroing eight steps would cost more than filling three.
  alignas(Step) std::byte few_[max_depth * sizeof(Step)];
  const Step* first_ = nullptr;
  std::size_t count_ = 0;
  std::vector<Step> many_;
};

// The text of a node for people: `u1/a1`, `named "x"`, `slots "import"`. It is made from the key bytes.
std::string describe_key(Space space, std::string_view key);

// The targets among the steps, for people: `u1/a1, shared u2`. Long names and long lists are shortened.
std::string describe(std::span<const Step> steps);

}  // namespace hierlock::spi
