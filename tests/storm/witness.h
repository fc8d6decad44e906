// Witness: what the storm believes instead of the engine. A plain mapped file of its own.
//
//   counters    One a place, changed without any atomicity by whoever holds the place (or one above it) exclusively:
//               read, dawdle, write back one more. `made` says of each step from v to v+1 who made it: so a step that
//               is made twice (a lost update) or by nobody is seen at once, by the next who holds the place.
//   inside      Who believes to be inside of what, in which modes: written after an acquire and taken away before the
//               release. Each writes its own, then looks at all others: of two who are inside at once one sees the
//               other.
//   fences      The highest fence that each worker has had at each place in each mode: whoever comes in must have a
//               higher one than everybody before who was in conflict.
//   breaks      How many breaks of each place have begun and ended. A worker notes the number before it asks for such a
//               place. If one was under way then, or has begun since, its lock may be gone: then, and only then, and
//               only at breakable places, another may be where it believes to be. Above them nothing is excused: a
//               broken lock keeps its intentions there until it is released.
//   journal     What a worker was about to count when it died: only that step may have been made or not.
//
// A worker is a thread; all workers of a process die at once. Killed workers leave their marks. The supervisor says in
// `doomed` whom it will kill before it does, so that others can tell a mark of the dead from a violation. It takes the
// marks away when it has reaped the process.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <hierlock/mode.h>

#include "places.h"

namespace storm {

// Sanitizers make everything slower.
#if defined(__SANITIZE_THREAD__)
inline constexpr int slowness = 5;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr int slowness = 3;
#else
inline constexpr int slowness = 1;
#endif

inline constexpr std::size_t most_workers = 128;
inline constexpr std::size_t ring = 16384;  // steps of a counter whose makers are remembered

// What a worker is doing: what its kill is counted as.
enum class State : std::uint32_t {
  none,
  opening,
  idle,
  acquiring,  // inside acquire, and not known to wait
  waiting,    // inside acquire, in a queue
  holding,
  extending,          // inside extend, holding
  extending_waiting,  // inside extend, holding, in a queue
  releasing,          // inside release
};
inline constexpr std::size_t state_count = 9;
const char* to_string(State state);

std::int64_t now_ns();

template <class T>
using Word = std::atomic<T>;

// The modes in which a place is held by one lock: several when several targets need it.
using Modes = std::uint32_t;
constexpr Modes bit(hierlock::Mode mode) { return Modes{1} << static_cast<unsigned>(mode); }
// The modes that may not be there together with any of these. Written out here, not taken from what is tested.
constexpr Modes conflicts_with(Modes modes) {
  constexpr Modes is = 1, ix = 2, s = 4, x = 8;
  Modes bad = 0;
  if ((modes & is) != 0) bad |= x;
  if ((modes & ix) != 0) bad |= s | x;
  if ((modes & s) != 0) bad |= ix | x;
  if ((modes & x) != 0) bad |= is | ix | s | x;
  return bad;
}

struct alignas(64) Row {
  Word<std::uint32_t> incarnation;  // how often the process of this worker was started
  Word<std::int32_t> pid;
  Word<std::uint32_t> doomed;       // the incarnation that the supervisor kills, or has killed
  Word<std::int64_t> doomed_at[4];  // when it said so, of the last few incarnations
  Word<State> state;
  Word<std::int64_t> state_since;
  Word<std::uint64_t> moves;        // how often it came and went
  Word<std::uint64_t> extend;       // odd while inside extend()
  Word<std::uint64_t> extend_lost;  // the last odd value whose extend() gave everything back: a deadlock
  // The journal: about to count `place` from `from`; it is the worker's step number `ordinal` there.
  Word<std::uint32_t> about_to;  // place + 1
  Word<std::uint64_t> from, ordinal;
  Word<std::uint64_t> inside[most_places];  // incarnation (32) | how often in X, S, IX, IS (8 each)
  Word<std::int64_t> fence[most_places][4];
  Word<std::uint64_t> counted[most_places];      // steps made, by all incarnations
  Word<std::uint64_t> breaks_seen[most_places];  // 1 + breaks begun when it asked; 0: does not ask for the place
  Word<std::uint32_t> breaking;                  // 1 + the place that it is breaking
  Word<std::int64_t> stopped_itself;             // when it stopped itself inside the engine; 0: it runs
  Word<std::uint64_t> grants, timeouts, deadlocks, refusals, looks, breaks, late_breaks, losses, own_stops, handed_over;
};

struct alignas(64) Counter {
  volatile std::uint64_t value;    // not atomic: the lock is all it has
  Word<std::uint64_t> made[ring];  // from (32, cut) | maker: worker (10) | incarnation (22)
};

struct Violation {
  Word<std::uint32_t> ready;
  char text[2044];
};

struct Shared {
  Word<std::uint32_t> stop;
  Word<std::uint32_t> violations;  // how many were seen; only the first have room for their text
  Violation violation[16];
  Word<std::int64_t> answers[8];  // of a child that was asked something
  Word<std::uint64_t> breaks_begun[most_places], breaks_ended[most_places];
  Row rows[most_workers];
  Counter counters[most_places];
};

// What somebody is inside of through one lock.
struct Inside {
  std::array<Modes, most_places> modes{};
  std::int64_t fence = 0;
  std::int64_t granted_at = 0;                        // the last of it
  std::array<std::int64_t, most_places> since{};      // each of it
  std::vector<std::pair<int, std::uint64_t>> values;  // counters that nobody else may change meanwhile
  std::string text() const;
};

class Witness {
 public:
  // Makes the file.
  explicit Witness(const std::string& path);
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;

  Shared& all() const { return *shared_; }
  Row& row(std::size_t worker) const { return shared_->rows[worker]; }

  // Says what was seen; anybody may.
  void violation(const std::string& text) const;
  // A break is over: its worker says so, or the supervisor if that was killed.
  void end_break(Row& row) const;
  // What is known about a worker, in words.
  std::string about(std::size_t worker) const;

 private:
  Shared* shared_;
};

// A worker's side of the witness.
class Testimony {
 public:
  Testimony(const Witness& witness, std::size_t worker, std::size_t workers)
      : witness_(witness), me_(worker), workers_(workers), row_(witness.row(worker)) {}

  void state(State state) const {
    row_.state_since.store(now_ns(), std::memory_order_relaxed);
    row_.state.store(state);
  }
  State state() const { return row_.state.load(); }

  // Granted: marks it, and looks whether anybody is there who must not be, and at the fences.
  void enter(Inside& inside) const;
  // Before and after an extend(): marks what came anew, or forgets all if it was lost.
  void begin_extend() const { row_.extend.fetch_add(1); }
  void extended(Inside& inside, const Inside& more) const;
  void not_extended() const { row_.extend.fetch_add(1); }
  void lost_by_extend(Inside& inside) const;
  // The lock was found broken by an extend(), and is still to be released: until then nothing above it is excused.
  void broken_in_extend(Inside& inside) const;
  // About to be released: what was seen at first must still be so.
  void leave(Inside& inside) const;

  // Before it asks for a breakable place, and after it has left it.
  void endanger(int place) const;
  void endanger_no_more() const;
  // Before and after it breaks the locks on a place.
  void begin_break(int place) const;
  void end_break() const { witness_.end_break(row_); }
  // Whether the lock that this worker holds at breakable places may have been broken.
  bool maybe_broken() const { return maybe_broken(me_); }

  void look_again(const Inside& inside) const;
  // Says to be inside, with no lock and no fence: for Break only.
  template <class Dawdle>
  void trespass(const Inside& inside, Dawdle dawdle) const {
    mark(inside, 1);
    dawdle();
    mark(inside, -1);
  }
  // Counts one more at a place that is held exclusively.
  template <class Dawdle>
  void count(int place, Inside* inside, Dawdle dawdle) const;

  void violation(const std::string& text) const { witness_.violation(text + "\n  by " + witness_.about(me_)); }

  Row& row() const { return row_; }

 private:
  std::uint64_t maker(std::uint64_t from) const {
    return (from & 0xFFFFFFFF) << 32 | (me_ & 0x3FF) << 22 | (row_.incarnation.load() & 0x3FFFFF);
  }
  void mark(const Inside& inside, int direction) const;
  void look_for_others(const Inside& inside) const;
  void look_at_slots(std::size_t place, const Inside& inside) const;
  void look_at_fences(const Inside& inside) const;
  void remember_values(Inside& inside) const;
  bool maybe_broken(std::size_t worker) const;
  bool excused_by_a_break(std::size_t place, std::size_t other, std::uint64_t moves) const;
  bool excused(std::size_t other, std::uint64_t extend, std::uint64_t seen, std::int64_t since) const;
  void begin_step(int place, std::uint64_t from) const;
  void end_step(int place, std::uint64_t from) const;
  void look_at_step(int place, std::uint64_t value) const;

  const Witness& witness_;
  const std::size_t me_, workers_;
  Row& row_;
};

template <class Dawdle>
void Testimony::count(int place, Inside* inside, Dawdle dawdle) const {
  Counter& counter = witness_.all().counters[static_cast<std::size_t>(place)];
  const std::uint64_t value = counter.value;
  begin_step(place, value);
  dawdle();
  counter.value = value + 1;
  dawdle();
  end_step(place, value);
  if (inside == nullptr) return;
  for (auto& [known, seen] : inside->values) {
    if (known == place) ++seen;
  }
}

}  // namespace storm
