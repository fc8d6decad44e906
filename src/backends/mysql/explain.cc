#include "mysql/explain.h"

#include <map>
#include <ranges>
#include <utility>
#include <vector>

#include <hierlock/error.h>

#include "mysql/schema.h"
#include "mysql/statements.h"
#include "mysql_client/connection.h"
#include "plan/buckets.h"

namespace hierlock::mysql {

namespace {

constexpr std::chrono::seconds patience{3};

struct Setup {
  Dialect dialect = Dialect::mysql;
  std::uint32_t buckets = plan::default_buckets;
  unsigned levels = default_levels;
  std::string where;  // all of this is from
};

std::string counts(const Setup& setup) {
  return std::to_string(setup.buckets) + " buckets, " + std::to_string(setup.levels) + " levels";
}

Setup assumed(const Options& options) {
  Setup setup;
  setup.buckets = options.layout.buckets.value_or(setup.buckets);
  setup.levels = options.layout.levels.value_or(setup.levels);
  return setup;
}

// Asks the database, and changes nothing there.
Setup find_out(const Options& options) {
  Setup setup = assumed(options);
  try {
    Deadline soon(patience);
    Connection connection(options.address, soon);
    setup.dialect = dialect_of(connection);
    const std::string server = (connection.mariadb() ? "MariaDB " : "MySQL ") + connection.version();
    const Reply reply =
        connection.query("SELECT buckets, levels FROM `" + options.layout.settings_table() + "` WHERE id=1", soon);
    if (reply.well() && !reply.rows.empty()) {
      setup.buckets = endpoint::number<std::uint32_t>(reply.rows[0].at(0));
      setup.levels = endpoint::number<unsigned>(reply.rows[0].at(1));
      setup.where = server + "; " + counts(setup) + ", as recorded in " + options.layout.settings_table();
    } else {
      setup.where = server + "; nothing is recorded in " + options.layout.settings_table() + ", so " + counts(setup) +
                    (options.layout.buckets || options.layout.levels ? " as the URL says" : " by default");
    }
  } catch (const Error& error) {
    setup.where =
        std::string("assuming MySQL, ") + counts(setup) + ", because the server was not asked: " + error.what();
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

std::string shared_rows(const spi::Plan& plan, std::uint32_t buckets) {
  std::map<std::pair<unsigned, std::uint32_t>, std::vector<std::string>> nodes;
  for (const spi::Step& step : plan.steps()) {
    nodes[{step.level, plan::bucket_of(step.key, buckets)}].push_back(spi::describe_key(step.space, step.key));
  }
  std::string out;
  for (const auto& [row, names] : nodes) {
    if (names.size() < 2) continue;
    out += "-- false contention: ";
    for (std::size_t i = 0; i < names.size(); ++i)
      out += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
    out += " share the row (" + std::to_string(row.first) + ", " + std::to_string(row.second) + ")\n";
  }
  return out.empty() && plan.steps().size() > 1 ? "-- no two of these nodes share a row\n" : out;
}

}  // namespace

std::string statements(const spi::Url& url, const spi::Plan& plan) {
  const Options options = read_url(url);
  const Setup setup = find_out(options);
  if (setup.buckets == 0) {
    throw Error(ErrorKind::incompatible, options.layout.settings_table() + " is damaged: it has 0 buckets");
  }
  plan::check_rows(plan, setup.levels, "mysql");
  const std::vector<plan::Row> rows = plan::rows_of(plan, setup.buckets);
  const Form form = usual_form(rows);
  return "-- " + setup.where + "\n" + shared_rows(plan, setup.buckets) +
         in_lines(endpoint::filled_in(
                      lock_rows(setup.dialect, {options.layout.table, setup.buckets, setup.levels}, rows, false, form),
                      rows | std::views::transform(&plan::Row::bucket)),
                  form) +
         ";\n" + "-- and to release it\nROLLBACK;\n";
}

}  // namespace hierlock::mysql
