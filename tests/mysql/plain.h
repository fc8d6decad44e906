// Plain: a session of a server that has nothing to do with hierlock, to look at it from outside.
#pragma once

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

struct st_mysql;

namespace hierlock::mysql_tests {

// mysql://user:password@127.0.0.1:port/database, as `tools/servers env` writes them.
struct Server {
  explicit Server(const std::string& url);
  // The URL once more, with what was changed and with what follows the question mark.
  std::string url(const std::string& options = "") const;

  std::string user, password, host, database;
  unsigned port = 0;
};

class SqlError : public std::runtime_error {
 public:
  SqlError(unsigned code, const std::string& message) : std::runtime_error(message), code_(code) {}
  unsigned code() const { return code_; }

 private:
  unsigned code_;
};

class Plain {
 public:
  using Rows = std::vector<std::vector<std::string>>;  // NULL is an empty text

  explicit Plain(const std::string& url) : Plain(Server(url)) {}
  explicit Plain(const Server& server);  // throws SqlError, as ask() does

  Rows ask(const std::string& sql);
  std::string one(const std::string& sql) { return ask(sql).at(0).at(0); }
  // 0, or the server's number for what went wrong.
  unsigned code_of(const std::string& sql);
  unsigned long id() const;

 private:
  struct Close {
    void operator()(st_mysql* mysql) const;
  };
  std::unique_ptr<st_mysql, Close> mysql_;
};

// Which rows of a table somebody holds at this moment, by a scan that skips them: (level, bucket) -> 'S' or 'X'.
std::map<std::pair<int, long>, char> locked_rows(Plain& plain, const std::string& table);

}  // namespace hierlock::mysql_tests
