#include "engine/log.h"

#include <time.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "plan/text.h"

namespace hierlock::engine {

namespace {

// An entry is a list of fields: the text, then groups that begin with a letter for their kind. Each field is its size
// in two bytes and its bytes. A reader stops at the first field that is not whole: the table may be damaged.
constexpr std::string_view target_group = "t", wait_group = "w";
constexpr std::size_t longest_text = 300;

void append(std::string& bytes, std::string_view field) {
  const auto size = static_cast<std::uint16_t>(field.size());
  bytes.append(reinterpret_cast<const char*>(&size), sizeof size).append(field);
}

// False: there is no room for the whole group, and nothing is appended.
bool append_group(std::string& bytes, std::initializer_list<std::string_view> fields) {
  std::size_t size = bytes.size();
  for (const std::string_view field : fields) size += sizeof(std::uint16_t) + field.size();
  if (size > LogEntry::words * sizeof(std::uint64_t)) return false;
  for (const std::string_view field : fields) append(bytes, field);
  return true;
}

std::string encode(const Log::Entry& entry) {
  std::string bytes;
  append(bytes, plan::cut_short(entry.text, longest_text));
  for (const Error::Wait& w : entry.cycle) {
    if (!append_group(bytes, {wait_group, w.owner, std::to_string(w.process), w.host, w.waits_for, w.holds})) break;
  }
  for (const std::string& target : entry.targets) {
    if (!append_group(bytes, {target_group, target})) break;
  }
  return bytes;
}

Log::Entry decode(std::string_view bytes) {
  const auto field = [&]() -> std::optional<std::string> {
    std::uint16_t size = 0;
    if (bytes.size() < sizeof size) return std::nullopt;
    std::memcpy(&size, bytes.data(), sizeof size);
    if (bytes.size() - sizeof size < size) return std::nullopt;
    std::string value(bytes.substr(sizeof size, size));
    bytes.remove_prefix(sizeof size + size);
    return value;
  };
  Log::Entry entry;
  entry.text = field().value_or("");
  while (const std::optional<std::string> kind = field()) {
    if (*kind == target_group) {
      std::optional<std::string> target = field();
      if (target) entry.targets.push_back(std::move(*target));
    } else if (*kind == wait_group) {
      auto owner = field(), process = field(), host = field(), waits_for = field(), holds = field();
      if (!holds) break;
      std::int64_t pid = 0;
      std::from_chars(process->data(), process->data() + process->size(), pid);
      entry.cycle.push_back({std::move(*owner), pid, std::move(*host), std::move(*waits_for), std::move(*holds)});
    } else {
      break;
    }
  }
  return entry;
}

}  // namespace

void Log::write_log(const Entry& what) noexcept {
  std::string bytes;
  try {
    bytes = encode(what);
  } catch (...) {  // no memory for the words
    return;
  }
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  LogRing& ring = what.cycle.empty() ? header_->events : header_->deadlocks;
  const std::uint64_t ticket = ring.next.add(1);
  LogEntry& entry = ring.entries[ticket % LogRing::size];
  entry.ticket.exchange(0);
  entry.when.set(std::int64_t{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec);
  entry.size.set(bytes.size());
  for (std::size_t i = 0; i * 8 < bytes.size(); ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i * 8, std::min<std::size_t>(8, bytes.size() - i * 8));
    entry.bytes[i].set(word);
  }
  entry.ticket.set(ticket + 1);
}

std::vector<Log::Entry> Log::read_log() const {
  std::vector<std::pair<std::uint64_t, Entry>> found;
  for (const LogRing* ring : {&header_->events, &header_->deadlocks}) {
    for (const LogEntry& entry : ring->entries) {
      const std::uint64_t ticket = entry.ticket.acquire();
      if (ticket == 0) continue;
      std::string bytes(std::min<std::size_t>(entry.size.acquire(), LogEntry::words * 8), '\0');
      for (std::size_t i = 0; i * 8 < bytes.size(); ++i) {
        const std::uint64_t word = entry.bytes[i].acquire();
        std::memcpy(bytes.data() + i * 8, &word, std::min<std::size_t>(8, bytes.size() - i * 8));
      }
      Entry copy = decode(bytes);
      copy.when = entry.when.acquire();
      if (entry.ticket.acquire() == ticket) found.emplace_back(ticket, std::move(copy));
    }
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::tie(a.second.when, a.first) < std::tie(b.second.when, b.first);
  });
  std::vector<Entry> log;
  for (auto& [ticket, copy] : found) log.push_back(std::move(copy));
  return log;
}

}  // namespace hierlock::engine
