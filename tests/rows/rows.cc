#include "rows.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <system_error>

namespace hierlock::tests {

const std::vector<Place>& places() {
  static const std::vector<Place> all = {
      {"sqlite", Engine::sqlite, "", false},
      {"bare_sqlite", Engine::sqlite, "", true},
      {"mysql", Engine::mysql, "MYSQL", false},
      {"mariadb", Engine::mariadb, "MARIADB", false},
      {"postgres", Engine::postgres, "POSTGRES", false},
  };
  return all;
}

Reply Spy::run(const std::string& sql, std::span<const Value> values, std::size_t columns) {
  {
    const std::scoped_lock lock(mutex_);
    sent_.push_back(sql);
    changed_.notify_all();
  }
  return below_.run(sql, values, columns);
}

std::vector<std::string> Spy::sent() const {
  const std::scoped_lock lock(mutex_);
  return sent_;
}

void Spy::wait_for(const std::string& part) const {
  std::unique_lock lock(mutex_);
  const auto came = [&] {
    return std::ranges::any_of(sent_, [&](const std::string& sql) { return sql.find(part) != sql.npos; });
  };
  if (!changed_.wait_for(lock, patience, came)) throw std::runtime_error("nobody sent " + part);
}

void Spy::forget() {
  const std::scoped_lock lock(mutex_);
  sent_.clear();
}

Reply User::sql(const std::string& text, std::size_t columns) {
  Reply reply = client_->adapter().run(text, {}, columns);
  EXPECT_FALSE(reply.failed()) << text << ": " << reply.message;
  return reply;
}

// In memory where that is possible: nobody keeps the file, and a disk would be waited for at each commit.
SqliteFile::SqliteFile() {
  const std::filesystem::path memory = "/dev/shm";
  const bool possible = std::filesystem::is_directory(memory);
  path_ = ((possible ? memory : std::filesystem::temp_directory_path()) / "sqlite-of-rows-XXXXXX").string();
  const int file = mkstemp(path_.data());
  if (file < 0) throw std::system_error(errno, std::generic_category(), path_);
  close(file);
}

SqliteFile::~SqliteFile() {
  std::error_code ignored;
  for (const char* suffix : {"", "-journal", "-wal", "-shm"}) std::filesystem::remove(path_ + suffix, ignored);
}

std::unique_ptr<User> SqliteFile::user(bool bare) const {
  return std::make_unique<User>(bare ? bare_sqlite_client(path_) : soci_client("sqlite3", "db=" + path_));
}

void Rows::SetUp() {
  if (GetParam().server.empty()) {
    file_.emplace();
  } else {
    HIERLOCK_NEEDS_SERVER(GetParam().server);
  }
  admin_ = user();
}

void Rows::TearDown() {
  if (admin_) {
    for (const std::string& table : tables_) {
      admin_->sql("DROP TABLE IF EXISTS " + table);
    }
  }
  admin_.reset();
}

std::unique_ptr<Client> Rows::connect() const {
  if (GetParam().bare) return bare_sqlite_client(file_->path());
  if (is_sqlite()) return soci_client("sqlite3", "db=" + file_->path());
  return server_client(*server_variable(GetParam().server));
}

std::string Rows::table_name() {
  static std::atomic<int> number = 1000;  // with as many digits as the others: later names are greater
  tables_.push_back("rows_" + std::to_string(getpid()) + "_" + std::to_string(++number));
  return tables_.back();
}

Table Rows::stock() {
  const std::string name = table_name();
  admin().sql(
      "CREATE TABLE " + name +
      " (item VARCHAR(40) NOT NULL PRIMARY KEY, quantity BIGINT NOT NULL, version BIGINT NOT NULL, fence BIGINT)" +
      (is_innodb() ? " CHARACTER SET utf8mb4" : ""));
  const Table table(name, {.key = {"item"}, .columns = {"quantity"}, .version = "version", .fence = "fence"});
  for (const char* item : {"tea", "milk", "salt"}) admin()->insert(table, {item}, {100});
  return table;
}

long long Rows::quantity(const Table& table, const std::string& item) {
  return admin().ask<long long>("SELECT quantity FROM " + table.name() + " WHERE item = '" + item + "'");
}

}  // namespace hierlock::tests
