#include "engine/log.h"

#include <time.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace hierlock::engine {

void Log::write_log(std::string_view text) noexcept {
  if (processes_.alone()) return;
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  const std::uint64_t ticket = header_->log_next.add(1);
  LogEntry& entry = header_->log[ticket % log_size];
  entry.ticket.exchange(0);
  entry.when.set(std::int64_t{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec);
  for (std::size_t i = 0; i < LogEntry::words; ++i) {
    std::uint64_t bytes = 0;
    if (i * 8 < text.size()) std::memcpy(&bytes, text.data() + i * 8, std::min<std::size_t>(8, text.size() - i * 8));
    entry.text[i].set(bytes);
  }
  entry.ticket.set(ticket + 1);
}

std::vector<Log::LogCopy> Log::read_log() const {
  std::vector<std::pair<std::uint64_t, LogCopy>> found;
  for (const LogEntry& entry : header_->log) {
    const std::uint64_t ticket = entry.ticket.acquire();
    if (ticket == 0) continue;
    std::string text(LogEntry::words * 8, '\0');
    for (std::size_t i = 0; i < LogEntry::words; ++i) {
      const std::uint64_t bytes = entry.text[i].acquire();
      std::memcpy(text.data() + i * 8, &bytes, 8);
    }
    text.resize(strnlen(text.data(), text.size()));
    LogCopy copy{entry.when.acquire(), std::move(text)};
    if (entry.ticket.acquire() == ticket) found.emplace_back(ticket, std::move(copy));
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<LogCopy> log;
  for (auto& [ticket, copy] : found) log.push_back(std::move(copy));
  return log;
}

}  // namespace hierlock::engine
