// LeaseStore: the interface of a store in which a lock is a record with a lease. The record ends by itself unless it is
// renewed in time. LeaseDriver makes a Driver of it.
//
// Any thread may make any call, several at a time. Exceptions are hierlock::Error. After `unavailable` the store may or
// may not have done the call. Every call may be repeated, because requests carry an id. Only break_locks() may not: a
// second one might hit the next holder.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "remote/driver.h"

namespace hierlock::remote {

struct LeaseNode {
  std::string name;
  Mode mode = Mode::X;
  std::uint32_t slots = 0;
};
// Nodes that the store grants in one step. They are in the one order that all processes use. So are the groups of a
// plan.
struct LeaseGroup {
  std::string place;  // the store's name for where they are
  std::vector<LeaseNode> nodes;
};

struct LeaseReply {
  enum class State : std::uint8_t {
    granted,  // all of the group
    waiting,  // it has its place in the queue, and a lease
    busy,     // without waiting: a node is taken, and nothing is kept
    gone,     // the store does not know the request: its lease has ended
    later,  // the store grants nothing before `from`. Nothing is kept, except of an extend: the question is asked again
  } state = State::gone;
  std::int64_t number = 0;     // granted: above every earlier number of a conflicting lock
  std::uint64_t question = 0;  // granted: LeaseRequest::question of the question that this answers
  Clock::time_point from{};
  bool repeated = false;  // the store was asked more than once. An earlier question may still arrive
  bool asked = true;      // later: false if the store was not asked, so it has heard nothing of this question
};

struct LeaseRequest {
  std::string id;  // unique anywhere; nobody else knows it
  std::uint64_t session = 0;
  unsigned part = 0;          // 0: the acquire; each extend is one more
  bool known = false;         // the request holds something at this place already
  unsigned granted_part = 0;  // if known: the last part that was granted there. If the store knows only an earlier one,
                              // it has lost a grant, and answers `gone`
  bool wait = false;          // otherwise `busy`
  std::int64_t above = 0;     // what `number` must be above
  // A new number for each question, except if the question repeats an unanswered one. The store keeps the number with
  // the request, and each message and renewal about a grant has it. So nobody takes a late message for the answer to a
  // later question.
  std::uint64_t question = 0;
};

struct Renewal {
  std::string place, id;
  bool waits = false;      // it asks whether it still does
  std::int64_t raise = 0;  // later numbers of this place are above this one
  unsigned part = 0;       // the last one that was granted there, as LeaseRequest::granted_part
  std::optional<LeaseReply> reply{};
  std::string refusal{};  // if there is no reply: why, in the server's words
};

// A waiting request was granted. Or a lock was broken.
struct LeaseNews {
  std::string place, id;
  std::uint64_t question = 0;
  std::int64_t number = 0;
  bool broken = false;
};

class LeaseStore {
 public:
  virtual ~LeaseStore() = default;

  // As Driver has them.
  virtual Capabilities capabilities() const = 0;
  virtual void check(const spi::Plan& plan) const = 0;
  virtual Cell cell_of(Space space, std::uint8_t level, std::string_view key, Mode mode) const = 0;
  virtual NoticeStore& notices() = 0;
  virtual std::optional<View> waits(Deadline& limit) = 0;
  virtual Look look(Clock::time_point by) = 0;
  virtual void describe(Snapshot& snapshot) const = 0;
  virtual void end(Clock::time_point by) noexcept = 0;  // closes all connections

  virtual std::vector<LeaseGroup> groups(const spi::Plan& plan) const = 0;
  virtual LeaseReply take(const LeaseRequest& request, const LeaseGroup& group, WaitLimit& limit) = 0;
  // True: only take() itself makes sure that a grant outlives a failover. If a message or a renewal tells of a grant,
  // the question is asked once more.
  virtual bool confirms_grants() const { return false; }
  // Part 0: gives back all that the request has there. Otherwise: what that part has added. But if that part is granted
  // by now, it stays granted, unless `surely`, and the reply says so. Numbers of later grants are above `number`.
  struct Drop {
    std::string place, id;
    unsigned part = 0;
    std::int64_t number = 0;
    bool surely = false;
    bool unanswered = false;  // a question for it was given up. It may still arrive, and must not be granted then
  };
  virtual LeaseReply drop(const Drop& what, WaitLimit& limit) = 0;
  // Takes the node away from every lock that asked for it. Returns the number of these locks. A message tells their
  // holders. The node is free when the holders have called acknowledge(), or after a while. A renewal finds such a lock
  // `gone`.
  virtual std::size_t break_locks(const std::string&, const LeaseNode&, WaitLimit&) {
    throw Error(ErrorKind::unsupported, spi::cannot_break);
  }
  // The holder of this broken lock does not rely on it any more.
  virtual void acknowledge(const std::string&, const std::string&, WaitLimit&) {}
  // All of them in one round trip.
  virtual void renew(std::span<Renewal> renewals, WaitLimit& limit) = 0;

  // Messages about grants. If a message is lost, the next renewal has its content. start_listening() is called before
  // the first request, until it succeeds. listen() waits for messages until the limit gives up. One thread makes all of
  // these calls, and has ended before end().
  virtual void start_listening(WaitLimit& limit) = 0;
  virtual std::vector<LeaseNews> listen(WaitLimit& limit) = 0;
};

}  // namespace hierlock::remote
