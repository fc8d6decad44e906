#include "mysql/views.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <ranges>
#include <set>
#include <thread>

#include "mysql/notice_sql.h"
#include "mysql/schema.h"
#include "mysql/statements.h"

namespace hierlock::mysql {

namespace {

using endpoint::number, endpoint::text;
using std::chrono::milliseconds;

constexpr Most most_read;
constexpr std::size_t most_transactions = 5'000;  // of which MariaDB's copy surely has all
constexpr milliseconds server_time{1500};
// trx0i_s.cc of MariaDB: the copy is made anew when the last reader has been gone for so long.
constexpr milliseconds copy_kept{100}, copy_kept_at_most{110};
constexpr int tries_for_a_new_copy = 3;

// `127.0.0.1:36754`, as MariaDB has it, without the port.
std::string without_port(const std::string& host) { return host.substr(0, host.rfind(':')); }

struct Unseen {
  Reply reply;
};

// Asks for a part of a view. Throws Unseen.
Reply ask(Connection& connection, const std::string& what, std::size_t most, WaitLimit& limit) {
  const std::string select = limited_select(connection.mariadb(), server_time);
  Reply reply = connection.query(select + what + " LIMIT " + std::to_string(most), limit);
  if (!reply.well()) throw Unseen{std::move(reply)};
  return reply;
}

View not_seen(Connection& connection, const Reply& reply, const Options& options, WaitLimit& limit) {
  View view;
  view.denied = lacks_right(reply.code);
  view.note = view.denied
                  ? "this account may not see who waits for whom, so only what processes have written down about "
                    "themselves is shown: " +
                        grant_views(connection.mariadb(), account_of(connection, options, limit))
                  : "the server's views of who waits for whom could not be read: " + reply.words();
  return view;
}

// --- MySQL -----------------------------------------------------------------------------------------------------

View look_at_mysql(Connection& connection, const std::string& table, For purpose, WaitLimit& limit) {
  if (ask(connection, "@@performance_schema", 1, limit).rows.at(0).at(0) != "1") {
    View view;
    view.note =
        "this server runs without performance_schema, so only what processes have written down about themselves is "
        "shown: start it with performance_schema=ON";
    return view;
  }
  const Reply locks = ask(
      connection,
      "l.ENGINE_LOCK_ID, l.ENGINE_TRANSACTION_ID, t.PROCESSLIST_ID, l.LOCK_TYPE, l.LOCK_MODE, l.LOCK_STATUS, "
      "l.LOCK_DATA, t.PROCESSLIST_USER, t.PROCESSLIST_HOST, t.PROCESSLIST_TIME FROM performance_schema.data_locks l "
      "LEFT JOIN performance_schema.threads t ON t.THREAD_ID=l.THREAD_ID WHERE l.OBJECT_SCHEMA=DATABASE() AND "
      "l.OBJECT_NAME=" +
          stored_name(table),
      most_read.locks, limit);
  Reply waits;
  const bool anybody =
      std::any_of(locks.rows.begin(), locks.rows.end(), [](const auto& row) { return row.at(5) == "WAITING"; });
  if (anybody) {
    waits =
        ask(connection, "REQUESTING_ENGINE_LOCK_ID, BLOCKING_ENGINE_LOCK_ID FROM performance_schema.data_lock_waits",
            most_read.waits, limit);
  }
  View view = read_mysql(locks, waits, most_read);
  if (view.sessions.empty() || purpose == For::deadlocks) return view;
  const Reply attributes = connection.query(
      limited_select(false, server_time) +
          "PROCESSLIST_ID, ATTR_NAME, ATTR_VALUE FROM performance_schema.session_connect_attrs WHERE ATTR_NAME IN "
          "('_pid', 'program_name', '" +
          host_attribute + "') AND PROCESSLIST_ID IN (" + endpoint::listed(view.sessions | std::views::keys) + ")",
      limit);
  if (attributes.well()) read_attributes(attributes, view);
  return view;
}

// --- MariaDB ---------------------------------------------------------------------------------------------------

// A number that no other statement has: whoever makes the copy has it in there.
std::string next_mark() {
  static std::atomic<std::uint64_t> last{
      static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count())};
  return std::to_string(last.fetch_add(1));
}

View look_at_mariadb(Connection& connection, const std::string& table, For purpose, WaitLimit& limit) {
  for (int tries = 1;; ++tries) {
    const std::string mark = next_mark();
    const Reply transactions =
        ask(connection,
            "'" + mark +
                "', t.trx_id, t.trx_mysql_thread_id, t.trx_requested_lock_id, t.trx_rows_locked, p.USER, p.HOST, "
                "p.TIME_MS, t.trx_mysql_thread_id=CONNECTION_ID() AND INSTR(t.trx_query, '" +
                mark +
                "') FROM information_schema.INNODB_TRX t LEFT JOIN information_schema.PROCESSLIST p ON "
                "p.ID=t.trx_mysql_thread_id",
            most_read.locks, limit);
    const bool fresh = std::any_of(transactions.rows.begin(), transactions.rows.end(),
                                   [](const auto& row) { return number<int>(row.at(8)) > 0; });
    if (!fresh && purpose == For::people && tries < tries_for_a_new_copy) {
      const auto left = limit.next();
      if (left && *left > copy_kept_at_most) {
        std::this_thread::sleep_for(copy_kept_at_most);
        continue;
      }
    }
    const Reply locks = ask(
        connection,
        "lock_id, lock_trx_id, lock_mode, lock_data FROM information_schema.INNODB_LOCKS WHERE lock_type='RECORD' AND "
        "lock_table=CONCAT('`', REPLACE(DATABASE(), '`', '``'), '`.`', " +
            stored_name(table) + ", '`')",
        most_read.locks, limit);
    const Reply waits = ask(
        connection, "requested_lock_id, blocking_lock_id, blocking_trx_id FROM information_schema.INNODB_LOCK_WAITS",
        most_read.waits, limit);
    View view = read_mariadb(transactions, locks, waits, most_read);
    view.next = copy_kept_at_most;
    // The copy has room for some ten thousand.
    if (!fresh || transactions.rows.size() > most_transactions) view.with_locks.reset();
    if (!fresh) {
      view.note =
          "who waits for whom may have changed meanwhile: the server's views are read so often that it does not "
          "make them anew; they need " +
          std::to_string(copy_kept.count()) + " ms without a reader";
    }
    return view;
  }
}

}  // namespace

std::string limited_select(bool mariadb, milliseconds time) {
  if (!mariadb) return "SELECT /*+ MAX_EXECUTION_TIME(" + std::to_string(time.count()) + ") */ ";
  return "SET STATEMENT max_statement_time=" + std::to_string(static_cast<double>(time.count()) / 1000) +
         " FOR SELECT ";
}

std::string grant_views(bool mariadb, const std::string& account) {
  return mariadb ? "GRANT PROCESS ON *.* TO " + account : "GRANT SELECT ON performance_schema.* TO " + account;
}

std::string account_of(Connection& connection, const Options& options, WaitLimit& limit) {
  const Reply reply = connection.query("SELECT CURRENT_USER()", limit);
  const bool said = reply.well() && !reply.rows.empty() && reply.rows[0].at(0);
  return quoted_account(said ? *reply.rows[0][0] : options.address.user + "@%");
}

View look(Connection& connection, const Options& options, For purpose, WaitLimit& limit) {
  try {
    return (connection.mariadb() ? look_at_mariadb : look_at_mysql)(connection, options.layout.table, purpose, limit);
  } catch (const Unseen& unseen) {
    return not_seen(connection, unseen.reply, options, limit);
  }
}

namespace {

class ViewSession final : public remote::LookSession {
 public:
  ViewSession(const Options& options, Deadline& limit)
      : options_(options), connection_(connect(options, limit).connection) {}

  bool usable() const noexcept override { return !connection_->broken() && !connection_->hung_up(); }
  std::optional<std::vector<remote::Notice>> notices(std::string& why, Deadline& limit) override {
    const Reply told = connection_->query(NoticeStatements(options_.layout.notices_table()).read_all(), limit);
    if (told.well()) return remote::read_notices(told.rows);
    why = told.words();
    // A transaction, in which MariaDB then finds this session.
    connection_->query("SELECT 1 FROM `" + options_.layout.settings_table() + "`", limit);
    return std::nullopt;
  }
  View view(Deadline& limit) override { return mysql::look(*connection_, options_, For::people, limit); }
  std::set<std::uint64_t> ended(const std::set<std::uint64_t>& sessions, Deadline& limit) override {
    if (sessions.empty()) return {};
    const char* const from = connection_->mariadb()
                                 ? "ID FROM information_schema.PROCESSLIST WHERE ID IN ("
                                 : "PROCESSLIST_ID FROM performance_schema.threads WHERE PROCESSLIST_ID IN (";
    const Reply reply = connection_->query(
        limited_select(connection_->mariadb(), server_time) + from + endpoint::listed(sessions) + ")", limit);
    if (!reply.well()) return {};
    std::set<std::uint64_t> ended = sessions;
    for (const auto& row : reply.rows) ended.erase(number(row.at(0)));
    return ended;
  }
  void end_reading(Deadline& limit) override { connection_->query("COMMIT", limit); }

 private:
  const Options& options_;
  const std::unique_ptr<Connection> connection_;
};

}  // namespace

std::unique_ptr<remote::LookSession> connect_to_look(const Options& options, Deadline& limit) {
  return std::make_unique<ViewSession>(options, limit);
}

// --- without a server ------------------------------------------------------------------------------------------

std::string quoted_account(const std::string& current_user) {
  const auto quoted = [](const std::string& name) {
    std::string out = "'";
    for (const char c : name) out += c == '\'' ? "\'\'" : c == '\\' ? "\\\\" : std::string(1, c);
    return out + "'";
  };
  const std::size_t at = current_user.rfind('@');  // a user may have one, a host has none
  return quoted(current_user.substr(0, at)) + "@" + quoted(at == current_user.npos ? "%" : current_user.substr(at + 1));
}

std::optional<Cell> read_row(std::string_view lock_data, Mode mode) {
  Cell row{0, 0, mode};
  std::uint32_t bucket = 0;
  const char* const end = lock_data.data() + lock_data.size();
  auto read = std::from_chars(lock_data.data(), end, row.level);
  if (read.ec != std::errc{} || !std::string_view(read.ptr, end).starts_with(", ")) return std::nullopt;
  read = std::from_chars(read.ptr + 2, end, bucket);
  if (read.ec != std::errc{} || read.ptr != end) return std::nullopt;
  row.key = bucket;
  return row;
}

namespace {

// A wait that was cut off would look like none. With the note, the view proves nothing.
void note_cut(const Reply& part, std::size_t most, View& view) {
  if (part.rows.size() < most) return;
  view.note = "the server has more than " + std::to_string(most) + " locks or waits: not all of them were read";
}

}  // namespace

View read_mysql(const Reply& locks, const Reply& waits, const Most& most) {
  View view;
  view.seen = true;
  view.all_holders = locks.rows.size() < most.locks;
  note_cut(locks, most.locks, view);
  note_cut(waits, most.waits, view);
  // A lock that another had to write down for its holder (that of a row just inserted) bears the other's thread. The
  // lock on the table, which comes before any on a row, bears the right one.
  std::map<std::string, std::uint64_t> sessions;
  for (const auto& row : locks.rows) {
    if (row.size() != 10) continue;
    const std::uint64_t session = number(row[2]);
    if (row[3] == "TABLE") sessions[text(row[1])] = session;
    view.sessions[session] = {
        text(row[7]), text(row[8]), "", "", 0, std::chrono::seconds(number<std::int64_t>(row[9]))};
  }
  view.sessions.erase(0);
  std::map<std::string, std::size_t> places;
  std::set<std::uint64_t> used;
  for (const auto& row : locks.rows) {
    if (row.size() != 10 || row[3] != "RECORD") continue;
    const std::string mode = text(row[4]);
    const bool waits_for_it = row[5] == "WAITING",
               gap = mode.find("GAP") != mode.npos && !mode.ends_with("REC_NOT_GAP");
    if (gap && !waits_for_it) continue;  // keeps nobody from a row
    Locked lock;
    lock.transaction = text(row[1]);
    const auto known = sessions.find(lock.transaction);
    lock.session = known != sessions.end() ? known->second : number(row[2]);
    lock.mode = mode.starts_with('X') ? Mode::X : Mode::S;
    lock.waits = waits_for_it;
    if (!gap) lock.cell = read_row(text(row[6]), lock.mode);
    if (lock.session == 0) view.all_holders = false;
    used.insert(lock.session);
    places[text(row[0])] = view.locks.size();
    view.locks.push_back(std::move(lock));
  }
  std::erase_if(view.sessions, [&](const auto& one) { return !used.contains(one.first); });
  for (const auto& row : waits.rows) {
    if (row.size() != 2) continue;
    const auto waiter = places.find(text(row[0])), blocker = places.find(text(row[1]));
    // What was made or went between the two looks is not in both.
    if (waiter == places.end() || blocker == places.end() || !view.locks[waiter->second].waits) continue;
    view.locks[waiter->second].blocked_by.push_back(blocker->second);
  }
  return view;
}

void read_attributes(const Reply& attributes, View& view) {
  for (const auto& row : attributes.rows) {
    if (row.size() != 3) continue;
    const auto found = view.sessions.find(number(row[0]));
    if (found == view.sessions.end()) continue;
    if (row[1] == "_pid") found->second.process = number<std::int64_t>(row[2]);
    if (row[1] == "program_name") found->second.program = text(row[2]);
    if (row[1] == host_attribute) found->second.machine = text(row[2]);
  }
}

// A transaction that has locked nothing exclusively is number 0 on MariaDB, and so are all others like it; their locks
// on one row have one name. So of those who wait it is told what they wait for, but who of them is in somebody's way
// only if there is but one.
View read_mariadb(const Reply& transactions, const Reply& locks, const Reply& waits, const Most& most) {
  View view;
  view.seen = true;
  note_cut(transactions, most.locks, view);
  note_cut(locks, most.locks, view);
  note_cut(waits, most.waits, view);
  view.with_locks.emplace();
  view.unseen_note =
      "rows locked that are not shown, of this table or of others: MariaDB tells which only when somebody waits for "
      "them, and processes tell of a lock when they have held it for a second";
  const std::string nameless = "0";
  std::map<std::string, std::uint64_t> sessions;      // by transaction, but for the nameless
  std::multimap<std::string, std::uint64_t> waiting;  // by the lock they ask for
  std::vector<std::uint64_t> nameless_with_locks;
  std::map<std::uint64_t, SessionFacts> facts;
  for (const auto& row : transactions.rows) {
    if (row.size() != 9) continue;
    const std::uint64_t session = number(row[2]);
    if (text(row[1]) != nameless) {
      sessions[text(row[1])] = session;
    } else if (number(row[4]) > 0) {
      nameless_with_locks.push_back(session);
    }
    if (number(row[4]) > 0) view.with_locks->insert(session);
    if (row[3]) waiting.emplace(*row[3], session);
    facts[session] = {text(row[5]), without_port(text(row[6])), "", "", 0, milliseconds(number<std::int64_t>(row[7]))};
  }

  std::map<std::string, Locked> known;  // by their names
  for (const auto& row : locks.rows) {
    if (row.size() != 4) continue;
    Locked lock;
    lock.transaction = text(row[1]);
    lock.mode = text(row[2]).starts_with('X') ? Mode::X : Mode::S;
    const bool gap = text(row[2]).find("GAP") != std::string::npos;
    if (!gap) lock.cell = read_row(text(row[3]), lock.mode);
    known[text(row[0])] = std::move(lock);
  }
  const auto add = [&](Locked lock, std::uint64_t session, bool waits_for_it) {
    lock.session = session;
    lock.waits = waits_for_it;
    if (const auto found = facts.find(session); found != facts.end()) view.sessions.insert(*found);
    view.locks.push_back(std::move(lock));
    return view.locks.size() - 1;
  };
  std::multimap<std::string, std::size_t> waiters;  // places in view.locks
  for (const auto& [id, session] : waiting) {
    if (const auto found = known.find(id); found != known.end()) waiters.emplace(id, add(found->second, session, true));
  }
  std::map<std::string, std::size_t> holders;
  for (const auto& row : waits.rows) {
    if (row.size() != 3) continue;
    const std::string asked = text(row[0]), in_the_way = text(row[1]);
    const auto found = known.find(in_the_way);
    if (found == known.end() || !waiters.contains(asked)) continue;
    std::vector<std::size_t> places;
    const bool named = text(row[2]) != nameless;
    for (auto [it, end] = waiters.equal_range(in_the_way); named && it != end; ++it) places.push_back(it->second);
    if (places.empty()) {
      auto place = holders.find(in_the_way);
      if (place == holders.end()) {
        std::uint64_t session = 0;
        if (const auto of = sessions.find(text(row[2])); of != sessions.end()) session = of->second;
        if (!named && nameless_with_locks.size() == 1) session = nameless_with_locks.front();
        place = holders.emplace(in_the_way, add(found->second, session, false)).first;
      }
      places.push_back(place->second);
    }
    for (auto [it, end] = waiters.equal_range(asked); it != end; ++it) {
      auto& blocked_by = view.locks[it->second].blocked_by;
      blocked_by.insert(blocked_by.end(), places.begin(), places.end());
    }
  }
  return view;
}

}  // namespace hierlock::mysql
