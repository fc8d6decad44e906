#include "rows/statement.h"

#include <algorithm>

namespace hierlock::rows {
namespace {

void refuse(const std::string& why) { throw Error(ErrorKind::invalid_argument, why); }

void check_key(const Table& table, const Key& key) {
  const std::size_t wanted = table.columns().key.size();
  if (key.size() != wanted) {
    refuse("a key of " + table.name() + " has " + std::to_string(wanted) + " column(s), not " +
           std::to_string(key.size()));
  }
  if (std::ranges::any_of(key, [](const Value& part) { return part.is_null(); })) {
    refuse("a key of " + table.name() + " has no NULL in it");
  }
}

// A column that callers may read in guards: all of them.
void check_guard_column(const Table& table, const std::string& column) {
  const TableColumns& all = table.columns();
  const auto in = [&](const std::vector<std::string>& names) { return std::ranges::count(names, column) > 0; };
  if (!in(all.columns) && !in(all.key)) refuse("\"" + column + "\" is not a column of " + table.name());
}

std::string_view comparison(Guard::Test test) {
  switch (test) {
    case Guard::Test::equal:
      return " = ";
    case Guard::Test::not_equal:
      return " <> ";
    case Guard::Test::less:
      return " < ";
    case Guard::Test::at_most:
      return " <= ";
    case Guard::Test::greater:
      return " > ";
    case Guard::Test::at_least:
      return " >= ";
    case Guard::Test::null:
      return " IS NULL";
    case Guard::Test::not_null:
      return " IS NOT NULL";
  }
  return " = ";
}

}  // namespace

// MySQL takes every text for a number if it is compared with one, and most are 0 then: `item = 0` would be true of all
// rows. A text is converted to the type of the column instead.
Session::Statement& Session::Statement::bind_key(const Value& part) {
  const bool innodb = engine_ == Engine::mysql || engine_ == Engine::mariadb;
  return bind(innodb ? Value(part.get<std::string>()) : part);
}

Session::Statement& Session::Statement::key(const Table& table, const Key& key) {
  check_key(table, key);
  const std::vector<std::string>& columns = table.columns().key;
  for (std::size_t i = 0; i < key.size(); ++i)
    text(i == 0 ? "" : " AND ").name(columns[i]).text(" = ").bind_key(key[i]);
  return *this;
}

Session::Statement& Session::Statement::keys(const Table& table, std::span<const Key> keys) {
  if (keys.size() == 1) return key(table, keys.front());
  if (table.columns().key.size() == 1) {
    name(table.columns().key.front()).text(" IN (");
    for (std::size_t i = 0; i < keys.size(); ++i) {
      check_key(table, keys[i]);
      text(i == 0 ? "" : ", ").bind_key(keys[i].front());
    }
    return text(")");
  }
  // Not (a, b) IN ((?, ?), …): MariaDB does not look such pairs up in the index.
  for (std::size_t i = 0; i < keys.size(); ++i) text(i == 0 ? "(" : " OR (").key(table, keys[i]).text(")");
  return *this;
}

Session::Statement& Session::Statement::changes(const Table& table, const std::vector<Change>& changes) {
  const TableColumns& all = table.columns();
  std::string_view comma;
  std::vector<std::string_view> seen;
  for (const Change& change : changes) {
    if (std::ranges::count(all.columns, change.column) == 0) {
      refuse("\"" + change.column + "\" cannot be changed: it is not one of the columns of " + table.name() +
             " (key, version and fence are not)");
    }
    if (std::ranges::count(seen, change.column) > 0) refuse("\"" + change.column + "\" is changed twice");
    seen.push_back(change.column);
    text(comma).name(change.column).text(" = ");
    if (change.relative) name(change.column).text(" + ");
    bind(change.value);
    comma = ", ";
  }
  if (!all.version.empty()) text(comma).name(all.version).text(" = ").name(all.version).text(" + 1");
  if (changes.empty() && all.version.empty()) refuse("an update of " + table.name() + " that changes nothing");
  return *this;
}

Session::Statement& Session::Statement::guards(const Table& table, const std::vector<Guard>& guards) {
  for (const Guard& guard : guards) {
    check_guard_column(table, guard.column);
    const bool about_null = guard.test == Guard::Test::null || guard.test == Guard::Test::not_null;
    if (!about_null && guard.value.is_null()) refuse("NULL equals nothing: use is_null(\"" + guard.column + "\")");
    text(" AND ").name(guard.column).text(comparison(guard.test));
    if (!about_null) bind(guard.value);
  }
  return *this;
}

}  // namespace hierlock::rows
