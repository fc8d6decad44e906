#include "cli/status.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <set>
#include <string_view>

#include <hierlock/spi/url.h>

#include "cli/holders.h"
#include "cli/look.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "cli/watch.h"
#include "plan/text.h"

namespace hierlock::cli {
namespace {

using plan::showable;

std::string time_text(std::chrono::system_clock::time_point when, bool local) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(when);
  std::tm parts{};
  if (local) {
    localtime_r(&seconds, &parts);
  } else {
    gmtime_r(&seconds, &parts);
  }
  char text[40];
  const std::size_t size = std::strftime(text, sizeof text, local ? "%Y-%m-%d %H:%M:%S" : "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text, size};
}

// Whether locks on the two nodes could meet: the same one, or one above the other.
bool related(std::string_view a, std::string_view b) {
  const auto above = [](std::string_view upper, std::string_view lower) {
    return lower.size() > upper.size() && lower.starts_with(upper) && lower[upper.size()] == '/';
  };
  return a == b || above(a, b) || above(b, a);
}

// What the command asks to see of a snapshot.
struct View {
  std::vector<Snapshot::Holder> holders;
  std::vector<Snapshot::Waiter> waiters;
  std::vector<Snapshot::Bucket> buckets;
  std::vector<Snapshot::Entry> log;
};
View view_of(const Snapshot& snapshot, const StatusCommand& command) {
  const std::string node = command.target ? node_text(*command.target) : "";
  View view;
  for (const Snapshot::Holder& holder : snapshot.holders) {
    // Programs get everything, with what tells it apart.
    const bool wanted = holder.asked || holder.leftover || command.all || command.form == StatusCommand::Form::json;
    if (wanted && (node.empty() || related(node, holder.target))) view.holders.push_back(holder);
  }
  std::set<std::uint64_t> in_the_way;
  std::set<Snapshot::Row> rows;
  for (const Snapshot::Waiter& waiter : snapshot.waiters) {
    if (!node.empty() && !related(node, waiter.target)) continue;
    view.waiters.push_back(waiter);
    in_the_way.insert(waiter.blocked_by.begin(), waiter.blocked_by.end());
    if (waiter.row) rows.insert(*waiter.row);
  }
  for (const Snapshot::Holder& holder : snapshot.holders) {  // of whom only the row is known
    const bool there = holder.row && rows.contains(*holder.row) && in_the_way.contains(holder.who.owner);
    if (!node.empty() && holder.target.empty() && there) view.holders.push_back(holder);
  }
  for (const Snapshot::Bucket& bucket : snapshot.buckets) {
    if (rows.contains(bucket.row)) view.buckets.push_back(bucket);
  }
  for (const Snapshot::Entry& entry : snapshot.log) {
    const auto meets = [&](std::string_view target) { return related(node, target); };
    if (node.empty() || std::any_of(entry.targets.begin(), entry.targets.end(), meets)) view.log.push_back(entry);
  }
  return view;
}

std::size_t rows_of_unknown_path(const Snapshot& snapshot) {
  return static_cast<std::size_t>(std::count_if(snapshot.holders.begin(), snapshot.holders.end(),
                                                [](const Snapshot::Holder& holder) { return holder.target.empty(); }));
}

// Said so that what follows does not contradict it: waiters may wait for what is not shown.
std::string nothing_held(const Snapshot& snapshot, const StatusCommand& command) {
  if (command.target) {
    return (rows_of_unknown_path(snapshot) > 0 ? "As far as is known, nothing is held at " : "Nothing is held at ") +
           showable(node_text(*command.target)) + ", above it or below it.";
  }
  if (snapshot.holders.empty()) return "Nothing is held.";
  return "Nothing is held, but nodes are in use because of something below them; --all shows them.";
}

std::string log_text(const std::vector<Snapshot::Entry>& log, bool all, std::size_t width) {
  constexpr std::size_t most_shown = 5;
  const std::size_t shown = all ? log.size() : std::min(log.size(), most_shown);
  std::string title = "Log of the table, oldest first";
  if (shown < log.size()) title += fmt::format(" ({} of {}; --all shows all)", shown, log.size());
  std::string out = wrapped(title, width) + "\n";
  constexpr std::size_t time_columns = 21;
  for (std::size_t i = log.size() - shown; i < log.size(); ++i) {
    out += wrapped(time_text(log[i].when, true) + "  " + showable(log[i].text), width, time_columns);
  }
  return out;
}

std::string hot_text(std::vector<Snapshot::Bucket> buckets, bool all, std::size_t width) {
  constexpr std::size_t most_shown = 10;
  const std::size_t there = buckets.size();
  if (!all && there > most_shown) buckets.resize(most_shown);
  std::string title = "Hot buckets, the most waited for first; falsely: only because ids share it";
  if (buckets.size() < there) title += fmt::format(" ({} of {}; --all shows all)", buckets.size(), there);
  return wrapped(title, width) + "\n" + buckets_text(buckets, width);
}

// A URL that is cut cannot be used: only --watch, which counts lines, cuts it.
std::string title_of(const Snapshot& snapshot, const StatusCommand& command, std::size_t width) {
  std::string title = showable(snapshot.store);
  if (!snapshot.store.ends_with(snapshot.table)) title += "  " + showable(snapshot.table);
  return (command.watch ? fit_begin(title, width) : title) + "\n\n";
}

std::string text_of(const Snapshot& snapshot, const StatusCommand& command, std::size_t width) {
  const View view = view_of(snapshot, command);
  std::string out = title_of(snapshot, command, width);
  if (view.holders.empty()) {
    out += wrapped(nothing_held(snapshot, command), width);
  } else {
    out += fmt::format("{} held\n\n", grouped(view.holders.size())) + holders_text(view.holders, width);
  }
  if (!view.waiters.empty()) {
    out += "\n" + fit_begin(grouped(view.waiters.size()) + " waiting, in the order of their queues", width) + "\n\n" +
           waiters_text(view.waiters, snapshot, width);
  }
  if (!view.buckets.empty()) out += "\n" + hot_text(view.buckets, command.all, width);
  for (const std::string& note : snapshot.notes) out += "\n" + wrapped("Note: " + showable(note), width);
  if (const std::size_t unknown = command.target ? rows_of_unknown_path(snapshot) : 0; unknown > 0) {
    out += "\n" + wrapped("Note: " + (unknown == 1 ? "1 locked row has" : grouped(unknown) + " locked rows have") +
                              " no known path yet; hierlock status without a target shows all locked rows.",
                          width);
  }
  if (!view.log.empty()) out += "\n" + log_text(view.log, command.all, width);
  return out;
}

std::string json_of(const Snapshot& snapshot, const StatusCommand& command) {
  const View view = view_of(snapshot, command);
  Json json;
  json.open_object()
      .number("version", std::uint64_t{1})
      .text("store", showable(snapshot.store))
      .text("table", showable(snapshot.table));
  write_holders(json, "holders", view.holders);
  write_waiters(json, "waiters", view.waiters);
  write_buckets(json, "buckets", view.buckets);
  json.open_array("notes");
  for (const std::string& note : snapshot.notes) json.text({}, showable(note));
  json.close().open_array("log");
  for (const Snapshot::Entry& entry : view.log) {
    json.open_object().text("when", time_text(entry.when, false)).text("text", showable(entry.text));
    json.open_array("targets");
    for (const std::string& target : entry.targets) json.text({}, showable(target));
    json.close().open_array("cycle");
    for (const Error::Wait& wait : entry.cycle) {
      json.open_object()
          .text("owner", showable(wait.owner))
          .number("pid", static_cast<std::uint64_t>(std::max<std::int64_t>(0, wait.process)))
          .text("host", showable(wait.host))
          .text("waits_for", showable(wait.waits_for))
          .text("holds", showable(wait.holds))
          .close();
    }
    json.close().close();
  }
  return json.close().close().str();
}

// A quoted string of Graphviz: \n is its line feed, so a backslash that is only text must not be one.
std::string dot_quoted(std::initializer_list<std::string> lines) {
  std::string out = "\"";
  bool first = true;
  for (const std::string& line : lines) {
    if (line.empty()) continue;
    if (!first) out += "\\n";
    first = false;
    for (const char c : fit_begin(showable(line), 60)) {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out + "\"";
}

std::string dot_of(const Snapshot& snapshot, const StatusCommand& command) {
  const View view = view_of(snapshot, command);
  std::set<std::uint64_t> drawn;
  std::string nodes;
  std::string edges;
  const auto draw = [&](const Snapshot::Party& who) {
    if (!drawn.insert(who.owner).second) return;
    nodes += fmt::format("  \"{}\" [label={}];\n", who.owner,
                         dot_quoted({who.owner_name, who.process == 0 ? "" : "pid " + std::to_string(who.process),
                                     who.host.empty() ? "" : "on " + who.host}));
  };
  // A wait without need is dashed; one of which that is not known, dotted.
  const auto label = [](const Snapshot::Waiter& waiter) {
    const std::string place = place_text(waiter.target, waiter.row);
    if (!waiter.row || waiter.contention == Snapshot::Contention::own_target) return dot_quoted({place});
    if (waiter.contention == Snapshot::Contention::unknown) return dot_quoted({place}) + ", style=dotted";
    return dot_quoted({place, "false contention"}) + ", style=dashed";
  };
  for (const Snapshot::Waiter& waiter : view.waiters) {
    draw(waiter.who);
    for (const std::uint64_t owner : waiter.blocked_by) {
      for (const Snapshot::Holder& holder : snapshot.holders) {
        if (holder.who.owner == owner) draw(holder.who);
      }
      for (const Snapshot::Waiter& earlier : snapshot.waiters) {
        if (earlier.who.owner == owner) draw(earlier.who);
      }
      edges += fmt::format("  \"{}\" -> \"{}\" [label={}];\n", waiter.who.owner, owner, label(waiter));
    }
  }
  return "digraph waits {\n  rankdir=LR;\n  node [shape=box];\n" + nodes + edges + "}\n";
}

}  // namespace

std::string status_of(const Snapshot& snapshot, const StatusCommand& command, std::size_t width) {
  switch (command.form) {
    case StatusCommand::Form::json:
      return json_of(snapshot, command);
    case StatusCommand::Form::dot:
      return dot_of(snapshot, command);
    case StatusCommand::Form::text:
      break;
  }
  return text_of(snapshot, command, width);
}

namespace {

// watch() keeps signals back. One that comes while the store is opened ends that with `cancelled`.
std::optional<Locker> open_until_signal(const StoreUrl& store, std::string& why) {
  if (!needs_server(store)) return open_to_look(store, why);
  const StopOnPendingSignal stop;
  return open_to_look(store, why, stop.token());
}

}  // namespace

int status(const StatusCommand& command) {
  std::optional<Locker> locker;
  const auto picture = [&](std::size_t width) {
    std::string why;
    if (!locker) locker = command.watch ? open_until_signal(command.store, why) : open_to_look(command.store, why);
    if (locker) return status_of(locker->snapshot(), command, width);
    const Snapshot empty{.store = spi::Url::parse(command.store.text).safe_text()};
    if (command.form != StatusCommand::Form::text) return status_of(empty, command, width);
    return title_of(empty, command, width) + wrapped("Nothing is held: " + showable(why) + ".", width);
  };
  if (command.watch) return watch(picture, command.interval, command.count);
  const std::string text = picture(terminal_size().columns);
  locker.reset();  // left before a pipe that nobody reads ends this process
  return print(text);
}

}  // namespace hierlock::cli
