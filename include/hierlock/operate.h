// For operators of a store: make its tables, check its setup, and print the statements of a lock. The commands
// `hierlock provision`, `hierlock doctor` and `hierlock explain` do the same. If a call does not apply to a store, it
// throws `unsupported`.
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
  std::optional<std::uint32_t> buckets{};  // rows per level; default: the recorded number, or 10,000,000
  std::optional<unsigned> levels{};        // default: the recorded number, or 3
  std::uint32_t chunk = 50'000;            // rows per transaction
  std::uint64_t throttle = 0;              // at most this many rows per second; 0: no limit

  struct Progress {
    std::uint64_t rows = 0, of = 0;    // rows that exist now; rows at the end
    std::uint64_t made = 0;            // rows that this run has made
    std::uint64_t bytes = 0;           // estimated size of the table at the end
    std::chrono::nanoseconds spent{};  // time so far
    std::chrono::nanoseconds left{};   // estimated time left
  };
  // Called after each chunk. If it returns false, the run ends there. A later run continues from there.
  std::function<bool(const Progress&)> on_progress{};
};
// Makes the tables and rows that locks need (H11). You may kill it, run it again, and run it twice at once.
void provision(std::string_view url, const ProvisionOptions& options = {});

// The result of one check.
struct Finding {
  enum class Verdict : std::uint8_t { good, slow, unsafe, unknown };
  std::string check;  // a short name that never changes: `isolation`, `galera`
  Verdict verdict = Verdict::good;
  std::string text;  // what the check found
  std::string fix;   // what to do; empty if the verdict is good
};
std::string_view to_string(Finding::Verdict verdict) noexcept;
// Reports what is unsafe or slow in this setup (H17). It changes nothing, except that on Valkey it takes and releases a
// lock of its own.
std::vector<Finding> doctor(std::string_view url);

// Returns the statements that the store would receive to acquire and release these targets.
std::string statements(std::string_view url, std::span<const Target> targets);

}  // namespace hierlock
