#include "sql_session.h"

#include <unistd.h>

#ifdef HIERLOCK_BENCH_MYSQL

#include <hierlock/mysql.h>
#include <mysql.h>

#include <cstdlib>
#include <cstring>
#include <vector>

namespace bench {

std::string why_no_mysql() { return {}; }
void enable_mysql() { hierlock::mysql::enable(); }

struct SqlSession::Handle {
  Handle() : mysql(mysql_init(nullptr)) {}
  ~Handle() { mysql_close(mysql); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  [[noreturn]] void fail() const { throw SqlError(std::string("database: ") + mysql_error(mysql), mysql_errno(mysql)); }

  MYSQL* const mysql;
};

SqlSession::SqlSession(const std::string& url) : handle_(std::make_unique<Handle>()) {
  // mysql://user:password@host:port/database
  const auto between = [&](std::size_t begin, char end) { return url.substr(begin, url.find(end, begin) - begin); };
  const std::string user = between(8, ':'), password = between(8 + user.size() + 1, '@');
  const std::string host = between(url.rfind('@') + 1, ':');
  const std::string port = between(url.rfind(':') + 1, '/'), database = url.substr(url.rfind('/') + 1);
  if (mysql_real_connect(handle_->mysql, host.c_str(), user.c_str(), password.c_str(), database.c_str(),
                         static_cast<unsigned>(std::atoi(port.c_str())), nullptr, 0) == nullptr) {
    handle_->fail();
  }
  ask("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED");
  if (!mariadb()) ask("SET SESSION information_schema_stats_expiry=0");  // sizes as they are now
}

SqlSession::~SqlSession() = default;

bool SqlSession::mariadb() const noexcept { return mariadb_connection(handle_->mysql) != 0; }

std::string SqlSession::ask(const std::string& sql) {
  if (mysql_real_query(handle_->mysql, sql.data(), sql.size()) != 0) handle_->fail();
  MYSQL_RES* const result = mysql_store_result(handle_->mysql);
  if (result == nullptr) return {};
  const MYSQL_ROW row = mysql_fetch_row(result);
  const std::string value = row != nullptr && row[0] != nullptr ? row[0] : "";
  mysql_free_result(result);
  return value;
}

struct SqlSession::Statement::Handle {
  explicit Handle(MYSQL* mysql) : statement(mysql_stmt_init(mysql)) {}
  ~Handle() { mysql_stmt_close(statement); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  [[noreturn]] void fail() const {
    throw SqlError(std::string("database: ") + mysql_stmt_error(statement), mysql_stmt_errno(statement));
  }

  MYSQL_STMT* const statement;
};

SqlSession::Statement::Statement(SqlSession& session, const std::string& sql)
    : handle_(std::make_unique<Handle>(session.handle_->mysql)) {
  if (mysql_stmt_prepare(handle_->statement, sql.data(), sql.size()) != 0) handle_->fail();
}

SqlSession::Statement::~Statement() = default;

std::size_t SqlSession::Statement::execute(std::span<const SqlValue> values) {
  MYSQL_STMT* const statement = handle_->statement;
  std::vector<MYSQL_BIND> binds(values.size());
  std::vector<std::uint32_t> numbers(values.size());
  std::memset(binds.data(), 0, binds.size() * sizeof(MYSQL_BIND));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (const auto* const text = std::get_if<std::string_view>(&values[i])) {
      binds[i].buffer_type = MYSQL_TYPE_STRING;
      binds[i].buffer = const_cast<char*>(text->data());
      binds[i].buffer_length = text->size();
    } else {
      numbers[i] = std::get<std::uint32_t>(values[i]);
      binds[i].buffer_type = MYSQL_TYPE_LONG;
      binds[i].is_unsigned = 1;
      binds[i].buffer = &numbers[i];
    }
  }
  if (mysql_stmt_bind_param(statement, binds.data()) != 0) handle_->fail();
  if (mysql_stmt_execute(statement) != 0) handle_->fail();
  if (mysql_stmt_field_count(statement) == 0) return 0;
  if (mysql_stmt_store_result(statement) != 0) handle_->fail();
  const std::size_t rows = mysql_stmt_num_rows(statement);
  mysql_stmt_free_result(statement);
  return rows;
}

}  // namespace bench

#else

namespace bench {

std::string why_no_mysql() { return "this build has no mysql: store"; }
void enable_mysql() { throw std::runtime_error(why_no_mysql()); }

struct SqlSession::Handle {};
struct SqlSession::Statement::Handle {};

SqlSession::SqlSession(const std::string&) { throw std::runtime_error(why_no_mysql()); }
SqlSession::~SqlSession() = default;
bool SqlSession::mariadb() const noexcept { return false; }
std::string SqlSession::ask(const std::string&) { return {}; }
SqlSession::Statement::Statement(SqlSession&, const std::string&) {}
SqlSession::Statement::~Statement() = default;
std::size_t SqlSession::Statement::execute(std::span<const SqlValue>) { return 0; }

}  // namespace bench

#endif

namespace bench {

namespace {

// FNV-1a of 32 bits, fed piece by piece.
class Fnv1a {
 public:
  void add(std::string_view bytes) {
    for (const char byte : bytes) add(static_cast<unsigned char>(byte));
  }
  void add_length(std::size_t length) {
    for (const int shift : {24, 16, 8, 0}) add(static_cast<unsigned char>(length >> shift));
  }
  std::uint32_t hash() const noexcept { return hash_; }

 private:
  void add(unsigned char byte) { hash_ = (hash_ ^ byte) * 16777619u; }
  std::uint32_t hash_ = 2166136261u;
};

}  // namespace

std::uint32_t bucket_of(const Path& path, std::size_t level, std::uint32_t buckets) {
  Fnv1a key;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= level; ++i) {
    const std::string_view segment = std::string_view(path.nodes[i]).substr(begin);
    key.add_length(segment.size());
    key.add(segment);
    begin = path.nodes[i].size() + 1;
  }
  return key.hash() % buckets;
}

std::string scratch_table(std::string_view purpose) {
  return "bench_" + std::string(purpose) + "_" + std::to_string(getpid());
}

void drop_hierlock_tables(SqlSession& session, const std::string& table) {
  session.ask("DROP TABLE IF EXISTS " + table + ", " + table + "_settings, " + table + "_notices");
}

}  // namespace bench
