#include <algorithm>
#include <set>

#include <hierlock/rows.h>

#include "rows/identifier.h"

namespace hierlock::rows {

Table::Table(std::string name, TableColumns columns) {
  const std::size_t dot = name.find('.');
  if (dot != name.npos) check_identifier(std::string_view(name).substr(0, dot), "a schema");
  check_identifier(std::string_view(name).substr(dot == name.npos ? 0 : dot + 1), "a table");
  if (columns.key.empty()) throw Error(ErrorKind::invalid_argument, "the table " + name + " needs a key");

  std::vector<std::string> all = columns.key;
  all.insert(all.end(), columns.columns.begin(), columns.columns.end());
  for (const std::string& special : {columns.version, columns.fence}) {
    if (!special.empty()) all.push_back(special);
  }
  std::set<std::string> seen;
  for (const std::string& column : all) {
    check_identifier(column, "a column");
    // MySQL and SQLite do not tell columns apart by case.
    std::string folded = column;
    std::ranges::transform(folded, folded.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
    if (!seen.insert(folded).second) {
      throw Error(ErrorKind::invalid_argument, "the column " + column + " of " + name +
                                                   " stands twice: key, version, fence and the others are apart");
    }
  }
  data_ = std::make_shared<const Data>(Data{std::move(name), std::move(columns)});
}

Row::Row(Table table, Key key, std::vector<Value> values, std::optional<std::int64_t> version)
    : table_(std::move(table)), key_(std::move(key)), values_(std::move(values)), version_(version) {}

std::int64_t Row::version() const {
  if (version_) return *version_;
  throw Error(ErrorKind::invalid_argument, "the table " + table_.name() + " has no version column");
}

std::size_t Row::place(std::string_view column) const {
  const std::vector<std::string>& names = table_.columns().columns;
  const auto found = std::ranges::find(names, column);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  throw Error(ErrorKind::invalid_argument, "\"" + std::string(column) + "\" is not one of the columns of " +
                                               table_.name() + " (key, version and fence cannot be set)");
}

void Row::set(std::string_view column, Value value) {
  const std::size_t at = place(column);
  values_[at] = std::move(value);
  changed_.resize(values_.size());
  changed_[at] = 1;
}

Wait Wait::at_most(std::chrono::nanoseconds time) {
  // More than anybody waits, and what every engine can count.
  constexpr std::chrono::milliseconds longest = std::chrono::hours(24 * 20);
  if (time <= std::chrono::nanoseconds::zero()) return no_wait();
  return Wait(Kind::at_most, time >= longest ? longest : std::chrono::ceil<std::chrono::milliseconds>(time));
}

}  // namespace hierlock::rows
