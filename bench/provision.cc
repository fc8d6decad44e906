#include "provision.h"

#include <stdexcept>

#include "measure.h"

#ifdef HIERLOCK_BENCH_MYSQL

#include <hierlock/mysql.h>
#include <hierlock/operate.h>
#include <mysql.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

namespace bench {

// A session of its own, and the table.
struct Filling::Server {
  explicit Server(const std::string& at) : url(at) {
    hierlock::mysql::enable();
    // mysql://user:password@host:port/database
    const auto between = [&](std::size_t begin, char end) { return url.substr(begin, url.find(end, begin) - begin); };
    const std::string user = between(8, ':'), password = between(8 + user.size() + 1, '@');
    const std::string host = between(url.rfind('@') + 1, ':');
    const std::string port = between(url.rfind(':') + 1, '/'), database = url.substr(url.rfind('/') + 1);
    session = mysql_init(nullptr);
    if (mysql_real_connect(session, host.c_str(), user.c_str(), password.c_str(), database.c_str(),
                           static_cast<unsigned>(std::atoi(port.c_str())), nullptr, 0) == nullptr) {
      const std::string why = mysql_error(session);
      mysql_close(session);
      throw std::runtime_error("provision: " + why);
    }
    if (mariadb_connection(session) == 0) ask("SET SESSION information_schema_stats_expiry=0");
  }
  ~Server() {
    try {
      drop();
    } catch (const std::exception&) {
    }
    mysql_close(session);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // The first value of the answer, if there is any.
  std::string ask(const std::string& sql) {
    if (mysql_real_query(session, sql.data(), sql.size()) != 0) {
      throw std::runtime_error(std::string("provision: ") + mysql_error(session));
    }
    MYSQL_RES* const result = mysql_store_result(session);
    if (result == nullptr) return {};
    const MYSQL_ROW row = mysql_fetch_row(result);
    const std::string value = row != nullptr && row[0] != nullptr ? row[0] : "";
    mysql_free_result(result);
    return value;
  }
  // MariaDB goes over all new rows once more after their commit. What one contender leaves to do must not be done in
  // the other's time. (MySQL forgets how to undo an insert with its commit, and has no such number.)
  void settle() {
    if (mariadb_connection(session) == 0) return;
    const Clock::time_point end = Clock::now() + std::chrono::seconds(60);  // somebody else may keep it from zero
    while (Clock::now() < end && ask("SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE "
                                     "VARIABLE_NAME='INNODB_HISTORY_LIST_LENGTH'") != "0") {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  void drop() { ask("DROP TABLE IF EXISTS " + table + ", " + table + "_settings, " + table + "_notices"); }

  const std::string url;
  const std::string table = "bench_provision_" + std::to_string(getpid());
  MYSQL* session = nullptr;
};

namespace {

// The digits of all numbers below `rows`, each of them a table of ten rows; the last digit is the outermost loop.
std::string cross_joins(const std::string& table, std::uint64_t rows) {
  std::string number, from;
  int digit = 0;
  for (std::uint64_t unit = 1; unit < rows; unit *= 10, ++digit) {
    const std::string name = "d" + std::to_string(digit);
    number += (number.empty() ? "" : " + ") + name + ".d * " + std::to_string(unit);
    from += (from.empty() ? "" : " CROSS JOIN ") + ("digits " + name);
  }
  return "INSERT INTO " + table +
         " (level, bucket) WITH digits AS (SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 "
         "UNION "
         "ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT "
         "9), "
         "nums AS (SELECT " +
         number + " AS n FROM " + from + ") SELECT 0, n FROM nums";
}

}  // namespace

std::string Filling::why_not() { return {}; }

void Filling::fill() {
  server_->drop();
  server_->settle();
  const std::string& table = server_->table;
  const Clock::time_point begin = Clock::now();
  if (way_ == Way::ours) {
    hierlock::provision(server_->url + "?table=" + table, {.buckets = static_cast<std::uint32_t>(rows_), .levels = 1});
  } else {
    server_->ask("CREATE TABLE " + table +
                 " (level TINYINT NOT NULL, bucket INT NOT NULL, PRIMARY KEY (level, bucket)) ENGINE=InnoDB");
    server_->ask(cross_joins(table, rows_));
  }
  nanoseconds_ = bench::nanoseconds(Clock::now() - begin);
  if (server_->ask("SELECT COUNT(*) FROM " + table) != std::to_string(rows_)) {
    throw std::runtime_error("provision: rows are missing");
  }
  server_->ask("ANALYZE TABLE " + table);  // the size is counted anew
  bytes_ =
      std::stod(server_->ask("SELECT DATA_LENGTH FROM information_schema.TABLES WHERE TABLE_SCHEMA=DATABASE() AND "
                             "TABLE_NAME='" +
                             table + "'"));
  server_->settle();
  server_->drop();
  time_told_ = bytes_told_ = false;
}

}  // namespace bench

#else

namespace bench {

struct Filling::Server {
  explicit Server(const std::string&) { throw std::runtime_error(why_not()); }
};

std::string Filling::why_not() { return "this build has no mysql: store"; }

void Filling::fill() {}

}  // namespace bench

#endif

namespace bench {

Filling::Filling(const std::string& url, std::uint64_t rows, Way way)
    : server_(std::make_unique<Server>(url)), rows_(rows), way_(way) {}
Filling::~Filling() = default;

double Filling::nanoseconds() {
  if (time_told_) fill();
  time_told_ = true;
  return nanoseconds_;
}

double Filling::bytes() {
  if (bytes_told_) fill();
  bytes_told_ = true;
  return bytes_;
}

}  // namespace bench
