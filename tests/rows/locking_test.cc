// Pessimistic locks: strengths, waits, defaults, and settings that are put back.
#include "rows.h"

namespace hierlock::tests {
namespace {

class Locking : public Rows {
 protected:
  // Another user holds tea for writing, in a transaction, while this lives.
  struct Holder {
    Holder(Rows&, std::unique_ptr<User> by, const Table& table, Strength strength = Strength::write)
        : user(std::move(by)) {
      (*user)->begin();
      EXPECT_TRUE((*user)->fetch_for_update(table, {"tea"}, {.strength = strength}));
    }
    ~Holder() {
      if (open) (*user)->rollback();
    }
    void commit() {
      open = false;
      (*user)->commit();
    }
    std::unique_ptr<User> user;
    bool open = true;
  };

  // What a locking fetch of tea in a transaction of its own ends with.
  std::optional<ErrorKind> attempt(User& user, const Table& table, const LockOptions& options) {
    return kind_of([&] {
      Transaction transaction(user.session(), Begin::read);
      found = user->fetch_for_update(table, {"tea"}, options).has_value();
    });
  }
  bool found = false;
};
HIERLOCK_ON_EVERY_ENGINE(Locking);

TEST_P(Locking, a_free_row_is_locked_with_every_kind_of_wait) {  // X7
  const Table table = stock();
  const auto user = this->user();
  std::vector<Wait> waits = {Wait::for_ever(), Wait::at_most(5s), Wait::no_wait()};
  if (!is_sqlite()) waits.push_back(Wait::skip_locked());
  for (const Wait& wait : waits) {
    EXPECT_EQ(attempt(*user, table, {.wait = wait}), std::nullopt);
    EXPECT_TRUE(found);
  }
  EXPECT_EQ(kind_of([&] {
              Transaction transaction(user->session());
              EXPECT_FALSE((*user)->fetch_for_update(table, {"rum"})) << "no such row";
            }),
            std::nullopt);
}

TEST_P(Locking, without_a_wait_a_held_row_is_busy) {  // X7, X10
  const Table table = stock();
  const Holder holder(*this, user(), table);
  const auto other = user();
  EXPECT_EQ(attempt(*other, table, {.wait = Wait::no_wait()}), ErrorKind::busy);
}

TEST_P(Locking, a_wait_of_n_ms_ends_after_n_ms) {  // X7, X10
  const Table table = stock();
  const Holder holder(*this, user(), table);
  const auto other = user();
  for (const std::chrono::milliseconds time : {30ms, 250ms}) {
    const auto began = std::chrono::steady_clock::now();
    EXPECT_EQ(attempt(*other, table, {.wait = Wait::at_most(time)}), ErrorKind::timeout);
    const auto took = std::chrono::steady_clock::now() - began;
    EXPECT_GE(took, time);
    EXPECT_LT(took, time + 10s) << "a server that counts in its own seconds would take 50";
  }
}

TEST_P(Locking, a_wait_is_granted_when_the_holder_commits) {  // X7, X10
  const Table table = stock();
  for (const Wait& wait : {Wait::for_ever(), Wait::at_most(patience)}) {
    Holder holder(*this, user(), table);
    const auto other = user();
    std::future<long long> seen = std::async(std::launch::async, [&] {
      Transaction transaction(other->session(), Begin::read);
      return (*other)->fetch_for_update(table, {"tea"}, {.wait = wait})->get<long long>("quantity");
    });
    other->spy().wait_for(is_sqlite() ? "WHERE 0" : "FOR UPDATE");
    ASSERT_TRUE((*holder.user)->guarded_update(table, {"tea"}, {add("quantity", 1)}, {}));
    const long long expected = (*holder.user)->fetch(table, {"tea"})->get<long long>("quantity");
    holder.commit();
    EXPECT_EQ(seen.get(), expected) << "it reads what the holder has written";
  }
}

TEST_P(Locking, skip_locked_leaves_out_what_is_held) {  // X7
  const Table table = stock();
  const auto other = user();
  if (is_sqlite()) {
    EXPECT_EQ(attempt(*other, table, {.wait = Wait::skip_locked()}), ErrorKind::unsupported);
    return;
  }
  const Holder holder(*this, user(), table);
  EXPECT_EQ(attempt(*other, table, {.wait = Wait::skip_locked()}), std::nullopt);
  EXPECT_FALSE(found);
  Transaction transaction(other->session());
  const std::vector<Row> rows =
      (*other)->lock_in_order({{table, {{"tea"}, {"salt"}, {"milk"}}}}, {.wait = Wait::skip_locked()});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].key(), Key{"milk"});
  EXPECT_EQ(rows[1].key(), Key{"salt"});
}

TEST_P(Locking, readers_share_a_row_and_exclude_writers) {  // X7
  const Table table = stock();
  const auto other = user();
  const LockOptions read{.strength = Strength::read, .wait = Wait::no_wait()}, write{.wait = Wait::no_wait()};
  if (is_sqlite()) {
    EXPECT_EQ(attempt(*other, table, read), ErrorKind::unsupported);
    return;
  }
  {
    const Holder reader(*this, user(), table, Strength::read);
    EXPECT_EQ(attempt(*other, table, read), std::nullopt);
    EXPECT_TRUE(found);
    EXPECT_EQ(attempt(*other, table, write), ErrorKind::busy);
  }
  const Holder writer(*this, user(), table);
  EXPECT_EQ(attempt(*other, table, read), ErrorKind::busy);
  EXPECT_EQ(attempt(*other, table, {.strength = Strength::read, .wait = Wait::at_most(20ms)}), ErrorKind::timeout);
  EXPECT_EQ(attempt(*other, table, {.strength = Strength::read, .wait = Wait::skip_locked()}), std::nullopt);
  EXPECT_FALSE(found);
}

TEST_P(Locking, a_forced_increment_makes_readers_of_before_conflict) {  // X7
  const Table table = stock();
  const auto optimist = user(), other = user();
  std::optional<Row> before = (*optimist)->fetch(table, {"tea"});
  {
    Transaction transaction(other->session());
    std::optional<Row> row = (*other)->fetch_for_update(table, {"tea"}, {.strength = Strength::force_increment});
    EXPECT_EQ(row->version(), 1);
    row->set("quantity", 1);
    (*other)->update(*row);
    EXPECT_EQ(row->version(), 2);
    transaction.commit();
  }
  before->set("quantity", 2);
  EXPECT_EQ((*optimist)->try_update(*before), Outcome::conflict);
  EXPECT_EQ(quantity(table, "tea"), 1);
}

TEST_P(Locking, a_session_has_a_default_that_a_call_overrides) {  // X7
  const Table table = stock();
  const Holder holder(*this, user(), table);
  const auto hasty = user({.wait = Wait::no_wait()}), patient = user({.wait = Wait::at_most(40ms)});
  EXPECT_EQ(attempt(*hasty, table, {}), ErrorKind::busy);
  EXPECT_EQ(attempt(*hasty, table, {.wait = Wait::at_most(30ms)}), ErrorKind::timeout);
  EXPECT_EQ(attempt(*patient, table, {}), ErrorKind::timeout);
  EXPECT_EQ(attempt(*patient, table, {.wait = Wait::no_wait()}), ErrorKind::busy);
}

TEST_P(Locking, settings_of_the_session_are_as_before) {  // X7
  const Table table = stock();
  const auto user = this->user();
  const auto lock_and_wait = [&] { (void)(*user)->fetch_for_update(table, {"tea"}, {.wait = Wait::at_most(5s)}); };
  if (engine() == Engine::postgres) {
    for (const auto& [lock, statement] : {std::pair{"0", "0"}, {"70s", "3s"}, {"1234ms", "2min"}}) {
      user->sql(std::string("SET lock_timeout = '") + lock + "'");
      user->sql(std::string("SET statement_timeout = '") + statement + "'");
      (*user)->begin();
      user->sql("SET LOCAL lock_timeout = '77s'");
      lock_and_wait();
      (void)(*user)->lock_in_order({{table, {{"tea"}, {"milk"}}}}, {.wait = Wait::for_ever()});
      EXPECT_EQ(user->ask<std::string>("SHOW lock_timeout"), "77s");
      EXPECT_EQ(user->ask<std::string>("SHOW statement_timeout"), statement);
      (*user)->commit();
      EXPECT_EQ(user->ask<std::string>("SHOW lock_timeout"), lock);
      EXPECT_EQ(user->ask<std::string>("SHOW statement_timeout"), statement);
    }
  } else if (is_sqlite()) {
    for (const int time : {0, 700}) {
      user->sql("PRAGMA busy_timeout = " + std::to_string(time), 1);
      (*user)->begin(Begin::read);
      lock_and_wait();
      EXPECT_EQ(user->ask<int>("PRAGMA busy_timeout"), time);
      (*user)->rollback();
    }
  } else {
    user->sql("SET SESSION innodb_lock_wait_timeout = 7");
    (*user)->begin();
    lock_and_wait();
    (*user)->rollback();
    EXPECT_EQ(user->ask<int>("SELECT @@innodb_lock_wait_timeout"), 7);
  }
}

TEST_P(Locking, settings_are_as_before_also_after_a_wait_in_vain) {  // X7
  const Table table = stock();
  const Holder holder(*this, user(), table);
  const auto other = user();
  if (engine() == Engine::postgres) other->sql("SET lock_timeout = '70s'");
  if (is_sqlite()) other->sql("PRAGMA busy_timeout = 700", 1);
  if (is_innodb()) other->sql("SET SESSION innodb_lock_wait_timeout = 7");
  // On MySQL 1 s of it in the server's queue, the rest by attempts.
  const std::chrono::milliseconds time = engine() == Engine::mysql ? 2300ms : 50ms;
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(attempt(*other, table, {.wait = Wait::at_most(time)}), ErrorKind::timeout);
  EXPECT_GE(std::chrono::steady_clock::now() - began, time);
  EXPECT_LT(std::chrono::steady_clock::now() - began, time + 10s);
  EXPECT_EQ(other->ask<std::string>(engine() == Engine::postgres ? "SHOW lock_timeout"
                                    : is_sqlite()                ? "PRAGMA busy_timeout"
                                                                 : "SELECT @@innodb_lock_wait_timeout"),
            engine() == Engine::postgres ? "70s"
            : is_sqlite()                ? "700"
                                         : "7");
}

TEST_P(Locking, a_long_wait_stands_in_the_queue_of_mysql_and_puts_its_timeout_back) {  // X7
  if (engine() != Engine::mysql) HIERLOCK_NOT_APPLICABLE() << "the others have a wait of n ms";
  const Table table = stock();
  for (const bool granted : {true, false}) {  // false: as a victim of a deadlock
    Holder holder(*this, user(), table);
    const auto other = user();
    other->sql("SET SESSION innodb_lock_wait_timeout = 77");
    Transaction transaction(other->session());
    if (!granted) (void)(*other)->fetch_for_update(table, {"milk"});
    std::future<std::optional<ErrorKind>> end = std::async(std::launch::async, [&] {
      return kind_of([&] { (void)(*other)->fetch_for_update(table, {"tea"}, {.wait = Wait::at_most(30s)}); });
    });
    other->spy().wait_for("SET SESSION innodb_lock_wait_timeout");
    if (granted) {
      holder.commit();
    } else {
      // The holder has changed rows, so InnoDB takes the other one for the victim.
      EXPECT_TRUE((*holder.user)->guarded_update(table, {"tea"}, {add("quantity", 1)}, {}));
      EXPECT_TRUE((*holder.user)->guarded_update(table, {"salt"}, {add("quantity", 1)}, {}));
      EXPECT_TRUE((*holder.user)->fetch_for_update(table, {"milk"}, {.wait = Wait::at_most(30s)}));
    }
    EXPECT_EQ(end.get(), granted ? std::nullopt : std::optional(ErrorKind::deadlock));
    EXPECT_EQ(other->ask<int>("SELECT @@innodb_lock_wait_timeout"), 77);
  }
}

TEST_P(Locking, a_wait_outlasts_the_timeout_of_the_server) {  // X7
  if (!is_innodb()) HIERLOCK_NOT_APPLICABLE() << "only InnoDB ends waits that nobody limited";
  const Table table = stock();
  Holder holder(*this, user(), table);
  const auto other = user();
  other->sql("SET SESSION innodb_lock_wait_timeout = 1");
  std::future<bool> got = std::async(std::launch::async, [&] {
    Transaction transaction(other->session());
    return (*other)->fetch_for_update(table, {"tea"}).has_value();
  });
  other->spy().wait_for("innodb_rollback_on_timeout");  // it was refused once, and asks again
  holder.commit();
  EXPECT_TRUE(got.get());
}

TEST_P(Locking, a_wait_outlasts_the_lock_timeout_of_postgres) {  // X7
  if (engine() != Engine::postgres) HIERLOCK_NOT_APPLICABLE() << "the others have no such setting";
  const Table table = stock();
  const std::vector<Key> one = {{"tea"}}, several = {{"tea"}, {"milk"}};
  for (const std::vector<Key>& keys : {one, several}) {
    for (const bool transaction : {true, false}) {
      Holder holder(*this, user(), table);
      const auto other = user();
      other->sql("SET lock_timeout = '40ms'");
      const std::string id = other->ask<std::string>("SELECT pg_backend_pid()");
      std::future<std::size_t> got = std::async(std::launch::async, [&] {
        if (transaction) (*other)->begin();
        const std::size_t locked = (*other)->lock_in_order({{table, keys}}, {.wait = Wait::for_ever()}).size();
        EXPECT_EQ(other->ask<std::string>("SHOW lock_timeout"), "40ms");
        if (transaction) (*other)->commit();
        return locked;
      });
      // In a transaction one statement waits. Otherwise the server ends it, and it is sent again.
      const auto long_enough = [&] {
        if (transaction) {
          return admin().ask<int>("SELECT COUNT(*) FROM pg_stat_activity WHERE pid = " + id +
                                  " AND wait_event_type = 'Lock' AND query_start < clock_timestamp() - "
                                  "interval '200 milliseconds'") == 1;
        }
        const std::vector<std::string> sent = other->spy().sent();
        return std::ranges::count_if(sent, [](const std::string& sql) { return sql.ends_with("FOR UPDATE"); }) >= 3;
      };
      const auto deadline = std::chrono::steady_clock::now() + patience;
      while (got.wait_for(5ms) != std::future_status::ready && !long_enough()) {
        ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      }
      EXPECT_NE(got.wait_for(0ms), std::future_status::ready) << "it did not wait";
      holder.commit();
      EXPECT_EQ(got.get(), keys.size());
      EXPECT_EQ(other->ask<std::string>("SHOW lock_timeout"), "40ms");
    }
  }
}

TEST_P(Locking, a_time_to_wait_that_cannot_be_kept_is_refused) {  // X7
  const Table table = stock();
  const auto user = this->user();
  const std::optional<ErrorKind> kind =
      kind_of([&] { (void)(*user)->fetch_for_update(table, {"tea"}, {.wait = Wait::at_most(5s)}); });
  // Local settings of PostgreSQL end with the statement if there is no transaction.
  EXPECT_EQ(kind, engine() == Engine::postgres ? std::optional(ErrorKind::invalid_argument) : std::nullopt);
}

TEST_P(Locking, the_lock_ends_with_the_transaction) {  // X7
  const Table table = stock();
  const auto other = user();
  { const Holder holder(*this, user(), table); }
  EXPECT_EQ(attempt(*other, table, {.wait = Wait::no_wait()}), std::nullopt);
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace hierlock::tests
