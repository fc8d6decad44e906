// Script: what a scenario says, line by line. Read by parse(), played by run(), written back by rewritten().
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <hierlock/lab.h>
#include <hierlock/target.h>

#include "lab/database.h"

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
    error,
  };
  Kind kind = Kind::ok;
  std::vector<Row> rows{};              // rows
  std::uint64_t affected = 0;           // affected
  std::vector<std::string> sessions{};  // blocked: by all of these. deadlock: one of these is the victim
  std::string code{};                   // error

  std::string str() const;  // as in a scenario; what is read from it is equal to this
  bool operator==(const Expected&) const = default;
};

// Of one engine.
struct Expectation {
  Expected step{};
  struct Freed {
    std::string session;
    Expected end{};
    bool operator==(const Freed&) const = default;
  };
  std::vector<Freed> unblocks{};
  bool said = false;  // there is a `=>`; otherwise the step must succeed, and may free others

  std::string str() const;  // as after `=>`
  bool operator==(const Expectation&) const = default;
};

struct LockStep {
  enum class Kind : std::uint8_t { acquire, extend, release };
  Kind kind = Kind::acquire;
  std::vector<Target> targets{};                      // of a release: none means all
  std::optional<std::chrono::nanoseconds> timeout{};  // zero: no wait
  bool operator==(const LockStep&) const = default;
};

struct Line {
  Event::Kind kind = Event::Kind::step;
  std::size_t number = 0;           // in the file, from 1
  std::string session, name{};      // of a step
  std::string text;                 // what comes before `=>`, without the engines it is limited to
  std::vector<std::string> only{};  // engines; empty: all
  std::optional<LockStep> lock{};   // otherwise it is SQL

  std::optional<Expectation> everywhere{};         // what is expected where no engine is named, or `else:`
  std::map<std::string, Expectation> by_engine{};  // what is expected of the named ones
  // Where `=> …` is in the file's text, or would be.
  std::size_t expectation_begins = 0, expectation_ends = 0;

  std::string expectation() const;  // all of it, as after `=>`; empty if nothing is said
  bool is_for(std::string_view engine) const;
  const Expectation& expected_of(const std::string& engine) const;
};

struct Script {
  std::string name, file;
  std::string text;  // of the whole file, for rewritten()
  std::vector<std::string> proves, engines;
  std::vector<std::string> about;  // lines for the reader
  struct Fact {
    std::string name;
    std::string everywhere;  // where no engine is named
    std::map<std::string, std::string> by_engine;
  };
  std::vector<Fact> facts;  // what the scenario says of itself, for tables in reports
  std::vector<Line> lines;  // setup, steps and checks, in order

  std::vector<std::string> sessions() const;    // in the order of their first steps
  bool has_sql(std::string_view engine) const;  // in lines that are for it
  bool has_locks(std::string_view engine) const;
};

// The engines that scenarios may name.
const std::vector<std::string>& known_engines();

// What an engine is sent for the SQL of a line: words in braces replaced, `begin LEVEL` spelled its way. Several
// statements where it needs several. Throws Error(unsupported) for what the engine does not have.
std::vector<std::string> in_dialect(std::string_view engine, std::string_view text);

// The file's text with these expectations in place of those it has, of the lines named (by Line::number). Everything
// else stays as it is, byte for byte; so do lines of which the same is said as before. Nothing: the `=>` goes.
std::string rewritten(const Script& script, const std::map<std::size_t, std::string>& expectations);

}  // namespace hierlock::lab
