// The lab: shows on a real database, or on any store of hierlock, what blocks, what deadlocks, and why.
//
//     const auto result = hierlock::lab::run(hierlock::lab::load("transfer.scenario"), "memory:");
//     EXPECT_TRUE(result.passed()) << result.str();
//
// A scenario is a text: sessions, the steps each of them takes, and what is expected of every step (docs/lab.md has the
// grammar). run() plays it: each session is a connection of its own with a thread of its own, and what happens at a
// step is asked of the engine itself: either it answered, or its own wait view says for whom it waits. What can be
// shown neither way is `unknown`, and that is an error, never a guess (H12).
//
// A file may list several orders of its steps: play each of Scenario::orders().
//
// The SQL of a scenario runs in a schema of the lab's own, `hierlock_lab` (side by side `hierlock_lab_1` and so on), which
// is made for it and dropped after it.
// Link hierlock::lab; the stores that lock steps use must be enabled as for hierlock::open().
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include <hierlock/error.h>

namespace hierlock::lab {

struct Script;  // what a scenario says; private to the lab

// A scenario that was read and found to be well-formed. A value; copies are cheap.
class Scenario {
 public:
  const std::string& name() const noexcept;
  const std::string& file() const noexcept;                  // where it was read from, for messages
  const std::vector<std::string>& proves() const noexcept;   // requirement ids
  const std::vector<std::string>& engines() const noexcept;  // where it may be run; empty: anywhere
  const std::string& text() const noexcept;                  // as it was read
  // The orders that its `order` lines list, each as a scenario of its own. Without such lines: itself.
  std::vector<Scenario> orders() const;

  const Script& script() const noexcept { return *script_; }
  explicit Scenario(std::shared_ptr<const Script> script) : script_(std::move(script)) {}

 private:
  std::shared_ptr<const Script> script_;
};

// Throws Error(invalid_argument) with `file:line:column: ` and what was expected there.
Scenario parse(std::string_view text, std::string_view file = "scenario");
// Also throws Error(unavailable) if the file cannot be read.
Scenario load(const std::string& path);

// What isolationtester has printed, or is expected to print, for a spec.
struct TesterOutput {
  std::string text;
  std::string file;  // where it was read from, for messages; empty: there is none
};
// The text of a scenario that plays a spec of PostgreSQL's isolationtester, with an order for each permutation, and
// what `output` says as expectations. Without it, of each step `not_played` is expected, which never happens: play it,
// and put what rewritten() says in its place. Throws Error(invalid_argument): `file:line: ` and what was expected
// there.
inline constexpr std::string_view not_played = "error not_played";
std::string import_spec(std::string_view text, const std::string& file, const TesterOutput& output = {});

// How text is drawn: by default for any file or pipe.
struct Style {
  std::size_t width = 80;  // columns; what does not fit is wrapped
  bool colour = false;
};
// For what is written to this descriptor: as wide as its terminal, and in colour unless NO_COLOR is set (no-color.org).
Style style_of(int descriptor) noexcept;

// --- what happened ------------------------------------------------------------------------------------------------

// A row lock, a table lock, a name, a path: as its engine names it.
struct LockSeen {
  std::string session;
  std::string object;   // `t(1)`, `u1/a1/r1`, `named "x"`
  std::string mode;     // `X`, `S`, `IX`, `ShareLock`, …
  bool granted = true;  // otherwise it is waited for
};

struct WaitSeen {
  std::string session;
  std::vector<std::string> blockers;  // sessions of the scenario; of somebody else: `outsider 4711`
  std::string object;                 // what it waits for, where the engine says
};

// One line of a scenario, played.
struct Event {
  enum class Kind : std::uint8_t { setup, step, check, teardown };
  Kind kind = Kind::step;
  std::size_t line = 0;
  std::string session, name;  // `T1`, `c`; of setup and check: empty
  std::string text;           // as the scenario has it
  std::string sent;           // as the engine got it
  std::string expected;       // as the scenario has it, for this engine; empty: to succeed
  std::string actual;         // in the same words: `ok`, `rows 1,2`, `blocked by T1`, `deadlock, T2`, `unknown`
  bool passed = false;
  std::string why;  // one sentence for a person: what happened and why

  bool blocked = false;  // it was waiting when the step was over
  struct Freed {
    std::size_t event;   // the index of the step that was blocked until now
    std::string actual;  // how it ended: `ok`, `rows 1`, `serialization`
  };
  std::vector<Freed> freed;

  // What the engine showed when the step was over.
  std::vector<LockSeen> locks;
  std::vector<WaitSeen> waits;
  // Sessions that wait in a circle, in order, each for the next; seen while the step was under way.
  std::vector<std::string> cycle;

  std::chrono::nanoseconds began{};  // since the first step began
  std::chrono::nanoseconds took{};   // until it answered, or was seen to wait
};

struct Result {
  enum class Verdict : std::uint8_t {
    passed,
    failed,   // something happened that the scenario does not expect
    error,    // it could not be played: no connection, a missing right, a word the engine has not, `unknown`, or its
              // setup or teardown failed
    skipped,  // it is not for this engine
  };
  std::string scenario, file;
  std::vector<std::string> proves;
  std::vector<std::string> about;  // what the scenario tells its reader, line by line
  // Its `fact` lines, by their first word, as they are for this engine: `fact level read committed` is {"level", "read
  // committed"}. html() draws the table of X2 from `level`, `anomaly` and `shows` (`happens`, `prevented`).
  std::map<std::string, std::string> facts;
  std::string engine;   // `mysql`, `mariadb`, `postgres`, `sqlite`, `memory`, `shm`
  std::string version;  // of the server; empty where there is none
  std::string url;      // without its password
  Verdict verdict = Verdict::error;
  std::string message;                // why it is not `passed`, in one sentence
  std::vector<std::string> sessions;  // in the order of their first steps
  std::vector<Event> events;          // up to the first one that is not as expected
  std::vector<std::string> schedule;  // names of the steps in the order they were played
  std::chrono::nanoseconds took{};

  bool passed() const noexcept { return verdict == Verdict::passed; }
  // The transcript as swim lanes: one column a session, a bar below a step for as long as it waits. Then why each step
  // ended as it did, and the message.
  std::string str(const Style& style = {}) const;
};
std::string_view to_string(Result::Verdict verdict) noexcept;

// --- playing ------------------------------------------------------------------------------------------------------

struct RunOptions {
  // How long a step may neither answer nor be seen to wait, and a circle of waits may last, before it is `unknown`.
  std::chrono::nanoseconds patience = std::chrono::seconds(15);
  // Names of all steps in another order than the file's; within a session they keep theirs. Empty: the file's. What is
  // expected of a step was written for the file's order, so here it is not looked at: see permute().
  std::vector<std::string> schedule{};
  // Look at the engine's lock table after every step, for a report; otherwise only when somebody is silent.
  bool lock_tables = false;
  // Told before each line is played.
  std::function<void(const Event&)> on_event{};
  std::stop_token cancel{};
};

// Whether this build can play anything at such a URL.
bool knows(std::string_view url);

// Plays a scenario at a URL: memory:, shm:…, mysql://…, postgres://…, sqlite:. Throws only invalid_argument for a
// malformed URL and unsupported for an engine that this build does not have; what goes wrong later is in the Result.
// One at a time on a server: a second run there, by whomever, waits for the first.
Result run(const Scenario& scenario, std::string_view url, const RunOptions& options = {});

// The text of the scenario with what happened in these results as its expectations. Lines that were as expected stay as
// they are, and so do those of engines that have no result here; `unknown` is nobody's expectation.
std::string rewritten(const Scenario& scenario, std::span<const Result> results);

// The text of a file with what is expected of these orders. Where an order leaves it open who blocks, or which of
// several outcomes it is, the text says what happened. An order may be of another file with the same lines.
struct Played {
  Scenario order;
  Result result;
};
std::string filled_in(const Scenario& file, std::span<const Played> orders);

// --- every order --------------------------------------------------------------------------------------------------

struct PermuteOptions {
  RunOptions run{};
  bool pin = false;                       // a begin stays with the step after it: it is no choice of its own
  std::optional<unsigned> preemptions{};  // at most so many switches away from a session that could go on
  std::optional<std::uint64_t> random{};  // so many schedules, chosen at random, instead of all
  std::uint64_t seed = 1;
  std::uint64_t most = 100'000;  // schedules, at most; more: `complete` is false
  std::function<void(std::uint64_t played, std::size_t classes)> on_progress{};
};

struct Permuted {
  struct Class {
    // The outcome that all its schedules share, in words: `all ok; check rows 2`. A step's rows are named only if they
    // differ from those of another class: `c rows 0`.
    std::string outcome;
    std::uint64_t schedules = 0;        // how many ended so
    std::vector<std::string> schedule;  // one of them, to be replayed with RunOptions::schedule
    bool deadlock = false;
  };
  std::string scenario, engine;
  std::uint64_t schedules = 0;  // that were played
  bool complete = false;        // every one that can happen, within `bounds`. Only if there are none, that nothing
                                // deadlocks is a proof
  std::string bounds;           // that were asked for: `with at most 2 preemptions`; empty: none
  std::vector<Class> classes;   // the most frequent first
  bool deadlocks() const noexcept;
  // The classes, each with its share and the schedule to replay it by.
  std::string str(const Style& style = {}) const;
};

// Plays every interleaving that can really happen: after each step, the choices are the sessions that are seen not to
// wait. Throws as run() does, and Error(unavailable) if a schedule could not be played.
Permuted permute(const Scenario& scenario, std::string_view url, const PermuteOptions& options = {});

// --- many of them -------------------------------------------------------------------------------------------------

class Venue;  // private to the lab

struct RunAllOptions {
  RunOptions run{};
  // On MariaDB at most so many scenarios are played at the same time, because the server renews its view of waits only
  // ten times a second. Each has a schema of its own (`hierlock_lab_1` and so on), and nothing of one counts in
  // another. Scenarios that may reach beyond their schema are played alone: names of GET_LOCK, settings of the server,
  // accounts, other schemas, lock steps, or more than 8 sessions. 1: one after another. Other engines ignore this.
  unsigned side_by_side = 8;
  // Told each result in the order of the scenarios, by the thread that called run_all().
  std::function<void(std::size_t index, const Result& result)> on_result{};
};

// Plays scenarios at one URL, one after another, and keeps its connections and the lab's schema between them. What one
// scenario left is gone before the next one begins, as if each had connected anew. Other runs may go on there between
// two of its scenarios. One thread uses it at a time. Its destructor removes the schema.
class Runner {
 public:
  explicit Runner(std::string_view url);  // connects at the first run
  ~Runner();
  Runner(Runner&&) noexcept;
  Runner& operator=(Runner&&) noexcept;

  // As run() and permute() above.
  Result run(const Scenario& scenario, const RunOptions& options = {});
  Permuted permute(const Scenario& scenario, const PermuteOptions& options = {});
  // What run() says of each of them, in the same order. The verdicts do not depend on `side_by_side`. A file with
  // several orders is not for this: name Scenario::orders(). `run.on_event` may be told by other threads, one at a
  // time.
  std::vector<Result> run_all(std::span<const Scenario> scenarios, const RunAllOptions& options = {});

 private:
  std::unique_ptr<Venue> venue_;
};

// --- what people see ----------------------------------------------------------------------------------------------

// Documents about any number of results, in their order. Whatever a scenario or an engine says is text in them and
// nothing else: it cannot end a string, an element or a script. Bytes that are not UTF-8 are told as `\xHH`.

// One JSON document with everything a Result has; docs/lab-report.md has its fields.
std::string json(std::span<const Result> results);
std::string json(const Permuted& permuted);

// JUnit XML: a suite for each engine, a case for each scenario. A failure and an error bring their transcript.
std::string junit(std::span<const Result> results);

// One file for a browser that needs nothing else, the network least of all: the grid of scenarios and engines, and of
// each the swim lanes, with the locks and the graph of waits at every step.
std::string html(std::span<const Result> results);

}  // namespace hierlock::lab
