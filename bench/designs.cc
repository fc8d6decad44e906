#include "designs.h"

#include <hierlock/hierlock.h>
#include <hierlock/operate.h>
#include <hierlock/version.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <thread>
#include <utility>

#include "keys.h"
#include "measure.h"
#include "print/json.h"
#include "sql_session.h"
#include "statistics.h"

namespace bench::designs {

namespace {

using namespace std::chrono_literals;
using hierlock::print::Json;

constexpr std::size_t many_threads = 8;
constexpr auto hold_time = 2ms;
constexpr auto siblings_hold_time = 20ms;  // long beside what it takes to make rows

constexpr std::size_t id_count = 10'000;
constexpr std::size_t sibling_groups = 50;

// 10,000 resources of 100 users with 10 accounts each. Behind them, resources of new users: one a thread of an account.
std::vector<Path> all_ids() {
  std::vector<Path> ids;
  for (std::uint32_t i = 0; i < id_count; ++i) ids.emplace_back(i / 100, i / 10 % 10, i % 10);
  for (std::uint32_t group = 0; group < sibling_groups; ++group) {
    for (std::uint32_t t = 0; t < many_threads; ++t) ids.emplace_back(1'000 + group, 0, t);
  }
  return ids;
}

std::span<const Path> used(const std::vector<Path>& ids) { return std::span(ids).first(id_count); }
std::span<const Path> siblings(const std::vector<Path>& ids) { return std::span(ids).subspan(id_count); }

// One thread's way to the store.
class Client {
 public:
  Client() = default;
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  virtual ~Client() = default;

  virtual void acquire(std::size_t id) = 0;
  virtual void release() = 0;
  // Acquires, and tells whether somebody was in the way. It may cost round trips that acquire() does without.
  virtual bool acquire_and_tell(std::size_t id) = 0;
  virtual std::size_t deadlocks() const { return 0; }
};

class Design {
 public:
  Design() = default;
  Design(const Design&) = delete;
  Design& operator=(const Design&) = delete;
  virtual ~Design() = default;

  virtual std::string name() const = 0;
  virtual std::string table_name() const = 0;
  // Called by the thread that uses it.
  virtual std::unique_ptr<Client> client() = 0;
  // Makes the rows that would be there if each of these had been used once.
  virtual void make_rows(std::span<const Path> ids) = 0;
  virtual bool rows_beforehand() const = 0;
};

// INSERTs many rows, a thousand in a statement.
template <class Values>
void insert_rows(SqlSession& session, const std::string& into, const std::set<Values>& rows,
                 const std::function<std::string(const Values&)>& text) {
  std::string values;
  std::size_t count = 0;
  for (const Values& row : rows) {
    values += (values.empty() ? "" : ", ") + text(row);
    if (++count % 1000 != 0 && count != rows.size()) continue;
    session.ask("INSERT IGNORE INTO " + into + " VALUES " + values);
    values.clear();
  }
}

// --- A and B: a row an id -------------------------------------------------------------------------------------------

// Rows in the order of the path, which is the same for everybody, in one prepared statement; as C has it, so that what
// is compared are the rows.
class ByIdClient : public Client {
 public:
  ByIdClient(const std::string& server, const std::string& table, const std::vector<Path>& ids)
      : ids_(ids), session_(server), lock_(session_, sql(table, "")), try_(session_, sql(table, " NOWAIT")) {
    session_.ask("SET SESSION autocommit=0");
  }

  void acquire(std::size_t id) override { lock(lock_, id); }
  void release() override { session_.ask("ROLLBACK"); }
  bool acquire_and_tell(std::size_t id) override {
    if (try_lock(id)) return false;
    acquire(id);
    return true;
  }

 protected:
  bool try_lock(std::size_t id) {
    try {
      lock(try_, id);
      return true;
    } catch (const SqlError& error) {
      if (!error.busy()) throw;
      session_.ask("ROLLBACK");
      return false;
    }
  }
  std::size_t execute(SqlSession::Statement& statement, std::size_t id) {
    const auto& nodes = ids_[id].nodes;
    const SqlValue values[] = {nodes[0], nodes[1], nodes[2]};
    return statement.execute(values);
  }
  void lock(SqlSession::Statement& statement, std::size_t id) {
    if (execute(statement, id) != 3) throw std::runtime_error("designs: a row is missing");
  }
  SqlSession& session() noexcept { return session_; }

 private:
  std::string sql(const std::string& table, const std::string& waiting) const {
    const std::string select = "(SELECT 1 FROM " + table + " WHERE lock_key=?";
    const std::string shared = select + session_.for_share() + waiting + ")";
    return shared + " UNION ALL " + shared + " UNION ALL " + select + " FOR UPDATE" + waiting + ")";
  }

  const std::vector<Path>& ids_;
  SqlSession session_;
  SqlSession::Statement lock_, try_;
};

class ById : public Design {
 public:
  ById(const std::string& server, const std::vector<Path>& ids, const std::string& purpose)
      : server_(server), ids_(ids), table_(scratch_table(purpose)), session_(server) {
    session_.ask("CREATE TABLE " + table_ + " (lock_key VARBINARY(255) NOT NULL PRIMARY KEY) ENGINE=InnoDB");
  }
  ~ById() override {
    try {
      session_.ask("DROP TABLE IF EXISTS " + table_);
    } catch (const std::exception&) {
    }
  }

  std::string table_name() const override { return table_; }
  void make_rows(std::span<const Path> ids) override {
    std::set<std::string> keys;
    for (const Path& id : ids) keys.insert(id.nodes.begin(), id.nodes.end());
    insert_rows<std::string>(session_, table_, keys, [](const std::string& key) { return "('" + key + "')"; });
  }

 protected:
  const std::string& server() const noexcept { return server_; }
  const std::vector<Path>& ids() const noexcept { return ids_; }

 private:
  const std::string server_;
  const std::vector<Path>& ids_;
  const std::string table_;
  SqlSession session_;
};

class Beforehand : public ById {
 public:
  Beforehand(const std::string& server, const std::vector<Path>& ids) : ById(server, ids, "design_a") {
    make_rows(used(ids));
  }

  std::string name() const override { return "A  a row an id"; }
  bool rows_beforehand() const override { return true; }
  std::unique_ptr<Client> client() override { return std::make_unique<ByIdClient>(server(), table_name(), ids()); }
};

class OnDemandClient : public ByIdClient {
 public:
  OnDemandClient(const std::string& server, const std::string& table, const std::vector<Path>& ids)
      : ByIdClient(server, table, ids), make_(session(), "INSERT IGNORE INTO " + table + " VALUES (?), (?), (?)") {}

  // A deadlock is part of this design: two that insert a row that is there share it, and then neither can have it
  // alone.
  void acquire(std::size_t id) override {
    for (;;) {
      try {
        execute(make_, id);
        return ByIdClient::acquire(id);
      } catch (const SqlError& error) {
        if (!error.deadlock()) throw;
        ++deadlocks_;
      }
    }
  }
  // With ROLLBACK the rows it made would be gone again.
  void release() override { session().ask("COMMIT"); }
  // An INSERT cannot be asked not to wait, so another statement looks first.
  bool acquire_and_tell(std::size_t id) override {
    const bool free = try_lock(id);
    if (free) session().ask("ROLLBACK");
    acquire(id);
    return !free;
  }
  std::size_t deadlocks() const override { return deadlocks_; }

 private:
  SqlSession::Statement make_;
  std::size_t deadlocks_ = 0;
};

class OnDemand : public ById {
 public:
  OnDemand(const std::string& server, const std::vector<Path>& ids) : ById(server, ids, "design_b") {}

  std::string name() const override { return "B  made on demand"; }
  bool rows_beforehand() const override { return false; }
  std::unique_ptr<Client> client() override { return std::make_unique<OnDemandClient>(server(), table_name(), ids()); }
};

// --- C: hierlock ----------------------------------------------------------------------------------------------------

class BucketClient : public Client {
 public:
  BucketClient(hierlock::Locker& locker, const std::vector<hierlock::Target>& ids) : locker_(locker), ids_(ids) {}

  void acquire(std::size_t id) override { lock_ = locker_.acquire(ids_[id]); }
  void release() override { lock_.release(); }
  bool acquire_and_tell(std::size_t id) override {
    if (auto lock = locker_.try_acquire(ids_[id])) {
      lock_ = std::move(*lock);
      return false;
    }
    acquire(id);
    return true;
  }

 private:
  hierlock::Locker& locker_;
  const std::vector<hierlock::Target>& ids_;
  hierlock::Lock lock_;
};

class Buckets : public Design {
 public:
  enum class Rows { beforehand, lazy };
  Buckets(const std::string& server, const std::vector<Path>& ids, std::uint32_t buckets, Rows rows)
      : buckets_(buckets), rows_(rows), session_(server) {
    const std::string url = server + "?table=" + table_name();
    if (rows == Rows::beforehand) {
      hierlock::provision(url, {.buckets = buckets, .levels = 3});
      locker_.emplace(hierlock::open(url));
    } else {
      locker_.emplace(hierlock::open(url + "&provision=lazy&levels=3&buckets=" + std::to_string(buckets)));
    }
    for (const Path& id : ids) targets_.emplace_back(id.nodes[2]);
  }
  ~Buckets() override {
    locker_.reset();
    try {
      drop_hierlock_tables(session_, table_name());
    } catch (const std::exception&) {
    }
  }

  std::string name() const override {
    return "C  " + std::to_string(buckets_) + (rows_ == Rows::lazy ? " lazy" : " buckets");
  }
  std::string table_name() const override { return scratch_table("design_c" + std::to_string(buckets_)); }
  std::unique_ptr<Client> client() override { return std::make_unique<BucketClient>(*locker_, targets_); }
  bool rows_beforehand() const override { return rows_ == Rows::beforehand; }
  void make_rows(std::span<const Path> ids) override {
    using Row = std::pair<std::size_t, std::uint32_t>;
    std::set<Row> rows;
    for (const Path& id : ids) {
      for (std::size_t level = 0; level < 3; ++level) rows.emplace(level, bucket_of(id, level, buckets_));
    }
    insert_rows<Row>(session_, table_name() + " (level, bucket)", rows, [](const Row& row) {
      return "(" + std::to_string(row.first) + ", " + std::to_string(row.second) + ")";
    });
  }

 private:
  const std::uint32_t buckets_;
  const Rows rows_;
  SqlSession session_;
  std::vector<hierlock::Target> targets_;
  std::optional<hierlock::Locker> locker_;
};

// --- Measuring ------------------------------------------------------------------------------------------------------

// Not bound to cores, as on_threads() does it: most of these wait for the server, which needs the cores itself.
template <class Body>
void on_free_threads(std::size_t threads, const Body& body) {
  std::vector<std::thread> running;
  for (std::size_t t = 0; t < threads; ++t) {
    running.emplace_back([&body, t] {
      try {
        body(t);
      } catch (const std::exception& e) {
        fail(e.what());
      }
    });
  }
  for (std::thread& thread : running) thread.join();
}

// Ids of one thread, drawn uniformly. The same for every design.
class Draw {
 public:
  Draw(std::size_t ids, std::size_t thread, std::size_t round)
      : engine_(static_cast<std::uint32_t>(1 + thread + 1000 * round)), any_(0, ids - 1) {}
  std::size_t operator()() { return any_(engine_); }

 private:
  std::mt19937 engine_;
  std::uniform_int_distribution<std::size_t> any_;
};

struct Samples {
  std::vector<double> rates, acquires;  // pairs a second of each round; the time of each acquire
};

void measure_load(Design& design, std::size_t ids, std::size_t threads, std::size_t round, Clock::duration length,
                  Samples& samples) {
  std::vector<std::vector<double>> times(threads);
  std::vector<double> rates(threads);
  StartLine start(threads);
  on_free_threads(threads, [&](std::size_t t) {
    const std::unique_ptr<Client> client = design.client();
    Draw draw(ids, t, round);
    for (int warm_up = 0; warm_up < 20; ++warm_up) {
      client->acquire(draw());
      client->release();
    }
    const Clock::time_point begin = start.wait();
    Clock::time_point now = Clock::now();
    while (now - begin < length) {
      const std::size_t id = draw();
      const Clock::time_point asked = Clock::now();
      client->acquire(id);
      times[t].push_back(nanoseconds(Clock::now() - asked));
      client->release();
      now = Clock::now();
    }
    rates[t] = static_cast<double>(times[t].size()) / (nanoseconds(now - begin) / 1e9);
  });
  double sum = 0;
  for (const double rate : rates) sum += rate;
  samples.rates.push_back(sum);
  for (const auto& of_thread : times)
    samples.acquires.insert(samples.acquires.end(), of_thread.begin(), of_thread.end());
}

Load load_of(const Samples& samples) {
  return {summarize(samples.rates).median, percentile(samples.acquires, 50), percentile(samples.acquires, 99)};
}

// One acquire of a thread, until its release.
struct Turn {
  std::size_t id = 0;
  bool waited = false;
  Clock::time_point asked{}, granted{}, released{};
};
using Turns = std::vector<Turn>;  // in the order of time

// Whether anybody of the others asked for the id, or held it, while this turn asked.
bool somebody_wanted_it(const std::vector<Turns>& threads, std::size_t self, const Turn& turn) {
  for (std::size_t t = 0; t < threads.size(); ++t) {
    if (t == self) continue;
    const auto ends_before = [](const Turn& other, Clock::time_point when) { return other.released < when; };
    auto other = std::lower_bound(threads[t].begin(), threads[t].end(), turn.asked, ends_before);
    for (; other != threads[t].end() && other->asked <= turn.granted; ++other) {
      if (other->id == turn.id) return true;
    }
  }
  return false;
}

Contention measure_contention(Design& design, std::size_t ids, Clock::duration length) {
  std::vector<Turns> turns(many_threads);
  std::vector<std::size_t> deadlocks(many_threads);
  StartLine start(many_threads);
  on_free_threads(many_threads, [&](std::size_t t) {
    const std::unique_ptr<Client> client = design.client();
    Draw draw(ids, t, 0);
    const Clock::time_point begin = start.wait();
    while (Clock::now() - begin < length) {
      Turn turn;
      turn.id = draw();
      turn.asked = Clock::now();
      turn.waited = client->acquire_and_tell(turn.id);
      turn.granted = Clock::now();
      std::this_thread::sleep_for(hold_time);
      client->release();
      turn.released = Clock::now();
      turns[t].push_back(turn);
    }
    deadlocks[t] = client->deadlocks();
  });
  Contention result;
  for (std::size_t t = 0; t < turns.size(); ++t) {
    result.deadlocks += deadlocks[t];
    result.acquires += turns[t].size();
    for (const Turn& turn : turns[t]) {
      if (!turn.waited) continue;
      ++result.waits;
      if (!somebody_wanted_it(turns, t, turn)) ++result.false_waits;
    }
  }
  return result;
}

// Two clients must exclude each other on an id, and only there.
void check(Design& design) {
  std::atomic<bool> second_has_it{false};
  const std::unique_ptr<Client> first = design.client();
  first->acquire(0);
  std::thread other([&] {
    try {
      const std::unique_ptr<Client> second = design.client();
      second->acquire(1);
      second->release();
      second->acquire(0);
      second_has_it = true;
      second->release();
    } catch (const std::exception& e) {
      fail(e.what());
    }
  });
  std::this_thread::sleep_for(300ms);
  const bool too_early = second_has_it;
  first->release();
  other.join();
  if (too_early) throw std::runtime_error("designs: " + design.name() + ": self-check: an id was given to two");
}

// Pairs on `count` ids that nobody has used, and once more on the same: the medians.
void measure_first_use(Design& design, std::size_t ids, std::size_t count, Row& row) {
  on_free_threads(1, [&](std::size_t) {
    const std::unique_ptr<Client> client = design.client();
    const auto pass = [&] {
      std::vector<double> times;
      // In steps that are coprime to the number of ids, so that neighbours come from different accounts.
      for (std::size_t i = 0; i < count; ++i) {
        const Clock::time_point begin = Clock::now();
        client->acquire((i * 7919 + 100) % ids);
        client->release();
        times.push_back(nanoseconds(Clock::now() - begin));
      }
      return percentile(times, 50);
    };
    // The first of a connection prepares its statement.
    client->acquire(0);
    client->release();
    row.first_use = pass();
    row.later_use = pass();
  });
}

// All threads at once take different ids of a user that is new, and hold them for a while: nobody has to wait, if ids
// are what is locked. How long an acquire took, p50.
double measure_siblings(Design& design, std::size_t groups) {
  std::vector<std::vector<double>> times(many_threads);
  std::barrier together(many_threads);
  on_free_threads(many_threads, [&](std::size_t t) {
    const std::unique_ptr<Client> client = design.client();
    client->acquire(t * 10);
    client->release();
    for (std::size_t group = 0; group < groups; ++group) {
      together.arrive_and_wait();
      const Clock::time_point asked = Clock::now();
      client->acquire(id_count + group * many_threads + t);
      times[t].push_back(nanoseconds(Clock::now() - asked));
      std::this_thread::sleep_for(siblings_hold_time);
      client->release();
    }
  });
  for (std::size_t t = 1; t < many_threads; ++t) times[0].insert(times[0].end(), times[t].begin(), times[t].end());
  return percentile(times[0], 50);
}

void measure_size(SqlSession& session, const std::string& table, Row& row) {
  session.ask("ANALYZE TABLE " + table);
  row.table_rows = static_cast<std::size_t>(session.number("SELECT COUNT(*) FROM " + table));
  row.table_bytes = session.number(
      "SELECT DATA_LENGTH + INDEX_LENGTH FROM information_schema.TABLES WHERE "
      "TABLE_SCHEMA=DATABASE() AND TABLE_NAME='" +
      table + "'");
}

std::vector<Row> measure(const std::string& label, const std::string& server, bool quick, const Progress& progress) {
  const std::vector<Path> ids = all_ids();
  SqlSession session(server);
  progress(label, "rows");
  std::vector<std::unique_ptr<Design>> designs;
  designs.push_back(std::make_unique<Beforehand>(server, ids));
  designs.push_back(std::make_unique<OnDemand>(server, ids));
  designs.push_back(std::make_unique<Buckets>(server, ids, 1'000, Buckets::Rows::beforehand));
  designs.push_back(std::make_unique<Buckets>(server, ids, 100'000, Buckets::Rows::beforehand));
  designs.push_back(std::make_unique<Buckets>(server, ids, 10'000'000, Buckets::Rows::lazy));

  std::vector<Row> rows(designs.size());
  for (std::size_t i = 0; i < designs.size(); ++i) {
    progress(label, designs[i]->name());
    rows[i].server = label;
    rows[i].design = designs[i]->name();
    measure_first_use(*designs[i], id_count, quick ? 100 : 1'000, rows[i]);
    designs[i]->make_rows(used(ids));
    measure_size(session, designs[i]->table_name(), rows[i]);
    check(*designs[i]);
  }

  const std::size_t rounds = quick ? 3 : 9;
  const Clock::duration length = quick ? 200ms : 400ms;
  std::vector<Samples> one(designs.size()), eight(designs.size());
  for (std::size_t round = 0; round < rounds; ++round) {
    progress(label, "round " + std::to_string(round + 1) + " of " + std::to_string(rounds));
    for (std::size_t i = 0; i < designs.size(); ++i) {
      const std::size_t turn = (i + round) % designs.size();
      measure_load(*designs[turn], id_count, 1, round, length, one[turn]);
      measure_load(*designs[turn], id_count, many_threads, round, length, eight[turn]);
    }
  }
  for (std::size_t i = 0; i < designs.size(); ++i) {
    progress(label, designs[i]->name() + ", waits");
    rows[i].one = load_of(one[i]);
    rows[i].eight = load_of(eight[i]);
    rows[i].contention = measure_contention(*designs[i], id_count, quick ? 1s : 5s);
    if (designs[i]->rows_beforehand()) designs[i]->make_rows(siblings(ids));
    rows[i].siblings = measure_siblings(*designs[i], quick ? 10 : sibling_groups);
  }
  return rows;
}

template <class... Args>
std::string format(const char* pattern, Args... args) {
  char text[512];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
  std::snprintf(text, sizeof text, pattern, args...);
#pragma GCC diagnostic pop
  return text;
}

std::string milliseconds(double nanoseconds) { return format("%.2f ms", nanoseconds / 1e6); }

void write(Json& json, std::string_view name, const Load& load) {
  json.open_object(name)
      .number("pairs_per_second", load.pairs_per_second)
      .number("acquire_p50_ns", load.p50)
      .number("acquire_p99_ns", load.p99)
      .close();
}

}  // namespace

Outcome run(bool quick, const Progress& progress) {
  constexpr std::pair<const char*, const char*> servers[] = {{"MySQL", "HIERLOCK_TEST_MYSQL"},
                                                             {"MariaDB", "HIERLOCK_TEST_MARIADB"}};
  Outcome outcome;
  const std::string why = why_no_mysql();
  for (const auto& [label, variable] : servers) {
    const char* const url = std::getenv(variable);
    if (!why.empty()) {
      outcome.skipped.push_back(std::string(label) + ": " + why);
    } else if (url == nullptr) {
      outcome.skipped.push_back(std::string(label) + ": " + variable +
                                " names no server: eval \"$(tools/servers env)\"");
    } else {
      enable_mysql();
      for (Row& row : measure(label, url, quick, progress)) outcome.rows.push_back(std::move(row));
    }
  }
  return outcome;
}

std::string table(const Outcome& outcome) {
  const char* const head = "%-8s %-18s %7s %6s %9s %9s %9s %8s %8s %9s %8s %9s %6s %6s %9s\n";
  std::string text =
      format(head, "", "", "", "", "first", "later", "siblings'", "1 thread", "", "8 threads", "", "", "", "", "dead-");
  text += format(head, "server", "design", "rows", "kB", "use", "use", "first use", "pairs/s", "p99", "pairs/s", "p99",
                 "acquires", "waits", "false", "locks");
  for (const Row& r : outcome.rows) {
    const auto count = [](std::size_t n) { return std::to_string(n); };
    text += format(head, r.server.c_str(), r.design.c_str(), count(r.table_rows).c_str(),
                   format("%.0f", r.table_bytes / 1024).c_str(), milliseconds(r.first_use).c_str(),
                   milliseconds(r.later_use).c_str(), milliseconds(r.siblings).c_str(),
                   format("%.0f", r.one.pairs_per_second).c_str(), milliseconds(r.one.p99).c_str(),
                   format("%.0f", r.eight.pairs_per_second).c_str(), milliseconds(r.eight.p99).c_str(),
                   count(r.contention.acquires).c_str(), count(r.contention.waits).c_str(),
                   count(r.contention.false_waits).c_str(), count(r.contention.deadlocks).c_str());
  }
  text +=
      "\n10,000 ids, drawn uniformly. Use: a pair, p50. Siblings' first use: an acquire, p50, of 8 threads at once on "
      "different\n"
      "ids of a new user, held for 20 ms. p99: of an acquire. From `acquires` on: 8 threads that hold for 2 ms; a wait "
      "is false\n"
      "if nobody else asked for that id, or held it, at the time.\n";
  return text;
}

std::string json(const Outcome& outcome, bool quick) {
  Json json;
  json.open_object()
      .number("version", std::uint64_t{1})
      .text("program", "bench/compare designs")
      .text("hierlock", HIERLOCK_VERSION)
      .number("cores", std::uint64_t{std::thread::hardware_concurrency()})
      .boolean("quick", quick)
      .open_array("designs");
  for (const Row& r : outcome.rows) {
    json.open_object()
        .text("server", r.server)
        .text("design", r.design)
        .number("rows", std::uint64_t{r.table_rows})
        .number("bytes", static_cast<std::uint64_t>(r.table_bytes))
        .number("first_use_ns", r.first_use)
        .number("later_use_ns", r.later_use)
        .number("siblings_first_use_ns", r.siblings);
    write(json, "one_thread", r.one);
    write(json, "eight_threads", r.eight);
    json.open_object("contention")
        .number("acquires", std::uint64_t{r.contention.acquires})
        .number("waits", std::uint64_t{r.contention.waits})
        .number("false_waits", std::uint64_t{r.contention.false_waits})
        .number("deadlocks", std::uint64_t{r.contention.deadlocks})
        .close()
        .close();
  }
  json.close().open_array("skipped");
  for (const std::string& skipped : outcome.skipped) json.text("", skipped);
  return json.close().close().str();
}

}  // namespace bench::designs
