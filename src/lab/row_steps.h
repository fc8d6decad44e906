// Row steps: calls of hierlock/rows.h in a scenario, on the connection of the step's session. So what a scenario proves
// is what applications link.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hierlock/rows.h>

#include "lab/database.h"

namespace hierlock::lab {

using RowTables = std::map<std::string, rows::Table, std::less<>>;

struct RowStep {
  enum class Kind : std::uint8_t { begin, commit, rollback, fetch, check, update, remove, guarded, lock, fenced };
  Kind kind = Kind::begin;
  rows::Begin how = rows::Begin::write;  // begin
  std::vector<rows::RowsOf> of{};        // one row, but for lock
  std::int64_t number = 0;               // check: the version. fenced: the fence
  std::vector<rows::Change> changes{};   // update, guarded, fenced
  std::vector<rows::Guard> guards{};     // guarded
  rows::LockOptions lock{};

  const rows::Table& table() const { return of.front().table; }
  const rows::Key& key() const { return of.front().keys.front(); }
};

// Whether a line's text is about rows.
bool is_row_step(std::string_view text);
// `rows TABLE key NAME columns NAME… [version NAME] [fence NAME]` of a setup line. Both throw Error(invalid_argument)
// that says what was expected.
rows::Table row_table(std::string_view text);
// `rows update stock tea quantity = 5` of a step. The table must be one of those.
RowStep row_step(std::string_view text, const RowTables& tables);

// The module on one connection.
class RowSession {
 public:
  RowSession(Connection& connection, std::string_view engine) : adapter_(connection, engine), session_(adapter_) {}

  // Errors are answers; their codes are the names of error kinds. `conflict` is an answer that changed no row.
  Answer execute(const RowStep& step);

 private:
  // Puts values into the text as literals: the lab's connections bind none.
  class LabAdapter final : public rows::Adapter {
   public:
    LabAdapter(Connection& connection, std::string_view engine);
    rows::Engine engine() const override { return engine_; }
    rows::Placeholder placeholder() const override { return rows::Placeholder::question; }
    rows::Reply run(const std::string& sql, std::span<const rows::Value> values, std::size_t columns) override;

   private:
    Connection& connection_;
    rows::Engine engine_;
  };

  Answer perform(const RowStep& step);
  rows::Row& fetched(const RowStep& step);
  Answer shown(std::vector<rows::Row> found);

  LabAdapter adapter_;
  rows::Session session_;
  std::map<std::pair<std::string, std::string>, rows::Row> fetched_;  // by table and key: what update writes
};

}  // namespace hierlock::lab
