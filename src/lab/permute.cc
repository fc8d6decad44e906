// Every order, by playing: a depth-first walk over the choices, each time from the beginning (as stateless model
// checkers do: P. Godefroid, "Model checking for programming languages using VeriSoft", 1997). What is a choice is not
// computed from the scenario but seen: after a step has settled, every session that has a step left and does not wait.
//
// Invariant: `path` is the order of the last one played, with the choices there were at each place. The next one has
// the same beginning up to the last place where another choice is left. So no order is played twice, and none is left
// out.
#include <algorithm>
#include <cctype>
#include <compare>
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
  Permuter(const Script& script, Venue& venue, const PermuteOptions& options)
      : script_(script), venue_(venue), options_(options), random_(options.seed) {
    for (const Line& line : script.lines) {
      if (line.kind == Event::Kind::step) steps_[line.session].push_back(&line);
    }
  }

  Permuted all() {
    result_.scenario = script_.name;
    result_.complete = !options_.random;
    if (options_.pin) result_.bounds = "with begin pinned";
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
    describe_classes();
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
    Play play(script_, venue_, options_.run);
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
    const auto [found, is_new] =
        classes_.try_emplace({play.ended(), play.returned(), play.deadlocked()}, result_.classes.size());
    if (is_new) result_.classes.push_back({"", 0, played.schedule, play.deadlocked()});
    ++result_.classes[found->second].schedules;
  }

  // A class names the rows of a step only if they differ between classes.
  void describe_classes() {
    std::map<std::string, std::pair<std::string, std::size_t>> same;  // of each step: a result, and how many have it
    for (const auto& [key, index] : classes_) {
      for (const auto& [step, result] : key.returned) {
        const auto found = same.try_emplace(step, result, 0).first;
        if (found->second.first == result) ++found->second.second;
      }
    }
    for (const auto& [key, index] : classes_) {
      std::vector<std::string> words;
      for (const auto& [step, result] : key.returned) {
        if (same.at(step).second != classes_.size()) words.push_back(step + " " + result);
      }
      words.insert(words.end(), key.ended.begin(), key.ended.end());
      result_.classes[index].outcome = words.empty() ? "all ok" : joined(words, "; ");
    }
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
    const std::string before = first_word(steps[done - 1]->text);
    return before == "begin" || before == "start";
  }

  bool next() {
    while (!path_.empty() && path_.back().taken + 1 == path_.back().of.size()) path_.pop_back();
    if (path_.empty()) return false;
    ++path_.back().taken;
    return true;
  }

  const Script& script_;
  Venue& venue_;
  const PermuteOptions& options_;
  std::mt19937_64 random_;
  std::map<std::string, std::vector<const Line*>> steps_;
  Permuted result_;

  // What orders of one class have in common.
  struct Ending {
    std::vector<std::string> ended;
    std::map<std::string, std::string> returned;  // by steps
    bool deadlocked;
    auto operator<=>(const Ending&) const = default;
  };
  std::map<Ending, std::size_t> classes_;  // where they are in result_.classes

  std::vector<Choice> path_;
  // Of the one that is being played:
  std::size_t depth_ = 0;
  std::string last_;
  unsigned preemptions_ = 0;
  std::map<std::string, std::size_t> done_;
};

}  // namespace

Permuted permute(const Scenario& scenario, Venue& venue, const PermuteOptions& options) {
  return Permuter(scenario.script(), venue, options).all();
}
Permuted permute(const Scenario& scenario, std::string_view url, const PermuteOptions& options) {
  Venue venue(url, true);
  return permute(scenario, venue, options);
}

}  // namespace hierlock::lab
