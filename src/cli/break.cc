#include "cli/break.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <hierlock/spi/backend.h>
#include <hierlock/spi/url.h>

#include "cli/holders.h"
#include "cli/look.h"
#include "cli/output.h"
#include "cli/watch.h"
#include "plan/text.h"

namespace hierlock::cli {
namespace {

using Holders = std::vector<Snapshot::Holder>;

// Those who asked for exactly this node: whom breaking it will hit.
Holders holders_of(const Snapshot& snapshot, const std::string& node) {
  Holders out;
  for (const Snapshot::Holder& holder : snapshot.holders) {
    if (holder.asked && holder.target == node) out.push_back(holder);
  }
  return out;
}

bool same(const Holders& a, const Holders& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return x.who.owner == y.who.owner && x.fence == y.fence; });
}

std::string operator_name() {
  const passwd* user = getpwuid(geteuid());
  return user != nullptr ? user->pw_name : "user " + std::to_string(geteuid());
}

std::string in_words(std::size_t count) { return count == 1 ? "1 lock" : grouped(count) + " locks"; }

// On a server a lock is published when it has lasted for a second. Until then nobody else knows its holder.
Snapshot look(const Locker& locker, const std::string& node) {
  constexpr std::chrono::milliseconds until_published{2500}, pause{100};
  const auto end = std::chrono::steady_clock::now() + until_published;
  for (;;) {
    Snapshot snapshot = locker.snapshot();
    if (!locker.capabilities().leases || !holders_of(snapshot, node).empty()) return snapshot;
    if (std::chrono::steady_clock::now() >= end) return snapshot;
    std::this_thread::sleep_for(pause);
  }
}

std::string unknown_holders(std::size_t broken, const Holders& holders) {
  if (broken <= holders.size()) return "";
  const std::size_t unknown = broken - holders.size();
  return fmt::format("{} held for less than a second: {} not known yet\n",
                     unknown == 1 ? "1 lock was" : grouped(unknown) + " locks were",
                     unknown == 1 ? "its holder is" : "their holders are");
}

// A line from the terminal that says yes. The end of the input is a no.
bool confirmed() {
  std::string answer;
  for (int c; (c = std::fgetc(stdin)) != EOF && c != '\n';) answer += static_cast<char>(c);
  return answer == "y" || answer == "Y" || answer == "yes";
}

void say(const std::string& text) { std::fputs(text.c_str(), stderr); }

int nothing_to_break(const BreakCommand& command, const Snapshot& snapshot, const std::string& node) {
  std::string message = "nobody holds " + node;
  // An ancestor is in use because of what is held below it, and that is what can be broken.
  const auto below = std::find_if(
      snapshot.holders.begin(), snapshot.holders.end(),
      [&](const Snapshot::Holder& holder) { return holder.asked && holder.target.starts_with(node + "/"); });
  if (command.target.space() == Space::path && below != snapshot.holders.end()) {
    message += " itself, but " + below->target + " below it is held; to break that lock, name it";
  }
  complain(message);
  if (!command.json) return exit_nothing_broken;
  Json json;
  json.open_object().number("version", std::uint64_t{1}).text("target", node).number("broken", std::uint64_t{0});
  write_holders(json, "holders", {});
  const int code = print(json.close().str());
  return code == exit_ok ? exit_nothing_broken : code;
}

}  // namespace

int break_locks(const BreakCommand& command) {
  if (!command.yes && isatty(STDIN_FILENO) != 1) {
    throw UsageError(
        "break: cannot ask for confirmation, because stdin is not a terminal; add --yes to break without asking");
  }
  const std::string node = node_text(command.target);
  const std::string scheme = spi::Url::parse(command.store.text).scheme;
  if (scheme != "shm" && scheme != "valkey" && scheme != "redis") {
    throw UsageError(std::string("break: ") + spi::cannot_break);
  }
  std::string why;
  std::optional<Locker> opened = open_to_look(command.store, why);
  if (!opened) return nothing_to_break(command, {}, node);
  Locker& locker = *opened;
  const auto width = terminal_size().columns;
  const bool leases = locker.capabilities().leases;
  Snapshot snapshot = command.yes ? locker.snapshot() : look(locker, node);
  Holders holders = holders_of(snapshot, node);
  while (!command.yes && !holders.empty()) {
    say(holders_text(holders, width));
    say(fmt::format("\nEach holder loses its lock now, but may continue to work. Break {}? [y/N] ",
                    in_words(holders.size())));
    if (!confirmed()) {
      complain("nothing was broken");
      return exit_nothing_broken;
    }
    snapshot = look(locker, node);
    Holders now = holders_of(snapshot, node);
    if (same(holders, now)) break;
    // The answer was about somebody else.
    holders = std::move(now);
    say("\nThat has changed meanwhile:\n\n");
  }
  if (holders.empty() && !(command.yes && leases)) return nothing_to_break(command, snapshot, node);

  const std::string reason =
      (command.reason.empty() ? "no reason given" : command.reason) + " (" + operator_name() + ")";
  const std::size_t broken = locker.break_locks(command.target, reason);
  if (broken == 0) return nothing_to_break(command, locker.snapshot(), node);
  if (!command.json)
    return print(fmt::format("Broke {} on {}\n\n", in_words(broken), node) +
                 (holders.empty() ? "" : holders_text(holders, width)) + unknown_holders(broken, holders));
  Json json;
  json.open_object().number("version", std::uint64_t{1}).text("target", node).number("broken", std::uint64_t{broken});
  write_holders(json, "holders", holders);
  return print(json.close().str());
}

}  // namespace hierlock::cli
