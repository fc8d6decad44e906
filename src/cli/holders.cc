#include "cli/holders.h"

#include <algorithm>
#include <map>
#include <string_view>

#include <hierlock/spi/plan.h>

#include "plan/text.h"

namespace hierlock::cli {
namespace {

using Align = Table::Align;
using plan::showable;

// At least so much of a target is shown, however narrow the terminal.
constexpr std::size_t least_target_width = 8;

std::string number_or_dash(std::int64_t number) { return number == 0 ? "-" : std::to_string(number); }

std::string_view state_name(Snapshot::Doing doing) {
  switch (doing) {
    case Snapshot::Doing::stopped:
      return "stopped";
    case Snapshot::Doing::gone:
      return "gone";
    case Snapshot::Doing::runs:
      break;
  }
  return "runs";
}

// Who it is, a line for each thing that is known.
std::vector<std::string> details(const Snapshot::Party& who) {
  std::vector<std::string> out;
  if (who.doing == Snapshot::Doing::stopped) {
    out.push_back("state    stopped, and keeps this; kill -CONT " + std::to_string(who.process) + " wakes it");
  }
  if (who.doing == Snapshot::Doing::gone) out.push_back("state    gone; the command it ran keeps the lock");
  if (!who.host.empty()) out.push_back("host     " + showable(who.host));
  if (!who.program.empty()) out.push_back("program  " + showable(who.program));
  if (!who.owner_name.empty()) out.push_back("owner    " + showable(who.owner_name));
  // What a database calls it: KILL ends it.
  if (who.session != 0 && !who.owner_name.starts_with("session ")) {
    out.push_back("session  " + std::to_string(who.session));
  }
  if (!who.note.empty()) out.push_back("note     " + showable(who.note));
  return out;
}

// The lines of a table, and after the n-th row the n-th of `below`, indented.
std::string interleaved(const Table& table, const std::vector<std::vector<std::string>>& below, std::size_t width) {
  const std::string text = table.str();
  std::string out;
  std::size_t row = 0;
  for (std::size_t at = 0; at < text.size(); ++row) {
    const std::size_t end = text.find('\n', at);
    out += fit_begin(std::string_view(text).substr(at, end - at), width) + "\n";
    at = end + 1;
    if (row == 0) continue;
    for (const std::string& line : below[row - 1]) out += fit_begin("    " + line, width) + "\n";
  }
  return out;
}

void write_party(Json& json, const Snapshot::Party& who) {
  json.text("owner", std::to_string(who.owner))
      .text("owner_name", showable(who.owner_name))
      .number("pid", static_cast<std::uint64_t>(std::max<std::int64_t>(who.process, 0)))
      .text("state", state_name(who.doing))
      .text("host", showable(who.host))
      .text("session", std::to_string(who.session))
      .text("program", showable(who.program))
      .text("note", showable(who.note));
}

std::string row_text(const Snapshot::Row& row) {
  return "level " + std::to_string(row.level) + ", bucket " + std::to_string(row.bucket);
}

void write_row(Json& json, const std::optional<Snapshot::Row>& row) {
  if (!row) {
    json.null("row");
    return;
  }
  json.open_object("row")
      .number("level", std::uint64_t{row->level})
      .number("bucket", std::uint64_t{row->bucket})
      .close();
}

std::uint64_t milliseconds(std::chrono::nanoseconds time) {
  const auto count = std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  return count < 0 ? 0 : static_cast<std::uint64_t>(count);
}

}  // namespace

std::string node_text(const Target& target) {
  return spi::describe_key(target.space(), target.key(target.depth() - 1));
}

std::string place_text(const std::string& target, const std::optional<Snapshot::Row>& row) {
  if (!target.empty()) return showable(target);
  return row ? row_text(*row) : "(a row)";
}

std::string holders_text(const std::vector<Snapshot::Holder>& holders, std::size_t width) {
  Table table({{"target"}, {"mode"}, {"pid", Align::right}, {"age", Align::right}, {"fence", Align::right}});
  constexpr std::size_t others = 2 + 4 + 2 + 7 + 2 + 6 + 2 + 19;
  const std::size_t room = std::max(width, others + least_target_width) - others;
  std::vector<std::vector<std::string>> below;
  for (const Snapshot::Holder& holder : holders) {
    table.add({fit_end((holder.leftover ? "left of an extend: " : "") + place_text(holder.target, holder.row), room),
               std::string(to_string(holder.mode)), number_or_dash(holder.who.process), brief_time(holder.age),
               number_or_dash(holder.fence)});
    below.push_back(details(holder.who));
  }
  return interleaved(table, below, width);
}

std::string waiters_text(const std::vector<Snapshot::Waiter>& waiters, const Snapshot& all, std::size_t width) {
  std::map<std::uint64_t, const Snapshot::Party*> parties;
  for (const Snapshot::Holder& holder : all.holders) parties[holder.who.owner] = &holder.who;
  for (const Snapshot::Waiter& waiter : all.waiters) parties[waiter.who.owner] = &waiter.who;
  Table table({{"target"}, {"mode"}, {"pid", Align::right}, {"age", Align::right}, {"waits for"}});
  constexpr std::size_t others = 2 + 4 + 2 + 7 + 2 + 6 + 2 + 22;
  const std::size_t room = std::max(width, others + least_target_width) - others;
  std::vector<std::vector<std::string>> below;
  for (const Snapshot::Waiter& waiter : waiters) {
    std::string blockers;
    for (const std::uint64_t owner : waiter.blocked_by) {
      const auto found = parties.find(owner);
      if (!blockers.empty()) blockers += ", ";
      if (found == parties.end()) {
        blockers += "somebody";
      } else {
        const Snapshot::Party& who = *found->second;
        blockers += who.process == 0 ? showable(who.owner_name) : "pid " + std::to_string(who.process);
        // Within one process its number tells nothing.
        const bool same_host = who.host == waiter.who.host;
        if (who.process != 0 && !same_host && !who.host.empty()) blockers += " on " + showable(who.host);
        if (who.process != 0 && same_host && who.process == waiter.who.process) {
          blockers += " " + showable(who.owner_name);
        }
        if (who.doing != Snapshot::Doing::runs) blockers += " (" + std::string(state_name(who.doing)) + ")";
      }
    }
    if (blockers.empty())
      blockers =
          waiter.who.doing == Snapshot::Doing::stopped ? "nobody, but it is stopped" : "nobody: it is free to go";
    table.add({fit_end(place_text(waiter.target, waiter.row), room), std::string(to_string(waiter.mode)),
               number_or_dash(waiter.who.process), brief_time(waiter.age), blockers});
    below.push_back(details(waiter.who));
    auto& lines = below.back();
    if (waiter.wanted != waiter.target) lines.insert(lines.begin(), "wants    " + showable(waiter.wanted));
    if (waiter.row && waiter.contention == Snapshot::Contention::shared_bucket) {
      lines.insert(lines.begin(), "false    only another id of its row is held: " + row_text(*waiter.row));
    } else if (waiter.row && waiter.contention == Snapshot::Contention::unknown) {
      lines.insert(lines.begin(), "false?   others may only share its row: " + row_text(*waiter.row));
    }
  }
  return interleaved(table, below, width);
}

std::string buckets_text(const std::vector<Snapshot::Bucket>& buckets, std::size_t width) {
  Table table({{"level", Align::right},
               {"bucket", Align::right},
               {"hold", Align::right},
               {"wait", Align::right},
               {"falsely"},
               {"targets"}});
  for (const Snapshot::Bucket& bucket : buckets) {
    std::string falsely = std::to_string(bucket.falsely), targets;
    if (bucket.unknown > 0) falsely += " (" + std::to_string(bucket.unknown) + " unknown)";
    for (const std::string& target : bucket.targets) targets += (targets.empty() ? "" : ", ") + showable(target);
    table.add({std::to_string(bucket.row.level), grouped(bucket.row.bucket), grouped(bucket.holders),
               grouped(bucket.waiters), falsely, targets});
  }
  return interleaved(table, std::vector<std::vector<std::string>>(buckets.size()), width);
}

void write_holders(Json& json, std::string_view name, const std::vector<Snapshot::Holder>& holders) {
  json.open_array(name);
  for (const Snapshot::Holder& holder : holders) {
    json.open_object()
        .text("target", showable(holder.target))
        .text("mode", to_string(holder.mode))
        .boolean("asked", holder.asked)
        .boolean("left_of_an_extend", holder.leftover)
        .text("fence", std::to_string(holder.fence))
        .number("age_ms", milliseconds(holder.age));
    write_row(json, holder.row);
    write_party(json, holder.who);
    json.close();
  }
  json.close();
}

void write_waiters(Json& json, std::string_view name, const std::vector<Snapshot::Waiter>& waiters) {
  json.open_array(name);
  for (const Snapshot::Waiter& waiter : waiters) {
    json.open_object()
        .text("target", showable(waiter.target))
        .text("wanted", showable(waiter.wanted))
        .text("mode", to_string(waiter.mode))
        .number("age_ms", milliseconds(waiter.age));
    write_row(json, waiter.row);
    if (waiter.contention == Snapshot::Contention::unknown) {
      json.null("false_contention");
    } else {
      json.boolean("false_contention", waiter.contention == Snapshot::Contention::shared_bucket);
    }
    write_party(json, waiter.who);
    json.open_array("blocked_by");
    for (const std::uint64_t owner : waiter.blocked_by) json.text({}, std::to_string(owner));
    json.close().close();
  }
  json.close();
}

void write_buckets(Json& json, std::string_view name, const std::vector<Snapshot::Bucket>& buckets) {
  json.open_array(name);
  for (const Snapshot::Bucket& bucket : buckets) {
    json.open_object()
        .number("level", std::uint64_t{bucket.row.level})
        .number("bucket", std::uint64_t{bucket.row.bucket})
        .number("holders", std::uint64_t{bucket.holders})
        .number("waiters", std::uint64_t{bucket.waiters})
        .number("falsely", std::uint64_t{bucket.falsely})
        .number("unknown", std::uint64_t{bucket.unknown})
        .open_array("targets");
    for (const std::string& target : bucket.targets) json.text({}, showable(target));
    json.close().close();
  }
  json.close();
}

}  // namespace hierlock::cli
