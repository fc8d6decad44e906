// Party: somebody who acquires, waits and releases, on a thread of their own. What a party is asked to do it does one
// thing after the other; the answers come as futures, so that a test can look at the store while the party waits.
//
// Commands and outcomes are plain values: those of a party that lives in another process go through a pipe (wire.h,
// process_party.h).
// A party signs everything it asks for with its name (AcquireOptions::note), which is how a snapshot shows who it is.
#pragma once

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <ostream>
#include <stop_token>
#include <string>
#include <vector>

#include <hierlock/hierlock.h>

namespace hierlock::conformance {

using Clock = std::chrono::steady_clock;

#if defined(__SANITIZE_THREAD__)
inline constexpr int slowness = 5;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr int slowness = 3;
#else
inline constexpr int slowness = 1;
#endif

// How long a test waits for what must happen, before it fails.
inline constexpr std::chrono::seconds patience{10 * slowness};

// How a party asks. Owners and tokens are of this process: only parties made by Conformance::thread() can be given
// them.
struct Ask {
  std::optional<std::chrono::nanoseconds> timeout{};
  std::stop_token cancel{};
  const Owner* owner = nullptr;
  bool then_release = false;  // give it back as soon as it is granted
  // Without the signature, as plain as a request can be: stores may have a shorter way for those. A snapshot then shows
  // no party, so there is nothing to be asked about this request while it waits.
  bool plain = false;
};

// What became of a request.
struct Outcome {
  std::optional<ErrorKind> error{};  // none: granted
  std::string message{};
  bool retryable = false;
  std::vector<Error::Wait> cycle{};  // of a thread's; not carried between processes
  int handle = 0;                    // for release, extend, …; 0 if nothing is held
  std::int64_t fence = 0;
  std::chrono::nanoseconds took{};

  bool granted() const { return !error; }
};
std::ostream& operator<<(std::ostream& out, const Outcome& outcome);

// What a party is asked to do, as a value.
struct Command {
  enum class What : std::uint8_t { acquire, try_acquire, extend, give_to, release, look, lost } what = What::look;
  std::vector<Target> targets{};
  int handle = 0;
  Ask ask{};
};

class Party;

// A request under way.
struct Pending {
  Party* by;
  std::string asked;
  std::future<Outcome> result;
  Command command{};

  bool ready() const { return result.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
};

class Party {
 public:
  explicit Party(std::string name) : name_(std::move(name)) {}
  virtual ~Party() = default;
  Party(const Party&) = delete;
  Party& operator=(const Party&) = delete;

  const std::string& name() const { return name_; }

  Pending acquire(const Target& target, const Ask& ask = {}) { return acquire_all({target}, ask); }
  Pending acquire_all(std::vector<Target> targets, const Ask& ask = {});
  // Through the try_ form: what it returns without a value is the outcome `busy` or `timeout` without a message.
  Pending try_acquire(const Target& target, std::chrono::nanoseconds timeout = {}, const Ask& ask = {});
  Pending extend(const Outcome& lock, const Target& target, const Ask& ask = {});
  Pending give_to(const Outcome& lock, const Owner& owner);

  // These answer before they return; the party must not be waiting.
  void release(const Outcome& lock);
  bool holds(const Outcome& lock);
  std::int64_t fence(const Outcome& lock);
  bool lost(const Outcome& lock);  // whether Lock::lost() is triggered

  // What all of the above comes to; for those who pass commands on.
  virtual std::future<Outcome> run(Command command) = 0;

  // The test is over: gives back what is held, and whatever is granted from now on.
  virtual void abandon() = 0;

 private:
  Pending pending(Command command);
  Outcome at_once(Command command);

  const std::string name_;
};

// A thread of this process that uses `locker`.
std::unique_ptr<Party> make_thread_party(std::string name, Locker& locker);

}  // namespace hierlock::conformance
