// Notices: what processes tell each other, kept in Valkey (notices.lua).
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "remote/driver.h"
#include "valkey/connections.h"

namespace hierlock::valkey {

class Notices final : public remote::NoticeStore {
 public:
  Notices(Connections& connections, const Options& options);

  Published publish(std::span<const remote::Notice> notices, Deadline& limit) override;
  bool remove(std::span<const std::uint64_t> ids, Deadline& limit) override;
  std::optional<std::size_t> keep_alive(std::span<const std::uint64_t> ids, Deadline& limit) override;
  std::optional<std::vector<remote::Notice>> read(Deadline& limit) override;
  void remove_old(Deadline&) override {}  // the server does
  // The waits at the server now, between the sessions of the notices that read() returned last.
  std::optional<remote::View> view(WaitLimit& limit);

 private:
  std::optional<Reply> run(Command arguments, WaitLimit& limit);

  Connections& connections_;
  const std::string table_, key_;
  const std::string locker_;    // unique anywhere
  const std::string alive_ms_;  // how long notices live without a word of their Locker
  struct Known {
    std::string version;
    std::vector<remote::Notice> notices;
  };
  std::mutex mutex_;                      // guards what follows
  std::map<std::string, Known> known_{};  // by Locker
};

std::string random_name();  // 32 hexadecimal digits

}  // namespace hierlock::valkey
