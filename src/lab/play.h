// Play: a scenario on a stage. What happened at each step, in the words of the scenario.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lab/scenario.h"
#include "lab/stage.h"

namespace hierlock::lab {

class Play {
 public:
  Play(const Script& script, Venue& venue, const RunOptions& options);

  // In the file's order, each step as the scenario expects it. Never throws.
  Result as_written();
  // In an order of someone's choosing. `choose` is given the sessions that have a step left and do not wait, and
  // returns one. Nothing is expected of a step; a session whose step fails is over.
  // An empty name ends it there.
  using Choose = std::function<std::string(const std::vector<std::string>& choices)>;
  Result in_order_of(const Choose& choose);

  // How the last one in an order of someone's choosing ended: failures, waits that nobody ended, checks.
  const std::vector<std::string>& ended() const noexcept { return ended_; }
  // What steps returned in it, by their names, where they returned rows or counted them.
  const std::map<std::string, std::string>& returned() const noexcept { return returned_; }
  bool deadlocked() const noexcept { return deadlocked_; }
  bool waits(const std::string& session) const { return waiting_.contains(session); }

 private:
  struct Happened {
    Expectation as;  // what would have been the right expectation
    std::vector<std::string> victims;
    bool deadlock = false, unknown = false;
  };
  using Left = std::map<std::string, std::vector<const Line*>>;  // the steps left of each session, the last first

  Result guarded(const std::function<void(Stage&)>& body);
  // Plays one line; true if it was as expected, or nothing is expected and it is known what happened.
  bool play(Stage& stage, const Line& line, const Expectation* expectation);
  Happened describe(Event& event, const std::string& session, const Stage::Settled& settled) const;
  static std::optional<std::string> compare(const std::string& session, const Expectation& expected,
                                            const Happened& happened, const Stage::Settled& settled);
  static std::optional<std::string> compare(const std::string& session, const Expected& want,
                                            const Expectation& expected, const Happened& happened,
                                            const Stage::Settled& settled);
  // Waits for the end of a wait that is expected to end by itself.
  void await_end(Stage& stage, const std::string& session, Stage::Settled& settled) const;
  std::vector<const Line*> teardown_lines() const;
  void tear_down(Stage& stage);
  void note_returned(const std::string& step, const Answer& answer);
  void note_answers(const Stage::Settled& settled);
  bool end_failed(Stage& stage, Left& left);

  const Script& script_;
  Venue& venue_;
  const RunOptions& options_;
  Result result_;
  std::optional<std::chrono::steady_clock::time_point> began_;
  std::map<std::string, std::size_t> waiting_;  // sessions that wait: the event of their step
  std::map<std::string, std::string> failed_;   // sessions whose step has failed, and how
  std::vector<std::string> ended_;
  std::map<std::string, std::string> returned_;
  bool deadlocked_ = false;
};

}  // namespace hierlock::lab
