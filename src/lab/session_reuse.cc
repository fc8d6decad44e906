#include "lab/session_reuse.h"

#include <algorithm>
#include <string>
#include <vector>

#include "lab/sql_text.h"

namespace hierlock::lab {

namespace {

// PostgreSQL: a setting that the server does not know stays defined after RESET ALL; a library stays loaded, with its
// settings and its connections to other servers; DISCARD ALL keeps temporary replication slots and replication origins;
// languages have memories of their own.
constexpr std::string_view of_postgres[] = {"set_config",    "current_setting", "extension",    "dblink",
                                            "create server", "foreign table",   "foreign data", "replication",
                                            "plperl",        "plpython",        "pltcl"};

// Comments may stand between any two words, and U& may spell any name: tokens_of() reads neither.
bool has_unread_parts(const std::string& lower) {
  return lower.find("/*") != lower.npos || lower.find("--") != lower.npos || lower.find("u&") != lower.npos;
}

// `set my.name = …`, or a statement that is put together while it runs, and may be that.
bool may_define_a_setting(const std::vector<std::string>& tokens) {
  const auto at = [&](std::size_t i) -> std::string_view { return i < tokens.size() ? tokens[i] : std::string_view(); };
  const auto has = [&](std::string_view word) { return std::find(tokens.begin(), tokens.end(), word) != tokens.end(); };
  const bool has_body = has("language") || has("do");
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] == "load") return true;
    // Of a role, a database or the server: a session gets these settings when it connects.
    if (tokens[i] == "alter" &&
        (at(i + 1) == "role" || at(i + 1) == "user" || at(i + 1) == "database" || at(i + 1) == "system")) {
      return true;
    }
    if (tokens[i] == "execute" && has_body && at(i + 1) != "function" && at(i + 1) != "procedure") return true;
    if (tokens[i] != "set" && tokens[i] != "reset" && tokens[i] != "show") continue;
    std::size_t name = i + 1;
    if (at(name) == "session" || at(name) == "local") ++name;
    if (at(name) == "\"") return true;  // a quoted name may have anything in it
    if (at(name + 1) == ".") return true;
  }
  return false;
}

}  // namespace

bool may_outlive_a_reset(std::string_view sql, std::string_view engine) {
  const std::string text = lowered(sql);
  const auto is_in = [&](std::string_view part) { return text.find(part) != text.npos; };
  if (engine != "postgres") return true;  // no other engine uses a connection again
  if (has_unread_parts(text)) return true;
  return std::any_of(std::begin(of_postgres), std::end(of_postgres), is_in) || may_define_a_setting(tokens_of(text));
}

bool may_change_settings(std::string_view sql) {
  // What a statement follows, also in a body. Before the SET of an UPDATE there is the name of a table.
  static constexpr std::string_view before[] = {";", "$", "'", "begin", "then", "else", "loop", "as", "atomic"};
  const std::string text = lowered(sql);
  if (has_unread_parts(text)) return true;
  const std::vector<std::string> tokens = tokens_of(text);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] != "set") continue;
    if (i == 0 || std::find(std::begin(before), std::end(before), tokens[i - 1]) != std::end(before)) return true;
  }
  return false;
}

// All lines together: one defines a function, and another calls it.
bool needs_own_connections(const Script& script, std::string_view engine) {
  std::string all;
  for (const Line& line : script.lines) {
    if (line.is_for(engine) && !line.lock && !line.rows) all += line.text + " \n";
  }
  return may_outlive_a_reset(all, engine);
}

}  // namespace hierlock::lab
