// Random input for the property tests. The seed is printed with every failure; HIERLOCK_SEED=… runs it again.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <hierlock/target.h>

#include "plan/text.h"

namespace hierlock::plan {

inline std::uint64_t test_seed() {
  static const std::uint64_t seed = [] {
    const char* given = std::getenv("HIERLOCK_SEED");
    const std::uint64_t value = given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device{}();
    ::testing::Test::RecordProperty("seed", std::to_string(value));
    return value;
  }();
  return seed;
}

// Use in a test that draws: HIERLOCK_TELL_SEED();
#define HIERLOCK_TELL_SEED() SCOPED_TRACE("run again with HIERLOCK_SEED=" + std::to_string(hierlock::plan::test_seed()))

class Random {
 public:
  Random() : engine_(test_seed()) {}

  // 0 to n-1.
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(engine_() % n); }
  bool one_in(std::size_t n) { return below(n) == 0; }
  std::mt19937_64& engine() { return engine_; }

  // Any bytes, with those that mean something more often than others.
  std::string bytes(std::size_t limit) {
    static constexpr std::string_view pieces[] = {
        "/",       "%",        "%2F", "%25",      "%00",      "%C3%A9",   "%ZZ",      "\"",           "\\",   "\\x",
        "shared ", "named \"", " ",   "slots \"", "\xC3\xA9", "\xED\xA0", "\xF0",     "\xF4\x8F\xBF", "\xC0", ":",
        "?",       "=",        "&",   "@",        "\n",       "memory:",  "\x1B[31m", "\xE2\x80\xAE"};
    std::string out;
    for (std::size_t left = below(limit + 1); left > 0; --left) {
      if (one_in(3)) {
        out += pieces[below(std::size(pieces))];
      } else if (one_in(3)) {
        out += static_cast<char>(below(256));
      } else {
        out += static_cast<char>('a' + below(26));
      }
    }
    return out;
  }

  // Valid UTF-8 without NUL, 1 to `limit` bytes, hostile otherwise.
  std::string id(std::size_t limit) {
    std::string out;
    const std::string raw = bytes(limit) + "x";
    for (std::string_view rest = raw; !rest.empty();) {
      const std::size_t size = utf8_character(rest);
      if (size > 0 && rest[0] != 0 && out.size() + size <= limit) out += rest.substr(0, size);
      rest.remove_prefix(size == 0 ? 1 : size);
    }
    return out.empty() ? "x" : out;
  }

  // Few different ids, so that targets meet.
  std::string short_id() { return std::string(1, static_cast<char>('a' + below(3))); }

  std::vector<std::string> path(bool hostile) {
    std::vector<std::string> segments(1 + below(hostile ? max_depth : 3));
    for (std::string& segment : segments) segment = hostile ? id(one_in(8) ? max_segment_bytes : 12) : short_id();
    return segments;
  }

  static Target as_target(const std::vector<std::string>& segments) {
    const std::vector<std::string_view> views(segments.begin(), segments.end());
    return Target::path(views);
  }

  Target target(bool hostile) {
    switch (below(6)) {
      case 0: {
        const Target name = named(hostile ? id(one_in(8) ? 600 : 20) : short_id());
        return one_in(2) ? shared(name) : name;
      }
      case 1:
        return slots(hostile ? id(20) : short_id(), hostile ? 1 + static_cast<std::uint32_t>(below(max_slots)) : 3);
      default: {
        const Target t = as_target(path(hostile));
        return one_in(3) ? shared(t) : t;
      }
    }
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace hierlock::plan
