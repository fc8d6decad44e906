#include "mysql/store.h"

#include <ranges>
#include <vector>

#include <hierlock/error.h>

#include "mysql/names.h"
#include "mysql/schema.h"
#include "mysql/statements.h"
#include "mysql_client/connection.h"
#include "plan/buckets.h"
#include "remote/name_driver.h"

namespace hierlock::mysql {

namespace {

constexpr std::chrono::seconds patience{3};

struct Setup {
  Dialect dialect = Dialect::mysql;
  std::uint32_t buckets = plan::default_buckets;
  unsigned levels = default_levels;
  NameRoom room{};
  std::string server{};     // that was asked
  std::string numbers{};    // where those of buckets and levels are from
  std::string not_asked{};  // why; then all of this is assumed

  std::string counts() const { return std::to_string(buckets) + " buckets, " + std::to_string(levels) + " levels"; }
  std::string assumed(bool with_rows) const {
    return "assuming MySQL" + (with_rows ? ", " + counts() : "") + ", because the server was not asked: " + not_asked;
  }
  // Names have no rows: for them the numbers mean nothing.
  std::string source(bool with_rows) const {
    if (!not_asked.empty()) return assumed(with_rows);
    return server + (with_rows ? "; " + numbers : "");
  }
};

// Asks the database, and changes nothing there.
Setup find_out(const Options& options) {
  const Layout& layout = options.layout;
  Setup setup{.buckets = layout.buckets.value_or(plan::default_buckets),
              .levels = layout.levels.value_or(default_levels),
              .room = {options.address.database, layout.table}};
  try {
    Deadline soon(patience);
    Connection connection(options.address, soon);
    setup.dialect = dialect_of(connection);
    setup.server = (connection.mariadb() ? "MariaDB " : "MySQL ") + connection.version();
    const Reply names = connection.ask(ask_for_room(layout.table), soon);
    setup.room = {endpoint::text(names.rows.at(0).at(0)), endpoint::text(names.rows.at(0).at(1))};
    const Reply reply =
        connection.query("SELECT buckets, levels FROM `" + layout.settings_table() + "` WHERE id=1", soon);
    if (reply.well() && !reply.rows.empty()) {
      setup.buckets = endpoint::number<std::uint32_t>(reply.rows[0].at(0));
      setup.levels = endpoint::number<unsigned>(reply.rows[0].at(1));
      setup.numbers = setup.counts() + ", as recorded in " + layout.settings_table();
    } else {
      setup.numbers = "nothing is recorded in " + layout.settings_table() + ", so " + setup.counts() +
                      (layout.buckets || layout.levels ? " as the URL says" : " by default");
    }
  } catch (const Error& error) {
    setup.not_asked = error.what();
  }
  return setup;
}

// A line for each row, without changing a word.
std::string in_lines(std::string sql, Form form) {
  const auto break_before = [&sql](std::string_view words) {
    for (std::size_t at = 0; (at = sql.find(words, at)) != sql.npos; at += words.size()) sql[at] = '\n';
  };
  if (form == Form::one_by_one) {
    break_before(" UNION ALL ");
    return sql;
  }
  for (const std::string_view words : {" STRAIGHT_JOIN ", " WHERE ", " FOR "}) break_before(words);
  for (std::size_t row = 0; row < most_joined; ++row) {
    const std::string name = " AND r" + std::to_string(row) + ".";
    break_before(name + "level=");
    break_before(name + std::string(BucketTable::mark_prefix));
  }
  return sql;
}

std::string false_contention(const spi::Plan& plan, std::uint32_t buckets) {
  std::string out;
  for (const plan::SharedRow& row : plan::shared_rows(plan, buckets)) {
    out += "-- false contention: ";
    for (std::size_t i = 0; i < row.nodes.size(); ++i) {
      out += (i == 0 ? "" : i + 1 == row.nodes.size() ? " and " : ", ") + row.nodes[i];
    }
    out += " share the row (" + std::to_string(row.level) + ", " + std::to_string(row.bucket) + ")\n";
  }
  return out.empty() && plan.steps().size() > 1 ? "-- no two of these nodes share a row\n" : out;
}

// On a session that keeps names: what is asked first, which does not wait.
std::string of_names(const spi::Plan& plan, const NameRoom& room) {
  using Kind = remote::NameOp::Kind;
  std::string out;
  for (const spi::Step& step : plan.steps()) {
    if (step.space == Space::path) continue;
    remote::NameOp op{Kind::take, {step.space, std::string(step.key), step.slots}, 1};
    out += "-- " + spi::describe_key(step.space, step.key) + ": if it is taken, another session waits in line for " +
           LockTexts(room, op.name).turnstile() + "\n" + statement(room, {&op, 1}) + ";\n-- and to release it" +
           (step.slots != 0 ? ", if it is the first slot" : "") + "\n";
    op.kind = Kind::give;
    out += statement(room, {&op, 1}) + ";\n";
  }
  return out;
}

}  // namespace

std::string statements(const spi::Url& url, const spi::Plan& plan) {
  const Options options = read_url(url);
  const Setup setup = find_out(options);
  if (setup.buckets == 0) {
    throw Error(ErrorKind::incompatible, options.layout.settings_table() + " is damaged: it has 0 buckets");
  }
  try {
    plan::check_rows(plan, setup.levels, "mysql");
  } catch (const Error& error) {
    if (setup.not_asked.empty()) throw;
    throw Error(error.kind(), std::string(error.what()) + " (" + setup.assumed(true) + ")");
  }
  remote::refuse_shared_names(plan);
  const std::vector<plan::Row> rows = plan::rows_of(plan, setup.buckets);
  const Form form = usual_form(rows);
  const std::string head = "-- " + setup.source(!rows.empty()) + "\n";
  if (rows.empty()) return head + of_names(plan, setup.room);
  return head + false_contention(plan, setup.buckets) +
         in_lines(endpoint::filled_in(
                      lock_rows(setup.dialect, {options.layout.table, setup.buckets, setup.levels}, rows, false, form),
                      rows | std::views::transform(&plan::Row::bucket)),
                  form) +
         ";\n" + "-- and to release it\nROLLBACK;\n" + of_names(plan, setup.room);
}

}  // namespace hierlock::mysql
