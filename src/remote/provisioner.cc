#include "remote/provisioner.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "timed/wait_limit.h"

namespace hierlock::remote {

namespace {

using timed::Clock;
using namespace std::chrono_literals;

constexpr std::uint32_t most_chunk = 1'000'000;

// Keeps to so many rows a second: a chunk lasts as long as its rows may take.
class Throttle {
 public:
  explicit Throttle(std::uint64_t rows_per_second) : rate_(rows_per_second) {}
  void begins() { begin_ = Clock::now(); }
  void made(std::uint64_t rows) const {
    if (rate_ == 0 || rows == 0) return;
    std::this_thread::sleep_until(begin_ + std::chrono::nanoseconds(rows * 1'000'000'000 / rate_));
  }

 private:
  const std::uint64_t rate_;
  Clock::time_point begin_{};
};

// Tells how far it is.
class Teller {
 public:
  Teller(const RowTable& table, const ProvisionOptions& options, RowMaker& maker)
      : table_(table), options_(options), maker_(maker) {
    progress_.of = std::uint64_t{table.buckets} * table.levels;
  }

  bool tell() {
    if (!options_.on_progress) return true;
    const Clock::time_point now = Clock::now();
    progress_.spent = now - begin_;
    progress_.left = left(now);
    if (now >= measure_at_ || progress_.rows == progress_.of) measure(now);
    progress_.bytes = static_cast<std::uint64_t>(row_bytes_ * static_cast<double>(progress_.of));
    return options_.on_progress(progress_);
  }

  void were_there(std::uint64_t rows) {
    progress_.rows += rows;
    if (progress_.made == 0) making_since_ = Clock::now();  // finding what is there is much faster than making it
  }
  void made(std::uint64_t rows) {
    progress_.rows += rows;
    progress_.made += rows;
  }

 private:
  std::chrono::nanoseconds left(Clock::time_point now) const {
    const double missing = static_cast<double>(progress_.of - progress_.rows);
    const bool making = progress_.made > 0;
    const double rows = static_cast<double>(making ? progress_.made : progress_.rows);
    if (rows == 0) return {};
    const std::chrono::duration<double> spent = now - (making ? making_since_ : begin_);
    return std::chrono::duration_cast<std::chrono::nanoseconds>(spent * missing / rows);
  }

  // The server's number lags behind while the table grows. A number below the size of the rows is not true yet.
  void measure(Clock::time_point now) {
    measure_at_ = now + 5s;
    constexpr std::uint64_t enough = 200'000;  // below that, pages that are reserved for growth count too much
    if (progress_.rows < enough) return;
    const double measured = static_cast<double>(maker_.bytes()) / static_cast<double>(progress_.rows);
    if (measured > table_.least_row_bytes && measured < 20 * table_.least_row_bytes) row_bytes_ = measured;
  }

  const RowTable& table_;
  const ProvisionOptions& options_;
  RowMaker& maker_;
  ProvisionOptions::Progress progress_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point making_since_ = begin_, measure_at_ = begin_ + 5s;
  double row_bytes_ = table_.usual_row_bytes;
};

class Provisioner {
 public:
  Provisioner(const RowTable& table, const ProvisionOptions& wanted, RowMaker& maker, RowMaker* second)
      : table_(table),
        chunk_(chunk_rows(wanted)),
        maker_(maker),
        second_(second),
        throttle_(wanted.throttle),
        teller_(table, wanted, maker) {}

  void run() {
    if (!teller_.tell()) return;
    for (unsigned level = 0; level < table_.levels; ++level) {
      if (!make_level(level)) return;
    }
  }

  // Rows that are counted at once.
  static std::uint32_t span(std::uint32_t chunk) { return std::max<std::uint32_t>(chunk, 50'000); }

 private:
  // What one session makes of a level.
  struct Part {
    RowMaker& maker;
    unsigned level;
    std::uint32_t next, end;        // buckets
    std::uint32_t known_to = next;  // up to there the rows are counted
    bool nothing_there = false;
    std::uint32_t begun = 0;  // rows of the chunk that is being made
  };

  bool make_level(unsigned level) {
    const std::uint32_t half = second_ != nullptr ? table_.buckets / 2 : table_.buckets;
    std::vector<Part> parts{{maker_, level, 0, half}};
    if (second_ != nullptr) parts.push_back({*second_, level, half, table_.buckets});
    while (std::any_of(parts.begin(), parts.end(), [](const Part& part) { return part.next < part.end; })) {
      throttle_.begins();
      for (Part& part : parts) begin(part);
      for (Part& part : parts) end(part);
      if (!teller_.tell()) return false;
    }
    return true;
  }

  void begin(Part& part) {
    if (part.next == part.end) return;
    if (part.next == part.known_to) {
      const RowRange range{part.level, part.next, std::min(span(chunk_), part.end - part.next)};
      const std::uint64_t there = part.maker.count(range);
      part.known_to += range.rows;
      part.nothing_there = there == 0;
      if (there == range.rows) {
        teller_.were_there(there);
        part.next = part.known_to;
        return;
      }
    }
    part.begun = std::min(chunk_, part.known_to - part.next);
    part.maker.begin({part.level, part.next, part.begun}, part.nothing_there);
  }

  void end(Part& part) {
    if (part.begun == 0) return;
    const std::uint64_t made = part.maker.end();
    teller_.made(made);
    teller_.were_there(part.begun - made);
    throttle_.made(made);
    part.next += std::exchange(part.begun, 0);
  }

  const RowTable& table_;
  const std::uint32_t chunk_;
  RowMaker& maker_;
  RowMaker* const second_;
  Throttle throttle_;
  Teller teller_;
};

}  // namespace

std::uint32_t chunk_rows(const ProvisionOptions& wanted) {
  if (wanted.chunk < 1 || wanted.chunk > most_chunk) {
    throw Error(ErrorKind::invalid_argument, "a chunk has 1 to " + std::to_string(most_chunk) + " rows");
  }
  if (wanted.throttle == 0) return wanted.chunk;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(wanted.throttle / 2, 1, wanted.chunk));
}

void provision(const RowTable& table, const ProvisionOptions& wanted, RowMaker& maker,
               const std::function<std::unique_ptr<RowMaker>()>& another) {
  constexpr std::uint32_t worth_a_second = 4;  // spans
  std::unique_ptr<RowMaker> second;
  if (wanted.throttle == 0 && table.buckets / Provisioner::span(chunk_rows(wanted)) >= worth_a_second) {
    try {
      second = another();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::exhausted) throw;
    }
  }
  Provisioner(table, wanted, maker, second.get()).run();
}

}  // namespace hierlock::remote
