// Database: an SQL engine as the lab sees it. Sessions that run one statement at a time, and a view that tells who
// waits for whom. One implementation an engine; nothing above this knows which.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hierlock/lab.h>

namespace hierlock::lab {

using Row = std::vector<std::optional<std::string>>;  // values as the engine writes them; no value: NULL

// What one statement returned.
struct ResultSet {
  bool has_rows = false;
  std::vector<Row> rows{};
  std::optional<std::uint64_t> affected{};
  bool operator==(const ResultSet&) const = default;
};

struct Notified {  // PostgreSQL's NOTIFY
  std::string channel, payload{};
  bool operator==(const Notified&) const = default;
};

// How a statement, or a lock step, ended.
struct Answer {
  enum class Kind : std::uint8_t { ok, deadlock, timeout, busy, serialization, cancelled, error };
  Kind kind = Kind::ok;
  std::vector<ResultSet> earlier{};  // of several statements, what those before the last returned; only rows and counts
  bool has_rows = false;             // it returned a result, which may be empty
  std::vector<Row> rows{};
  std::optional<std::uint64_t> affected{};  // of a statement that changes rows
  std::string code{};                       // of an error, as the engine writes it: `1213`, `40P01`, `5`
  std::string message{};
  std::vector<std::string> cycle{};       // of a deadlock: who waits, each for the next, where the engine says so
  std::vector<std::string> notices{};     // that the engine sent with it
  std::vector<Notified> notifications{};  // that the session has got since its last answer

  bool well() const noexcept { return kind == Kind::ok; }
  // Adds the result of one more statement. It keeps rows and counts, and nothing else.
  void add(ResultSet set) {
    if (!set.has_rows && !set.affected) return;
    if (has_rows || affected) earlier.push_back({has_rows, std::move(rows), affected});
    has_rows = set.has_rows;
    rows = std::move(set.rows);
    affected = set.affected;
  }
};

// One session. execute() is called by one thread; interrupt() and name() by any.
class Connection {
 public:
  virtual ~Connection() = default;
  Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Sends one statement and waits for its end, as long as that takes. Errors of the engine are answers. Throws
  // Error(lost) if the session is gone.
  virtual Answer execute(const std::string& sql) = 0;
  // execute() in two parts, where can_begin() says so: sends the statement, and waits at most for `time`. No value: it
  // is under way, and finish() is called next, perhaps by another thread.
  virtual bool can_begin() const noexcept { return false; }
  virtual std::optional<Answer> begin(const std::string& /*sql*/, std::chrono::nanoseconds /*time*/) { return {}; }
  virtual Answer finish() { return {}; }
  // Ends what execute() waits for, soon; the session is of no further use. Harmless at any time.
  virtual void interrupt() noexcept = 0;
  virtual const std::string& name() const noexcept = 0;  // `T1`
  // The next statement ends as it would in a new session: no statement so far could change that.
  virtual bool is_as_new() const noexcept { return false; }
  // Begins what the destructor does and waits for, so that several sessions can end at the same time.
  virtual void begin_end() noexcept {}
};

// Who waits for whom, and who holds what.
struct View {
  std::vector<LockSeen> locks;
  std::vector<WaitSeen> waits;
  const WaitSeen* wait_of(std::string_view session) const noexcept {
    for (const WaitSeen& wait : waits) {
      if (wait.session == session) return &wait;
    }
    return nullptr;
  }
};

class Database {
 public:
  virtual ~Database() = default;

  virtual std::string_view engine() const noexcept = 0;  // `mysql`, `mariadb`, `postgres`, `sqlite`
  virtual const std::string& version() const noexcept = 0;

  // Makes the lab's schema, empty, or empties the one that leave_room() has kept; what an earlier run left there goes.
  // Waits for another run that is going on there
  // (at most for `patience`: Error(busy)). Throws Error(denied) with the right that is missing and the GRANT that gives
  // it, and Error(incompatible) if there is a schema of that name that the lab has not made.
  virtual void make_room(std::chrono::nanoseconds patience) = 0;
  // Notes statements that end what a scenario does outside of the schema. If this run is killed, the next make_room()
  // runs them.
  virtual void remember(const std::vector<std::string>& teardown) = 0;
  // Lets other runs go on. All sessions are gone by then. An engine may keep the schema for the next make_room().
  virtual void leave_room() noexcept { clear_room(); }
  // Drops it. All sessions are gone by then. Called also after a failure, and harmless without make_room().
  virtual void clear_room() noexcept = 0;

  // A session in the lab's schema, with the engine's own defaults: autocommit, isolation level, time limits.
  // `reusable`: an engine may take a connection of an earlier session, if it has proved that nothing of that session is
  // left on it (session_reuse.h). Otherwise the session gets a connection that nobody else has had or will have.
  virtual std::unique_ptr<Connection> connect(const std::string& name, bool reusable = true) = 0;
  // As connect(), of a connection of an earlier session. None: there is none.
  virtual std::unique_ptr<Connection> connect_again(const std::string& /*name*/) { return nullptr; }

  using TimePoint = std::chrono::steady_clock::time_point;
  // Of the sessions made by connect() that still live, at some moment after `since`. A wait is told only if the engine
  // shows it: of a session that has just been granted what it waited for, nothing is told. Throws Error(denied) if the
  // engine does not let us look.
  virtual View look(TimePoint since) = 0;
  View look() { return look(std::chrono::steady_clock::now()); }
  // look() waits until then. An answer may come meanwhile, and then nobody has to look.
  virtual TimePoint next_look(TimePoint /*since*/) const noexcept { return {}; }
  // Two looks must be so far apart, and a look must be so long after a change, to show it.
  virtual std::chrono::milliseconds lag() const noexcept { return {}; }

  // --- several scenarios at once (side_by_side.h) ---

  // The same server, with a schema of its own for each number from 1 on. make_room() of that one takes no turn: this
  // one must have it, and must outlive it. None: this engine plays one scenario at a time.
  virtual std::unique_ptr<Database> beside(unsigned /*number*/) { return nullptr; }
  // Waits for another run, as make_room() does, and removes what a killed one left.
  virtual void hold_turn(std::chrono::nanoseconds /*patience*/) {}
  virtual void release_turn() noexcept {}
  // Another run waits for its turn.
  virtual bool turn_is_wanted() { return false; }
};

// By the URL's scheme: mysql://, postgres://, sqlite:. None: it is no SQL engine. Throws Error(unsupported) for one
// that this build was made without, and unavailable, denied, invalid_argument.
std::unique_ptr<Database> open_database(std::string_view url);

}  // namespace hierlock::lab
