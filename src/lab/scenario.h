// Script: what a scenario says, line by line. Read by parse(), played by run(), written back by rewritten().
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <hierlock/lab.h>

#include "lab/expectation.h"
#include "lab/lock_steps.h"
#include "lab/row_steps.h"

namespace hierlock::lab {

struct Line {
  Event::Kind kind = Event::Kind::step;
  std::size_t number = 0;           // in the file, from 1
  std::string session, name{};      // of a step; of a setup line: the session that runs it, or none
  std::string text;                 // what comes before `=>`, without the engines it is limited to
  std::vector<std::string> only{};  // engines; empty: all
  std::optional<LockStep> lock{};   // otherwise it is SQL,
  std::optional<RowStep> rows{};    // or a call of the rows module
  bool describes_rows = false;      // a setup line that sends nothing

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
  std::shared_ptr<const std::string> text;  // of the whole file, for rewritten()
  std::vector<std::string> proves, engines;
  std::vector<std::string> about;  // lines for the reader
  struct Fact {
    std::string name;
    std::string everywhere;  // where no engine is named
    std::map<std::string, std::string> by_engine;
  };
  std::vector<Fact> facts;  // what the scenario says of itself, for tables in reports
  std::vector<Line> lines;  // setup, steps, checks and teardown, in order
  struct Order {
    std::string name;
    std::vector<Line> lines;  // steps and checks
  };
  std::vector<Order> orders;  // if there are any, the steps in `lines` only say what each step is
  RowTables row_tables;       // what setup lines have said of tables

  std::vector<std::string> sessions() const;    // in the order of their first steps
  bool has_sql(std::string_view engine) const;  // in lines that are for it
  bool has_locks(std::string_view engine) const;
};

// The engines that scenarios may name.
const std::vector<std::string>& known_engines();

// What an engine is sent for the SQL of a line: words in braces replaced, `begin LEVEL` spelled its way. Several
// statements where it needs several, and none of an empty text. Throws Error(unsupported) for what the engine does not
// have.
std::vector<std::string> in_dialect(std::string_view engine, std::string_view text);

// The file's text with these expectations in place of those it has, of the lines named (by Line::number). Everything
// else stays as it is, byte for byte; so do lines of which the same is said as before. Nothing: the `=>` goes.
std::string rewritten(const Script& script, const std::map<std::size_t, std::string>& expectations);

}  // namespace hierlock::lab
