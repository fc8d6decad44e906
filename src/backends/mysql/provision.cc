#include "mysql/provision.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <hierlock/error.h>

#include "mysql/options.h"
#include "mysql/schema.h"
#include "mysql/statements.h"
#include "mysql_client/connection.h"
#include "mysql_client/error_codes.h"

namespace hierlock::mysql {

namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t most_buckets = 2'147'483'647;  // H3: the column is a signed INT
constexpr std::uint32_t most_chunk = 1'000'000;

// Measured in primary-key order on MySQL 9.7 and MariaDB 10.11: 23 bytes are the row itself (5 header, 1 level, 4
// bucket, 6 transaction, 7 roll pointer), and InnoDB leaves a sixteenth of each page free.
constexpr double row_bytes = 23, usual_row_bytes = 25.5;

std::uint64_t number(const Reply& reply) {
  return reply.rows.empty() || reply.rows.front().empty() ? 0 : endpoint::number(reply.rows.front().front());
}

// What the caller asks for and what the URL says become one.
template <class T>
void merge(std::optional<T>& from_url, const std::optional<T>& asked, std::uint64_t most, const std::string& what) {
  if (!asked) return;
  if (*asked < 1 || *asked > most) {
    throw Error(ErrorKind::invalid_argument,
                what + ": " + std::to_string(*asked) + " is not a number from 1 to " + std::to_string(most));
  }
  if (from_url && *from_url != *asked) {
    throw Error(ErrorKind::invalid_argument, "the URL says " + what + "=" + std::to_string(*from_url) + ", but " +
                                                 std::to_string(*asked) + " was asked for: leave out one of them");
  }
  from_url = asked;
}

Options read_options(const spi::Url& url, const ProvisionOptions& wanted) {
  Options options = read_url(url);
  merge(options.layout.buckets, wanted.buckets, most_buckets, "buckets");
  merge(options.layout.levels, wanted.levels, max_depth, "levels");
  if (wanted.chunk < 1 || wanted.chunk > most_chunk) {
    throw Error(ErrorKind::invalid_argument, "a chunk has 1 to " + std::to_string(most_chunk) + " rows");
  }
  options.layout.lazy = true;  // the tables are made if they are missing
  return options;
}

// A run of buckets of one level.
struct Range {
  unsigned level = 0;
  std::uint32_t first = 0, rows = 0;

  std::string where() const {
    return "level=" + std::to_string(level) + " AND bucket BETWEEN " + std::to_string(first) + " AND " +
           std::to_string(first + (rows - 1));
  }
};

// Makes rows in the order of the primary key: each page is filled once and not split. In the order that cross-joined
// digits have on MySQL, the table becomes three times as large (docs/bench.md).
//
// One INSERT is one transaction: nothing is left open if this process dies, and a chunk is there or it is not.
class Maker {
 public:
  Maker(const Options& options, std::uint32_t chunk) : table_("`" + options.layout.table + "`") {
    connection_ = connect(options, 10s);
    Deadline limit(1min);
    recorded_ = read_or_make(*connection_, options, limit);
    prepare(chunk, limit);
  }

  const BucketTable& recorded() const { return recorded_; }

  std::uint64_t count(const Range& range) {
    return number(ask("SELECT COUNT(*) FROM " + table_ + " WHERE " + range.where()));
  }

  // Makes what is missing of a range, whoever else makes or holds rows of it: begins with it, and ends when it is
  // there.
  void begin(const Range& range, bool nothing_there) {
    range_ = range;
    nothing_there_ = nothing_there;
    // What is held is there, and is not touched: so it is not waited for.
    connection_->begin(nothing_there ? plain(range) : around(range));
  }
  // How many rows were made.
  std::uint64_t end() {
    // Somebody who inserts the same rows is waited for no longer than a second each time.
    constexpr int most_tries = 60;
    for (int tries = 1;; ++tries) {
      Deadline limit(patience);
      const Reply reply = connection_->end(limit);
      if (reply.well()) return nothing_there_ ? range_.rows : number(ask("SELECT ROW_COUNT()"));
      const bool in_the_way =
          reply.code == codes::duplicate_key || reply.code == codes::lock_wait_timeout || reply.code == codes::deadlock;
      if (!in_the_way || tries == most_tries) throw error_of(reply.code, reply.message, "make rows of " + table_);
      begin(range_, false);
    }
  }

  // What the server says the table takes now; 0 if it does not say.
  std::uint64_t bytes() {
    const Reply reply = query(
        "SELECT DATA_LENGTH FROM information_schema.TABLES WHERE TABLE_SCHEMA=DATABASE() AND "
        "TABLE_NAME='" +
        table_.substr(1, table_.size() - 2) + "'");
    return reply.well() ? number(reply) : 0;
  }

 private:
  static constexpr auto patience = 10min;  // for one chunk

  Reply query(const std::string& sql) {
    Deadline limit(patience);
    return connection_->query(sql, limit);
  }
  Reply ask(const std::string& sql) {
    Deadline limit(patience);
    return connection_->ask(sql, limit);
  }

  void prepare(std::uint32_t chunk, WaitLimit& limit) {
    const bool mariadb = connection_->mariadb();
    const std::string depth = std::to_string(std::uint64_t{chunk} + 1);
    connection_->ask(std::string("SET SESSION autocommit=1, innodb_lock_wait_timeout=1, wait_timeout=600, "
                                 "interactive_timeout=600, ") +
                         (mariadb ? "max_recursive_iterations=" + depth
                                  : "cte_max_recursion_depth=" + depth + ", information_schema_stats_expiry=0"),
                     limit);
    sequences_ = mariadb && number(connection_->ask("SELECT COUNT(*) FROM information_schema.ENGINES WHERE "
                                                    "ENGINE='SEQUENCE' AND SUPPORT IN ('YES', 'DEFAULT')",
                                                    limit)) > 0;
  }

  // The numbers of a range as `n.bucket`, in order. Measured with 10^6 rows, these were the fastest of what was tried:
  // digits joined in order, two larger tables joined, JSON_TABLE (close behind), and sending the rows as VALUES.
  std::string numbers(const Range& range) const {
    const std::string first = std::to_string(range.first), last = std::to_string(range.first + (range.rows - 1));
    if (sequences_) return "(SELECT seq AS bucket FROM seq_" + first + "_to_" + last + ") AS n";
    return "(WITH RECURSIVE counted (bucket) AS (SELECT " + first +
           " UNION ALL SELECT bucket + 1 FROM counted WHERE bucket < " + last + ") SELECT bucket FROM counted) AS n";
  }

  std::string insert(const Range& range) const {
    return "INSERT INTO " + table_ + " (level, bucket) SELECT " + std::to_string(range.level) + ", n.bucket FROM " +
           numbers(range);
  }
  std::string plain(const Range& range) const { return insert(range); }
  // At READ COMMITTED the rows that are there are read without a lock.
  std::string around(const Range& range) const {
    return insert(range) + " LEFT JOIN " + table_ + " AS there ON there.level=" + std::to_string(range.level) +
           " AND there.bucket=n.bucket WHERE there.bucket IS NULL";
  }

  const std::string table_;
  std::unique_ptr<Connection> connection_;
  BucketTable recorded_;
  bool sequences_ = false;
  Range range_;
  bool nothing_there_ = false;
};

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
  Teller(const ProvisionOptions& options, Maker& maker, std::uint64_t of) : options_(options), maker_(maker) {
    progress_.of = of;
  }

  bool tell() {
    if (!options_.on_progress) return true;
    const Clock::time_point now = Clock::now();
    progress_.spent = now - begin_;
    progress_.left = left(now);
    if (now >= measure_at_ || progress_.rows == progress_.of) measure(now);
    progress_.bytes = static_cast<std::uint64_t>(per_row_ * static_cast<double>(progress_.of));
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

  // The server's number lags behind while the table grows; what is less than the rows themselves is not true yet.
  void measure(Clock::time_point now) {
    measure_at_ = now + 5s;
    constexpr std::uint64_t enough = 200'000;  // below that, pages that are reserved for growth count too much
    if (progress_.rows < enough) return;
    const double measured = static_cast<double>(maker_.bytes()) / static_cast<double>(progress_.rows);
    if (measured > row_bytes && measured < 20 * row_bytes) per_row_ = measured;
  }

  const ProvisionOptions& options_;
  Maker& maker_;
  ProvisionOptions::Progress progress_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point making_since_ = begin_, measure_at_ = begin_ + 5s;
  double per_row_ = usual_row_bytes;
};

// Making a row is the work of one core of the server, in whatever form it is asked for (docs/bench.md). So two sessions
// make the two halves of a level at the same time; not more, because others use the server, and one if it is throttled.
class Provisioner {
 public:
  Provisioner(const Options& options, const ProvisionOptions& wanted)
      : chunk_(chunk_of(wanted)),
        maker_(options, chunk_),
        throttle_(wanted.throttle),
        teller_(wanted, maker_, std::uint64_t{maker_.recorded().buckets} * maker_.recorded().levels) {
    if (wanted.throttle != 0 || maker_.recorded().buckets / span() < worth_a_second) return;
    try {
      second_.emplace(options, chunk_);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::exhausted) throw;  // one connection will do
    }
  }

  void run() {
    if (!teller_.tell()) return;
    for (unsigned level = 0; level < maker_.recorded().levels; ++level) {
      if (!make_level(level)) return;
    }
  }

 private:
  static constexpr std::uint32_t worth_a_second = 4;  // spans

  // Small enough that a throttled run is told about, and can be ended, twice a second.
  static std::uint32_t chunk_of(const ProvisionOptions& wanted) {
    if (wanted.throttle == 0) return wanted.chunk;
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(wanted.throttle / 2, 1, wanted.chunk));
  }
  std::uint32_t span() const { return std::max<std::uint32_t>(chunk_, 50'000); }

  // What one session makes of a level.
  struct Part {
    Maker& maker;
    unsigned level;
    std::uint32_t next, end;        // buckets
    std::uint32_t known_to = next;  // up to there it was looked what is there
    bool nothing_there = false;
    std::uint32_t begun = 0;  // rows of the chunk that is being made
  };

  bool make_level(unsigned level) {
    const std::uint32_t buckets = maker_.recorded().buckets, half = second_ ? buckets / 2 : buckets;
    std::vector<Part> parts{{maker_, level, 0, half}};
    if (second_) parts.push_back({*second_, level, half, buckets});
    while (std::any_of(parts.begin(), parts.end(), [](const Part& part) { return part.next < part.end; })) {
      throttle_.begins();
      for (Part& part : parts) begin(part);
      for (Part& part : parts) end(part);
      if (!teller_.tell()) return false;
    }
    return true;
  }

  // Finds what is there by counting, span by span, also to go on after a kill: ten million rows were counted in 2 to 4
  // s, a tenth of the time they took to be made, and no record of how far it came could know of lazy rows or of a
  // second operator.
  void begin(Part& part) {
    if (part.next == part.end) return;
    if (part.next == part.known_to) {
      const Range range{part.level, part.next, std::min(span(), part.end - part.next)};
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

  const std::uint32_t chunk_;
  Maker maker_;
  std::optional<Maker> second_;
  Throttle throttle_;
  Teller teller_;
};

}  // namespace

void provision(const spi::Url& url, const ProvisionOptions& wanted) {
  const Options options = read_options(url, wanted);
  try {
    Provisioner(options, wanted).run();
  } catch (const Error& error) {
    if (!lacks_right(static_cast<unsigned>(error.native_code()))) throw;
    throw Error(ErrorKind::denied,
                std::string(error.what()) + "; provisioning needs CREATE, SELECT, INSERT and UPDATE on " +
                    options.layout.table + ", " + options.layout.settings_table() + " and " +
                    options.layout.notices_table(),
                error.native_code());
  }
}

}  // namespace hierlock::mysql
