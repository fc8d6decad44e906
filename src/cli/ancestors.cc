#include "cli/ancestors.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <hierlock/mode.h>
#include <hierlock/spi/plan.h>

namespace hierlock::cli {
namespace {

// The beginning of a file about a process.
std::string content(std::int64_t process, const char* file) {
  std::string text(4096, '\0');
  const int opened = ::open(("/proc/" + std::to_string(process) + "/" + file).c_str(), O_RDONLY | O_CLOEXEC);
  const ssize_t size = opened < 0 ? 0 : read(opened, text.data(), text.size());
  if (opened >= 0) close(opened);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  return text;
}

// 0 if it cannot be known.
std::int64_t parent_of(std::int64_t process) {
  const std::string text = content(process, "stat");
  const std::size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == text.npos || name_end + 4 > text.size()) return 0;
  return std::strtoll(text.c_str() + name_end + 4, nullptr, 10);  // `) S 4711`
}

std::vector<std::int64_t> ancestors() {
  constexpr std::size_t most = 64;  // a number may be given away while we look, and make this a circle
  std::vector<std::int64_t> out;
  for (std::int64_t process = getppid(); process > 1 && out.size() < most; process = parent_of(process)) {
    out.push_back(process);
  }
  return out;
}

std::string host_name() {
  char name[256] = "";
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

// A number means something in its pid namespace only, so the program must be the same as well. A server does not know
// programs, but machines.
bool is_one_of(const Snapshot::Party& who, const std::vector<std::int64_t>& processes) {
  if (std::find(processes.begin(), processes.end(), who.process) == processes.end()) return false;
  if (who.program.empty()) {
    return who.host == host_name() && content(who.process, "comm").starts_with("hierlock");
  }
  const std::string command = content(who.process, "cmdline");
  const std::string path = command.substr(0, command.find('\0'));
  return path.substr(path.rfind('/') + 1).starts_with(who.program);
}

}  // namespace

std::optional<Snapshot::Party> ancestor_in_the_way(const Snapshot& snapshot, std::span<const Target> targets) {
  const std::vector<std::int64_t> processes = ancestors();
  const spi::Plan plan(targets);
  for (const spi::Step& step : plan.steps()) {
    const std::string node = spi::describe_key(step.space, step.key);
    std::uint32_t slots_held = 0;
    for (const Snapshot::Holder& holder : snapshot.holders) {
      if (holder.target != node || !is_one_of(holder.who, processes)) continue;
      const bool in_the_way =
          step.space == Space::slots ? ++slots_held >= step.slots : !compatible(holder.mode, step.mode);
      if (in_the_way) return holder.who;
    }
  }
  return std::nullopt;
}

}  // namespace hierlock::cli
