// Statement: SQL text and the values bound to it, put together in the words of one engine and client.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <hierlock/rows.h>

#include "rows/identifier.h"

namespace hierlock::rows {

class Session::Statement {
 public:
  Statement(Engine engine, Placeholder placeholder) : engine_(engine), placeholder_(placeholder) {
    sql_.reserve(255);
    values_.reserve(4);
  }

  Statement& text(std::string_view sql) {
    sql_ += sql;
    return *this;
  }
  Statement& name(std::string_view identifier) {
    append_quoted(sql_, engine_, identifier);
    return *this;
  }
  Statement& bind(const Value& value) {
    values_.push_back(value);
    switch (placeholder_) {
      case Placeholder::question:
        sql_ += '?';
        break;
      case Placeholder::dollar:
        sql_ += '$' + std::to_string(values_.size());
        break;
      case Placeholder::colon:
        sql_ += ":p" + std::to_string(values_.size());
        break;
    }
    return *this;
  }
  Statement& names(const std::vector<std::string>& identifiers) {
    for (std::size_t i = 0; i < identifiers.size(); ++i) text(i == 0 ? "" : ", ").name(identifiers[i]);
    return *this;
  }

  // WHERE key: `(a = ? AND b = ?)`. Throws invalid_argument if the key has another number of columns.
  Statement& key(const Table& table, const Key& key);
  // The key of any of them.
  Statement& keys(const Table& table, std::span<const Key> keys);
  // SET: the changes, and version = version + 1 if the table has one (X6).
  Statement& changes(const Table& table, const std::vector<Change>& changes);
  Statement& guards(const Table& table, const std::vector<Guard>& guards);

  // After a SELECT of one row: the row as it is now. A plain SELECT under REPEATABLE READ shows InnoDB's old snapshot.
  // On PostgreSQL an UPDATE that meets a newer row fails by itself, with `serialization`.
  Statement& newest() {
    if (engine_ == Engine::mysql) return text(" FOR SHARE");
    if (engine_ == Engine::mariadb) return text(" LOCK IN SHARE MODE");
    return *this;
  }

  // Another statement after what stands here; nothing may be bound yet.
  Statement& append(const Statement& other) {
    sql_ += other.sql_;
    values_ = other.values_;
    columns_ = other.columns_;
    return *this;
  }

  Statement& columns(std::size_t number) {
    columns_ = number;
    return *this;
  }

  const std::string& sql() const { return sql_; }
  const std::vector<Value>& values() const { return values_; }
  std::size_t columns() const { return columns_; }

 private:
  Statement& bind_key(const Value& part);

  Engine engine_;
  Placeholder placeholder_;
  std::string sql_;
  std::vector<Value> values_;
  std::size_t columns_ = 0;
};

}  // namespace hierlock::rows
