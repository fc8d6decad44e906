// Locks: any store of hierlock as the lab sees it. Sessions that take one lock step at a time, and who waits for whom.
#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include <hierlock/hierlock.h>

#include "lab/database.h"
#include "lab/scenario.h"

namespace hierlock::lab {

// A deadlock, timeout, busy or serialization is an outcome of its own; its code, as of any other, is its name.
Answer answer_of(const Error& error);

// The locks of one session. execute() is called by one thread, interrupt() by any.
class LockSession {
 public:
  LockSession(std::shared_ptr<Locker> locker, const std::string& name)
      : locker_(std::move(locker)), owner_(locker_->owner(name)), name_(name) {}

  // Errors are answers; their codes are the names of error kinds.
  Answer execute(const LockStep& step);
  void interrupt() noexcept { cancel_.request_stop(); }
  void release_all() noexcept { held_.clear(); }

 private:
  struct Held {
    Lock lock;
    std::vector<Target> targets;
  };
  void release(const Target& target);

  const std::shared_ptr<Locker> locker_;
  const Owner owner_;
  const std::string name_;  // given to the store as the note, so that it can be told from others' owners there
  std::stop_source cancel_;
  std::vector<Held> held_;  // in the order they were taken
};

class Locks {
 public:
  // A table of the lab's own at that store: of a server, in the schema that Database has made there.
  explicit Locks(std::string_view url);
  ~Locks();
  Locks(const Locks&) = delete;
  Locks& operator=(const Locks&) = delete;

  // Throws Error(unsupported) for a step that needs what the store has not.
  void check(const LockStep& step) const;
  std::unique_ptr<LockSession> session(const std::string& name);
  View look() const;

 private:
  std::string url_, file_;            // of the table, if it is a file of ours
  std::shared_ptr<Locker> observer_;  // and the one that all sessions use, where a table is a Locker's own
};

}  // namespace hierlock::lab
