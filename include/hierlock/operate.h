// For those who run a store: make its tables, ask what is wrong with it, see what a lock becomes there. The same as
// `hierlock provision`, `doctor` and `explain`. Each throws unsupported for a store that needs nothing of the kind.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <hierlock/target.h>

namespace hierlock {

struct ProvisionOptions {
  std::optional<std::uint32_t> buckets{};  // rows a level; default: what is recorded, or 10,000,000
  std::optional<unsigned> levels{};        // default: what is recorded, or 3
  std::uint32_t chunk = 50'000;            // rows in one transaction
  std::uint64_t throttle = 0;              // rows a second, at most; 0: as fast as it goes

  struct Progress {
    std::uint64_t rows = 0, of = 0;    // rows that were made or found; all that there will be
    std::uint64_t made = 0;            // of these, by this run
    std::uint64_t bytes = 0;           // what the table takes at the end, estimated
    std::chrono::nanoseconds spent{};  // so far
    std::chrono::nanoseconds left{};   // estimated
  };
  // Told after each chunk; false ends it there, and the next run goes on.
  std::function<bool(const Progress&)> on_progress{};
};
// Makes the tables and rows that locks need (H11). May be killed, run again, and run by two at once.
void provision(std::string_view url, const ProvisionOptions& options = {});

// One thing that was looked at.
struct Finding {
  enum class Verdict : std::uint8_t { good, slow, unsafe, unknown };
  std::string check;  // a short name that stays: `isolation`, `galera`
  Verdict verdict = Verdict::good;
  std::string text;  // what there is
  std::string fix;   // what to do; empty when good
};
std::string_view to_string(Finding::Verdict verdict) noexcept;
// What is unsafe or slow in this set-up (H17). Changes nothing.
std::vector<Finding> doctor(std::string_view url);

// The statements that acquire and release these targets there, as the store would be sent them.
std::string statements(std::string_view url, std::span<const Target> targets);

}  // namespace hierlock
