#include "lab/database.h"

#include <algorithm>
#include <cctype>

#include "lab/engines.h"
#include "lab/sql_text.h"

namespace hierlock::lab {

namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

[[maybe_unused]] [[noreturn]] void not_built(const std::string& engine, const std::string& package) {
  throw Error(ErrorKind::unsupported, "this build of the lab cannot talk to " + engine + ": install " + package +
                                          " (so Debian calls it) and build hierlock again");
}

}  // namespace

std::unique_ptr<Database> open_database(std::string_view text) {
  const spi::Url url = spi::Url::parse(text);
  if (url.scheme == "mysql") {
#ifdef HIERLOCK_LAB_MYSQL
    return open_mysql(url);
#else
    not_built("MySQL and MariaDB", "libmariadb-dev");
#endif
  }
  if (url.scheme == "postgres" || url.scheme == "postgresql") {
#ifdef HIERLOCK_LAB_POSTGRES
    return open_postgres(std::string(text));
#else
    not_built("PostgreSQL", "libpq-dev");
#endif
  }
  if (url.scheme == "sqlite") {
#ifdef HIERLOCK_LAB_SQLITE
    return open_sqlite(url);
#else
    not_built("SQLite", "libsqlite3-dev");
#endif
  }
  return nullptr;
}

std::vector<std::string> words_of(std::string_view sql) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < sql.size();) {
    const char c = sql[i];
    if (const std::size_t after = quoted_end(sql, i); after != i) {
      i = std::min(after, sql.size());
    } else if (sql.substr(i, 2) == "/*") {
      const std::size_t end = sql.find("*/", i + 2);
      i = end == sql.npos ? sql.size() : end + 2;
    } else if (sql.substr(i, 2) == "--") {
      i = std::min(sql.find('\n', i), sql.size());
    } else if (is_word(c)) {
      std::string& word = words.emplace_back();
      for (; i < sql.size() && is_word(sql[i]); ++i) {
        word += static_cast<char>(std::tolower(static_cast<unsigned char>(sql[i])));
      }
    } else {
      ++i;
    }
  }
  return words;
}

bool changes_rows(const std::vector<std::string>& words) {
  if (words.empty()) return false;
  const auto is = [&](std::string_view word) { return words.front() == word; };
  return is("insert") || is("update") || is("delete") || is("replace") || is("merge") || is("with");
}

void add_wait(View& view, const std::string& session, const std::string& blocker, const std::string& object) {
  auto wait =
      std::find_if(view.waits.begin(), view.waits.end(), [&](const WaitSeen& one) { return one.session == session; });
  if (wait == view.waits.end()) wait = view.waits.insert(wait, {session, {}, object});
  auto& blockers = wait->blockers;
  if (!blocker.empty() && std::find(blockers.begin(), blockers.end(), blocker) == blockers.end()) {
    blockers.push_back(blocker);
  }
}

}  // namespace hierlock::lab
