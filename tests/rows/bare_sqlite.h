// An adapter of hierlock/rows.h over a bare client library: all that a new one needs. docs/rows.md shows it.
#pragma once

#include <hierlock/rows.h>
#include <sqlite3.h>

namespace hierlock::tests {

using rows::Value;

class BareSqlite final : public rows::Adapter {
 public:
  explicit BareSqlite(sqlite3* connection) : connection_(connection) {}

  rows::Engine engine() const override { return rows::Engine::sqlite; }
  rows::Placeholder placeholder() const override { return rows::Placeholder::question; }

  rows::Reply run(const std::string& sql, std::span<const Value> values, std::size_t columns) override {
    rows::Reply reply;
    sqlite3_stmt* statement = nullptr;
    int result = sqlite3_prepare_v2(connection_, sql.c_str(), -1, &statement, nullptr);
    for (int i = 0; result == SQLITE_OK && i < static_cast<int>(values.size()); ++i) {
      result = bind(statement, i + 1, values[static_cast<std::size_t>(i)]);
    }
    if (result == SQLITE_OK) {
      while ((result = sqlite3_step(statement)) == SQLITE_ROW) {
        std::vector<Value>& row = reply.rows.emplace_back();
        for (int i = 0; i < static_cast<int>(columns); ++i) row.push_back(column(statement, i));
      }
    }
    if (result == SQLITE_DONE) {
      reply.affected = sqlite3_changes64(connection_);
    } else {
      reply.code = sqlite3_extended_errcode(connection_);
      reply.message = sqlite3_errmsg(connection_);
    }
    sqlite3_finalize(statement);
    return reply;
  }

 private:
  static int bind(sqlite3_stmt* statement, int place, const Value& value) {
    if (const auto* number = std::get_if<std::int64_t>(&value.held())) {
      return sqlite3_bind_int64(statement, place, *number);
    }
    if (const auto* number = std::get_if<double>(&value.held())) return sqlite3_bind_double(statement, place, *number);
    if (const auto* text = std::get_if<std::string>(&value.held())) {
      return sqlite3_bind_text64(statement, place, text->data(), text->size(), SQLITE_TRANSIENT, SQLITE_UTF8);
    }
    return sqlite3_bind_null(statement, place);
  }
  static Value column(sqlite3_stmt* statement, int place) {
    switch (sqlite3_column_type(statement, place)) {
      case SQLITE_NULL:
        return {};
      case SQLITE_INTEGER:
        return sqlite3_column_int64(statement, place);
      case SQLITE_FLOAT:
        return sqlite3_column_double(statement, place);
      default:
        return std::string(static_cast<const char*>(sqlite3_column_blob(statement, place)),
                           static_cast<std::size_t>(sqlite3_column_bytes(statement, place)));
    }
  }

  sqlite3* connection_;
};

}  // namespace hierlock::tests
