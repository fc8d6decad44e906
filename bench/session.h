// Session: measures the contenders of a group round by round, and keeps what came out.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cases.h"
#include "keys.h"
#include "measure.h"

namespace bench {

// A contender is measured once a round.
using Contender = std::function<double()>;
using Contenders = std::map<std::string, Contender, std::less<>>;

class Session {
 public:
  Session(const Effort& effort, const Progress& progress, std::vector<const Case*> selected)
      : effort_(effort), progress_(progress), selected_(std::move(selected)) {}

  Window window(std::size_t batch = 64) const { return {std::chrono::milliseconds(effort_.quick ? 15 : 100), batch}; }
  bool quick() const { return effort_.quick; }
  bool full() const { return effort_.full; }
  void preparing(std::string_view group, std::string_view what) const { progress_(group, what); }

  // Whether any selected case needs this contender: what is slow to prepare is not prepared for nothing.
  bool needs(std::string_view group, std::string_view contender) const {
    return std::any_of(selected_.begin(), selected_.end(), [&](const Case* c) {
      return c->group == group && (c->ours == contender || c->peer == contender);
    });
  }

  // All contenders that a selected case of the group names, round by round, each round beginning with another one.
  // `most_rounds` is for what takes seconds each time.
  void measure(std::string_view group, const Contenders& contenders, std::size_t most_rounds = 1'000) {
    const std::size_t rounds = std::min(effort_.rounds, most_rounds);
    std::vector<const Contenders::value_type*> order;
    for (const auto& contender : contenders) {
      if (needs(group, contender.first)) order.push_back(&contender);
    }
    std::map<std::string_view, std::vector<double>> values;
    for (std::size_t round = 0; round < rounds; ++round) {
      progress_(group, "round " + std::to_string(round + 1) + " of " + std::to_string(rounds));
      for (std::size_t i = 0; i < order.size(); ++i) {
        const auto& [name, contender] = *order[(i + round) % order.size()];
        values[name].push_back(contender());
      }
    }
    for (const Case* c : selected_) {
      if (c->group != group) continue;
      const std::vector<double>&ours = values.at(c->ours), &peer = values.at(c->peer);
      outcome_.results.push_back({c, summarize(ours), summarize(peer), summarize(ratios(ours, peer))});
    }
  }

  void skip(std::string_view group, const std::string& why) {
    skip_if([&](const Case& c) { return c.group == group; }, why);
  }
  // The cases that need this contender are left out; the others of the group are measured.
  void skip(std::string_view group, std::string_view contender, const std::string& why) {
    skip_if([&](const Case& c) { return c.group == group && (c.ours == contender || c.peer == contender); }, why);
  }
  // Not even told as skipped: a short run does not have this group.
  void leave_out(std::string_view group) {
    std::erase_if(selected_, [&](const Case* c) { return c->group == group; });
  }

  Outcome outcome() && { return std::move(outcome_); }

 private:
  template <class Skipped>
  void skip_if(const Skipped& skipped, const std::string& why) {
    for (const Case* c : selected_) {
      if (skipped(*c)) outcome_.skipped.push_back({c, why});
    }
    std::erase_if(selected_, [&](const Case* c) { return skipped(*c); });
  }

  Effort effort_;
  const Progress& progress_;
  std::vector<const Case*> selected_;
  Outcome outcome_;
};

// A store and the workers that use it, checked to exclude one another before anything is measured.
template <class Store>
struct Team {
  template <class... Args>
  Team(std::string_view name, const std::vector<std::vector<Path>>& keys, Args&&... args)
      : store(std::make_unique<Store>(std::forward<Args>(args)...)) {
    typename Store::Worker a(*store, std::vector<Path>{}), b(*store, std::vector<Path>{});
    check_exclusion(name, a, b);
    for (const std::vector<Path>& k : keys) crew.push_back(std::make_unique<typename Store::Worker>(*store, k));
  }

  std::unique_ptr<Store> store;
  Crew<typename Store::Worker> crew;
};

// Two contenders that take turns run by run, because a run is long enough for the machine to change between two of
// them. A round is the median of each.
class InTurns {
 public:
  using Run = std::function<double()>;  // in nanoseconds
  InTurns(std::size_t runs, Run ours, Run peer) : runs_(runs), ours_(std::move(ours)), peer_(std::move(peer)) {}

  double ours() { return medians().first; }
  double peer() { return medians().second; }

 private:
  // Both figures of a round are asked for, one after the other.
  std::pair<double, double> medians() {
    if (asked_++ % 2 != 0) return medians_;
    std::vector<double> our_times, peer_times;
    for (std::size_t i = 0; i < runs_; ++i) {
      our_times.push_back(ours_());
      peer_times.push_back(peer_());
    }
    return medians_ = {summarize(our_times).median, summarize(peer_times).median};
  }

  const std::size_t runs_;
  const Run ours_, peer_;
  std::pair<double, double> medians_;
  std::size_t asked_ = 0;
};

// Several figures of one run: a run serves each of them once, so all figures of a round come from the same run.
template <std::size_t count>
class Figures {
 public:
  using Run = std::function<std::array<double, count>()>;
  explicit Figures(Run run) : run_(std::move(run)) {}

  double operator[](std::size_t which) {
    if (!unread_[which]) {
      figures_ = run_();
      unread_.fill(true);
    }
    unread_[which] = false;
    return figures_[which];
  }

 private:
  const Run run_;
  std::array<double, count> figures_{};
  std::array<bool, count> unread_{};
};

}  // namespace bench
