#include "lab/play.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include <hierlock/spi/url.h>

#include "lab/judge.h"
#include "lab/reader.h"

namespace hierlock::lab {

namespace {

using Clock = std::chrono::steady_clock;
using Kind = Expected::Kind;

// setup, check and teardown are played by a session of the lab's own; the keyword is no name of a scenario's session.
const std::string house = "setup";

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  }
  return text;
}

bool is_success(const Expected& outcome) {
  return outcome.kind == Kind::ok || outcome.kind == Kind::rows || outcome.kind == Kind::affected;
}

std::string messages(const Answer& answer) {
  Expected all;
  all.notices = answer.notices;
  all.notifications = answer.notifications;
  const std::string text = all.str();
  return text == "ok" ? "none" : text.substr(std::string("ok, ").size());
}

std::string circle(const std::vector<std::string>& cycle) { return joined(cycle, " → ") + " → " + cycle.front(); }

// The circle that hierlock's own stores tell: they break it before anybody can see it. None if anybody else is in it.
std::vector<std::string> circle_told(const std::vector<std::string>& cycle, const std::vector<std::string>& sessions) {
  const auto known = [&](const std::string& name) { return contains(sessions, name); };
  return cycle.size() > 1 && std::all_of(cycle.begin(), cycle.end(), known) ? cycle : std::vector<std::string>{};
}

// `T2 waits for T1, which holds t(1) X`
std::string why_it_waits(const WaitSeen& wait, const View& view) {
  std::string text = wait.session + " waits for " + listed(wait.blockers);
  if (wait.object.empty()) return text + ".";
  std::string holding;
  for (const LockSeen& lock : view.locks) {
    if (lock.granted && lock.object == wait.object && lock.session == wait.blockers.front()) holding = lock.mode;
  }
  return text + (holding.empty() ? " at " + wait.object + "." : ", which holds " + wait.object + " (" + holding + ").");
}

std::string how_it_ended(const std::string& session, const Answer& answer) {
  switch (answer.kind) {
    case Answer::Kind::ok:
      if (answer.has_rows) {
        return session + " got " + (answer.rows.size() == 1 ? "1 row." : std::to_string(answer.rows.size()) + " rows.");
      }
      if (answer.affected) {
        return session + (*answer.affected == 0   ? " found no row to change."
                          : *answer.affected == 1 ? " changed 1 row."
                                                  : " changed " + std::to_string(*answer.affected) + " rows.");
      }
      return session + " went on at once.";
    case Answer::Kind::deadlock:
      return session + " was chosen as the victim of a deadlock: " + answer.message;
    case Answer::Kind::timeout:
      return session + " waited until its time was over: " + answer.message;
    case Answer::Kind::busy:
      return session + " would have had to wait, and was told not to: " + answer.message;
    case Answer::Kind::serialization:
      return session + " was told to start its transaction over: " + answer.message;
    case Answer::Kind::cancelled:
      return session + " was cancelled by another session: " + answer.message;
    case Answer::Kind::error:
      return session + " got an error (" + answer.code + "): " + answer.message;
  }
  return {};
}

}  // namespace

Play::Play(const Script& script, Venue& venue, const RunOptions& options)
    : script_(script), venue_(venue), options_(options) {
  result_.scenario = script.name;
  result_.file = script.file;
  result_.proves = script.proves;
  result_.about = script.about;
  result_.sessions = script.sessions();
  const spi::Url parsed = spi::Url::parse(venue.url());
  result_.url = parsed.safe_text();
  result_.engine = parsed.scheme;
}

// --- judging ------------------------------------------------------------------------------------------------------

// What happened at a step, in the words of a scenario.
Play::Happened Play::describe(Event& event, const std::string& session, const Stage::Settled& settled) const {
  Happened happened;
  event.cycle = settled.cycle;
  const auto own = settled.answers.find(session);
  const WaitSeen* wait = own == settled.answers.end() ? settled.view.wait_of(session) : nullptr;
  if (wait != nullptr && wait->blockers.empty()) wait = nullptr;
  const bool is_step = event.kind == Event::Kind::step;
  if (own != settled.answers.end()) {
    happened.as.step = as_outcome(own->second);
    event.why = how_it_ended(is_step ? session : "The lab", own->second);
  } else if (wait != nullptr) {
    happened.as.step.kind = Kind::blocked;
    happened.as.step.sessions = wait->blockers;
    std::sort(happened.as.step.sessions.begin(), happened.as.step.sessions.end());
    event.why = why_it_waits(*wait, settled.view);
    if (!settled.cycle.empty()) {
      event.why += " They wait in a circle, " + circle(settled.cycle) + ", and nobody breaks it.";
    }
  } else {
    happened.unknown = true;
    event.why = settled.view.wait_of(session) != nullptr
                    ? session + " waits, and " + result_.engine + " does not say for whom: nobody knows."
                    : session + " neither answered nor was shown to wait: nobody knows.";
  }
  for (const auto& [name, answer] : settled.answers) {
    if (answer.kind == Answer::Kind::deadlock) happened.victims.push_back(name);
    const auto waited = waiting_.find(name);
    if (name == session || waited == waiting_.end()) continue;
    event.freed.push_back({waited->second, as_outcome(answer).str()});
    happened.as.unblocks.push_back({name, as_outcome(answer)});
  }
  // Somebody else was the victim of the circle that this step closed, or this step was.
  const bool closed =
      happened.as.step.kind == Kind::deadlock || happened.as.step.kind == Kind::blocked || !settled.cycle.empty();
  happened.deadlock = !happened.victims.empty() && closed && !happened.unknown;
  if (happened.deadlock) {
    happened.as.step = {};
    happened.as.step.kind = Kind::deadlock;
    happened.as.step.sessions = happened.victims;
    // Where the engine broke the circle before it could be seen, it may still say what it was.
    const Answer& refusal = settled.answers.at(happened.victims.front());
    const std::string& told = refusal.message;
    if (event.cycle.empty()) event.cycle = circle_told(refusal.cycle, result_.sessions);
    event.why = result_.engine + " chose " + listed(happened.victims) + " as the victim" +
                (!event.cycle.empty() ? ": they waited in a circle, " + circle(event.cycle) + "."
                 : told.empty()       ? "."
                                      : ". It says: " + told);
    if (own != settled.answers.end() && !contains(happened.victims, session)) {
      event.why += " " + session + " went on: " + as_outcome(own->second).str() + ".";
    }
  } else {
    for (const Expectation::Freed& freed : happened.as.unblocks) {
      event.why +=
          " " + freed.session + (is_success(freed.end) ? " could go on." : " ended with " + freed.end.str() + ".");
    }
  }
  event.blocked = own == settled.answers.end();
  event.actual = happened.unknown ? "unknown" : happened.deadlock ? happened.as.step.str() : happened.as.str();
  return happened;
}

// What is not as expected, in words; none if nothing is. Empty words: that it was otherwise says it all.
std::optional<std::string> Play::compare(const std::string& session, const Expectation& expected,
                                         const Happened& happened, const Stage::Settled& settled) {
  const std::optional<std::string> problem = compare(session, expected.step, expected, happened, settled);
  if (!problem) return problem;
  for (const Expected& other : expected.step.alternatives) {
    if (!compare(session, other, expected, happened, settled)) return std::nullopt;
  }
  return problem;
}

std::optional<std::string> Play::compare(const std::string& session, const Expected& want, const Expectation& expected,
                                         const Happened& happened, const Stage::Settled& settled) {
  const auto answer_of = [&](const std::string& name) {
    const auto found = settled.answers.find(name);
    return found == settled.answers.end() ? nullptr : &found->second;
  };
  const auto said = [&](const std::string& name) {
    return std::any_of(expected.unblocks.begin(), expected.unblocks.end(),
                       [&](const Expectation::Freed& freed) { return freed.session == name; });
  };
  if (want.kind == Kind::deadlock) {
    const std::vector<std::string> may = want.sessions.empty() ? std::vector<std::string>{session} : want.sessions;
    if (happened.victims.empty()) return "there was no deadlock";
    for (const std::string& victim : happened.victims) {
      if (!contains(may, victim)) return victim + " was the victim";
    }
    // Who is no victim goes on, or still waits: either is right, unless it is said which.
    for (const auto& [name, answer] : settled.answers) {
      if (answer.kind != Answer::Kind::deadlock && !answer.well() && !said(name)) return how_it_ended(name, answer);
    }
    for (const Expectation::Freed& freed : expected.unblocks) {
      const Answer* answer = answer_of(freed.session);
      if (answer == nullptr && freed.perhaps) continue;
      if (answer == nullptr || !as_expected(freed.end, *answer)) return freed.session + " did not go on so";
    }
    return std::nullopt;
  }
  if (want.kind == Kind::blocked) {
    if (happened.as.step.kind != Kind::blocked || !blocked_as_expected(want, happened.as.step.sessions)) return "";
  } else if (const Answer* own = answer_of(session); own == nullptr || !single_as_expected(want, *own)) {
    return own != nullptr && !messages_as_expected(want, *own) ? "the messages were " + messages(*own) : "";
  }
  for (const Expectation::Freed& freed : expected.unblocks) {
    const Answer* answer = answer_of(freed.session);
    if (answer == nullptr && freed.perhaps) continue;
    if (answer == nullptr) return freed.session + " did not go on";
    if (!as_expected(freed.end, *answer)) return freed.session + " ended otherwise";
  }
  for (const auto& [name, answer] : settled.answers) {
    if (name == session) continue;
    if (!said(name) && (expected.said || !answer.well())) return name + " was not said to end here";
  }
  return std::nullopt;
}

// --- playing ------------------------------------------------------------------------------------------------------

bool Play::play(Stage& stage, const Line& line, const Expectation* expectation) {
  static const Expectation nothing;
  const Expectation& expected = expectation != nullptr ? *expectation : nothing;
  Event event;
  event.kind = line.kind;
  event.line = line.number;
  const bool is_step = line.kind == Event::Kind::step;
  if (is_step) event.session = line.session;
  event.name = line.name;
  event.text = (is_step || line.session.empty() ? "" : line.session + ": ") + line.text;
  if (expected.said) event.expected = expected.str();
  const std::string& session = line.session.empty() ? house : line.session;
  const std::size_t index = result_.events.size();
  if (stage.at_work(session)) {
    const Event& stuck = result_.events[waiting_.at(session)];
    event.actual = "still blocked";
    event.why = session + " cannot take this step: it still waits in step " + stuck.name + ".";
    event.locks = result_.events.back().locks;  // nothing has moved since
    event.waits = result_.events.back().waits;
    result_.verdict = Result::Verdict::failed;
    result_.message = script_.file + ":" + std::to_string(line.number) + ": " + event.why;
    result_.events.push_back(std::move(event));
    return false;
  }
  event.sent = stage.sent(line);
  if (options_.on_event) options_.on_event(event);

  std::vector<std::string> until;
  if (expectation != nullptr) {
    const bool limited =
        (line.lock && line.lock->timeout) ||
        (line.rows && line.rows->lock.wait && line.rows->lock.wait->kind() == rows::Wait::Kind::at_most);
    const auto waits = [](const Expected& one) { return one.kind == Kind::blocked || one.kind == Kind::deadlock; };
    if (ends_by_itself(expected.step) || (limited && !any_of(expected.step, waits))) until.push_back(session);
    for (const Expectation::Freed& freed : expected.unblocks) {
      if (!freed.perhaps && ends_by_itself(freed.end)) until.push_back(freed.session);
    }
  }
  const Clock::time_point began = Clock::now();
  if (!began_) began_ = began;
  event.began = began - *began_;
  stage.start(session, line);
  Stage::Settled settled = stage.settle(until, options_.lock_tables);
  event.locks = settled.view.locks;
  event.waits = settled.view.waits;
  if (is_step) result_.schedule.push_back(line.name);
  Happened happened = describe(event, session, settled);
  Expectation at_last = expected;
  if (!expected.step.then.empty() && happened.as.step.kind == Kind::blocked &&
      blocked_as_expected(expected.step, happened.as.step.sessions)) {
    const std::string first = happened.as.step.str() + ", then ";
    await_end(stage, session, settled);
    event.locks = settled.view.locks;
    event.waits = settled.view.waits;
    event.freed.clear();
    happened = describe(event, session, settled);
    event.actual = first + event.actual;
    at_last.step = expected.step.then.front();
  }
  event.took = Clock::now() - began;
  const std::string where = script_.file + ":" + std::to_string(line.number) + ": ";
  if (!settled.unknown.empty()) {
    result_.verdict = Result::Verdict::error;
    result_.message = where + listed(settled.unknown) + " neither answered nor was shown for whom to wait within " +
                      std::to_string(std::chrono::duration_cast<std::chrono::seconds>(options_.patience).count()) +
                      " s";
  } else if (!settled.impatient.empty()) {
    result_.verdict = Result::Verdict::error;
    result_.message = where + listed(settled.impatient) +
                      " is expected to give up by itself, and still waits: it takes " +
                      "longer than the patience (--patience)";
  } else if (expectation == nullptr) {
    event.passed = true;
  } else if (const std::optional<std::string> problem = compare(session, at_last, happened, settled); !problem) {
    event.passed = true;
  } else {
    result_.verdict = Result::Verdict::failed;
    result_.message = where + "expected " + (event.expected.empty() ? "success" : "`" + event.expected + "`") +
                      ", but it was `" + event.actual + "`" + (problem->empty() ? "" : ": " + *problem);
  }
  if (result_.verdict == Result::Verdict::failed && line.kind == Event::Kind::setup) {
    result_.verdict = Result::Verdict::error;
    result_.message = where + "setup must succeed, but it was `" + event.actual + "`: " + event.why;
  }
  if (const auto own = settled.answers.find(session); is_step && own != settled.answers.end()) {
    note_returned(line.name, own->second);
  }
  for (const Event::Freed& freed : event.freed) {
    const Event& waited = result_.events[freed.event];
    if (const auto answer = settled.answers.find(waited.session); answer != settled.answers.end()) {
      note_returned(waited.name, answer->second);
    }
  }
  note_answers(settled);
  if (event.blocked) waiting_[session] = index;
  const bool passed = event.passed;
  result_.events.push_back(std::move(event));
  return passed;
}

// It was shown to wait, and is expected to give up.
void Play::await_end(Stage& stage, const std::string& session, Stage::Settled& settled) const {
  Stage::Settled end = stage.settle({session}, options_.lock_tables);
  end.answers.merge(settled.answers);
  if (end.cycle.empty()) end.cycle = std::move(settled.cycle);
  settled = std::move(end);
}

void Play::note_returned(const std::string& step, const Answer& answer) {
  if (answer.well() && (answer.has_rows || answer.affected)) returned_[step] = as_outcome(answer).str();
}

void Play::note_answers(const Stage::Settled& settled) {
  for (const auto& [name, answer] : settled.answers) {
    waiting_.erase(name);
    if (answer.kind == Answer::Kind::deadlock) deadlocked_ = true;
    if (!answer.well()) failed_.emplace(name, as_outcome(answer).str());
  }
}

Result Play::guarded(const std::function<void(Stage&)>& body) {
  const Clock::time_point began = Clock::now();
  try {
    Stage stage(script_, venue_, options_);
    result_.engine = stage.engine();
    result_.version = stage.version();
    for (const Script::Fact& fact : script_.facts) {
      const auto found = fact.by_engine.find(result_.engine);
      const std::string& value = found != fact.by_engine.end() ? found->second : fact.everywhere;
      if (!value.empty()) result_.facts[fact.name] = value;
    }
    if (!stage.not_for().empty()) {
      result_.verdict = Result::Verdict::skipped;
      result_.message = stage.not_for();
    } else {
      // What an engine has not is said before anything is played.
      for (const Line& line : script_.lines) {
        if (!line.is_for(result_.engine)) continue;
        try {
          static_cast<void>(stage.sent(line));
        } catch (const Error& error) {
          throw Error(error.kind(), script_.file + ":" + std::to_string(line.number) + ": " + error.what());
        }
      }
      std::vector<std::string> teardown;
      for (const Line* line : teardown_lines()) teardown.push_back(stage.sent(*line));
      stage.remember(teardown);
      std::vector<std::string> names = result_.sessions;
      if (script_.has_sql(result_.engine)) names.push_back(house);
      stage.open_sessions(names);
      result_.verdict = Result::Verdict::passed;
      try {
        body(stage);
      } catch (const std::exception& error) {
        result_.verdict = Result::Verdict::error;
        result_.message = error.what();
      }
      if (!teardown.empty()) tear_down(stage);
    }
  } catch (const std::exception& error) {
    result_.verdict = Result::Verdict::error;
    result_.message = error.what();
  }
  if (result_.verdict == Result::Verdict::error) venue_.close();
  result_.took = Clock::now() - began;
  return result_;
}

std::vector<const Line*> Play::teardown_lines() const {
  std::vector<const Line*> lines;
  for (const Line& line : script_.lines) {
    if (line.kind == Event::Kind::teardown && line.is_for(result_.engine)) lines.push_back(&line);
  }
  return lines;
}

// All of them are run, whatever has happened before. What fails is told, unless something else has failed before.
void Play::tear_down(Stage& stage) {
  std::string problem;
  stage.end_sessions(house);
  try {
    if (!stage.has_session(house)) stage.open_sessions({house});
    for (const Line* line : teardown_lines()) {
      if (options_.on_event) {
        Event event;
        event.kind = line->kind;
        event.line = line->number;
        event.text = line->text;
        options_.on_event(event);
      }
      stage.start(house, *line);
      const Stage::Settled settled = stage.settle({}, false);
      const auto answer = settled.answers.find(house);
      if (answer != settled.answers.end() && answer->second.well()) continue;
      const WaitSeen* const wait = settled.view.wait_of(house);
      if (problem.empty()) {
        problem = script_.file + ":" + std::to_string(line->number) + ": teardown failed: " +
                  (answer != settled.answers.end() ? how_it_ended("The lab", answer->second)
                   : wait != nullptr               ? why_it_waits(*wait, settled.view)
                                                   : "it does not end.");
      }
      if (answer == settled.answers.end()) break;  // it still waits
    }
  } catch (const std::exception& error) {
    if (problem.empty()) problem = script_.file + ": teardown failed: " + error.what();
  }
  if (problem.empty()) return;
  if (result_.verdict == Result::Verdict::passed) {
    result_.verdict = Result::Verdict::error;
    result_.message = problem;
  } else {
    result_.message += ". Then " + problem;
  }
}

Result Play::as_written() {
  return guarded([&](Stage& stage) {
    if (!script_.orders.empty()) {
      throw Error(ErrorKind::invalid_argument,
                  script_.file + ": it has several orders: play each of Scenario::orders()");
    }
    for (const Line& line : script_.lines) {
      if (!line.is_for(result_.engine) || line.kind == Event::Kind::teardown) continue;
      if (!play(stage, line, &line.expected_of(result_.engine))) return;
    }
  });
}

Result Play::in_order_of(const Choose& choose) {
  return guarded([&](Stage& stage) {
    Left left;
    std::vector<const Line*> checks;
    for (const Line& line : script_.lines) {
      if (!line.is_for(result_.engine)) continue;
      if (line.kind == Event::Kind::setup && !play(stage, line, &line.expected_of(result_.engine))) return;
      if (line.kind == Event::Kind::check) checks.push_back(&line);
      if (line.kind == Event::Kind::step) left[line.session].insert(left[line.session].begin(), &line);
    }
    for (;;) {
      std::vector<std::string> choices;
      for (const std::string& session : result_.sessions) {
        if (!left[session].empty() && !stage.at_work(session)) choices.push_back(session);
      }
      if (choices.empty()) break;
      const std::string session = choose(choices);
      if (session.empty()) break;
      const Line& line = *left.at(session).back();
      left.at(session).pop_back();
      if (!play(stage, line, nullptr) || !end_failed(stage, left)) return;
    }
    for (const auto& [name, index] : waiting_) ended_.push_back(name + " still waits");
    std::sort(ended_.begin(), ended_.end());  // who was first is another matter
    for (const Line* line : checks) {
      if (!play(stage, *line, nullptr)) return;
      ended_.push_back("check " + result_.events.back().actual);
    }
  });
}

// A session whose step failed is over: what it has is rolled back and let go of, which may let others go on, or fail.
bool Play::end_failed(Stage& stage, Left& left) {
  while (!failed_.empty()) {
    for (const auto& [name, outcome] : std::exchange(failed_, {})) {
      ended_.push_back(name + " " + outcome);
      left[name].clear();
      stage.retire(name);
    }
    const Stage::Settled settled = stage.settle({}, false);
    for (const auto& [name, answer] : settled.answers) {
      result_.events.back().freed.push_back({waiting_.at(name), as_outcome(answer).str()});
      note_returned(result_.events[waiting_.at(name)].name, answer);
    }
    note_answers(settled);
    if (!settled.unknown.empty()) {
      result_.verdict = Result::Verdict::error;
      result_.message = listed(settled.unknown) + " neither answered nor was shown to wait";
      return false;
    }
  }
  return true;
}

}  // namespace hierlock::lab
