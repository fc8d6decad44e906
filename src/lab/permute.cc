// Every order, by playing: a depth-first walk over the choices, each time from the beginning (as stateless model
// checkers do: P. Godefroid, "Model checking for programming languages using VeriSoft", 1997). What is a choice is not
// computed from the scenario but seen: after a step has settled, every session that has a step left and does not wait.
//
// Invariant: `path` is the order of the last one played, with the choices there were at each place. The next one has
// the same beginning up to the last place where another choice is left. So no order is played twice, and none is left
// out.
#include <algorithm>
#include <cctype>
#include <map>
#include <random>
#include <utility>

#include "lab/play.h"
#include "lab/reader.h"

namespace hierlock::lab {

namespace {

struct Choice {
  std::vector<std::string> of;  // the sessions there were, the first one tried first
  std::size_t taken = 0;
  const std::string& session() const { return of[taken]; }
};

std::string first_word(const std::string& text) {
  std::string word = text.substr(0, text.find_first_of(" \t;"));
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return word;
}

class Permuter {
 public:
  Permuter(const Script& script, std::string_view url, const PermuteOptions& options)
      : script_(script), url_(url), options_(options), random_(options.seed) {
    for (const Line& line : script.lines) {
      if (line.kind == Event::Kind::step) steps_[line.session].push_back(&line);
    }
  }

  Permuted all() {
    result_.scenario = script_.name;
    result_.complete = !options_.random;
    if (options_.pin) result_.bounds = "with begin and commit pinned";
    if (options_.preemptions) {
      result_.bounds += (options_.pin ? ", and " : "with ") + std::string("at most ") +
                        std::to_string(*options_.preemptions) +
                        (*options_.preemptions == 1 ? " preemption" : " preemptions");
    }
    do {
      if (result_.schedules >= (options_.random ? *options_.random : options_.most)) {
        result_.complete = false;
        break;
      }
      play_one();
      if (options_.on_progress) options_.on_progress(result_.schedules, result_.classes.size());
    } while (options_.random || next());
    std::stable_sort(result_.classes.begin(), result_.classes.end(),
                     [](const auto& a, const auto& b) { return a.schedules > b.schedules; });
    return std::move(result_);
  }

 private:
  void play_one() {
    depth_ = 0;
    last_.clear();
    preemptions_ = 0;
    done_.clear();
    if (options_.random) path_.clear();
    Play play(script_, url_, options_.run);
    const Result played = play.in_order_of([this](const std::vector<std::string>& choices) { return choose(choices); });
    if (played.verdict == Result::Verdict::skipped) {
      throw Error(ErrorKind::unsupported, script_.file + ": not on " + played.engine + ": " + played.message);
    }
    if (played.verdict != Result::Verdict::passed) {
      throw Error(ErrorKind::unavailable,
                  "an order could not be played (" + joined(played.schedule, " ") + "): " + played.message);
    }
    path_.resize(depth_);
    result_.engine = played.engine;
    ++result_.schedules;
    std::string outcome = joined(play.ended(), "; ");
    if (outcome.empty()) outcome = "all ok";
    auto found = std::find_if(result_.classes.begin(), result_.classes.end(), [&](const Permuted::Class& known) {
      return known.outcome == outcome && known.deadlock == play.deadlocked();
    });
    if (found == result_.classes.end()) {
      found = result_.classes.insert(found, {outcome, 0, played.schedule, play.deadlocked()});
    }
    ++found->schedules;
  }

  std::string choose(const std::vector<std::string>& all) {
    std::vector<std::string> choices = allowed(all);
    std::string session;
    if (choices.size() == 1) {
      session = choices.front();
    } else if (depth_ < path_.size()) {
      const Choice& planned = path_[depth_];
      if (planned.of == choices) {
        session = planned.session();
      } else {  // the engine did otherwise than the last time, such as choosing another victim
        result_.complete = false;
        path_.resize(depth_);
        path_.push_back({choices, 0});
        session = choices.front();
      }
      ++depth_;
    } else {
      std::size_t first = 0;
      if (options_.random) first = std::uniform_int_distribution<std::size_t>(0, choices.size() - 1)(random_);
      path_.push_back({choices, first});
      session = choices[first];
      ++depth_;
    }
    if (!last_.empty() && session != last_ && contains(all, last_)) ++preemptions_;
    last_ = session;
    ++done_[session];
    return session;
  }

  // The session that went last comes first, so that the walk begins with whole transactions.
  std::vector<std::string> allowed(std::vector<std::string> choices) {
    const auto last = std::find(choices.begin(), choices.end(), last_);
    if (last == choices.end()) return choices;
    std::rotate(choices.begin(), last, std::next(last));
    const bool stays = options_.pin && pinned();
    if (stays || (options_.preemptions && preemptions_ >= *options_.preemptions)) choices.resize(1);
    return choices;
  }
  bool pinned() const {
    const auto& steps = steps_.at(last_);
    const std::size_t done = done_.at(last_);
    if (done >= steps.size()) return false;
    const std::string before = first_word(steps[done - 1]->text), after = first_word(steps[done]->text);
    return before == "begin" || before == "start" || after == "commit" || after == "rollback";
  }

  bool next() {
    while (!path_.empty() && path_.back().taken + 1 == path_.back().of.size()) path_.pop_back();
    if (path_.empty()) return false;
    ++path_.back().taken;
    return true;
  }

  const Script& script_;
  const std::string url_;
  const PermuteOptions& options_;
  std::mt19937_64 random_;
  std::map<std::string, std::vector<const Line*>> steps_;
  Permuted result_;

  std::vector<Choice> path_;
  // Of the one that is being played:
  std::size_t depth_ = 0;
  std::string last_;
  unsigned preemptions_ = 0;
  std::map<std::string, std::size_t> done_;
};

}  // namespace

Permuted permute(const Scenario& scenario, std::string_view url, const PermuteOptions& options) {
  return Permuter(scenario.script(), url, options).all();
}

}  // namespace hierlock::lab
