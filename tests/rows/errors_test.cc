// One error type with the same kinds on every engine: each is provoked on each.
#include <filesystem>
#include <fstream>

#include "rows.h"

namespace hierlock::tests {
namespace {

class Kinds : public Rows {};
HIERLOCK_ON_EVERY_ENGINE(Kinds);

TEST_P(Kinds, timeout_and_busy_carry_the_native_code) {  // X9
  const Table table = stock();
  const auto holder = user(), other = user();
  Transaction holding(holder->session());
  ASSERT_TRUE((*holder)->fetch_for_update(table, {"tea"}));
  const auto code_of = [&](const Wait& wait, ErrorKind kind) -> std::int64_t {
    try {
      Transaction transaction(other->session(), Begin::read);
      (void)(*other)->fetch_for_update(table, {"tea"}, {.wait = wait});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      EXPECT_TRUE(error.retryable());
      return error.native_code();
    }
    return -1;
  };
  const std::int64_t timeout = code_of(Wait::at_most(20ms), ErrorKind::timeout);
  const std::int64_t busy = code_of(Wait::no_wait(), ErrorKind::busy);
  switch (engine()) {
    case Engine::mysql:
      EXPECT_EQ(timeout, 1205);
      EXPECT_EQ(busy, 3572);
      break;
    case Engine::mariadb:
      EXPECT_EQ(timeout, 1969);
      EXPECT_EQ(busy, 1205);
      break;
    case Engine::postgres:
      // lock_timeout, or statement_timeout, which is set 1 ms longer and begins with the statement, not with the wait.
      EXPECT_TRUE(timeout == sqlstate_number("55P03") || timeout == sqlstate_number("57014")) << timeout;
      EXPECT_EQ(busy, sqlstate_number("55P03"));
      break;
    case Engine::sqlite:
      EXPECT_EQ(timeout, 5);
      EXPECT_EQ(busy, 5);
      break;
  }
}

TEST_P(Kinds, a_write_that_waits_too_long_is_timeout) {  // X9
  const Table table = stock();
  const auto holder = user(), other = user();
  Transaction holding(holder->session());
  ASSERT_TRUE((*holder)->fetch_for_update(table, {"tea"}));
  if (is_innodb()) other->sql("SET SESSION innodb_lock_wait_timeout = 1");
  if (engine() == Engine::postgres) other->sql("SET lock_timeout = '50ms'");
  if (is_sqlite()) other->sql("PRAGMA busy_timeout = 50", 1);
  const auto write = [&] { (void)(*other)->guarded_update(table, {"tea"}, {add("quantity", 1)}, {}); };
  EXPECT_EQ(kind_of(write), ErrorKind::timeout);
  if (!is_sqlite()) return;
  other->sql("PRAGMA busy_timeout = 0", 1);
  EXPECT_EQ(kind_of(write), ErrorKind::busy);
}

TEST_P(Kinds, deadlock_is_told_from_a_timeout) {  // X9
  const Table table = stock();
  const auto one = user(), other = user();
  if (is_sqlite()) {
    // Both have read; the first one's COMMIT would wait for the second, whose write would wait for the first.
    (*one)->begin(Begin::read);
    (*other)->begin(Begin::read);
    (void)(*one)->fetch(table, {"tea"});
    (void)(*other)->fetch(table, {"tea"});
    ASSERT_TRUE((*one)->fetch_for_update(table, {"tea"}, {.wait = Wait::no_wait()}));
    for (const Wait& wait : {Wait::for_ever(), Wait::at_most(patience)}) {
      EXPECT_EQ(kind_of([&] { (void)(*other)->fetch_for_update(table, {"tea"}, {.wait = wait}); }),
                ErrorKind::deadlock);
      (*other)->rollback();
      (*other)->begin(Begin::read);
      (void)(*other)->fetch(table, {"tea"});
    }
    (*other)->rollback();
    (*one)->commit();
    return;
  }
  // A wait that would end by itself, too: the server's own deadlock search comes first. (PostgreSQL's takes a second.)
  std::vector<Wait> waits = {Wait::at_most(patience)};
  if (is_innodb()) waits.push_back(Wait::for_ever());
  for (const Wait& wait : waits) {
    (*one)->begin();
    (*other)->begin();
    ASSERT_TRUE((*one)->fetch_for_update(table, {"tea"}));
    ASSERT_TRUE((*other)->fetch_for_update(table, {"milk"}));
    const auto cross = [&](User& user, const char* item) {
      const std::optional<ErrorKind> kind =
          kind_of([&] { (void)user->fetch_for_update(table, {item}, {.wait = wait}); });
      user->rollback();
      return kind;
    };
    std::future<std::optional<ErrorKind>> first = std::async(std::launch::async, [&] { return cross(*one, "milk"); });
    const std::optional<ErrorKind> a = cross(*other, "tea"), b = first.get();
    EXPECT_TRUE((a == ErrorKind::deadlock && !b) || (b == ErrorKind::deadlock && !a));
  }
}

TEST_P(Kinds, serialization_where_the_engine_has_it) {  // X9
  if (engine() == Engine::mysql) HIERLOCK_NOT_APPLICABLE() << "MySQL has no such error";
  const Table table = stock();
  if (is_sqlite()) {
    EXPECT_EQ(admin().ask<std::string>("PRAGMA journal_mode = wal"), "wal");
  }
  const auto reader = user(), writer = user();
  if (engine() == Engine::mariadb) reader->sql("SET SESSION innodb_snapshot_isolation = ON");
  (*reader)->begin(Begin::read);
  if (engine() == Engine::postgres) reader->sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ");
  std::optional<Row> row = (*reader)->fetch(table, {"tea"});
  ASSERT_TRUE((*writer)->guarded_update(table, {"tea"}, {add("quantity", 1)}, {}));
  row->set("quantity", 5);
  EXPECT_EQ(kind_of([&] { (*reader)->update(*row); }), ErrorKind::serialization);
  (*reader)->rollback();
  (*reader)->begin(Begin::read);
  if (engine() == Engine::postgres) reader->sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ");
  (void)(*reader)->fetch(table, {"milk"});
  ASSERT_TRUE((*writer)->guarded_update(table, {"tea"}, {add("quantity", 1)}, {}));
  EXPECT_EQ(kind_of([&] { (void)(*reader)->fetch_for_update(table, {"tea"}); }), ErrorKind::serialization);
  (*reader)->rollback();
}

TEST_P(Kinds, a_table_or_column_that_is_missing_is_not_provisioned) {  // X9
  const Table table = stock();
  const Table missing("rows_that_are_not_there", {.key = {"item"}});
  const Table other(table.name(), {.key = {"item"}, .columns = {"colour"}});
  EXPECT_EQ(kind_of([&] { admin()->fetch(missing, {"tea"}); }), ErrorKind::not_provisioned);
  EXPECT_EQ(kind_of([&] { admin()->fetch_for_update(missing, {"tea"}); }), ErrorKind::not_provisioned);
  EXPECT_EQ(kind_of([&] { admin()->fetch(other, {"tea"}); }), ErrorKind::not_provisioned);
  EXPECT_EQ(kind_of([&] { (void)admin()->guarded_update(other, {"tea"}, {set("colour", "red")}, {}); }),
            ErrorKind::not_provisioned);
}

// SQLite takes "colour" for a text if there is no such column, and every text is greater than a number.
TEST_P(Kinds, a_guard_or_key_on_a_column_that_is_missing_is_not_provisioned) {  // X3, X9
  const Table table = stock();
  const Table guarded(table.name(), {.key = {"item"}, .columns = {"quantity", "colour"}});
  EXPECT_EQ(
      kind_of([&] { (void)admin()->guarded_update(guarded, {"tea"}, {add("quantity", -1)}, {at_least("colour", 5)}); }),
      ErrorKind::not_provisioned);
  const Table keyed(table.name(), {.key = {"name"}, .columns = {"quantity"}});
  EXPECT_EQ(kind_of([&] { (void)admin()->guarded_update(keyed, {"name"}, {add("quantity", -1)}, {}); }),
            ErrorKind::not_provisioned);
  EXPECT_EQ(quantity(table, "tea"), 100);
}

TEST_P(Kinds, what_the_database_refuses_is_not_retryable) {  // X9
  const Table table = stock();
  EXPECT_EQ(kind_of([&] { admin()->insert(table, {"tea"}, {1}); }), ErrorKind::invalid_argument) << "a second tea";
  EXPECT_EQ(kind_of([&] { (void)admin()->guarded_update(table, {"tea"}, {set("quantity", nullptr)}, {}); }),
            ErrorKind::invalid_argument);
  EXPECT_EQ(quantity(table, "tea"), 100);
}

TEST_P(Kinds, a_write_where_only_reading_is_allowed_is_denied) {  // X9
  const Table table = stock();
  const auto user = this->user();
  if (is_innodb()) user->sql("SET SESSION TRANSACTION READ ONLY");
  if (engine() == Engine::postgres) user->sql("SET default_transaction_read_only = on");
  if (is_sqlite()) user->sql("PRAGMA query_only = 1");
  EXPECT_EQ(kind_of([&] { (void)(*user)->guarded_update(table, {"tea"}, {add("quantity", 1)}, {}); }),
            ErrorKind::denied);
  EXPECT_EQ(quantity(table, "tea"), 100);
}

TEST_P(Kinds, a_full_database_is_exhausted_and_keeps_nothing_of_the_transaction) {  // X9
  if (!is_sqlite()) HIERLOCK_NOT_APPLICABLE() << "no test fills the disk of a server";
  const Table table = stock();
  admin().sql("PRAGMA max_page_count = " + admin().ask<std::string>("PRAGMA page_count"), 1);
  admin()->begin();
  std::optional<ErrorKind> kind;
  for (int i = 0; i < 10'000 && !kind; ++i) kind = kind_of([&] { admin()->insert(table, {std::to_string(i)}, {i}); });
  EXPECT_EQ(kind, ErrorKind::exhausted);
  EXPECT_EQ(kind_of([&] { admin()->insert(table, {"rum"}, {1}); }), ErrorKind::invalid_argument);
  admin()->rollback();
  EXPECT_EQ(admin().ask<int>("SELECT COUNT(*) FROM " + table.name()), 3);
}

TEST_P(Kinds, a_limit_of_the_server_is_exhausted) {  // X9
  if (is_sqlite()) HIERLOCK_NOT_APPLICABLE() << "SQLite has no server";
  std::optional<ErrorKind> kind;
  if (engine() == Engine::postgres) {
    // Only an operator may set this limit. The row number needs all rows sorted, in a file.
    User user(server_client(*server_variable("POSTGRES_OPERATOR")));
    user.sql("SET work_mem = '64kB'");
    user.sql("SET temp_file_limit = 0");
    user.sql(
        "CREATE TEMPORARY VIEW many AS SELECT n AS item, row_number() OVER (ORDER BY md5(CAST(n AS text))) AS place "
        "FROM generate_series(1, 50000) AS n");
    kind = kind_of([&] { user->fetch(Table("many", {.key = {"item"}, .columns = {"place"}}), {17}); });
  } else {
    const std::string name = table_name();
    const auto user = this->user();
    user->sql("SET SESSION max_heap_table_size = 16384");
    user->sql("CREATE TABLE " + name + " (item VARCHAR(40) NOT NULL PRIMARY KEY, quantity BIGINT) ENGINE = MEMORY");
    const Table small(name, {.key = {"item"}, .columns = {"quantity"}});
    for (int i = 0; i < 10'000 && !kind; ++i) {
      kind = kind_of([&] { (*user)->insert(small, {std::to_string(i)}, {i}); });
    }
  }
  EXPECT_EQ(kind, ErrorKind::exhausted);
}

TEST_P(Kinds, a_statement_that_somebody_stopped_is_cancelled) {  // X9
  const Table table = stock();
  const auto holder = user(), other = user();
  Transaction holding(holder->session());
  ASSERT_TRUE((*holder)->fetch_for_update(table, {"tea"}));
  std::function<void()> statement = [&] {
    Transaction transaction(other->session());
    (void)(*other)->fetch_for_update(table, {"tea"}, {.wait = Wait::at_most(patience)});
  };
  std::function<void()> stop;
  if (is_sqlite()) {
    holding.commit();
    // SQLite does not interrupt a wait for its lock, so the statement computes without end.
    admin().sql(
        "CREATE VIEW endless AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS item FROM "
        "n");
    statement = [&] { (*other)->fetch(Table("endless", {.key = {"item"}}), {-1}); };
    stop = [&] { other->interrupt(); };
  } else {
    const bool postgres = engine() == Engine::postgres;
    const std::string id = other->ask<std::string>(postgres ? "SELECT pg_backend_pid()" : "SELECT CONNECTION_ID()");
    stop = [&, postgres, id] {
      admin().sql(postgres ? "SELECT pg_cancel_backend(" + id + ")" : "KILL QUERY " + id, postgres ? 1 : 0);
    };
  }
  std::future<std::optional<ErrorKind>> end = std::async(std::launch::async, [&] { return kind_of(statement); });
  // A statement that does not run yet is not stopped: until it is, again.
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (end.wait_for(5ms) != std::future_status::ready && std::chrono::steady_clock::now() < deadline) stop();
  EXPECT_EQ(end.get(), ErrorKind::cancelled);
}

TEST_P(Kinds, a_file_that_is_damaged_or_none_is_unavailable) {  // X9
  if (!is_sqlite()) HIERLOCK_NOT_APPLICABLE() << "only SQLite has the file open itself";
  const Table table("stock", {.key = {"item"}, .columns = {"quantity"}});
  const auto kind_of_reading = [&](const SqliteFile& file) {
    const auto user = file.user(GetParam().bare);
    std::optional<ErrorKind> kind;
    for (int i = 0; i < 2'000 && !kind; ++i) kind = kind_of([&] { (*user)->fetch(table, {std::to_string(i)}); });
    return kind;
  };
  const SqliteFile truncated, none;
  {
    const auto user = truncated.user(GetParam().bare);
    user->sql("CREATE TABLE stock (item VARCHAR(40) NOT NULL PRIMARY KEY, quantity BIGINT NOT NULL)");
    Transaction transaction(user->session());
    for (int i = 0; i < 2'000; ++i) (*user)->insert(table, {std::to_string(i)}, {i});
    transaction.commit();
  }
  EXPECT_EQ(kind_of_reading(truncated), std::nullopt);
  std::filesystem::resize_file(truncated.path(), std::filesystem::file_size(truncated.path()) / 2);
  EXPECT_EQ(kind_of_reading(truncated), ErrorKind::unavailable);
  std::ofstream(none.path()) << std::string(5'000, 'x');
  EXPECT_EQ(kind_of_reading(none), ErrorKind::unavailable);
}

TEST_P(Kinds, a_session_that_was_ended_is_unavailable) {  // X9
  if (is_sqlite()) HIERLOCK_NOT_APPLICABLE() << "SQLite has no server";
  const Table table = stock();
  const auto user = this->user();
  const bool postgres = engine() == Engine::postgres;
  const std::string id = user->ask<std::string>(postgres ? "SELECT pg_backend_pid()" : "SELECT CONNECTION_ID()");
  admin().sql(postgres ? "SELECT pg_terminate_backend(" + id + ")" : "KILL " + id, postgres ? 1 : 0);
  const auto deadline = std::chrono::steady_clock::now() + patience;
  std::optional<ErrorKind> kind;
  while (!kind && std::chrono::steady_clock::now() < deadline) kind = kind_of([&] { (*user)->fetch(table, {"tea"}); });
  EXPECT_EQ(kind, ErrorKind::unavailable);
}

TEST_P(Kinds, a_commit_without_an_answer_is_lost) {  // X9
  if (is_sqlite()) HIERLOCK_NOT_APPLICABLE() << "SQLite has no server";
  const auto user = this->user();
  (*user)->begin();
  const bool postgres = engine() == Engine::postgres;
  const std::string id = user->ask<std::string>(postgres ? "SELECT pg_backend_pid()" : "SELECT CONNECTION_ID()");
  admin().sql(postgres ? "SELECT pg_terminate_backend(" + id + ")" : "KILL " + id, postgres ? 1 : 0);
  // The server takes a moment to end the session; until then a COMMIT may still be answered.
  const auto gone = [&] {
    return admin().ask<int>(postgres ? "SELECT COUNT(*) FROM pg_stat_activity WHERE pid = " + id
                                     : "SELECT COUNT(*) FROM information_schema.processlist WHERE id = " + id) == 0;
  };
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!gone() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(kind_of([&] { (*user)->commit(); }), ErrorKind::lost);
}

}  // namespace
}  // namespace hierlock::tests
