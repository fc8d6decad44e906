// Target: what you can lock. It is a value: copy it, keep it, compare it, use it from any thread.
//
//     Target t = "u1/a1/r1";              a path: user u1, its account a1, its resource r1; exclusive
//     shared("u1/a1")                     a path, held shared
//     named("token-refresh")              a name: a separate space, no hierarchy
//     slots("import", 3)                  a counted lock: at most 3 holders at once
//
// You may pass a plain string instead of a Target. If you acquire the same path many times, keep a Target: the path is
// then parsed only once.
//
// A path has 1 to 8 segments of valid UTF-8 without NUL. A segment has 1 to 255 bytes, and is compared byte by byte. In
// text, `/` separates segments. Inside a segment, write `%2F` for `/` and `%25` for `%` (any `%HH` is accepted). A name
// has 1 to 4,096 bytes of valid UTF-8 without NUL. Anything else throws Error(invalid_argument) before any store is
// used. The message names the wrong character or length (H7).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace hierlock {

namespace spi {

struct Chain;

// Remembers where a lock table of this process found a Target, so that the table need not look it up again. It is only
// a hint. The place contains a generation, which the table compares before it uses the place. Copies and assignments
// start without a place.
//
// Any number of threads and tables may use one Target at once. Table numbers are never used twice. The place of a newer
// table replaces that of an older table, never the reverse. A reader checks the table number before and after it reads
// the place. If both are the number of its own table, that table noted the place.
class Place {
 public:
  Place() = default;
  Place(const Place&) noexcept {}
  Place(Place&& other) noexcept { other.forget(); }
  Place& operator=(const Place&) noexcept {
    forget();
    return *this;
  }
  Place& operator=(Place&& other) noexcept {
    forget();
    other.forget();
    return *this;
  }

  // The place that this table has noted; 0: none.
  std::uint64_t noted_by(std::uint64_t table) const noexcept {
    if (table_.load(std::memory_order_acquire) != table) return 0;
    const std::uint64_t place = place_.load(std::memory_order_acquire);
    return table_.load(std::memory_order_relaxed) == table ? place : 0;
  }
  void note(std::uint64_t table, std::uint64_t place) noexcept {
    std::uint64_t before = table_.load(std::memory_order_relaxed);
    if (before > table || !table_.compare_exchange_strong(before, busy)) return;
    place_.store(place, std::memory_order_release);
    table_.store(table, std::memory_order_release);
  }

 private:
  static constexpr std::uint64_t busy = ~std::uint64_t{0};  // being written
  void forget() noexcept { table_.store(0, std::memory_order_relaxed); }

  std::atomic<std::uint64_t> table_{0}, place_{0};
};

}  // namespace spi

inline constexpr std::size_t max_depth = 8;
inline constexpr std::size_t max_segment_bytes = 255;
inline constexpr std::size_t max_name_bytes = 4096;
inline constexpr std::uint32_t max_slots = 1'000'000;

// Paths, names and slots never conflict: `named("u1")`, `slots("u1", 1)` and the path `u1` are three locks.
enum class Space : std::uint8_t { path, name, slots };

std::string_view to_string(Space space) noexcept;

class Target {
 public:
  // Reads a path in its text form. Implicit on purpose: acquire("u1/a1/r1"). It reads only paths: the string `named
  // "x"` becomes a path with an odd id. To read the text of names and slots, use parse().
  Target(std::string_view path);  // NOLINT(google-explicit-constructor)
  Target(const char* path) : Target(std::string_view(path)) {}
  Target(const std::string& path) : Target(std::string_view(path)) {}

  // A path from raw segments, without escapes: Target::path({"u1", "a/1"}).
  static Target path(std::span<const std::string_view> segments);
  static Target path(std::initializer_list<std::string_view> segments);

  // Reads the text that str() returns: `u1/a1`, `shared u1/a1`, `named "x"`, `shared named "x"`, `slots "import" 3`.
  static Target parse(std::string_view text);

  // One line of text; parse(t.str()) == t for every target.
  std::string str() const;

  Space space() const noexcept { return space_; }
  bool is_shared() const noexcept { return shared_; }
  std::uint32_t slot_count() const noexcept { return slots_; }  // 0 unless space() is slots

  // Number of segments; 1 for names and slots.
  std::size_t depth() const noexcept { return depth_; }
  // The raw bytes of segment `level` (0 is the root), unescaped.
  std::string_view segment(std::size_t level) const noexcept;

  // The canonical key bytes of the node at `level`: for each segment from the root, its length as 32 bits big-endian,
  // then its bytes. Two different nodes of one space never have the same key (H3).
  std::string_view key(std::size_t level) const noexcept { return std::string_view(key_).substr(0, ends_[level]); }

  // A 64-bit hash of key(level) and the space, for lock tables with exact keys. It is not a bucket: see plan/buckets.h.
  std::uint64_t hash(std::size_t level) const noexcept { return hashes_[level]; }

  friend Target shared(Target target);
  friend Target named(std::string_view name);
  friend Target slots(std::string_view name, std::uint32_t count);

  // True if space, key, mode and number of slots are the same.
  friend bool operator==(const Target& a, const Target& b) noexcept {
    return a.space_ == b.space_ && a.shared_ == b.shared_ && a.slots_ == b.slots_ && a.key_ == b.key_;
  }

 private:
  friend struct spi::Chain;
  Target() = default;

  mutable spi::Place place_;
  std::string key_;
  std::array<std::uint64_t, max_depth> hashes_{};
  std::array<std::uint16_t, max_depth> ends_{};
  std::uint32_t slots_ = 0;
  std::uint8_t depth_ = 0;
  Space space_ = Space::path;
  bool shared_ = false;
};

// The same target, held shared instead of exclusive. Throws invalid_argument for slots, which cannot be shared.
Target shared(Target target);
inline Target shared(std::string_view path) { return shared(Target(path)); }
inline Target shared(const char* path) { return shared(Target(path)); }
inline Target shared(const std::string& path) { return shared(Target(path)); }

Target named(std::string_view name);
// At most `count` (1 to max_slots) holders of this name at once.
Target slots(std::string_view name, std::uint32_t count);

}  // namespace hierlock
