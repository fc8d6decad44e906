// What goes over the wire and what it locks: one statement to acquire, one to release (H4, B3).
#include <algorithm>
#include <future>
#include <set>

#include "on_server.h"
#include "relay.h"

namespace hierlock::mysql_tests {
namespace {

class Wire : public OnServer {
 protected:
  void SetUp() override {
    OnServer::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    relay_ = std::make_unique<Relay>(server().host, server().port);
    Server behind = server();
    behind.port = relay_->port();
    behind_ = behind;
    locker_ = std::make_unique<Locker>(through_relay("connections=1"));
  }
  void TearDown() override {
    locker_.reset();
    relay_.reset();
    OnServer::TearDown();
  }
  Relay& relay() { return *relay_; }
  Locker& locker() { return *locker_; }
  Locker through_relay(const std::string& more) { return hierlock::open(url(*behind_, "tls=off&" + more)); }

  // What an acquire and a release of these say once their statement is prepared and their rows are there.
  void one_and_one(const std::vector<Target>& targets) {
    SCOPED_TRACE(std::to_string(targets.size()) + " targets, the first is " + targets.front().str());
    release(locker().acquire(targets));
    for (int turn = 0; turn < 3; ++turn) {
      Lock lock = locker().acquire(targets);
      ASSERT_EQ(said(), std::vector<std::string>{"execute"});
      relay().forget();
      EXPECT_EQ(release(std::move(lock)), std::vector<std::string>{"ROLLBACK"});
    }
  }
  // Waits until the server is told, because the release does not. Returns what was said, and forgets it.
  std::vector<std::string> release(Lock lock) {
    lock.release();
    EXPECT_TRUE(eventually([&] { return !said().empty() && said().back() == "ROLLBACK"; }));
    std::vector<std::string> words = said();
    relay().forget();
    return words;
  }
  std::vector<std::string> said() {
    std::vector<std::string> words;
    for (const Relay::Command& command : relay().commands()) {
      if (is_heartbeat(command)) continue;
      words.push_back(rolls_back(command)                ? "ROLLBACK"
                      : command.code == com_stmt_execute ? "execute"
                      : command.code == com_query        ? command.text
                                                         : "command " + std::to_string(command.code));
    }
    return words;
  }

 private:
  std::optional<Server> behind_;
  std::unique_ptr<Relay> relay_;
  std::unique_ptr<Locker> locker_;
};

TEST_P(Wire, a_path_of_any_depth_takes_one_statement_to_acquire_and_one_to_release) {  // H4, B3
  one_and_one({"u1"});
  one_and_one({"u1/a1"});
  one_and_one({"u1/a1/r1"});
  one_and_one({shared("u1/a1/r1")});
}

TEST_P(Wire, many_targets_take_one_statement_to_acquire_and_one_to_release) {  // H5
  std::vector<Target> many;
  for (int i = 0; i < 50; ++i) {
    many.emplace_back("u" + std::to_string(i % 7) + "/a" + std::to_string(i % 3) + "/r" + std::to_string(i));
  }
  one_and_one(many);
  one_and_one({"u1/a1/r1", "u2/a9", "u3"});
}

TEST_P(Wire, a_refused_try_takes_one_statement_and_leaves_a_clean_session) {  // H2
  Locker other = open();
  Lock held = other.acquire("u1/a1/r1");
  EXPECT_FALSE(locker().try_acquire("u1/a1/r1"));
  relay().forget();
  EXPECT_FALSE(locker().try_acquire("u1/a1/r1"));
  EXPECT_TRUE(eventually([&] { return said().size() == 2; }));
  EXPECT_EQ(said(), (std::vector<std::string>{"execute", "ROLLBACK"}));
  const auto locks = locked();
  EXPECT_EQ(std::count_if(locks.begin(), locks.end(), [](const auto& row) { return row.second == 'X'; }), 1);
  held.release();
  EXPECT_TRUE(all_free()) << "the ancestors that the refused one had taken are free again";  // H8
}

// If the answers take long, one more is made.
TEST_P(Wire, locks_of_one_thread_after_another_use_two_connections_at_most) {
  Locker many = through_relay("connections=16&publish_after=60000");
  const std::size_t before = relay().connections() - 1;
  for (int i = 0; i < 20; ++i) many.acquire("u" + std::to_string(i % 5)).release();
  EXPECT_LE(relay().connections() - before, 2u);
}

TEST_P(Wire, a_new_connection_asks_all_it_has_to_know_in_one_round_trip_after_its_login) {
  release(locker().acquire("u2"));  // its row is there
  Locker two = through_relay("connections=2&publish_after=60000");
  const Lock held = two.acquire("u1");
  const auto before = static_cast<int>(relay().connections());
  const Lock lock = two.acquire("u2");
  std::vector<int> codes;
  for (const Relay::Command& command : relay().commands()) {
    if (static_cast<int>(command.connection) == before) codes.push_back(command.code);
  }
  EXPECT_EQ(codes, (std::vector<int>{com_query, com_stmt_prepare, com_stmt_execute}));
}

TEST_P(Wire, an_extend_that_is_granted_is_one_statement) {
  release(locker().acquire({"u1/a1/r1", "u2/a1/r1"}));  // their rows are there
  Lock warm = locker().acquire("u1/a1/r1");
  warm.extend("u2/a1/r1", {.timeout = 1s});
  release(std::move(warm));
  Lock lock = locker().acquire("u1/a1/r1");
  relay().forget();
  lock.extend("u2/a1/r1", {.timeout = 1s});
  EXPECT_EQ(said(), std::vector<std::string>{"execute"});
}

// Each number of targets is a shape of its own, and so is each depth.
TEST_P(Wire, beyond_64_shapes_the_least_recently_used_is_closed) {
  constexpr std::size_t shapes = 90, most = 64;
  std::vector<Target> many;
  for (std::size_t i = 0; i < shapes; ++i) many.emplace_back("u" + std::to_string(i));
  locker().acquire(many).release();  // their rows are there
  locker().acquire("u1/a1/r1").release();
  relay().forget();
  for (std::size_t i = 0; i < shapes; ++i) {
    locker().acquire(std::vector<Target>(many.begin(), many.begin() + static_cast<std::ptrdiff_t>(i) + 1)).release();
    locker().acquire("u1/a1/r1").release();  // always the last but one
  }
  std::set<std::string> prepared;
  std::set<std::size_t> connections;
  std::size_t closed = 0;
  for (const Relay::Command& command : relay().commands()) {
    if (command.code == com_stmt_close) ++closed;
    if (command.code != com_stmt_prepare) continue;
    connections.insert(command.connection);
    EXPECT_TRUE(prepared.insert(command.text).second) << "prepared again: " << command.text;
    EXPECT_EQ(command.text.find(".level=2"), std::string::npos) << "that of u1/a1/r1 was in use";
  }
  EXPECT_GT(prepared.size(), most) << "else nothing had to be closed";
  EXPECT_GE(closed, prepared.size() - most);
  EXPECT_LE(closed, prepared.size());
  EXPECT_EQ(connections.size(), 1u);
}

HIERLOCK_ON_BOTH_SERVERS(Wire);

class Rows : public OnServer {};

TEST_P(Rows, ancestors_are_shared_and_the_target_is_exclusive) {  // H1
  Locker locker = open();
  const Lock lock = locker.acquire("u1/a1/r1");
  std::map<int, char> by_level;
  for (const auto& [row, mode] : locked()) by_level[row.first] = mode;
  EXPECT_EQ(by_level, (std::map<int, char>{{0, 'S'}, {1, 'S'}, {2, 'X'}}));
}

TEST_P(Rows, a_lock_is_one_transaction_that_is_gone_after_the_release) {  // H4
  Locker locker = open();
  Lock lock = locker.acquire("u1/a1/r1");
  EXPECT_EQ(locked().size(), 3u);
  lock.release();
  EXPECT_TRUE(all_free());
}

// However the statement is written: a join of few rows, a union of many.
TEST_P(Rows, are_locked_one_after_the_other_and_the_fence_is_read_when_all_are) {  // H5, B3
  std::vector<Target> many;
  for (int i = 0; i < 6; ++i) many.emplace_back("u" + std::to_string(i) + "/a1/r1");
  const std::vector<std::vector<Target>> plans{
      {"u1"}, {"u1/a1/r1"}, {shared("u1/a1/r1")}, {"u1/a1/r1", "u2/a2", "u3"}, many};
  Locker locker = open();
  for (const std::vector<Target>& targets : plans) {
    ASSERT_TRUE(all_free()) << "what the last turn held";
    Lock first = locker.acquire(targets);
    const auto rows = locked();
    first.release();
    for (auto blocked = rows.begin(); blocked != rows.end(); ++blocked) {
      SCOPED_TRACE(std::to_string(targets.size()) + " targets, the first is " + targets.front().str() +
                   ", blocked at " + std::to_string(std::distance(rows.begin(), blocked)) + " of " +
                   std::to_string(rows.size()));
      Plain holder(operator_server());
      holder.ask("START TRANSACTION");
      holder.ask("SELECT 1 FROM `" + table() + "` WHERE level=" + std::to_string(blocked->first.first) +
                 " AND bucket=" + std::to_string(blocked->first.second) + " FOR UPDATE");
      auto waits = std::async(std::launch::async, [&] { return locker.acquire(targets, {.timeout = 30s}); });
      std::map expected(rows.begin(), blocked);
      expected[blocked->first] = 'X';
      EXPECT_TRUE(eventually([&] { return locked() == expected; })) << testing::PrintToString(locked());
      const std::uint64_t bystander = std::stoull(plain().one("SELECT UUID_SHORT() & 0xFFFFFFFFFFFFFF"));
      holder.ask("ROLLBACK");
      const Lock lock = waits.get();
      EXPECT_GT(lock.fence(), static_cast<std::int64_t>(bystander * 128));
      EXPECT_EQ(locked(), rows);
    }
  }
}

TEST_P(Rows, nothing_but_records_of_the_primary_key_is_locked) {  // H4
  if (mariadb()) return;  // 10.11 lists the locks of those who wait and block only
  Locker locker = open();
  const Lock lock = locker.acquire("u1/a1/r1");
  std::multiset<std::string> seen;
  for (const auto& row : plain().ask("SELECT LOCK_TYPE, LOCK_MODE, LOCK_STATUS, IFNULL(INDEX_NAME, '-') FROM "
                                     "performance_schema.data_locks WHERE OBJECT_NAME='" +
                                     table() + "'")) {
    seen.insert(row[0] + " " + row[1] + " " + row[2] + " " + row[3]);
  }
  EXPECT_EQ(seen, (std::multiset<std::string>{
                      "RECORD S,REC_NOT_GAP GRANTED PRIMARY", "RECORD S,REC_NOT_GAP GRANTED PRIMARY",
                      "RECORD X,REC_NOT_GAP GRANTED PRIMARY", "TABLE IS GRANTED -", "TABLE IX GRANTED -"}));
}

TEST_P(Rows, rows_beside_a_locked_one_can_be_made_and_removed) {  // H4: no gaps
  Locker locker = open();
  const Lock lock = locker.acquire("u1/a1/r1");
  plain().ask("SET SESSION innodb_lock_wait_timeout=1");
  for (const auto& [row, mode] : locked()) {
    for (const long bucket : {row.second - 1, row.second + 1}) {
      const std::string level = std::to_string(row.first), at = std::to_string(bucket);
      EXPECT_EQ(plain().code_of("INSERT INTO `" + table() + "` (level, bucket) VALUES (" + level + ", " + at + ")"), 0u)
          << at;
      EXPECT_EQ(plain().code_of("DELETE FROM `" + table() + "` WHERE level=" + level + " AND bucket=" + at), 0u) << at;
    }
  }
}

TEST_P(Rows, a_lock_is_a_transaction_at_read_committed_that_writes_nothing) {  // H4: no DML, B3: none for the fence
  const Server mine = make_user("ALL", server().database + ".*");
  Locker locker = hierlock::open(url(mine));
  locker.acquire("u1/a1/r1").release();  // its rows are there
  const Lock lock = locker.acquire("u1/a1/r1");
  const std::string sql =
      "SELECT trx_isolation_level, trx_rows_modified FROM information_schema.innodb_trx WHERE trx_mysql_thread_id IN "
      "(SELECT ID FROM information_schema.processlist WHERE USER='" +
      mine.user + "')";
  // What the view says is up to 100 ms old.
  EXPECT_TRUE(eventually([&] {
    return plain().ask(sql) == Plain::Rows{{"READ COMMITTED", "0"}};
  })) << testing::PrintToString(plain().ask(sql));
}

HIERLOCK_ON_BOTH_SERVERS(Rows);

}  // namespace
}  // namespace hierlock::mysql_tests
