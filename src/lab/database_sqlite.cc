// SQLite as the lab sees it: a file, and a connection to it for each session.
//
// SQLite has no view of waits, and needs none: it asks a connection's busy handler whether to try again. So a session
// waits when its handler was asked and its statement has not ended; whoever has the lock it needs is known by the
// transactions of the other sessions, as SQLite itself tells them (sqlite3_txn_state).
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <thread>
#include <utility>

#include "lab/engines.h"
#include "lab/leftovers.h"

namespace hierlock::lab {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
namespace fs = std::filesystem;

// How often a session that waits tries again. One of the lab that lets go wakes it at once; this is for others.
constexpr milliseconds try_again{2};
// The longest time that the pragma knows, 24 days: no limit.
constexpr milliseconds for_ever{2147483647};

using Handle = std::unique_ptr<sqlite3, decltype(&sqlite3_close_v2)>;

Handle open_file(const fs::path& file, int flags) {
  sqlite3* raw = nullptr;
  const int result = sqlite3_open_v2(file.c_str(), &raw, flags, nullptr);
  Handle handle(raw, &sqlite3_close_v2);
  if (result != SQLITE_OK) {
    throw Error(ErrorKind::unavailable,
                "cannot open " + file.string() + ": " + (raw != nullptr ? sqlite3_errmsg(raw) : "no memory"), result);
  }
  return handle;
}

// What all sessions know of each other. Guarded by `mutex`.
struct Hall {
  struct Seat {
    std::string name;
    int state = SQLITE_TXN_NONE;  // of its transaction, when it was last in a position to tell
    bool running = false;         // in a statement
    bool waiting = false;         // its handler was asked, in this statement
    bool wants_write = false;     // its statement is one that writes
    std::uint64_t tried = 0;      // `changes` before its last try
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t changes = 0;  // how often a statement has ended
  std::vector<Seat*> seats;
};

class SqliteConnection final : public Connection {
 public:
  SqliteConnection(std::shared_ptr<Hall> hall, const fs::path& file, const std::string& name)
      : hall_(std::move(hall)), handle_(open_file(file, SQLITE_OPEN_READWRITE)) {
    seat_.name = name;
    sqlite3_busy_handler(handle_.get(), &SqliteConnection::busy, this);
    const std::lock_guard guard(hall_->mutex);
    hall_->seats.push_back(&seat_);
  }
  ~SqliteConnection() override {
    handle_.reset();  // rolls back
    const std::lock_guard guard(hall_->mutex);
    std::erase(hall_->seats, &seat_);
    ++hall_->changes;
    hall_->changed.notify_all();
  }

  Answer execute(const std::string& sql) override {
    const std::vector<std::string> words = words_of(sql);
    // The engine's own pragma would put a handler of its own in place of ours, which then could not be seen waiting.
    if (const std::optional<milliseconds> limit = time_limit(words)) {
      limit_ = *limit;
      if (limit_ == for_ever) limit_.reset();
      return {};
    }
    if (words == std::vector<std::string>{"pragma", "busy_timeout"}) {
      Answer answer;
      answer.has_rows = true;
      answer.rows.push_back({std::to_string(limit_.value_or(for_ever).count())});
      return answer;
    }
    {
      const std::lock_guard guard(hall_->mutex);
      if (interrupted_) throw gone();
      seat_.running = true;
      seat_.waiting = seat_.wants_write = false;
      tries_at_ = hall_->changes;
    }
    had_transaction_ = sqlite3_txn_state(handle_.get(), nullptr) != SQLITE_TXN_NONE;
    asked_ = false;
    Answer answer;
    const char* rest = sql.c_str();
    while (answer.well() && *rest != '\0') answer = run_one(rest, words);
    const int state = sqlite3_txn_state(handle_.get(), nullptr);
    const std::lock_guard guard(hall_->mutex);
    seat_.running = seat_.waiting = false;
    seat_.state = state;
    ++hall_->changes;
    hall_->changed.notify_all();
    if (interrupted_ && !answer.well()) throw gone();
    return answer;
  }

  void interrupt() noexcept override {
    {
      const std::lock_guard guard(hall_->mutex);
      interrupted_ = true;
      hall_->changed.notify_all();
    }
    sqlite3_interrupt(handle_.get());
  }
  const std::string& name() const noexcept override { return seat_.name; }

 private:
  Error gone() const { return {ErrorKind::lost, "the session " + seat_.name + " was interrupted"}; }

  // `pragma busy_timeout = N`
  static std::optional<milliseconds> time_limit(const std::vector<std::string>& words) {
    if (words.size() != 3 || words[0] != "pragma" || words[1] != "busy_timeout") return std::nullopt;
    if (words[2].size() > 10 || words[2].find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
    return milliseconds(std::stol(words[2]));
  }

  // Whether SQLite is to try again. Without a limit, for ever: it is the lab that decides when a wait is over.
  static int busy(void* self, int /*count*/) { return static_cast<SqliteConnection*>(self)->try_again_soon() ? 1 : 0; }

  bool try_again_soon() {
    const int state = sqlite3_txn_state(handle_.get(), nullptr);
    std::unique_lock guard(hall_->mutex);
    const auto now = Clock::now();
    if (!asked_) asked_since_ = now;
    asked_ = true;
    if (interrupted_ || (limit_ && now - asked_since_ >= *limit_)) return false;
    seat_.waiting = true;
    seat_.state = state;
    seat_.tried = tries_at_;
    auto until = now + try_again;
    if (limit_) until = std::min(until, asked_since_ + *limit_);
    hall_->changed.wait_until(guard, until, [&] { return interrupted_ || hall_->changes != tries_at_; });
    tries_at_ = hall_->changes;
    return true;
  }

  // One statement; `rest` is moved behind it.
  Answer run_one(const char*& rest, const std::vector<std::string>& words) {
    sqlite3_stmt* raw = nullptr;
    if (sqlite3_prepare_v2(handle_.get(), rest, -1, &raw, &rest) != SQLITE_OK) {
      rest += std::strlen(rest);
      return failure();
    }
    Answer answer;
    if (raw == nullptr) return answer;  // blank, or a comment
    const std::unique_ptr<sqlite3_stmt, decltype(&sqlite3_finalize)> statement(raw, &sqlite3_finalize);
    const bool writes = sqlite3_stmt_readonly(raw) == 0;
    {
      const std::lock_guard guard(hall_->mutex);
      seat_.wants_write = writes;
    }
    const int columns = sqlite3_column_count(raw);
    answer.has_rows = columns > 0;
    int result = SQLITE_ROW;
    while ((result = sqlite3_step(raw)) == SQLITE_ROW) {
      Row& row = answer.rows.emplace_back();
      for (int i = 0; i < columns; ++i) {
        const void* const text = sqlite3_column_text(raw, i);
        const auto size = static_cast<std::size_t>(sqlite3_column_bytes(raw, i));
        row.push_back(text == nullptr
                          ? std::nullopt
                          : std::optional<std::string>(std::in_place, static_cast<const char*>(text), size));
      }
    }
    if (result != SQLITE_DONE) return failure();
    if (writes && changes_rows(words)) answer.affected = static_cast<std::uint64_t>(sqlite3_changes(handle_.get()));
    return answer;
  }

  Answer failure() const {
    Answer answer;
    const int code = sqlite3_extended_errcode(handle_.get());
    answer.message = sqlite3_errmsg(handle_.get());
    answer.kind = kind_of(code);
    // All that 5 can mean is said by the kind; 517 is something else.
    answer.code = std::to_string((code & 0xFF) == SQLITE_BUSY && code != SQLITE_BUSY_SNAPSHOT ? SQLITE_BUSY : code);
    return answer;
  }

  Answer::Kind kind_of(int code) const {
    using Kind = Answer::Kind;
    if (code == SQLITE_BUSY_SNAPSHOT) return Kind::serialization;
    if ((code & 0xFF) != SQLITE_BUSY && (code & 0xFF) != SQLITE_LOCKED) return Kind::error;
    if (limit_ && *limit_ == milliseconds::zero()) return Kind::busy;
    if (asked_) return Kind::timeout;
    // It has read, and wants to write what another writes: to let it wait would keep that one from its commit.
    return had_transaction_ ? Kind::deadlock : Kind::busy;
  }

  const std::shared_ptr<Hall> hall_;
  Handle handle_;
  Hall::Seat seat_;                    // guarded by the hall
  bool interrupted_ = false;           // so is this
  std::optional<milliseconds> limit_;  // of a wait; none: for ever
  bool had_transaction_ = false;       // before the statement that runs
  bool asked_ = false;                 // its handler was
  Clock::time_point asked_since_{};    // if so
  std::uint64_t tries_at_ = 0;         // Hall::changes when it began its last try
};

class SqliteDatabase final : public Database {
 public:
  // Of no folder: makes a temporary one.
  explicit SqliteDatabase(fs::path folder) : folder_(std::move(folder)), temporary_(folder_.empty()) {}
  ~SqliteDatabase() override { clear_room(); }

  std::string_view engine() const noexcept override { return "sqlite"; }
  const std::string& version() const noexcept override { return version_; }

  void make_room(std::chrono::nanoseconds patience) override {
    if (temporary_) {
      if (folder_.empty()) folder_ = make_folder();
    } else {
      take_turn(patience);
      made_ = false;
      refuse_a_strangers();
    }
    remove_file();
    made_ = true;
    const Handle handle = open_file(file(), SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    if (sqlite3_exec(handle.get(), ("CREATE TABLE " + marker + " (at TEXT)").c_str(), nullptr, nullptr, nullptr) !=
        SQLITE_OK) {
      throw Error(ErrorKind::unavailable, "cannot write " + file().string() + ": " + sqlite3_errmsg(handle.get()),
                  sqlite3_extended_errcode(handle.get()));
    }
  }

  void remember(const std::vector<std::string>&) override {}  // all that a scenario changes is in the file

  void clear_room() noexcept override {
    if (std::exchange(made_, false)) remove_file();
    if (temporary_ && !folder_.empty()) {
      std::error_code ignored;
      fs::remove(folder_, ignored);
      folder_.clear();
    }
    if (turn_ >= 0) close(std::exchange(turn_, -1));
  }

  std::unique_ptr<Connection> connect(const std::string& name, bool /*reusable*/) override {
    if (!made_) throw Error(ErrorKind::not_provisioned, "the lab's file is not made");
    return std::make_unique<SqliteConnection>(hall_, file(), name);
  }

  View look(TimePoint /*since*/) override {
    View view;
    const std::lock_guard guard(hall_->mutex);
    for (const Hall::Seat* const seat : hall_->seats) {
      if (seat->state != SQLITE_TXN_NONE) {
        view.locks.push_back({seat->name, "database", seat->state == SQLITE_TXN_WRITE ? "RESERVED" : "SHARED", true});
      }
      if (!seat->waiting) continue;
      const std::vector<std::string> blockers = blockers_of(*seat);
      if (blockers.empty()) continue;  // it will see with its next try, or has seen
      for (const std::string& blocker : blockers) add_wait(view, seat->name, blocker, "database");
      const bool commits = seat->state == SQLITE_TXN_WRITE;
      view.locks.push_back({seat->name, "database",
                            commits             ? "EXCLUSIVE"
                            : seat->wants_write ? "RESERVED"
                                                : "SHARED",
                            false});
    }
    return view;
  }

 private:
  fs::path file() const { return folder_ / (room + ".db"); }

  std::vector<std::string> blockers_of(const Hall::Seat& waiter) const {
    std::vector<std::string> found;
    bool settled = waiter.tried == hall_->changes;  // it has tried since the last of us changed anything
    const auto collect = [&](int state) {
      for (const Hall::Seat* const seat : hall_->seats) {
        if (seat == &waiter) continue;
        if (seat->running && !seat->waiting) settled = false;
        if (seat->state == state) found.push_back(seat->name);
      }
    };
    // Who writes and waits wants to commit, and those who read keep it from that. Others are kept out by who writes;
    // if nobody does, by those who read, if they want everything at once (BEGIN EXCLUSIVE).
    const bool commits = waiter.state == SQLITE_TXN_WRITE;
    collect(commits ? SQLITE_TXN_READ : SQLITE_TXN_WRITE);
    if (found.empty() && settled && !commits && waiter.wants_write) collect(SQLITE_TXN_READ);
    if (found.empty() && settled) found.push_back("outsider");
    return found;
  }

  static fs::path make_folder() {
    const std::string begin = room + ".";
    remove_leftovers(fs::temp_directory_path(), begin);
    std::string name = (fs::temp_directory_path() / (begin + std::to_string(getpid()) + ".XXXXXX")).string();
    if (mkdtemp(name.data()) == nullptr) {
      throw Error(ErrorKind::unavailable, "cannot make a folder beside " + name + ": " + std::strerror(errno), errno);
    }
    return name;
  }

  // One run at a time in a folder: a lock on the folder, which ends with this process.
  void take_turn(std::chrono::nanoseconds patience) {
    if (turn_ >= 0) return;
    turn_ = open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (turn_ < 0) {
      throw Error(errno == EACCES ? ErrorKind::denied : ErrorKind::unavailable,
                  "cannot open the folder " + folder_.string() + ": " + std::strerror(errno), errno);
    }
    const auto deadline = Clock::now() + patience;
    while (flock(turn_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) {
        const int error = errno;
        close(std::exchange(turn_, -1));
        throw Error(ErrorKind::unavailable, "cannot lock " + folder_.string() + ": " + std::strerror(error), error);
      }
      if (Clock::now() >= deadline) {
        close(std::exchange(turn_, -1));
        throw Error(ErrorKind::busy, "another run of the lab is going on in " + folder_.string());
      }
      std::this_thread::sleep_for(milliseconds(10));
    }
  }

  void refuse_a_strangers() const {
    std::error_code error;
    if (!fs::exists(file(), error) || fs::file_size(file(), error) == 0) return;  // nothing of anybody's is in there
    const Handle handle = open_file(file(), SQLITE_OPEN_READWRITE);               // to roll back what a killed run left
    sqlite3_busy_timeout(handle.get(), 2000);
    sqlite3_stmt* raw = nullptr;
    const std::string sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '" + marker + "'";
    sqlite3_prepare_v2(handle.get(), sql.c_str(), -1, &raw, nullptr);
    const bool ours = raw != nullptr && sqlite3_step(raw) == SQLITE_ROW;
    sqlite3_finalize(raw);
    if (!ours) {
      throw Error(ErrorKind::incompatible, "there is a file " + file().string() +
                                               " that the lab has not made: move it away, or name another folder");
    }
  }

  void remove_file() const noexcept {
    for (const char* const ending : {"", "-journal", "-wal", "-shm"}) {
      std::error_code ignored;
      fs::remove(fs::path(file().string() + ending), ignored);
    }
  }

  fs::path folder_;
  const bool temporary_;
  bool made_ = false;
  int turn_ = -1;
  const std::string version_ = sqlite3_libversion();
  const std::shared_ptr<Hall> hall_ = std::make_shared<Hall>();
};

}  // namespace

std::unique_ptr<Database> open_sqlite(const spi::Url& url) {
  if (!url.options.empty()) {
    throw Error(ErrorKind::invalid_argument, "sqlite: has no option \"" + url.options.front().first + "\"");
  }
  if (url.rest.empty()) return std::make_unique<SqliteDatabase>(fs::path());
  if (!url.rest.starts_with("///")) {
    throw Error(ErrorKind::invalid_argument,
                "write sqlite: for a file of the lab's own, or sqlite:///folder for one in that folder");
  }
  const fs::path folder = spi::Url::decode(url.rest.substr(2));
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw Error(ErrorKind::unavailable, "there is no folder " + folder.string() + ": make it, or write sqlite:");
  }
  return std::make_unique<SqliteDatabase>(folder);
}

}  // namespace hierlock::lab
