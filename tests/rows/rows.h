// The frame of tests/rows: every test runs on every engine, on tables of its own, alone and in any order.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <hierlock/retry.h>
#include <hierlock/rows.h>

#include "client.h"
#include "support/needs_server.h"
#include "support/not_applicable.h"

namespace hierlock::tests {

using namespace std::chrono_literals;
using namespace hierlock::rows;

// A busy machine may make a wait this much longer, and a fact that does not come by then will not come.
inline constexpr std::chrono::seconds patience = 60s;

struct Place {
  std::string name;  // as the test is called
  Engine engine;
  std::string server;  // of HIERLOCK_TEST_…; empty: a file
  bool bare = false;   // the second adapter
};

// Listens to what goes through an adapter.
class Spy final : public Adapter {
 public:
  explicit Spy(Adapter& below) : below_(below) {}
  Engine engine() const override { return below_.engine(); }
  Placeholder placeholder() const override { return below_.placeholder(); }
  Reply run(const std::string& sql, std::span<const Value> values, std::size_t columns) override;

  // The statements sent so far.
  std::vector<std::string> sent() const;
  // Waits until a statement that contains `part` was sent since the last call of forget(). Throws if none is.
  void wait_for(const std::string& part) const;
  void forget();

 private:
  Adapter& below_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<std::string> sent_;
};

// One user of the database: a connection, a spy on it, and a session.
class User {
 public:
  explicit User(std::unique_ptr<Client> client, SessionOptions options = {})
      : client_(std::move(client)), spy_(client_->adapter()), session_(spy_, options) {}

  Session* operator->() { return &session_; }
  Session& session() { return session_; }
  Spy& spy() { return spy_; }
  // Any SQL, without the module. Fails the test if the database refuses it.
  Reply sql(const std::string& text, std::size_t columns = 0);
  // The same, and the database may refuse it.
  Reply attempt(const std::string& text) { return client_->adapter().run(text, {}, 0); }
  // Ends the statement that runs in another thread, if it has begun. SQLite only.
  void interrupt() { client_->interrupt(); }
  // One number or text of the first row.
  template <class T>
  T ask(const std::string& text) {
    const Reply reply = sql(text, 1);
    return reply.rows.at(0).at(0).get<T>();
  }

 private:
  std::unique_ptr<Client> client_;
  Spy spy_;
  Session session_;
};

// A file for SQLite, and what SQLite puts beside it; removed at the end.
class SqliteFile {
 public:
  SqliteFile();
  ~SqliteFile();
  SqliteFile(const SqliteFile&) = delete;
  SqliteFile& operator=(const SqliteFile&) = delete;

  const std::string& path() const { return path_; }
  // Through libsqlite3 alone, or through SOCI.
  std::unique_ptr<User> user(bool bare) const;

 private:
  std::string path_;
};

class Rows : public testing::TestWithParam<Place> {
 protected:
  void SetUp() override;
  void TearDown() override;

  Engine engine() const { return GetParam().engine; }
  bool is_sqlite() const { return engine() == Engine::sqlite; }
  bool is_innodb() const { return engine() == Engine::mysql || engine() == Engine::mariadb; }
  std::unique_ptr<Client> connect() const;
  std::unique_ptr<User> user(SessionOptions options = {}) const { return std::make_unique<User>(connect(), options); }
  // The first one, for making tables and looking at them.
  User& admin() { return *admin_; }

  // A name that no other test uses, dropped as a table at the end.
  std::string table_name();
  // stock(item, quantity, version, fence) with tea 100, milk 100 and salt 100.
  Table stock();
  long long quantity(const Table& table, const std::string& item);

 private:
  std::optional<SqliteFile> file_;
  std::unique_ptr<User> admin_;
  std::vector<std::string> tables_;
};

// The kind of Error that `work` throws; none if it throws nothing.
template <class Work>
std::optional<ErrorKind> kind_of(Work&& work, std::string* message = nullptr) {
  try {
    work();
  } catch (const Error& error) {
    if (message != nullptr) *message = error.what();
    return error.kind();
  }
  return std::nullopt;
}

#define HIERLOCK_ON_EVERY_ENGINE(suite)                                             \
  INSTANTIATE_TEST_SUITE_P(, suite, testing::ValuesIn(::hierlock::tests::places()), \
                           [](const testing::TestParamInfo<Place>& place) { return place.param.name; })

const std::vector<Place>& places();

}  // namespace hierlock::tests
