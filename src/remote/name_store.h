// NameStore: the interface of a store whose sessions hold many locks by name. NameDriver uses it.
//
// A name is two locks at the store: a turnstile and the lock itself. A request takes the lock only if the turnstile is
// free. A request that must wait for the lock waits inside the turnstile, and all others stand in line before it. So no
// request overtakes another. While a session holds the turnstile, the lock can move from one session to another. Only a
// request that has looked at the turnstile before the session entered could take the lock meanwhile. Such a request
// comes before that session anyway.
//
// Slots are several locks behind one turnstile.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <hierlock/error.h>
#include <hierlock/target.h>

#include "remote/session.h"
#include "timed/wait_limit.h"

namespace hierlock::remote {

// A name, or slots, as the canonical key bytes have it.
struct LockName {
  Space space = Space::name;
  std::string key;
  std::uint32_t slots = 0;  // how many there are; 0 for a name
};

// A question to a session that keeps names. No operation waits for another session.
struct NameOp {
  enum class Kind : std::uint8_t {
    take,         // if nobody is in the turnstile
    take_inside,  // an usher of this process holds the turnstile
    mint,         // nothing is taken: a fence for what is held already
    give,         // back
    undo,         // removes what a failed `take` or `give` has left; nothing of it is held afterwards
  };
  Kind kind = Kind::take;
  LockName name{};
  std::uint32_t slot = 0;  // give: which one
};

struct NameResult {
  enum class Kind : std::uint8_t {
    granted,    // `slot`, `minted`
    taken,      // by another session
    queued,     // another session is in the turnstile: somebody waits for it, or is asking just now
    given,      // give, undo
    not_held,   // give: the session does not have it
    disagrees,  // slots: the holder of `slot` uses another number of slots
    unknown,    // the store does not say; undo it
  };
  Kind kind = Kind::unknown;
  std::uint32_t slot = 0;
  std::uint64_t minted = 0;
};

struct NameReply {
  std::int64_t code = 0;  // 0: no error
  std::string message;
  bool good = false;                // it is still the same session, on a server that is fit for locks
  std::vector<NameResult> results;  // by operation; none after an error
};

// Makes fences of what the store has minted. Throws if one must not be given out.
class Minter {
 public:
  virtual ~Minter() = default;
  virtual std::int64_t fence_of(std::uint64_t minted) = 0;
};

// One thread at a time uses it. If a call gives up on an answer, the session is broken.
class NameSession {
 public:
  virtual ~NameSession() = default;
  virtual Session& session() noexcept = 0;  // id(), server(), socket(), broken(), give_up(), hung_up()
  virtual const std::shared_ptr<Minter>& minter() const noexcept = 0;

  // As a keeper: asks for all operations in one round trip. Without operations it asks for a sign of life. answer()
  // does not wait.
  virtual void begin(std::span<const NameOp> ops) = 0;
  virtual std::optional<NameReply> answer() = 0;
  // Waits until some of an answer is there, or for so long. `briefly`: it is expected at once.
  virtual void look(bool briefly, std::chrono::milliseconds time) noexcept = 0;

  // As an usher: holds nothing but what it waits for.
  enum class At : std::uint8_t {
    line,       // before the turnstile
    turnstile,  // in the turnstile; of slots: some are free perhaps
    lock,       // it has both; not of slots
  };
  struct Waited {
    std::int64_t code = 0;  // 0: no error
    std::string message;
    At at = At::line;
  };
  // Continues the wait from `at`, for at most `time`. The limit may end it earlier. Then the caller must clear
  // everything.
  virtual Waited wait(const LockName& name, At at, std::chrono::seconds time, timed::WaitLimit& limit) = 0;
  // Inside of the turnstile of slots: whether one may be free.
  virtual std::optional<bool> any_free(const LockName& name, timed::WaitLimit& limit) = 0;
  // Gives the lock back, and stays in the turnstile. False: the session is broken.
  virtual bool step_back(const LockName& name, timed::WaitLimit& limit) = 0;
  // Gives everything back. It need not wait for the answer. In that case cleared() reads the answer before the session
  // is used again.
  virtual void begin_clear() noexcept = 0;
  virtual bool cleared(timed::WaitLimit& limit) noexcept = 0;
};

class NameStore {
 public:
  virtual ~NameStore() = default;
  enum class Use : std::uint8_t { keeper, usher };
  // From a session of the store that is ready to lock and has no locks.
  virtual std::unique_ptr<NameSession> name_session(std::unique_ptr<Session> session, Use use,
                                                    timed::WaitLimit& limit) = 0;
  virtual bool interrupt(Session& side, const Session& waiting, timed::Deadline& limit) = 0;
  virtual Error name_failure(std::int64_t code, const std::string& message, const std::string& doing) const = 0;
  // For each of these names, the session that holds it; for slots, the session of each slot. Empty: the name, or a
  // slot, is free.
  using Holders = std::vector<std::vector<std::uint64_t>>;
  virtual std::optional<Holders> holders(Session& side, std::span<const LockName> names, timed::Deadline& limit) = 0;
  // The number of slots that the holder of this slot uses. No value: the slot is free, or the number is above the
  // search limit.
  virtual std::optional<std::uint32_t> slots_of_holder(Session& side, const LockName& name, std::uint32_t slot,
                                                       timed::Deadline& limit) = 0;
};

}  // namespace hierlock::remote
