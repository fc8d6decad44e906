// The lab: plays scenarios on a real database or on a store of hierlock. It shows what blocks, what deadlocks, and why.
//
//     const auto result = hierlock::lab::run(hierlock::lab::load("transfer.scenario"), "memory:");
//     EXPECT_TRUE(result.passed()) << result.str();
//
// A scenario is a text with sessions, their steps, and an expectation for each step (docs/lab.md has the grammar).
// run() plays it. Each session has its own connection and its own thread. The lab learns the result of a step only from
// the engine. Either the engine answers the step, or its wait view shows for which session the step waits. If neither
// happens, the result is `unknown`, which is an error. The lab never guesses (H12).
//
// A file may list several orders of its steps: play each of Scenario::orders().
//
// The SQL of a scenario runs in the lab's own schema, `hierlock_lab` (side by side: `hierlock_lab_1` and so on). The
// lab makes it before the scenario and drops it afterwards. Link hierlock::lab. If steps lock on a store, enable that
// store as for hierlock::open().
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

struct Script;  // a parsed scenario; private to the lab

// A parsed, well-formed scenario. A value; copies are cheap.
class Scenario {
 public:
  const std::string& name() const noexcept;
  const std::string& file() const noexcept;                  // where it was read from, for messages
  const std::vector<std::string>& proves() const noexcept;   // requirement ids
  const std::vector<std::string>& engines() const noexcept;  // the engines it is for; empty: all
  const std::string& text() const noexcept;                  // as it was read
  // One scenario for each `order` line. If there are no such lines: the scenario itself.
  std::vector<Scenario> orders() const;

  const Script& script() const noexcept { return *script_; }
  explicit Scenario(std::shared_ptr<const Script> script) : script_(std::move(script)) {}

 private:
  std::shared_ptr<const Script> script_;
};

// Throws Error(invalid_argument); the message has `file:line:column: ` and what was expected there.
Scenario parse(std::string_view text, std::string_view file = "scenario");
// Also throws Error(unavailable) if the file cannot be read.
Scenario load(const std::string& path);

// The output of isolationtester for a spec, real or expected.
struct TesterOutput {
  std::string text;
  std::string file;  // where it was read from, for messages; empty: there is none
};
// Turns a spec of PostgreSQL's isolationtester into the text of a scenario, with an order for each permutation. The
// expectations come from `output`. Without `output`, each step expects `not_played`, which never happens: play the
// scenario, and replace its text by rewritten(). Throws Error(invalid_argument); the message has `file:line: ` and what
// was expected there.
inline constexpr std::string_view not_played = "error not_played";
std::string import_spec(std::string_view text, const std::string& file, const TesterOutput& output = {});

// How text is drawn. The default suits files and pipes.
struct Style {
  std::size_t width = 80;  // columns; longer lines are wrapped
  bool colour = false;
};
// The style for a file descriptor: as wide as its terminal, and in colour unless NO_COLOR is set (no-color.org).
Style style_of(int descriptor) noexcept;

// --- what happened ------------------------------------------------------------------------------------------------

// A row lock, a table lock, a name or a path, as the engine shows it.
struct LockSeen {
  std::string session;
  std::string object;   // `t(1)`, `u1/a1/r1`, `named "x"`
  std::string mode;     // `X`, `S`, `IX`, `ShareLock`, …
  bool granted = true;  // false: the session waits for it
};

struct WaitSeen {
  std::string session;
  std::vector<std::string> blockers;  // sessions of the scenario; other sessions are `outsider 4711`
  std::string object;                 // the object that it waits for, if the engine shows it
};

// One line of a scenario, played.
struct Event {
  enum class Kind : std::uint8_t { setup, step, check, teardown };
  Kind kind = Kind::step;
  std::size_t line = 0;
  std::string session, name;  // `T1`, `c`; empty for setup and check
  std::string text;           // as in the scenario
  std::string sent;           // as sent to the engine
  std::string expected;       // the scenario's expectation for this engine; empty: success
  std::string actual;         // in the same words: `ok`, `rows 1,2`, `blocked by T1`, `deadlock, T2`, `unknown`
  bool passed = false;
  std::string why;  // one sentence for a person: what happened and why

  bool blocked = false;  // it still waited at the end of the step
  struct Freed {
    std::size_t event;   // index of the step that this step unblocked
    std::string actual;  // its result: `ok`, `rows 1`, `serialization`
  };
  std::vector<Freed> freed;

  // As shown by the engine at the end of the step.
  std::vector<LockSeen> locks;
  std::vector<WaitSeen> waits;
  // Sessions that waited in a cycle during the step, each for the next one.
  std::vector<std::string> cycle;

  std::chrono::nanoseconds began{};  // since the first step began
  std::chrono::nanoseconds took{};   // until the engine answered, or showed that the step waits
};

struct Result {
  enum class Verdict : std::uint8_t {
    passed,
    failed,   // a result differs from its expectation
    error,    // the scenario could not be played: no connection, a missing right, a word that the engine does not know,
              // `unknown`, or a failed setup or teardown
    skipped,  // the scenario is not for this engine
  };
  std::string scenario, file;
  std::vector<std::string> proves;
  std::vector<std::string> about;  // the scenario's description, line by line
  // The `fact` lines for this engine, by their first word: `fact level read committed` is {"level", "read committed"}.
  // html() draws the table of X2 from `level`, `anomaly` and `shows` (any text, such as `happens`).
  std::map<std::string, std::string> facts;
  std::string engine;   // `mysql`, `mariadb`, `postgres`, `sqlite`, `memory`, `shm`, `valkey`, `redis`
  std::string version;  // the server's version; empty if there is no server
  std::string url;      // without its password
  Verdict verdict = Verdict::error;
  std::string message;                // why the verdict is not `passed`, in one sentence
  std::vector<std::string> sessions;  // in the order of their first steps
  std::vector<Event> events;          // up to the first unexpected one
  std::vector<std::string> schedule;  // names of the steps in the order of play
  std::chrono::nanoseconds took{};

  bool passed() const noexcept { return verdict == Verdict::passed; }
  // The transcript as swim lanes: one column per session, and a bar below a step while it waits. Then an explanation of
  // each step's result, and the message.
  std::string str(const Style& style = {}) const;
};
std::string_view to_string(Result::Verdict verdict) noexcept;

// --- playing ------------------------------------------------------------------------------------------------------

struct RunOptions {
  // If the engine for this long neither answers a step nor shows that the step waits, the step is `unknown`. If a cycle
  // of waits lasts this long, its waits count as ordinary waits.
  std::chrono::nanoseconds patience = std::chrono::seconds(15);
  // Names of steps, in another order than the file's. For each session, the schedule has the first steps of that
  // session, in the order of the file. Empty: the file's order. The expectations are for the file's order. So they do
  // not count if there is a schedule: see permute().
  std::vector<std::string> schedule{};
  // True: read the engine's lock table after every step, for a report. False: read it only if a step does not answer.
  bool lock_tables = false;
  // Called before each line is played.
  std::function<void(const Event&)> on_event{};
  std::stop_token cancel{};
};

// True if this build can play scenarios at such a URL.
bool knows(std::string_view url);

// Plays a scenario at a URL: memory:, shm:…, mysql://…, postgres://…, sqlite:, valkey://…, redis://…. It throws only
// invalid_argument for a malformed URL or schedule, and unsupported for an engine that this build does not have. The
// Result reports all later errors. A second run on the same MySQL or MariaDB server, PostgreSQL database or SQLite
// folder waits for the first, even if another user started it. On Valkey and Redis, a second run does not wait.
Result run(const Scenario& scenario, std::string_view url, const RunOptions& options = {});

// Returns the text of the scenario, with the actual results as its expectations. If an expectation was met, its line
// does not change. Lines for engines without a result do not change either. `unknown` never becomes an expectation.
std::string rewritten(const Scenario& scenario, std::span<const Result> results);

// Returns the text of `file`, with the expectations of `orders`. If an expectation leaves open which session blocks, or
// which of several outcomes happens, the text has the actual result. An order may come from another file with the same
// lines.
struct Played {
  Scenario order;
  Result result;
};
std::string filled_in(const Scenario& file, std::span<const Played> orders);

// --- every order --------------------------------------------------------------------------------------------------

struct PermuteOptions {
  RunOptions run{};
  bool pin = false;                       // play each begin together with the next step of its session
  std::optional<unsigned> preemptions{};  // at most this many switches away from a session that could continue
  std::optional<std::uint64_t> random{};  // play this many random schedules instead of all
  std::uint64_t seed = 1;
  std::uint64_t most = 100'000;  // play at most this many schedules; if there are more, `complete` is false
  std::function<void(std::uint64_t played, std::size_t classes)> on_progress{};
};

struct Permuted {
  struct Class {
    // The common outcome of its schedules, in words: `all ok; check rows 2`. It names a step's rows only if they differ
    // from those of another class: `c rows 0`.
    std::string outcome;
    std::uint64_t schedules = 0;        // number of schedules with this outcome
    std::vector<std::string> schedule;  // one of them, to replay with RunOptions::schedule
    bool deadlock = false;
  };
  std::string scenario, engine;
  std::uint64_t schedules = 0;  // number of played schedules
  bool complete = false;       // all possible schedules within `bounds` were played. The absence of deadlocks is proven
                               // only if `bounds` is empty
  std::string bounds;          // the requested bounds: `with at most 2 preemptions`; empty: none
  std::vector<Class> classes;  // the most frequent first
  bool deadlocks() const noexcept;
  // The classes, each with its share and a schedule to replay it.
  std::string str(const Style& style = {}) const;
};

// Plays every interleaving that can really happen: each next step belongs to a session that does not wait. Throws as
// run() does, and Error(unavailable) if a schedule could not be played.
Permuted permute(const Scenario& scenario, std::string_view url, const PermuteOptions& options = {});

// --- many of them -------------------------------------------------------------------------------------------------

class Venue;  // private to the lab

struct RunAllOptions {
  RunOptions run{};
  // On MariaDB at most this many scenarios are played at the same time: the server renews its view of waits only ten
  // times a second. Each scenario has its own schema (`hierlock_lab_1` and so on). A session of one scenario is never
  // shown as a blocker in another. Scenarios that may reach beyond their schema are played alone. These use names of
  // GET_LOCK, settings of the server, accounts, other schemas, lock steps, or more than 8 sessions. 1: one after
  // another. Other engines ignore this.
  unsigned side_by_side = 8;
  // Called with each result, in the order of the scenarios, on the thread that called run_all().
  std::function<void(std::size_t index, const Result& result)> on_result{};
};

// Plays scenarios at one URL, one after another, and keeps its connections and the lab's schema between them. Before a
// scenario begins, the Runner removes everything that the previous one left, as if each had connected anew. Other runs
// may use the server between two scenarios. Only one thread at a time may use a Runner. Its destructor removes the
// schema.
class Runner {
 public:
  explicit Runner(std::string_view url);  // connects at the first run
  ~Runner();
  Runner(Runner&&) noexcept;
  Runner& operator=(Runner&&) noexcept;

  // As run() and permute() above.
  Result run(const Scenario& scenario, const RunOptions& options = {});
  Permuted permute(const Scenario& scenario, const PermuteOptions& options = {});
  // Returns the Result of each scenario, as run() does, in the same order. If a scenario ends in an error while others
  // are played at the same time, run_all() plays it again, alone. For a file with several orders, pass its
  // Scenario::orders(). Other threads may call `run.on_event`, one at a time.
  std::vector<Result> run_all(std::span<const Scenario> scenarios, const RunAllOptions& options = {});

 private:
  std::unique_ptr<Venue> venue_;
};

// --- reports ------------------------------------------------------------------------------------------------------

// Documents about any number of results, in their order. Text from a scenario or an engine is escaped: it cannot end a
// string, an element or a script. Bytes that are not UTF-8 become `\xHH`.

// One JSON document with all fields of a Result; docs/lab-report.md describes them.
std::string json(std::span<const Result> results);
std::string json(const Permuted& permuted);

// JUnit XML: a suite for each engine, a case for each scenario. A failure or an error contains its transcript.
std::string junit(std::span<const Result> results);

// One HTML file, which needs no other file and no network. It shows the grid of scenarios and engines, and for each of
// them the swim lanes, with the locks and the wait-for graph at every step.
std::string html(std::span<const Result> results);

}  // namespace hierlock::lab
