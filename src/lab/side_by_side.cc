#include "lab/side_by_side.h"

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include <hierlock/spi/url.h>

#include "lab/reader.h"
#include "lab/sql_text.h"

namespace hierlock::lab {

namespace {

using Clock = std::chrono::steady_clock;

// A session of a scenario is a connection, and the server has room for 151 by default.
constexpr std::size_t most_sessions = 8;
// Another run that waits gets its turn after this.
constexpr std::chrono::milliseconds shortest_turn{500};
constexpr std::chrono::milliseconds between_questions{200};

// Words of statements that touch more than one schema, or show more than one.
constexpr std::string_view server_wide =
    " backup binlog database databases dumpfile event events execute flush global grant infile information_schema "
    "install "
    "instance kill load master mysql outfile password performance_schema persist plugin prepare privileges processlist "
    "purge replica replicas reset revoke role schema schemas server show shutdown slave soname sys tablespace "
    "uninstall "
    "use user xa ";
// Parts of words: functions that take names of the whole server, and the lab's own schema.
constexpr std::string_view server_wide_parts[] = {"get_lock",     "release_lock", "release_all_locks", "is_used_lock",
                                                  "is_free_lock", "hierlock_lab", "load_file"};

bool is_name(const std::string& token) {
  const char first = token.front();
  return (first >= 'a' && first <= 'z') || first == '_';
}

// `other.t` may be a table of another schema. `t.id` is not told from it.
bool has_qualified_name(const std::vector<std::string>& tokens) {
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    if (tokens[i] == "." && (is_name(tokens[i + 1]) || tokens[i + 1] == "`")) return true;
  }
  return false;
}

bool reaches_beyond_its_schema(std::string_view sql) {
  const std::string text = lowered(sql);
  const std::vector<std::string> tokens = tokens_of(text);
  const auto is_wide = [](const std::string& token) { return server_wide.find(" " + token + " ") != server_wide.npos; };
  const auto is_in = [&](std::string_view part) { return text.find(part) != text.npos; };
  return std::any_of(tokens.begin(), tokens.end(), is_wide) ||
         std::any_of(std::begin(server_wide_parts), std::end(server_wide_parts), is_in) || has_qualified_name(tokens);
}

// Plays what can be played at once, in rounds: another run that waits gets its turn between two of them.
class Rounds {
 public:
  Rounds(std::span<const Scenario> scenarios, Venue& venue, const RunAllOptions& options)
      : scenarios_(scenarios), venue_(venue), options_(options), results_(scenarios.size()) {
    one_ = options.run;
    // Scenarios that are played at once have one listener.
    if (options.run.on_event) {
      one_.on_event = [this](const Event& event) {
        const std::lock_guard guard(listener_);
        options_.run.on_event(event);
      };
    }
  }

  std::vector<Result> run() {
    play_together();
    for (std::size_t i = 0; i < scenarios_.size(); ++i) {
      if (results_[i]) continue;
      results_[i] = options_.run.cancel.stop_requested() ? cancelled(scenarios_[i])
                                                         : lab::run(scenarios_[i], venue_, options_.run);
      tell();
    }
    std::vector<Result> all;
    for (std::optional<Result>& result : results_) all.push_back(std::move(*result));
    return all;
  }

 private:
  // Leaves out what has to be played alone, and what could not be played so.
  void play_together() {
    if (options_.side_by_side < 2 || !options_.run.schedule.empty()) return;
    try {
      Database* const database = venue_.database();
      if (database == nullptr || database->beside(1) == nullptr) return;
      const std::string engine(database->engine());
      for (std::size_t i = 0; i < scenarios_.size(); ++i) {
        const Script& script = scenarios_[i].script();
        const bool is_for = script.engines.empty() || contains(script.engines, engine);
        if (is_for && !must_play_alone(script, engine)) together_.push_back(i);
      }
      if (together_.size() < 2) return;
      while (next_ < together_.size() && !options_.run.cancel.stop_requested()) {
        if (!play_round(*database)) return;
      }
    } catch (const Error&) {
      // Playing them one by one tells what it is.
    }
  }

  // False: the account may not make more schemas.
  bool play_round(Database& database) {
    database.hold_turn(options_.run.patience);
    struct Turn {
      Database& database;
      ~Turn() { database.release_turn(); }
    } const turn{database};
    if (!may_make_schemas(database)) return false;
    const Clock::time_point began = Clock::now();
    ending_ = false;
    const std::size_t count = std::min<std::size_t>(options_.side_by_side, together_.size() - next_);
    std::vector<std::jthread> workers;
    playing_ = count;
    for (std::size_t i = 0; i < count; ++i) {
      workers.emplace_back([this, &database, number = static_cast<unsigned>(i + 1)] { work(database, number); });
    }
    std::unique_lock guard(mutex_);
    while (playing_ > 0) {
      changed_.wait_for(guard, between_questions);
      guard.unlock();
      tell();
      const bool wanted = Clock::now() - began > shortest_turn && is_wanted(database);
      guard.lock();
      if (wanted) ending_ = true;
    }
    return true;
  }

  bool may_make_schemas(Database& database) const {
    if (next_ > 0) return true;
    try {
      database.beside(1)->make_room(options_.run.patience);
      return true;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::denied) return false;
      throw;
    }
  }

  static bool is_wanted(Database& database) {
    try {
      return database.turn_is_wanted();
    } catch (const Error&) {
      return true;  // the turn may be lost: ask for it again
    }
  }

  void work(Database& database, unsigned number) {
    {
      Venue venue(venue_.url(), true, [&] { return database.beside(number); });
      while (const std::optional<std::size_t> index = take()) {
        Result result = lab::run(scenarios_[*index], venue, one_);
        // It may be the fault of its neighbours. It is played again, alone.
        if (result.verdict == Result::Verdict::error && !one_.cancel.stop_requested()) continue;
        const std::lock_guard guard(mutex_);
        results_[*index] = std::move(result);
        changed_.notify_all();
      }
    }
    const std::lock_guard guard(mutex_);
    --playing_;
    changed_.notify_all();
  }

  std::optional<std::size_t> take() {
    const std::lock_guard guard(mutex_);
    if (ending_ || next_ == together_.size() || one_.cancel.stop_requested()) return std::nullopt;
    return together_[next_++];
  }

  // By the caller's thread, in the order of the scenarios.
  void tell() {
    for (;; ++told_) {
      const Result* result = nullptr;
      {
        const std::lock_guard guard(mutex_);
        if (told_ == results_.size() || !results_[told_]) return;
        result = &*results_[told_];
      }
      if (options_.on_result) options_.on_result(told_, *result);
    }
  }

  Result cancelled(const Scenario& scenario) const {
    Result result;
    result.scenario = scenario.name();
    result.file = scenario.file();
    result.proves = scenario.proves();
    const spi::Url url = spi::Url::parse(venue_.url());
    result.url = url.safe_text();
    result.engine = url.scheme;
    result.message = "playing the scenario was cancelled";
    return result;
  }

  const std::span<const Scenario> scenarios_;
  Venue& venue_;
  const RunAllOptions& options_;
  RunOptions one_;
  std::mutex listener_;
  std::vector<std::size_t> together_;  // indexes of scenarios
  std::size_t told_ = 0;               // so many results, from the first on

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_ while workers play:
  std::vector<std::optional<Result>> results_;
  std::size_t next_ = 0;     // in together_
  std::size_t playing_ = 0;  // workers
  bool ending_ = false;      // nobody begins another scenario in this round
};

}  // namespace

bool must_play_alone(const Script& script, std::string_view engine) {
  if (script.has_locks(engine) || script.sessions().size() > most_sessions) return true;
  std::string all;
  for (const Line& line : script.lines) {
    if (line.is_for(engine)) all += line.text + " \n";
  }
  return reaches_beyond_its_schema(all);
}

std::vector<Result> run_all(std::span<const Scenario> scenarios, Venue& venue, const RunAllOptions& options) {
  return Rounds(scenarios, venue, options).run();
}

}  // namespace hierlock::lab
