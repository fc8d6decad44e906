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
#include <string_view>

#include <hierlock/options.h>
#include <hierlock/snapshot.h>
#include <hierlock/spi/backend.h>
#include <hierlock/spi/url.h>

#include "threads/registry.h"

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
  Grant at_once(const Chain& chain, const AcquireOptions& options) noexcept {
    return chain.space != Space::slots && usual(options) ? backend_->at_once(chain) : Grant{};
  }
  // The same for the text of a path that was granted before.
  Grant at_once_again(std::string_view path, const AcquireOptions& options) noexcept {
    return usual(options) ? backend_->at_once_again(path) : Grant{};
  }
  void release(const Grant& grant) noexcept {
    if (recent_ == this && here()) [[likely]]
      return backend_->release(grant);
    release_from_elsewhere(grant);
  }

  // Throws lost in a forked child; keeps the Core alive for this thread.
  Backend& use();
  // False in a forked child: handles are inert there.
  bool here() const noexcept { return fork_generation_ == fork_page_->load(std::memory_order_relaxed); }
  Backend& backend() noexcept { return *backend_; }
  const Backend& backend() const noexcept { return *backend_; }

  Stats stats() const;
  const std::string& url() const noexcept { return url_; }

  Core(std::unique_ptr<Backend> backend, std::string url, OpenOptions options);

 private:
  bool usual(const AcquireOptions& options) const noexcept {
    return recent_ == this && here() && options.owner == nullptr && options.note.empty() &&
           !options.cancel.stop_possible();
  }

  class Watch;
  class Reference;
  static void drop_idle() noexcept;
  bool may_go() const noexcept;
  static void notice_forks();
  static void begin_generation() noexcept;
  void release_from_elsewhere(const Grant& grant) noexcept;
  void keep_for_this_thread();
  void tell(Event::Kind kind, const Plan& plan, std::string_view owner, std::string_view blocked_by,
            std::chrono::nanoseconds waited, std::optional<ErrorKind> error) const noexcept;
  void count_failure(const Plan& plan, ErrorKind kind) noexcept;

  // The Core this thread used last, of which it has a reference; none while the thread's own variables are destroyed.
  static inline constinit thread_local const Core* recent_ = nullptr;

  // Which process this is, in a line of forks. It lies on a page that the kernel wipes in a child, also in one that was
  // made without libc's knowledge (a bare clone). Set once, before the first Core is made.
  static inline constinit std::atomic<std::uint64_t> generation_without_page_{0};
  static inline constinit std::atomic<std::uint64_t>* fork_page_ = &generation_without_page_;

  const std::uint64_t number_ = threads::next_number();
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
