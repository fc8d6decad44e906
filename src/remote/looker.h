// Looker: reads notices and the store's view for snapshots, on its own session. Reading a view may be slow. The pool's
// side sessions must be fast, because they end waits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "remote/driver.h"
#include "timed/timed_mutex.h"

namespace hierlock::remote {

// A session that only looks. Each call ends as the limit says.
class LookSession {
 public:
  virtual ~LookSession() = default;
  virtual bool usable() const noexcept = 0;
  // All notices. No value: they cannot be read, and `why` has the server's message.
  virtual std::optional<std::vector<Notice>> notices(std::string& why, Deadline& limit) = 0;
  virtual View view(Deadline& limit) = 0;
  // Returns those of these sessions that have ended at the server. Empty if the server does not say.
  virtual std::set<std::uint64_t> ended(const std::set<std::uint64_t>& sessions, Deadline& limit) = 0;
  virtual void end_reading(Deadline& limit) = 0;
};

class Looker {
 public:
  using Connect = std::function<std::unique_ptr<LookSession>(Deadline&)>;
  enum class Views : bool { off, on };
  Looker(Connect connect, Views views) : connect_(std::move(connect)), views_(views) {}

  // The notes of the result say what could not be seen in time. Never throws because of the server.
  Look look(Clock::time_point by);
  // Closes its session, unless a thread still uses it by then.
  void close(Clock::time_point by) noexcept;

 private:
  const Connect connect_;
  const Views views_;
  timed::TimedMutex looking_;  // guards what follows
  // Made when it is first needed; the server ends it when nobody looks for long.
  std::unique_ptr<LookSession> session_;
  // The last view, if a right was missing. So not every look has to ask the server. A new right may need a new session.
  View denied_;
  Clock::time_point ask_again_{};
};

}  // namespace hierlock::remote
