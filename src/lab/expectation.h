// Expectation: what a scenario expects of a step, as it is written behind `=>`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/database.h"
#include "lab/reader.h"

namespace hierlock::lab {

// What a step is expected to end with.
struct Expected {
  enum class Kind : std::uint8_t {
    ok,
    rows,
    affected,
    blocked,
    deadlock,
    timeout,
    busy,
    conflict,  // a statement that changes rows, and found none to change
    serialization,
    cancelled,  // another session has ended the statement
    error,
  };
  Kind kind = Kind::ok;
  std::vector<Row> rows{};     // rows
  bool any_order = false;      // rows: in whatever order
  std::uint64_t affected = 0;  // affected
  std::vector<std::string>
      sessions{};                // blocked: by all of these; none: by anybody. deadlock: one of these is the victim
  bool one_of = false;           // blocked: by exactly one of the sessions
  std::string code{};            // error; empty: any
  std::string message{};         // error: a part of what the engine says
  std::vector<Expected> more{};  // rows, affected: what each further statement of the step returned
  std::vector<std::string> notices{};     // parts of all the messages that came with it; none: whatever came
  std::vector<Notified> notifications{};  // all that the session got; none: whatever it got
  std::vector<Expected> then{};           // blocked: how the wait ends by itself; at most one
  std::vector<Expected> alternatives{};   // or one of these

  std::string str() const;  // as in a scenario; what is read from it is equal to this
  bool operator==(const Expected&) const = default;
};

// Of one engine.
struct Expectation {
  Expected step{};
  struct Freed {
    std::string session;
    Expected end{};
    bool perhaps = false;  // it may have ended before, or end later
    bool operator==(const Freed&) const = default;
  };
  std::vector<Freed> unblocks{};
  bool said = false;  // there is a `=>`; otherwise the step must succeed, and may free others

  std::string str() const;  // as after `=>`
  bool operator==(const Expectation&) const = default;
};

// Sessions of whom only expectations speak: whoever has prepared the transaction that is waited for.
inline const std::string prepared_transaction = "prepared";

// Whether a word is that of an outcome, such as `ok`.
bool is_outcome(std::string_view word);

// In expectations: the sessions that may go on.
inline constexpr std::string_view unblocks_word = "unblocks";
// Before one of them: it is not known to end here.
inline constexpr std::string_view perhaps_word = "perhaps";

// Reads the expectation of a step of `of_session` between two places of the current line. Calls `see` with each session
// that it names and the place.
using SeeSession = std::function<void(const std::string&, std::size_t)>;
Expectation read_expectation(Reader& reader, const std::string& of_session, std::size_t begin, std::size_t end,
                             const SeeSession& see);

}  // namespace hierlock::lab
