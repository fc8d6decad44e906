// Stage: the sessions of one scenario at one engine, and what the engine shows of them. A session that waits does so on
// a thread of its own.
//
// One thread directs: it gives a session a step, and settles: until every session has either answered, or is shown by
// the engine to wait for others. Then nothing moves until the next step, and what was seen is true.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "lab/database.h"
#include "lab/locks.h"
#include "lab/scenario.h"
#include "lab/venue.h"

namespace hierlock::lab {

class Stage {
 public:
  // Throws what stands in the way of playing it there.
  Stage(const Script& script, Venue& venue, const RunOptions& options);
  ~Stage();  // ends all sessions, waiting ones too, and leaves the venue
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  const std::string& engine() const noexcept { return engine_; }
  const std::string& version() const noexcept { return version_; }
  // Why the scenario is not for this engine; empty if it is.
  const std::string& not_for() const noexcept { return not_for_; }

  // Opens the sessions, so that no step has to wait for that.
  void open_sessions(const std::vector<std::string>& names);
  // Ends all of them, waiting ones too. What happens from then on cannot be cancelled. Keeps `kept` if that one is as
  // good as a new session.
  void end_sessions(const std::string& kept = "") noexcept;
  // Teardown statements, in case that this run is killed.
  void remember(const std::vector<std::string>& teardown);

  // What the line becomes there. Throws unsupported for what the engine has not.
  std::string sent(const Line& line) const;

  // Begins a step of a session that is not at one.
  void start(const std::string& session, const Line& line);
  bool at_work(const std::string& session) const;
  bool has_session(const std::string& name) const { return parties_.contains(name); }

  struct Settled {
    std::map<std::string, Answer> answers;  // of the sessions that have answered since the last one
    View view;                              // what the engine showed last; of those that wait, nobody has answered
    std::vector<std::string> unknown;       // those that have done neither within the patience
    std::vector<std::string> impatient;     // of `until`, those that still waited when it was over
    std::vector<std::string> cycle;         // that was seen on the way, each waits for the next
  };
  // `until`: sessions whose answer is waited for even if they are shown to wait, since they are expected to give up.
  // `look_always`: look at the locks even if everybody has answered.
  Settled settle(const std::vector<std::string>& until, bool look_always);

  // For a session that is done for good: rolls back, lets go of its locks. It must not be at work.
  void retire(const std::string& session);

 private:
  struct Party {
    std::string name;
    std::unique_ptr<Connection> sql;
    std::unique_ptr<RowSession> rows;  // on the connection `sql`
    std::unique_ptr<LockSession> locks;
    // Guarded by the stage's mutex:
    bool opened = false;         // `sql`, `rows` and `locks` are there, or there is a problem
    std::exception_ptr problem;  // why they are not
    bool working = false;
    bool begun = false;  // the statement is sent; its thread waits for the answer
    std::vector<std::string> statements;
    std::optional<LockStep> lock;
    std::optional<RowStep> row_step;
    std::optional<Answer> answer;
    bool leave = false;
    std::condition_variable given;
    std::thread thread;  // none before it is needed
  };
  void start_thread(Party& party);
  void open(Party& party);
  void work(Party& party);
  static Answer do_it(Party& party, const std::vector<std::string>& statements, const std::optional<LockStep>& lock,
                      const std::optional<RowStep>& row_step);
  Party& party(const std::string& name);
  View look();
  bool await_look();               // until the engine can be asked; true if somebody has answered meanwhile
  bool collect(Settled& settled);  // answers that have come; true if there are any
  std::vector<std::string> working() const;

  const Script& script_;
  const RunOptions& options_;
  std::string engine_, version_, not_for_;
  Venue& venue_;
  Database* database_ = nullptr;  // the venue's; none if it has none
  bool reuses_connections_ = false;
  std::unique_ptr<Locks> locks_;
  std::map<std::string, std::unique_ptr<Party>> parties_;
  bool ending_ = false;
  bool waited_ = false;                            // for the answer to the step that was started last
  std::chrono::steady_clock::time_point since_{};  // what was seen before is over: something has moved, or was seen
  mutable std::mutex mutex_;
  std::condition_variable_any answered_;
};

// A circle among those who wait, each for the next; empty if there is none.
std::vector<std::string> find_cycle(const View& view);

}  // namespace hierlock::lab
