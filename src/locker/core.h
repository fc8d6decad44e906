// Core: a backend and what every Locker has around it: options, counters, and the question who keeps it alive.
//
// A Lock may outlive its Locker, and a reference count per lock would be a word that all threads fight for. So instead
// every thread that uses a Core keeps a reference of its own, dropped when the Core is closed and idle: whoever is
// inside a call has one. A Core that is closed while locks are held stays in a list until somebody finds it idle. What
// a backend has besides memory does not stay with it: Backend::close().
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <hierlock/options.h>
#include <hierlock/snapshot.h>
#include <hierlock/spi/backend.h>
#include <hierlock/spi/url.h>

namespace hierlock::spi {

class Core : public std::enable_shared_from_this<Core> {
 public:
  // The result is kept alive as described above; close() it when its Locker goes.
  static Core* make(std::unique_ptr<Backend> backend, const Url& url, OpenOptions options);
  static void close(Core* core) noexcept;

  // Acquires or extends; counts, tells events, and turns "no value" into an Error unless `may_fail`.
  std::optional<Grant> run(const Plan& plan, const AcquireOptions& options, OwnerId owner, const Grant* extended,
                           bool may_fail);
  // The usual case, without any of that; a grant whose id is 0 means that it has to be run().
  Grant at_once(const Chain& chain, const AcquireOptions& options) noexcept;
  void release(const Grant& grant) noexcept;

  // Throws lost in a forked child; keeps the Core alive for this thread.
  Backend& use();
  // False in a forked child: handles are inert there.
  bool here() const noexcept { return fork_generation_ == current_fork_generation(); }
  Backend& backend() noexcept { return *backend_; }
  const Backend& backend() const noexcept { return *backend_; }

  Stats stats() const;
  const std::string& url() const noexcept { return url_; }

  Core(std::unique_ptr<Backend> backend, std::string url, OpenOptions options);

 private:
  class Watch;
  struct References;
  static References& references();
  static std::uint64_t current_fork_generation() noexcept;
  void keep_for_this_thread();
  void tell(Event::Kind kind, const Plan& plan, std::string_view owner, std::string_view blocked_by,
            std::chrono::nanoseconds waited, std::optional<ErrorKind> error) const noexcept;
  void count_failure(const Plan& plan, ErrorKind kind) noexcept;

  const std::unique_ptr<Backend> backend_;
  const std::string url_;
  const OpenOptions options_;
  const std::uint64_t fork_generation_;
  std::atomic<bool> closed_{false};

  // Only acquires that wait or fail touch these.
  struct Counters {
    std::atomic<std::uint64_t> waits{0}, waited{0}, deadlocks{0};
  };
  std::array<Counters, 3> counters_{};
  std::array<std::atomic<std::uint64_t>, error_kind_count> failures_{};
};

}  // namespace hierlock::spi
