#include "plain.h"

#include <mysql.h>

#include <set>

namespace hierlock::mysql_tests {

Server::Server(const std::string& url) {
  std::size_t at = 0;
  const auto until = [&](const std::string& end) {
    const std::size_t found = url.find(end, at);
    if (found == url.npos) throw std::runtime_error("not a URL of tools/servers");
    const std::string part = url.substr(at, found - at);
    at = found + end.size();
    return part;
  };
  until("mysql://");
  user = until(":");
  password = until("@");
  host = until(":");
  port = static_cast<unsigned>(std::stoul(until("/")));
  database = url.substr(at);
}

std::string Server::url(const std::string& options) const {
  return "mysql://" + user + ":" + password + "@" + host + ":" + std::to_string(port) + "/" + database +
         (options.empty() ? "" : "?" + options);
}

void Plain::Close::operator()(st_mysql* mysql) const { mysql_close(mysql); }

Plain::Plain(const Server& server) : mysql_(mysql_init(nullptr)) {
  const unsigned tcp = MYSQL_PROTOCOL_TCP;
  mysql_options(mysql_.get(), MYSQL_OPT_PROTOCOL, &tcp);
  if (mysql_real_connect(mysql_.get(), server.host.c_str(), server.user.c_str(), server.password.c_str(),
                         server.database.c_str(), server.port, nullptr, 0) == nullptr) {
    throw SqlError(mysql_errno(mysql_.get()), mysql_error(mysql_.get()));
  }
}

unsigned long Plain::id() const { return mysql_thread_id(mysql_.get()); }

Plain::Rows Plain::ask(const std::string& sql) {
  MYSQL* const mysql = mysql_.get();
  const auto check = [&](bool well) {
    if (!well) throw SqlError(mysql_errno(mysql), sql + ": " + mysql_error(mysql));
  };
  check(mysql_real_query(mysql, sql.data(), sql.size()) == 0);
  MYSQL_RES* const result = mysql_store_result(mysql);
  check(result != nullptr || mysql_errno(mysql) == 0);
  Rows rows;
  if (result == nullptr) return rows;
  while (const MYSQL_ROW row = mysql_fetch_row(result)) {
    const unsigned long* const sizes = mysql_fetch_lengths(result);
    auto& copy = rows.emplace_back();
    for (unsigned i = 0; i < mysql_num_fields(result); ++i) {
      copy.emplace_back(row[i] == nullptr ? std::string() : std::string(row[i], sizes[i]));
    }
  }
  mysql_free_result(result);
  return rows;
}

unsigned Plain::code_of(const std::string& sql) {
  try {
    ask(sql);
    return 0;
  } catch (const SqlError& error) {
    return error.code();
  }
}

std::map<std::pair<int, long>, char> locked_rows(Plain& plain, const std::string& table) {
  using Row = std::pair<int, long>;
  const auto rows_of = [&](const std::string& how) {
    std::set<Row> rows;
    for (const auto& row : plain.ask("SELECT level, bucket FROM `" + table + "`" + how)) {
      rows.emplace(std::stoi(row.at(0)), std::stol(row.at(1)));
    }
    return rows;
  };
  const bool mariadb = plain.one("SELECT VERSION()").find("MariaDB") != std::string::npos;
  plain.ask("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED");
  plain.ask("START TRANSACTION");
  const std::set<Row> all = rows_of("");
  const std::set<Row> shareable = rows_of(mariadb ? " LOCK IN SHARE MODE SKIP LOCKED" : " FOR SHARE SKIP LOCKED");
  plain.ask("ROLLBACK");
  plain.ask("START TRANSACTION");
  const std::set<Row> free = rows_of(" FOR UPDATE SKIP LOCKED");
  plain.ask("ROLLBACK");
  std::map<Row, char> locked;
  for (const Row& row : all) {
    if (!free.contains(row)) locked[row] = shareable.contains(row) ? 'S' : 'X';
  }
  return locked;
}

}  // namespace hierlock::mysql_tests
