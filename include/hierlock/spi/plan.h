// Plan: what every kind of lock becomes. An ordered list of steps, a node and a mode each; a backend grants the whole
// plan or nothing. Users of the library do not need this header; backends do.
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

// One node to hold. The views point into the Targets (or the PathText) the plan was made from.
struct Step {
  std::string_view key;      // canonical key bytes from the root down to this node
  std::string_view segment;  // the node's own segment, raw: the tail of `key`
  std::uint64_t hash = 0;    // Target::hash of this node
  std::int32_t parent = -1;  // index of the parent's step in the same plan; -1 for a root
  std::uint32_t slots = 0;   // capacity, for a slots node; otherwise 0
  std::uint8_t level = 0;
  Space space = Space::path;
  Mode mode = Mode::X;
  bool asked = false;  // a target itself, not merely an ancestor of one
};

// One path or one name, as it lies in a Target or a PathText: for stores that can grant the usual case at once.
struct Chain {
  const char* key;              // canonical key bytes of the deepest node
  const std::uint16_t* ends;    // where each level's key ends
  const std::uint64_t* hashes;  // per level
  std::uint8_t depth;
  Space space;
  Mode mode;              // of the deepest node; those above it are held in its intention
  Place* place;           // of the Target; or none
  std::string_view text;  // the path as it was written, if it is a PathText without escapes; or empty

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

// The canonical order of exact stores: by space, then by key bytes. Ancestors come before descendants, since a
// parent's key is a prefix of its child's. Total: two steps are equal only if they are the same node.
bool exact_before(const Step& a, const Step& b) noexcept;

// A path read into buffers of its own on the stack, so that acquiring a plain string allocates nothing.
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
  // Only the first ends_[depth_-1] bytes mean anything. The rest of the room: bytes are stored eight at a time.
  std::array<char, max_depth*(max_segment_bytes + 4) + 16> key_;
  std::array<std::uint64_t, max_depth> hashes_;
  std::array<std::uint16_t, max_depth> ends_;
  std::size_t depth_ = 0;
  std::string_view text_;  // empty if there are escapes in it
};

class Plan {
 public:
  // For one target: no allocation.
  explicit Plan(const Target& target);
  explicit Plan(const PathText& path, bool shared = false);
  // For many: canonical exact order, duplicates collapsed to the strongest mode (H5). The result is the same for any
  // permutation of `targets`. Throws invalid_argument if there are none, and incompatible if two of them disagree on
  // the number of slots of one name.
  explicit Plan(std::span<const Target> targets);

  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  std::span<const Step> steps() const noexcept { return {first_, count_}; }

 private:
  // Raw storage: a plan is made for every acquire, and zeroing eight steps would cost more than filling three.
  alignas(Step) std::byte few_[max_depth * sizeof(Step)];
  const Step* first_ = nullptr;
  std::size_t count_ = 0;
  std::vector<Step> many_;
};

// The text of a node for people: `u1/a1`, `named "x"`, `slots "import"`. Inverse of the key bytes.
std::string describe_key(Space space, std::string_view key);

// The targets among the steps, for people: `u1/a1, shared u2`. Long names and long lists are cut short.
std::string describe(std::span<const Step> steps);

}  // namespace hierlock::spi
