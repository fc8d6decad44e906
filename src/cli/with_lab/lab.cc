#include "lab.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <hierlock/lab.h>

#include "cli/output.h"
#include "cli/programs.h"

namespace hierlock::cli {

namespace {

namespace fs = std::filesystem;
using hierlock::lab::Result;
using hierlock::lab::Scenario;

constexpr int exit_not_passed = 1;

// --- which ----------------------------------------------------------------------------------------------

// The folder `scenarios` that comes with hierlock: here, in the source tree of a build folder, or as it was installed,
// seen from libexec/hierlock or from bin. Empty if there is none.
fs::path shipped() {
  std::error_code error;
  const fs::path self = own_folder();
  for (const fs::path& folder : {fs::path("scenarios"), self / "../../scenarios",
                                 self / "../../share/hierlock/scenarios", self / "../share/hierlock/scenarios"}) {
    if (fs::is_directory(folder, error)) return folder.lexically_normal();
  }
  return {};
}

// A file or folder as it was named, or else of that name among the shipped ones: `rows` or `scenarios/rows`.
std::string found_at(const std::string& named) {
  std::error_code error;
  const fs::path path = named;
  if (fs::exists(path, error) || path.is_absolute()) return named;
  const fs::path folder = shipped();
  if (folder.empty()) return named;
  for (const fs::path& there : {folder / path, folder.parent_path() / path}) {
    if (fs::exists(there, error)) return there.lexically_normal().string();
  }
  return named;
}

std::vector<Scenario> load_all(std::vector<std::string> files) {
  if (files.empty()) files.push_back(shipped().string());
  if (files.front().empty()) throw UsageError("lab: there is no folder \"scenarios\" here; name a file or a folder");
  std::vector<Scenario> all;
  for (const std::string& named : files) {
    const std::string file = found_at(named);
    std::error_code error;
    std::vector<std::string> found;
    if (fs::is_directory(file, error)) {
      for (fs::recursive_directory_iterator it(file, error), end; !error && it != end; it.increment(error)) {
        if (it->path().extension() == ".scenario") found.push_back(it->path().string());
      }
      if (error) throw Error(ErrorKind::unavailable, file + ": " + error.message());
      if (found.empty()) throw UsageError("lab: there is no *.scenario in " + file);
      std::sort(found.begin(), found.end());
    } else {
      found.push_back(file);
    }
    for (const std::string& one : found) all.push_back(hierlock::lab::load(one));
  }
  return all;
}

// Engines that need no server; of these, the ones that this build has.
std::vector<std::string> embedded() {
  std::vector<std::string> urls;
  for (const char* url : {"memory:", "shm:", "sqlite:"}) {
    if (hierlock::lab::knows(url)) urls.emplace_back(url);
  }
  return urls;
}

// Of those, the first that the scenario names, if it names any.
std::string suited(const Scenario& scenario) {
  for (const std::string& url : embedded()) {
    const std::string engine = url.substr(0, url.find(':'));
    if (std::count(scenario.engines().begin(), scenario.engines().end(), engine) > 0) return url;
  }
  return "memory:";
}

// --- what is seen meanwhile -----------------------------------------------------------------------------

// One line that is drawn again and again; on a terminal only.
class Progress {
 public:
  void show(const std::string& text) const {
    if (!terminal_) return;
    winsize size{};
    const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    std::fputs(("\r\x1b[K" + fit_begin(text, (known ? size.ws_col : line_width) - 1)).c_str(), stderr);
    std::fflush(stderr);
  }
  void clear() const {
    if (terminal_) std::fputs("\r\x1b[K", stderr);
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) == 1;
};

// Signals end the run as if a step had failed: sessions, tables and files of the lab go. A second one ends the program
// at once; what is left at a server then goes with the next run there. Made before any other thread, so that all of
// them leave signals to this one's.
class Signals {
 public:
  Signals() {
    sigemptyset(&awaited_);
    sigaddset(&awaited_, wake);
    for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
      struct sigaction found {};
      if (sigaction(signal, nullptr, &found) == 0 && found.sa_handler == SIG_IGN) continue;  // as nohup does it
      sigaddset(&awaited_, signal);
    }
    pthread_sigmask(SIG_BLOCK, &awaited_, nullptr);
    thread_ = std::jthread([this](const std::stop_token& over) {
      while (!over.stop_requested()) {
        const int signal = sigwaitinfo(&awaited_, nullptr);
        if (signal <= 0 || signal == wake) continue;
        if (came_.exchange(signal) != 0) _exit(exit_by_signal + signal);
        end_.request_stop();
      }
    });
  }
  ~Signals() {
    thread_.request_stop();
    pthread_kill(thread_.native_handle(), wake);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  std::stop_token token() const { return end_.get_token(); }
  // The one that came, or 0.
  int came() const { return came_.load(); }

 private:
  static constexpr int wake = SIGURG;  // ends the wait of thread_. Nobody else sends it, and it harms nobody

  sigset_t awaited_{};
  std::stop_source end_;
  std::atomic<int> came_{0};
  std::jthread thread_;
};

// True if all of it is there.
bool write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file) return true;
  complain(path + ": cannot be written: " + std::strerror(errno));
  return false;
}

// A file that somebody wrote by hand is there before and after, whatever happens in between.
bool replace_file(const std::string& path, const std::string& text) {
  std::error_code error;
  const fs::path target = fs::canonical(path, error);
  std::string beside = target.string() + ".XXXXXX";
  const int file = error ? -1 : mkstemp(beside.data());
  bool done = file >= 0;
  for (std::size_t at = 0; done && at < text.size();) {
    const ssize_t written = ::write(file, text.data() + at, text.size() - at);
    done = written > 0;
    if (done) at += static_cast<std::size_t>(written);
  }
  struct stat mode {};
  done = done && stat(target.c_str(), &mode) == 0 && fchmod(file, mode.st_mode & 07777) == 0 && fsync(file) == 0 &&
         rename(beside.c_str(), target.c_str()) == 0;
  const int why = errno;
  if (file >= 0) close(file);
  if (done) return true;
  if (file >= 0) unlink(beside.c_str());
  complain(path + ": cannot be rewritten: " + std::strerror(why));
  return false;
}

std::string line_of(const Result& result) {
  const char* mark = result.verdict == Result::Verdict::passed    ? "✓"
                     : result.verdict == Result::Verdict::skipped ? "–"
                                                                  : "✗";
  return fmt::format("{} {:<9} {} ({})\n", mark, result.engine, result.scenario, brief_time(result.took));
}

// --- what is done ---------------------------------------------------------------------------------------

// A URL where scenarios are played. play_ahead() plays a list there in a thread of its own; then run() is called for
// each of the list, in order, and tells its result.
class Player {
 public:
  explicit Player(const std::string& url) : url_(url), runner_(url) {}
  ~Player() { end_.request_stop(); }
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  const std::string& url() const { return url_; }

  void play_ahead(std::vector<Scenario> scenarios, hierlock::lab::RunAllOptions options) {
    ended_by_.emplace(options.run.cancel, [this] { end_.request_stop(); });
    options.run.cancel = end_.get_token();
    options.on_result = [this](std::size_t, const Result& result) {
      const std::lock_guard guard(mutex_);
      results_.push_back(result);
      changed_.notify_all();
    };
    thread_ = std::jthread([this, scenarios = std::move(scenarios), options = std::move(options)] {
      std::exception_ptr problem;
      try {
        runner_.run_all(scenarios, options);
      } catch (...) {
        problem = std::current_exception();
      }
      const std::lock_guard guard(mutex_);
      problem_ = problem;
      over_ = true;
      changed_.notify_all();
    });
  }

  Result run(const Scenario& scenario, const hierlock::lab::RunOptions& options) {
    if (!thread_.joinable()) return runner_.run(scenario, options);
    std::unique_lock guard(mutex_);
    changed_.wait(guard, [&] { return over_ || !results_.empty(); });
    if (results_.empty()) std::rethrow_exception(problem_);
    Result result = std::move(results_.front());
    results_.pop_front();
    return result;
  }

 private:
  const std::string url_;
  hierlock::lab::Runner runner_;
  std::stop_source end_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  std::deque<Result> results_;
  std::exception_ptr problem_;
  bool over_ = false;

  std::optional<std::stop_callback<std::function<void()>>> ended_by_;
  std::jthread thread_;
};

// In the order of the command line.
using Players = std::vector<std::unique_ptr<Player>>;

Players players_at(const std::vector<std::string>& urls) {
  Players players;
  for (const std::string& url : urls) players.push_back(std::make_unique<Player>(url));
  return players;
}

// A server that plays several scenarios at once needs to know them all. Which of these servers it is, the runner asks.
void play_ahead(Players& players, const std::vector<Scenario>& scenarios, const LabCommand& command,
                const hierlock::lab::RunOptions& options) {
  if (command.rewrite || !command.schedule.empty() || command.side_by_side == 1u) return;
  std::vector<Scenario> all;
  for (const Scenario& scenario : scenarios) {
    for (Scenario& order : scenario.orders()) all.push_back(std::move(order));
  }
  if (all.size() < 2) return;
  hierlock::lab::RunAllOptions together{.run = options};
  if (command.side_by_side) together.side_by_side = *command.side_by_side;
  for (const std::unique_ptr<Player>& player : players) {
    if (player->url().starts_with("mysql:")) player->play_ahead(all, together);
  }
}

// Plays one of the orders; with `rewrite` again and again, each time with what happened as the expectation, until
// nothing changes.
std::vector<Result> play(std::vector<Scenario>& orders, std::size_t index, Players& players,
                         const hierlock::lab::RunOptions& options, bool rewrite,
                         const std::function<void(const std::string&)>& before) {
  constexpr int most_rounds = 1000;  // each changes a line
  for (int round = 0;; ++round) {
    const Scenario scenario = orders[index];
    std::vector<Result> results;
    for (const std::unique_ptr<Player>& player : players) {
      if (options.cancel.stop_requested()) return results;
      before(player->url());
      results.push_back(player->run(scenario, options));
    }
    if (!rewrite || options.cancel.stop_requested() || round == most_rounds) return results;
    const std::string text = hierlock::lab::rewritten(scenario, results);
    if (text == scenario.text()) return results;
    orders = hierlock::lab::parse(text, scenario.file()).orders();
  }
}

void check_engines(const std::vector<std::string>& urls) {
  for (const std::string& url : urls) {
    if (hierlock::lab::knows(url)) continue;
    std::string known;
    for (const std::string scheme :
         {"memory:", "shm:", "sqlite:", "mysql://", "postgres://", "valkey://", "redis://"}) {
      if (!hierlock::lab::knows(scheme + "x")) continue;
      known += (known.empty() ? "" : ", ") + scheme + (scheme.ends_with('/') ? "…" : "");
    }
    throw UsageError("lab: this build cannot play scenarios on " + url.substr(0, url.find(':')) + ":; use one of " +
                     known);
  }
}

int run_lab(const LabCommand& command) {
  const Signals signals;
  const std::vector<Scenario> scenarios = load_all(command.files);
  const std::vector<std::string> urls = command.stores.empty() ? embedded() : command.stores;
  check_engines(urls);
  hierlock::lab::RunOptions options;
  if (command.patience) options.patience = *command.patience;
  options.schedule = command.schedule;
  options.cancel = signals.token();
  options.lock_tables = !command.report.empty() || command.json;
  Players players = players_at(urls);
  play_ahead(players, scenarios, command, options);
  const Progress progress;
  const hierlock::lab::Style style = hierlock::lab::style_of(STDOUT_FILENO);
  std::vector<Result> all;
  std::string text;
  std::size_t done = 0;
  for (const Scenario& scenario : scenarios) {
    ++done;
    // A schedule names steps of the file, whatever its orders are.
    std::vector<Scenario> orders = options.schedule.empty() ? scenario.orders() : std::vector<Scenario>{scenario};
    std::vector<Result> results;
    for (std::size_t i = 0; i < orders.size() && signals.came() == 0; ++i) {
      const std::vector<Result> more = play(orders, i, players, options, command.rewrite, [&](const std::string& url) {
        progress.show(
            fmt::format("{} of {}: {} on {}", done, scenarios.size(), orders[i].name(), url.substr(0, url.find(':'))));
      });
      results.insert(results.end(), more.begin(), more.end());
    }
    if (orders.front().text() != scenario.text()) {
      progress.clear();
      if (!replace_file(scenario.file(), orders.front().text())) return exit_io;
      complain("rewrote " + scenario.file());
    }
    const bool single = scenarios.size() == 1 && orders.size() == 1;
    for (const Result& result : results) {
      const bool played = result.verdict != Result::Verdict::skipped;
      const bool lanes = played && (command.verbose || single || !result.passed());
      if (!command.json && (played || scenarios.size() == 1)) {
        progress.clear();
        if (const int code = print(lanes ? result.str(style) + "\n" : line_of(result)); code != exit_ok) return code;
      }
      all.push_back(result);
    }
    if (signals.came() != 0) {
      progress.clear();
      return exit_by_signal + signals.came();
    }
  }
  progress.clear();
  const auto count = [&](Result::Verdict verdict) {
    return std::count_if(all.begin(), all.end(), [&](const Result& result) { return result.verdict == verdict; });
  };
  const auto passed = count(Result::Verdict::passed), failed = count(Result::Verdict::failed),
             errors = count(Result::Verdict::error), skipped = count(Result::Verdict::skipped);
  if (!command.report.empty() && !write_file(command.report, hierlock::lab::html(all))) return exit_io;
  if (!command.junit.empty() && !write_file(command.junit, hierlock::lab::junit(all))) return exit_io;
  const std::string summary = fmt::format("{} passed, {} failed, {} could not be played, {} not for the engine\n",
                                          passed, failed, errors, skipped);
  if (const int code = print(command.json ? hierlock::lab::json(all) : summary); code != exit_ok) return code;
  if (!command.json && !command.report.empty()) {
    if (const int code = print("report: " + fs::absolute(command.report).string() + "\n"); code != exit_ok) return code;
  }
  if (passed + failed + errors == 0) complain("nothing was played: no scenario is for these engines; see lab list");
  return passed > 0 && failed == 0 && errors == 0 ? exit_ok : exit_not_passed;
}

std::string words(const std::vector<std::string>& all, const char* if_none) {
  std::string text;
  for (const std::string& one : all) text += (text.empty() ? "" : " ") + one;
  return text.empty() ? if_none : text;
}

int list_lab(const LabCommand& command) {
  Table table({{"file", Table::Align::left},
               {"proves", Table::Align::left},
               {"engines", Table::Align::left},
               {"scenario", Table::Align::left}});
  Json json;
  json.open_object().number("version", std::uint64_t{1}).open_array("scenarios");
  for (const Scenario& scenario : load_all(command.files)) {
    table.add({scenario.file(), words(scenario.proves(), "–"), words(scenario.engines(), "any"), scenario.name()});
    json.open_object().text("file", scenario.file()).text("scenario", scenario.name());
    for (const auto& [name, values] : {std::pair{"proves", scenario.proves()}, {"engines", scenario.engines()}}) {
      json.open_array(name);
      for (const std::string& value : values) json.text({}, value);
      json.close();
    }
    json.close();
  }
  return print(command.json ? json.close().close().str() : table.str());
}

int permute_lab(const LabCommand& command) {
  const Signals signals;
  const Scenario scenario = hierlock::lab::load(found_at(command.files.front()));
  hierlock::lab::PermuteOptions options;
  options.run.cancel = signals.token();
  if (command.patience) options.run.patience = *command.patience;
  options.pin = command.pin;
  options.preemptions = command.preemptions;
  options.random = command.random;
  options.seed = command.seed;
  if (command.most) options.most = *command.most;
  const Progress progress;
  options.on_progress = [&](std::uint64_t played, std::size_t classes) {
    progress.show(fmt::format("{} orders played, {} different outcomes", grouped(played), classes));
  };
  const std::string url = command.stores.empty() ? suited(scenario) : command.stores.front();
  check_engines({url});
  hierlock::lab::Permuted result;
  try {
    result = hierlock::lab::permute(scenario, url, options);
  } catch (const Error&) {
    progress.clear();
    if (signals.came() == 0) throw;
    return exit_by_signal + signals.came();
  }
  progress.clear();
  return print(command.json ? hierlock::lab::json(result) : result.str(hierlock::lab::style_of(STDOUT_FILENO)));
}

std::string text_of(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream) throw Error(ErrorKind::unavailable, file + ": cannot be read");
  return text;
}

// FILE.out, and the alternatives FILE_1.out and so on that are beside it.
std::vector<hierlock::lab::TesterOutput> tester_outputs(const std::string& file) {
  std::vector<hierlock::lab::TesterOutput> outputs{{text_of(file), file}};
  const fs::path path(file);
  for (int i = 0; i <= 9; ++i) {  // as many as PostgreSQL looks for
    const fs::path beside =
        path.parent_path() / (path.stem().string() + "_" + std::to_string(i) + path.extension().string());
    if (fs::exists(beside)) outputs.push_back({text_of(beside.string()), beside.string()});
  }
  return outputs;
}

// Plays the orders of a spec. Prints the scenario only if all of them went as expected.
class Import {
 public:
  explicit Import(const LabCommand& command) : command_(command), file_(command.files.front()) {
    if (command.patience) options_.patience = *command.patience;
    options_.cancel = signals_.token();
  }

  int run() {
    const std::string spec = text_of(file_);
    if (!command_.expected.empty()) {
      for (const hierlock::lab::TesterOutput& output : tester_outputs(command_.expected)) {
        drafts_.push_back(hierlock::lab::parse(hierlock::lab::import_spec(spec, file_, output), file_));
      }
    } else {
      drafts_.push_back(hierlock::lab::parse(hierlock::lab::import_spec(spec, file_), file_));
    }
    if (command_.stores.empty()) return print(drafts_.front().text());
    check_engines(command_.stores);
    players_ = players_at(command_.stores);
    const std::string text = command_.expected.empty() ? as_it_happens() : as_expected();
    if (signals_.came() != 0) return exit_by_signal + signals_.came();
    if (failed_ == 0) return print(text);
    complain(problem_ +
             (failed_ == 1 ? "" : fmt::format(" (and {} more {})", failed_ - 1, failed_ == 2 ? "order" : "orders")));
    return exit_not_passed;
  }

 private:
  std::string as_it_happens() {
    std::vector<Scenario> orders = drafts_.front().orders();
    for (std::size_t i = 0; i < orders.size() && signals_.came() == 0; ++i) {
      const std::vector<Result> results = play(orders, i, players_, options_, true,
                                               [&](const std::string&) { show(i, orders.size(), orders[i].name()); });
      for (const Result& result : results) note(result);
    }
    progress_.clear();
    return orders.front().text();
  }

  // Each order as one of the outputs tells it.
  std::string as_expected() {
    std::vector<std::vector<Scenario>> drafts;
    for (const Scenario& draft : drafts_) drafts.push_back(draft.orders());
    std::vector<hierlock::lab::Played> played;
    for (std::size_t i = 0; i < drafts.front().size() && signals_.came() == 0; ++i) {
      show(i, drafts.front().size(), drafts.front()[i].name());
      std::vector<Result> results;
      for (const std::vector<Scenario>& orders : drafts) {
        if (signals_.came() != 0) break;
        results.push_back(players_.front()->run(orders[i], options_));
        if (!results.back().passed()) continue;
        played.push_back({orders[i], results.back()});
        break;
      }
      if (signals_.came() == 0 && !results.back().passed()) note(results.front());
    }
    progress_.clear();
    return hierlock::lab::filled_in(drafts_.front(), played);
  }

  void show(std::size_t index, std::size_t count, const std::string& name) const {
    progress_.show(fmt::format("{} of {}: {}", index + 1, count, name));
  }
  void note(const Result& result) {
    if (result.passed()) return;
    if (failed_++ == 0) problem_ = result.scenario + ": " + result.message;
  }

  const LabCommand& command_;
  const std::string& file_;
  const Signals signals_;
  const Progress progress_;
  hierlock::lab::RunOptions options_;
  Players players_;
  std::vector<Scenario> drafts_;  // one for each output
  std::size_t failed_ = 0;
  std::string problem_;  // of the first order that failed
};

}  // namespace

int lab(const LabCommand& command) {
  switch (command.action) {
    case LabCommand::Action::import:
      return Import(command).run();
    case LabCommand::Action::list:
      return list_lab(command);
    case LabCommand::Action::permute:
      return permute_lab(command);
    case LabCommand::Action::run:
      break;
  }
  return run_lab(command);
}

}  // namespace hierlock::cli
