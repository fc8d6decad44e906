#include "cli/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include <hierlock/error.h>
#include <hierlock/operate.h>
#include <hierlock/spi/plan.h>
#include <hierlock/spi/url.h>

#include "cli/output.h"
#include "plan/buckets.h"
#include "plan/text.h"

namespace hierlock::cli {
namespace {

using spi::Plan;
using spi::Step;

struct RowNodes {
  plan::Row row;
  std::vector<std::string> nodes;
};

std::string hex(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) out += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return out;
}

std::string node_text(const Step& step) { return spi::describe_key(step.space, step.key); }

std::string target_text(const Target& target) {
  const std::string_view kind = target.space() == Space::path   ? "path"
                                : target.space() == Space::name ? "name"
                                                                : "slots";
  if (target.space() == Space::slots) return fmt::format("slots, at most {} holders", grouped(target.slot_count()));
  return fmt::format("{}, {}", kind, target.is_shared() ? "shared" : "exclusive");
}

// A database tells its rows by its statements: how many buckets it has is recorded there, and --buckets is not asked.
bool on_database(const ExplainCommand& command) { return needs_server(command.store); }

// The statements there, on a store that has any; a sentence instead if it refuses these targets.
std::string statements_there(const ExplainCommand& command) {
  try {
    return hierlock::statements(command.store.text, command.targets);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unsupported) throw;
    return std::string("-- refused: ") + plan::showable(error.what()) + "\n";
  }
}

// The rows of the paths among the targets, in the order they are locked in, each with the nodes that need it.
std::vector<RowNodes> rows_with_nodes(const ExplainCommand& command) {
  std::vector<Target> paths;
  for (const Target& target : command.targets) {
    if (target.space() == Space::path) paths.push_back(target);
  }
  if (paths.empty()) return {};
  const Plan plan(paths);
  std::vector<RowNodes> rows;
  for (const plan::Row& row : plan::rows_of(plan, command.buckets)) rows.push_back({row, {}});
  std::map<std::pair<unsigned, std::uint32_t>, std::vector<std::string>> nodes;
  for (const Step& step : plan.steps()) {
    nodes[{step.level, plan::bucket_of(step.key, command.buckets)}].push_back(node_text(step));
  }
  for (RowNodes& row : rows) row.nodes = nodes[{row.row.level, row.row.bucket}];
  return rows;
}

// What a reader of the tables might otherwise conclude wrongly.
std::vector<std::string> notes(const ExplainCommand& command) {
  std::vector<std::string> out;
  for (const Target& target : command.targets) {
    if (target.space() != Space::path || !target.is_shared()) continue;
    // B10: on rows, S is also what an ancestor of a writer is held in.
    out.push_back(
        fmt::format("In rows, {} is possible only where its level is the deepest in use: rows have only S and X, so "
                    "it would not exclude writers below it.",
                    fit_end(target.str(), 50)));
  }
  return out;
}

std::string wrapped(std::string_view text, std::string_view indent) {
  std::string out;
  std::string line(indent);
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, space);
    if (columns(line) > columns(indent) && columns(line) + 1 + columns(word) > line_width) {
      out += line + "\n";
      line = indent;
    }
    if (columns(line) > columns(indent)) line += ' ';
    line += word;
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return out + line + "\n";
}

std::string levels_table(const Plan& plan, const ExplainCommand& command, bool with_rows) {
  using Align = Table::Align;
  std::vector<Table::Column> columns{{"level", Align::right}, {"node"}, {"mode"}};
  if (with_rows) columns.insert(columns.end(), {{"row"}, {"bucket", Align::right}});
  Table table(std::move(columns));
  // What the other columns take at most.
  constexpr std::size_t room = line_width - 5 - 2 - 2 - 4 - 2 - 3 - 2 - 13;
  for (const Step& step : plan.steps()) {
    const bool path = step.space == Space::path;
    std::vector<std::string> cells{path ? std::to_string(step.level) : "-", fit_end(node_text(step), room),
                                   std::string(to_string(step.mode))};
    if (with_rows) {
      cells.push_back(path ? std::string(to_string(plan::row_mode(step.mode))) : "-");
      cells.push_back(path ? grouped(plan::bucket_of(step.key, command.buckets)) : "-");
    }
    table.add(std::move(cells));
  }
  return table.str();
}

std::string key_lines(const Plan& plan) {
  constexpr std::size_t bytes_per_line = 20;
  std::size_t widest = 0;
  for (const Step& step : plan.steps()) widest = std::max(widest, std::min(step.segment.size(), bytes_per_line));
  std::string out;
  for (const Step& step : plan.steps()) {
    const std::string_view length = step.key.substr(step.key.size() - step.segment.size() - 4, 4);
    std::string head =
        fmt::format("{:>5}  {}", step.space == Space::path ? std::to_string(step.level) : "-", hex(length));
    for (std::string_view rest = step.segment; !rest.empty();) {
      const std::string_view part = rest.substr(0, bytes_per_line);
      rest.remove_prefix(part.size());
      std::string shown(part);
      // Text that is cut between lines, or that a terminal would obey, is shown byte by byte.
      if (part.size() < step.segment.size() || plan::showable(part) != part) {
        for (char& byte : shown) byte = byte >= 0x20 && byte < 0x7F ? byte : '.';
      }
      out += fmt::format("{} {:<{}}  {}\n", head, hex(part), 2 * widest, shown);
      head = std::string(head.size(), ' ');
    }
  }
  return out;
}

constexpr std::size_t target_width = 44;

std::string explain_text(const ExplainCommand& command) {
  const Plan plan(command.targets);
  const bool database = on_database(command);
  const std::vector<RowNodes> rows = database ? std::vector<RowNodes>() : rows_with_nodes(command);
  const bool many = command.targets.size() > 1;
  std::string out;
  std::size_t widest = 0;
  for (const Target& target : command.targets) widest = std::max(widest, columns(fit_end(target.str(), target_width)));
  for (const Target& target : command.targets) {
    const std::string text = fit_end(target.str(), target_width);
    out += fmt::format("{}{}  ({})\n", text, std::string(widest - columns(text), ' '), target_text(target));
  }
  out += "\n";
  out += levels_table(plan, command, !rows.empty());
  if (database) {
    out += fmt::format("\nOn {}\n\n{}", plan::showable(spi::Url::parse(command.store.text).safe_text()),
                       statements_there(command));
  } else {
    out += "\nmode  on memory:, shm: and valkey:";
    out += many ? ", in this order\n" : "\n";
  }
  if (!rows.empty()) {
    out += fmt::format("row   on MySQL and MariaDB, for row (level, bucket) of {} buckets\n", grouped(command.buckets));
  }
  for (const std::string& note : notes(command)) out += "\n" + wrapped(note, "");

  if (many && !rows.empty()) {
    out += "\nRows, in the order in which every process locks them:\n\n";
    Table table({{"level", Table::Align::right}, {"bucket", Table::Align::right}, {"row"}, {"node"}});
    for (const RowNodes& row : rows) {
      bool first = true;
      for (const std::string& node : row.nodes) {
        const std::string text = fit_end(node, line_width - 5 - 2 - 13 - 2 - 3 - 2);
        if (first) {
          table.add(
              {std::to_string(row.row.level), grouped(row.row.bucket), std::string(to_string(row.row.mode)), text});
        } else {
          table.add({"", "", "", text});
        }
        first = false;
      }
    }
    out += table.str();
    const auto shared_rows =
        std::count_if(rows.begin(), rows.end(), [](const RowNodes& row) { return row.nodes.size() > 1; });
    out += "\n";
    out += shared_rows == 0
               ? "No two of these nodes share a row: no false contention among them.\n"
               : wrapped(fmt::format(
                             "False contention: {} with more than one node. Whoever locks one of them "
                             "exclusively keeps out the others of that row as well.",
                             shared_rows == 1 ? "1 row" : grouped(static_cast<std::uint64_t>(shared_rows)) + " rows"),
                         "");
  }

  out += "\nKey: what each level adds, the length of its id in 32 bits and its bytes\n\n";
  out += "level  bytes\n";
  out += key_lines(plan);
  return out;
}

std::string explain_json(const ExplainCommand& command) {
  const Plan plan(command.targets);
  const bool database = on_database(command);
  Json json;
  json.open_object().number("version", std::uint64_t{1});
  if (database) {
    json.text("statements", statements_there(command));
  } else {
    json.number("buckets", std::uint64_t{command.buckets});
  }
  json.open_array("targets");
  for (const Target& target : command.targets) {
    json.open_object()
        .text("target", target.str())
        .text("space", to_string(target.space()))
        .boolean("shared", target.is_shared());
    if (target.space() == Space::slots) json.number("slots", std::uint64_t{target.slot_count()});
    json.close();
  }
  json.close().open_array("nodes");
  for (const Step& step : plan.steps()) {
    json.open_object()
        .text("node", node_text(step))
        .text("space", to_string(step.space))
        .number("level", std::uint64_t{step.level})
        .text("mode", to_string(step.mode))
        .boolean("asked", step.asked)
        .text("key", hex(step.key))
        .text("hash", fmt::format("{:016x}", step.hash));
    if (step.space == Space::path && !database) {
      json.text("row_mode", to_string(plan::row_mode(step.mode)))
          .number("bucket", std::uint64_t{plan::bucket_of(step.key, command.buckets)});
    }
    json.close();
  }
  json.close().open_array("rows");
  for (const RowNodes& row : database ? std::vector<RowNodes>() : rows_with_nodes(command)) {
    json.open_object()
        .number("level", std::uint64_t{row.row.level})
        .number("bucket", std::uint64_t{row.row.bucket})
        .text("mode", to_string(row.row.mode))
        .open_array("nodes");
    for (const std::string& node : row.nodes) json.text({}, node);
    json.close().close();
  }
  json.close().open_array("notes");
  for (const std::string& note : notes(command)) json.text({}, note);
  return json.close().close().str();
}

}  // namespace

std::string explain(const ExplainCommand& command) {
  return command.json ? explain_json(command) : explain_text(command);
}

}  // namespace hierlock::cli
