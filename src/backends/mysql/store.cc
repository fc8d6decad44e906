#include "mysql/store.h"

#include <optional>
#include <utility>
#include <vector>

#include <hierlock/mysql.h>
#include <hierlock/spi/store.h>

#include "mysql/doctor.h"
#include "mysql/fences.h"
#include "mysql/fitness.h"
#include "mysql/names.h"
#include "mysql/notice_sql.h"
#include "mysql/schema.h"
#include "mysql/session.h"
#include "mysql/statements.h"
#include "mysql/views.h"
#include "mysql_client/error_codes.h"
#include "plan/buckets.h"
#include "remote/gate.h"
#include "remote/name_driver.h"
#include "remote/opening.h"
#include "remote/session_driver.h"

namespace hierlock::mysql {

namespace {

using remote::Ask;
using remote::Cell;
using remote::Interrupter;
using remote::LockWait;
using remote::Session;
using std::chrono::seconds;

constexpr seconds connect_time{5}, look_at_server_interval{3}, longest_try{2};
constexpr std::size_t most_rows = 65535;  // placeholders of a prepared statement, on both servers
using codes::lock_wait_timeout, codes::deadlock, codes::duplicate_key, codes::no_such_session;

// Rows of one table, each read by its primary key in one transaction (H3, H4). And names, by GET_LOCK, on sessions of
// the same kind.
class RowStore final : public remote::SessionStore, public remote::NameStore {
 public:
  RowStore(Options options, remote::Opening opening) : options_(std::move(options)), opening_(std::move(opening)) {}

  void attach(remote::SessionServices& services) override {
    services_ = &services;
    notices_.emplace(notice_sql_, notice_channel_, services.pool());
    try {
      services.pool().add(first_session());
    } catch (const Error& error) {
      opening_.failed(error, options_.url);
    }
  }

  Capabilities capabilities() const override {
    return {.wakes_waiters = true, .extends = true, .across_processes = true, .across_machines = true, .leases = true};
  }
  void check(const spi::Plan& plan) const override {
    plan::check_rows(plan, table_.levels, "mysql");
    if (plan.steps().size() > most_rows) cells(plan);
  }
  Cell cell_of(Space, std::uint8_t level, std::string_view key, Mode mode) const override {
    return {level, plan::bucket_of(key, table_.buckets), plan::row_mode(mode)};
  }

  // --- looking -------------------------------------------------------------------------------------------

  remote::NoticeStore& notices() override { return *notices_; }
  std::optional<View> waits(Deadline& limit) override;
  remote::Look look(Clock::time_point by) override { return looker_.look(by); }
  remote::RowNames row_names() const override { return remote::names_of_rows(table_.buckets); }
  void describe(Snapshot& snapshot) const override {
    snapshot.store = options_.url;
    snapshot.table = options_.layout.table;
  }
  void housekeep(Deadline& limit) override;
  void end(Clock::time_point by) noexcept override { looker_.close(by); }

  // --- locking -------------------------------------------------------------------------------------------

  std::unique_ptr<Session> connect(WaitLimit& limit) override {
    const std::uint64_t given = fences_.highest();
    Ready ready = mysql::connect(options_, limit, Floor::asked);
    return session(ready, fences_.check(*ready.connection, ready.server, given, ready.floor, limit));
  }
  bool interrupt(Session& side, const Session& waiting, Deadline& limit) override {
    const Reply reply = connection_of(side).query("KILL QUERY " + std::to_string(waiting.id()), limit);
    return reply.well() || reply.code == no_such_session;
  }
  std::vector<Cell> cells(const spi::Plan& plan) const override;
  std::int64_t fence_of(const remote::LockReply& reply, const Session& session) override {
    return fence_of(mint_of(session), reply.minted);
  }
  Error failure(const remote::LockReply& reply, const std::string& doing) const override {
    return error_of(static_cast<unsigned>(reply.code), reply.message, doing);
  }
  void confirm_kept(Session& session, const remote::LockReply& reply, WaitLimit& limit) override;

  bool cells_may_be_missing() const override { return true; }
  bool makes_missing() const override { return options_.layout.lazy; }
  Error missing(std::span<const Cell> cells, const remote::LockReply& reply) const override;
  bool make_missing(Session& session, std::span<const Cell> cells, const remote::LockReply& reply, const Ask& ask,
                    Interrupter& interrupter) override;

  // --- names ---------------------------------------------------------------------------------------------

  std::unique_ptr<remote::NameSession> name_session(std::unique_ptr<Session> session, Use use,
                                                    WaitLimit& limit) override;
  Error name_failure(std::int64_t code, const std::string& message, const std::string& doing) const override {
    return error_of(static_cast<unsigned>(code), message, doing);
  }
  std::optional<Holders> holders(Session& side, std::span<const remote::LockName> names, Deadline& limit) override {
    const NameRoom room = read_room(connection_of(side), limit);
    return mysql::holders(connection_of(side), room, names, limit);
  }
  std::optional<std::uint32_t> slots_of_holder(Session& side, const remote::LockName& name, std::uint32_t slot,
                                               Deadline& limit) override {
    const NameRoom room = read_room(connection_of(side), limit);
    return mysql::slots_of_holder(connection_of(side), room, name, slot, limit);
  }

 private:
  class NameMinter;
  std::int64_t fence_of(Mint& mint, std::uint64_t minted);
  NameRoom read_room(Connection& connection, WaitLimit& limit) const {
    const Reply reply = connection.ask(ask_for_room(options_.layout.table), limit);
    return {endpoint::text(reply.rows.at(0).at(0)), endpoint::text(reply.rows.at(0).at(1))};
  }
  std::unique_ptr<Session> first_session();
  std::unique_ptr<Session> session(Ready& ready, std::shared_ptr<Mint> mint) const {
    return std::make_unique<RowSession>(std::move(ready.connection), ready.in_group, std::move(mint), table_,
                                        services_->open_sessions());
  }

  const Options options_;
  const remote::Opening opening_;
  BucketTable table_;
  Fences fences_{options_.layout};
  remote::Looker looker_{[this](Deadline& limit) { return connect_to_look(options_, limit); },
                         options_.views ? remote::Looker::Views::on : remote::Looker::Views::off};
  remote::SessionServices* services_ = nullptr;
  const NoticeStatements notice_sql_{options_.layout.notices_table()};
  NoticeChannel notice_channel_;
  std::optional<remote::NoticeTable> notices_;
  Clock::time_point looked_at_server_ = Clock::now();  // the housekeeping thread's own
};

std::unique_ptr<Session> RowStore::first_session() {
  Deadline to_connect = opening_.deadline();
  if (!to_connect.next()) throw Error(ErrorKind::unavailable, "there was no time to connect to " + options_.url);
  Ready ready = mysql::connect(options_, to_connect);
  Deadline to_read = opening_.deadline();
  table_ = read_or_make(*ready.connection, options_, to_read);
  return session(ready, fences_.check(*ready.connection, ready.server, to_read));
}

std::vector<Cell> RowStore::cells(const spi::Plan& plan) const {
  const std::vector<plan::Row> rows = plan::rows_of(plan, table_.buckets);
  if (rows.size() > most_rows) {
    throw Error(ErrorKind::invalid_argument, "these targets and what is above them are " + std::to_string(rows.size()) +
                                                 " rows, and a statement locks at most " + std::to_string(most_rows) +
                                                 ": lock fewer, or what is above them");
  }
  std::vector<Cell> cells;
  cells.reserve(rows.size());
  for (const plan::Row& row : rows) cells.push_back({row.level, row.bucket, row.mode});
  return cells;
}

std::int64_t RowStore::fence_of(Mint& mint, std::uint64_t minted) {
  const std::uint64_t number = fences_.minted(mint, minted);
  if (number > mint.limit) {
    Deadline soon(connect_time);
    std::optional<Error> why;
    const bool raised = services_->pool().on_the_side(
        [&](Session& side) {
          return side.server() == mint.name && fences_.raise(connection_of(side), mint, soon, &why);
        },
        soon, &why);
    if (!raised || number > mint.limit) {
      if (why && why->kind() == ErrorKind::denied) throw Error(*why);
      throw Error(ErrorKind::unavailable, "the lock was given back: the fence floor in " +
                                              options_.layout.settings_table() +
                                              " could not be raised. Try again; see doctor if this goes on");
    }
  }
  return static_cast<std::int64_t>(number) * fence_step;
}

// --- names -----------------------------------------------------------------------------------------------

class RowStore::NameMinter final : public remote::Minter {
 public:
  NameMinter(RowStore& store, std::shared_ptr<Mint> mint) : store_(store), mint_(std::move(mint)) {}
  std::int64_t fence_of(std::uint64_t minted) override { return store_.fence_of(*mint_, minted); }

 private:
  RowStore& store_;
  const std::shared_ptr<Mint> mint_;
};

std::unique_ptr<remote::NameSession> RowStore::name_session(std::unique_ptr<Session> session, Use use,
                                                            WaitLimit& limit) {
  Connection& connection = connection_of(*session);
  NameRoom room = read_room(connection, limit);
  if (use == Use::usher) connection.ask(usher_timeout, limit);
  auto minter = std::make_shared<NameMinter>(*this, row_session(*session).shared_mint());
  auto made = std::make_unique<GetLockSession>(std::move(session), std::move(room), std::move(minter));
  if (use == Use::keeper) made->prepare(limit);
  return made;
}

// --- looking ---------------------------------------------------------------------------------------------

// In a transaction, for MariaDB.
std::optional<View> RowStore::waits(Deadline& limit) {
  View view;
  if (!options_.views) return view;
  const bool asked = services_->pool().on_the_side(
      [&](Session& side) {
        Connection& connection = connection_of(side);
        connection.query("SELECT 1 FROM `" + options_.layout.settings_table() + "`", limit);
        view = mysql::look(connection, options_, For::deadlocks, limit);
        connection.query("COMMIT", limit);
        return !connection.broken();
      },
      limit);
  return asked ? std::optional(std::move(view)) : std::nullopt;
}

// Heartbeats ask idle sessions and those of long locks whether the server is still the primary. A session that is used
// all the time is never asked; for it the side session is, which is on the same server. If another offset is recorded
// for the server, it was not the primary for a while, and these sessions have survived that (fences.h).
void RowStore::housekeep(Deadline& limit) {
  remote::SessionPool& pool = services_->pool();
  if (fences_.due()) {
    pool.on_the_side([&](Session& side) { return fences_.raise(connection_of(side), mint_of(side), limit); }, limit);
  }
  const Clock::time_point now = Clock::now();
  if (now - looked_at_server_ < look_at_server_interval || !pool.used_since(looked_at_server_)) return;
  looked_at_server_ = now;
  pool.on_the_side(
      [&](Session& side) {
        Connection& connection = connection_of(side);
        const std::string questions[] = {"SELECT " + row_session(side).fitness(),
                                         floor_question(options_.layout, connection.mariadb()), "COMMIT"};
        const std::vector<Reply> replies = connection.query_all(questions, limit);
        if (!replies.front().well() || connection.broken()) return false;
        const std::optional<FenceAnswer> answer = replies.size() > 1 ? read_floor(replies[1]) : std::nullopt;
        const bool mints = !answer || (answer->row.server == answer->server &&
                                       answer->row.offset == mint_of(side).offset);  // none: the settings are gone
        if (mints && is_fit(replies.front().rows.at(0).at(0))) return true;
        pool.distrust();
        services_->lose_all_on(side.server());
        side.give_up();  // the next look is at the server that is the primary by then
        return true;
      },
      limit);
}

// --- extends, missing rows -------------------------------------------------------------------------------

// After 1205 the rest of the lock is still held, unless the server is set up to roll back the whole transaction.
// MariaDB says 1205 for NOWAIT, too, and rolls back then, too.
void RowStore::confirm_kept(Session& session, const remote::LockReply& reply, WaitLimit& limit) {
  if (reply.code != codes::lock_wait_timeout) return;
  const Reply said = connection_of(session).query("SELECT @@innodb_rollback_on_timeout", limit);
  if (said.well() && said.rows.at(0).at(0) == "0") return;
  session.give_up();
  throw Error(ErrorKind::lost,
              "the lock was lost while it was extended: the server rolls back everything that a transaction holds when "
              "one of its statements waits too long, or would have to wait. Set innodb_rollback_on_timeout=OFF there");
}

Error RowStore::missing(std::span<const Cell> cells, const remote::LockReply& reply) const {
  std::size_t first = 0;
  while (first + 1 < cells.size() && first < reply.there.size() && reply.there[first]) ++first;
  return {ErrorKind::not_provisioned,
          "level " + std::to_string(cells[first].level) + ", bucket " + std::to_string(cells[first].key) +
              " is not in the table " + options_.layout.table + ", nothing was locked: " + how_to_provision(options_)};
}

// Outside of any lock's transaction, one after the other in canonical order, each committed before the next (H11).
bool RowStore::make_missing(Session& session, std::span<const Cell> cells, const remote::LockReply& reply,
                            const Ask& ask, Interrupter& interrupter) {
  Connection& connection = connection_of(session);
  // Unless it comes to the end, the session is not set as others need it.
  struct Settings {
    Connection& connection;
    bool kept = false;
    ~Settings() {
      if (!kept) connection.give_up();
    }
  } settings{connection};
  enum class Late : std::uint8_t { fine, again };  // what the server's own timeout means
  const auto say = [&](std::string_view sql, Late late) {
    LockWait wait(ask, connection.id(), interrupter, longest_try, LockWait::Victim::never);
    Reply said = connection.query(sql, wait);
    while (said.code == lock_wait_timeout && late == Late::again && !wait.ended()) said = connection.query(sql, wait);
    if (said.well()) return true;
    if (wait.ended() && wait.cancelled()) throw remote::cancelled_error("making rows for", ask.plan);
    if (wait.ended() && !(ask.request.no_wait && connection.broken())) return false;
    if (late == Late::fine && (said.code == lock_wait_timeout || said.code == duplicate_key || said.code == deadlock)) {
      return true;
    }
    throw error_of(said, "make a missing row of " + options_.layout.table);
  };
  if (!say(wait_shortly, Late::again)) return false;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (reply.there[i]) continue;
    // If it cannot be made, another session is making it, or has made it.
    const std::string row = make_row(table_, cells[i].level, static_cast<std::uint32_t>(cells[i].key));
    if (!say(row, Late::fine) || !say("COMMIT", Late::again)) return false;
  }
  if (!say(wait_usually, Late::again)) return false;
  return settings.kept = true;
}

}  // namespace

std::unique_ptr<spi::Backend> open(const spi::Url& url, const OpenOptions& options) {
  Options read = read_url(url);
  read.only_look = !options.create;
  const std::size_t connections = read.connections;
  const remote::GateOptions gate{.owners = options.owners, .publish_after = read.publish_after, .hand_over = read.gate};
  const remote::SessionDriver::Timing timing{.lease = lease};
  auto store = std::make_unique<RowStore>(std::move(read), remote::Opening(options, connect_time));
  RowStore& names = *store;
  auto paths = std::make_unique<remote::SessionDriver>(std::move(store), connections, timing);
  return remote::make_gate(std::make_unique<remote::NameDriver>(std::move(paths), names, timing), gate);
}

void enable() {
  spi::add_store("mysql", {.open = open, .provision = provision, .doctor = doctor, .statements = statements});
}

}  // namespace hierlock::mysql
