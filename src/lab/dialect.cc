#include "lab/dialect.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <hierlock/error.h>

#include "lab/scenario.h"
#include "lab/sql_text.h"

namespace hierlock::lab {

namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr std::string_view levels[] = {"read uncommitted", "read committed", "repeatable read", "serializable"};

bool is_level(std::string_view text) {
  return std::any_of(std::begin(levels), std::end(levels),
                     [&](std::string_view level) { return same_word(level, text); });
}
bool speaks_mysql(std::string_view engine) { return engine == "mysql" || engine == "mariadb"; }

std::string trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \t") - begin + 1));
}

// No value: it is none. At most a day, so that nothing overflows further on.
std::optional<nanoseconds> read_duration(std::string_view text) {
  const std::size_t unit_at = text.find_first_not_of("0123456789.");
  if (unit_at == 0 || unit_at == std::string_view::npos || unit_at > 12) return std::nullopt;
  const std::string_view unit = text.substr(unit_at);
  const double scale = unit == "ms" ? 1e6 : unit == "s" ? 1e9 : unit == "m" ? 60e9 : 0;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + unit_at, number);
  if (scale == 0 || error != std::errc() || end != text.data() + unit_at || number * scale > 86'400e9) {
    return std::nullopt;
  }
  return nanoseconds(std::llround(number * scale));
}

[[noreturn]] void has_no(std::string_view engine, const std::string& what) {
  throw Error(ErrorKind::unsupported, std::string(engine) + " has no " + what);
}

std::string set_level(std::string_view engine, const std::string& level) {
  if (speaks_mysql(engine)) return "set session transaction isolation level " + level;
  if (engine == "postgres") return "set session characteristics as transaction isolation level " + level;
  if (same_word(level, "serializable")) return "pragma read_uncommitted = 0";
  if (same_word(level, "read uncommitted")) return "pragma read_uncommitted = 1";
  has_no(engine, level);
}

std::string set_timeout(std::string_view engine, nanoseconds time) {
  const auto ms = std::chrono::ceil<milliseconds>(time).count();
  if (ms == 0 && engine != "sqlite" && engine != "mariadb")
    has_no(engine, "time limit of zero: say nowait in the statement");
  // In whole seconds, rounded up.
  if (speaks_mysql(engine)) return "set session innodb_lock_wait_timeout = " + std::to_string((ms + 999) / 1000);
  if (engine == "postgres") return "set lock_timeout = '" + std::to_string(ms) + "ms'";
  return "pragma busy_timeout = " + std::to_string(ms);
}

std::string spelled(std::string_view engine, std::string_view word) {
  if (word == "share") {
    if (engine == "mysql" || engine == "postgres") return "for share";
    if (engine == "mariadb") return "lock in share mode";
    has_no(engine, "shared locking read");
  }
  if (word == "update") {
    if (engine == "sqlite") has_no(engine, "exclusive locking read");
    return "for update";
  }
  const std::size_t space = word.find_first_of(" \t");
  const std::string argument = space == std::string_view::npos ? "" : trimmed(word.substr(space));
  if (word.substr(0, space) == "level") return set_level(engine, argument);
  return set_timeout(engine, *read_duration(argument));
}

// Calls `see` with the place and the inside of each `{…}` outside of quotes; returns what is left open, or npos.
std::size_t each_word(std::string_view text, const std::function<void(std::size_t, std::string_view)>& see) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (const std::size_t after = quoted_end(text, i); after != i) {
      if (after == std::string_view::npos) break;
      i = after - 1;
    } else if (text[i] == '{') {
      const std::size_t close = text.find('}', i);
      if (close == std::string_view::npos) return i;
      see(i, text.substr(i + 1, close - i - 1));
      i = close;
    }
  }
  return std::string_view::npos;
}

}  // namespace

std::chrono::nanoseconds duration(const Reader& reader, std::size_t at, std::string_view text) {
  const std::optional<nanoseconds> time = read_duration(text);
  if (!time) reader.fail(at, "a time expected, such as 100ms, 2s or 1m");
  return *time;
}

void check_words(const Reader& reader, std::size_t begin, std::string_view text) {
  const std::size_t open = each_word(text, [&](std::size_t at, std::string_view word) {
    const std::string whole = trimmed(word);
    const std::size_t space = whole.find_first_of(" \t");
    const std::string argument = space == std::string::npos ? "" : trimmed(std::string_view(whole).substr(space));
    const std::string first = whole.substr(0, space);
    if (whole == "share" || whole == "update") return;
    if (first == "level") {
      if (!is_level(argument)) {
        reader.fail(begin + at,
                    "{level read uncommitted}, {level read committed}, {level repeatable read} or {level "
                    "serializable} expected");
      }
      return;
    }
    if (first == "timeout") {
      duration(reader, begin + at, argument);
      return;
    }
    reader.fail(begin + at, "{share}, {update}, {level NAME} or {timeout TIME} expected");
  });
  if (open != std::string_view::npos) reader.fail(begin + open, "a `}` expected for this one");
}

std::vector<std::string> in_dialect(std::string_view engine, std::string_view text) {
  if (text.empty()) return {};
  std::string sql;
  std::size_t done = 0;
  each_word(text, [&](std::size_t at, std::string_view word) {
    sql += text.substr(done, at - done);
    sql += spelled(engine, trimmed(word));
    done = at + word.size() + 2;
  });
  sql += text.substr(done);

  // begin LEVEL
  const std::size_t space = std::min(sql.find_first_of(" \t"), sql.size());
  const std::string level = trimmed(std::string_view(sql).substr(space));
  if (!same_word(std::string_view(sql).substr(0, space), "begin") || !is_level(level)) return {sql};
  if (engine == "postgres") return {"begin transaction isolation level " + level};
  if (speaks_mysql(engine)) return {"set transaction isolation level " + level, "begin"};
  return {set_level(engine, level), "begin"};
}

}  // namespace hierlock::lab
