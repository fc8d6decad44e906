#include "lab/stage.h"

#include <algorithm>
#include <functional>
#include <set>

#include <hierlock/spi/url.h>

#include "lab/reader.h"
#include "lab/session_reuse.h"

namespace hierlock::lab {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Most steps answer within this; then the engine is asked, at first often. A question takes time from the session that
// is silent because it works.
constexpr milliseconds first_look{4}, longest_pause{20};

// A wait of which the engine does not say for whom may be one for anybody: that is not known.
bool shown_to_wait(const View& view, const std::string& session) {
  const WaitSeen* wait = view.wait_of(session);
  return wait != nullptr && !wait->blockers.empty();
}

// Empty: it can be played there. A scenario that names its engines is wrong about one that lacks what it needs; one
// that names none is for those that have it.
std::string reason_not_to_play(const Script& script, const std::string& engine, bool is_database) {
  if (!script.engines.empty() && !contains(script.engines, engine)) return "it is for " + joined(script.engines, ", ");
  for (const Line& line : script.lines) {
    if (!line.is_for(engine)) continue;
    std::string lacks;
    if (!line.lock && !is_database) lacks = " is SQL, and " + engine + " knows none";
    if (line.lock && is_database && engine != "mysql" && engine != "mariadb") {
      lacks = " is a lock step, and there is no store on " + engine + " yet";
    }
    if (lacks.empty()) continue;
    const std::string what = script.file + ":" + std::to_string(line.number) + ": `" + line.text + "`" + lacks;
    if (!script.engines.empty()) throw Error(ErrorKind::unsupported, what + ": take it out of `engines`");
    return what;
  }
  return {};
}

// An exception is an answer, too.
template <typename Execute>
auto guarded(const Execute& execute) -> decltype(execute()) {
  try {
    return execute();
  } catch (const std::exception& error) {
    return Answer{.kind = Answer::Kind::error, .code = "lost", .message = error.what()};
  }
}

}  // namespace

std::vector<std::string> find_cycle(const View& view) {
  std::vector<std::string> path;
  std::set<std::string> done;
  std::vector<std::string> cycle;
  const std::function<bool(const std::string&)> follow = [&](const std::string& session) {
    if (const auto seen = std::find(path.begin(), path.end(), session); seen != path.end()) {
      cycle.assign(seen, path.end());
      return true;
    }
    if (!done.insert(session).second) return false;
    const WaitSeen* wait = view.wait_of(session);
    if (wait == nullptr) return false;
    path.push_back(session);
    for (const std::string& blocker : wait->blockers) {
      if (follow(blocker)) return true;
    }
    path.pop_back();
    return false;
  };
  for (const WaitSeen& wait : view.waits) {
    if (follow(wait.session)) return cycle;
  }
  return {};
}

Stage::Stage(const Script& script, Venue& venue, const RunOptions& options)
    : script_(script), options_(options), venue_(venue) {
  engine_ = spi::Url::parse(venue.url()).scheme;
  database_ = venue.database();
  if (database_ != nullptr) {
    engine_ = database_->engine();
    version_ = database_->version();
  }
  not_for_ = reason_not_to_play(script, engine_, database_ != nullptr);
  if (!not_for_.empty()) return;
  reuses_connections_ = !needs_own_connections(script, engine_);
  if (database_ != nullptr) database_->make_room(options.patience);
  if (script.has_locks(engine_)) locks_ = std::make_unique<Locks>(venue.url());
}

Stage::~Stage() {
  end_sessions();
  locks_.reset();
  if (not_for_.empty()) venue_.leave();  // otherwise it has not entered
}

void Stage::remember(const std::vector<std::string>& teardown) {
  if (database_ != nullptr) database_->remember(teardown);
}

void Stage::end_sessions(const std::string& kept) noexcept {
  ending_ = true;
  const auto stays = [&](const Party& party) {
    return party.name == kept && !party.working && party.sql != nullptr && party.sql->is_as_new();
  };
  std::map<std::string, std::unique_ptr<Party>> rest;
  if (const auto found = parties_.find(kept); found != parties_.end() && stays(*found->second)) {
    rest.insert(parties_.extract(found));
  }
  for (auto& [name, party] : parties_) {
    const std::lock_guard guard(mutex_);
    party->leave = true;
    party->given.notify_all();
    if (party->working && party->sql != nullptr) party->sql->interrupt();
    if (party->locks != nullptr) party->locks->interrupt();
    if (!party->thread.joinable() && party->sql != nullptr) party->sql->begin_end();
  }
  for (auto& [name, party] : parties_) {
    if (party->thread.joinable()) party->thread.join();
  }
  parties_ = std::move(rest);
}

void Stage::open_sessions(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    auto made = std::make_unique<Party>();
    made->name = name;
    if (database_ != nullptr && script_.has_sql(engine_) && locks_ == nullptr && reuses_connections_) {
      made->sql = database_->connect_again(name);
    }
    Party& one = *parties_.emplace(name, std::move(made)).first->second;
    if (one.sql == nullptr) {
      start_thread(one);
    } else {
      one.rows = std::make_unique<RowSession>(*one.sql, engine_);
      one.opened = true;
    }
  }
  std::exception_ptr problem;
  std::unique_lock guard(mutex_);
  for (const std::string& name : names) {
    Party& one = party(name);
    answered_.wait(guard, [&] { return one.opened; });
    if (one.problem != nullptr && problem == nullptr) problem = one.problem;
  }
  guard.unlock();
  if (problem != nullptr) std::rethrow_exception(problem);
}

void Stage::start_thread(Party& party) {
  if (!party.thread.joinable()) party.thread = std::thread([this, &party] { work(party); });
}

void Stage::open(Party& party) {
  if (database_ != nullptr && script_.has_sql(engine_)) {
    party.sql = database_->connect(party.name, reuses_connections_);
  }
  if (party.sql != nullptr) party.rows = std::make_unique<RowSession>(*party.sql, engine_);
  if (locks_ != nullptr) party.locks = locks_->session(party.name);
}

Stage::Party& Stage::party(const std::string& name) { return *parties_.at(name); }

std::string Stage::sent(const Line& line) const {
  if (line.lock) {
    locks_->check(*line.lock);
    return line.text;
  }
  if (line.rows || line.describes_rows) return line.text;
  std::string text;
  for (const std::string& sql : in_dialect(engine_, line.text)) text += (text.empty() ? "" : "; ") + sql;
  return text;
}

// --- a session's thread ---------------------------------------------------------------------------------

void Stage::work(Party& party) {
  // Here, so that all of them connect at the same time.
  std::unique_lock guard(mutex_);
  if (!party.opened) {
    guard.unlock();
    std::exception_ptr problem;
    try {
      open(party);
    } catch (...) {
      problem = std::current_exception();
    }
    guard.lock();
    party.problem = problem;
    party.opened = true;
    answered_.notify_all();
  }
  for (;;) {
    party.given.wait(guard, [&] { return party.leave || (party.working && !party.answer); });
    if (party.leave) {
      // Here, so that all of them are reset at the same time.
      guard.unlock();
      party.rows.reset();
      party.sql.reset();
      return;
    }
    const std::vector<std::string> statements = std::move(party.statements);
    const std::optional<LockStep> lock = std::move(party.lock);
    const std::optional<RowStep> row_step = std::move(party.row_step);
    const bool begun = std::exchange(party.begun, false);
    guard.unlock();
    Answer answer = guarded([&] { return begun ? party.sql->finish() : do_it(party, statements, lock, row_step); });
    guard.lock();
    party.answer = std::move(answer);
    answered_.notify_all();
  }
}

Answer Stage::do_it(Party& party, const std::vector<std::string>& statements, const std::optional<LockStep>& lock,
                    const std::optional<RowStep>& row_step) {
  if (lock) return party.locks->execute(*lock);
  if (row_step) return party.rows->execute(*row_step);
  Answer answer;
  for (const std::string& sql : statements) {
    answer = party.sql->execute(sql);
    if (!answer.well()) break;
  }
  return answer;
}

// --- directing ------------------------------------------------------------------------------------------

void Stage::start(const std::string& session, const Line& line) {
  Party& to = party(session);
  std::vector<std::string> statements;
  if (!line.lock && !line.rows && !line.describes_rows) statements = in_dialect(engine_, line.text);
  since_ = Clock::now();
  // Most statements are answered at once. The director waits for that by itself, because two changes of thread take
  // about as long as the statement.
  bool begun = false;
  std::optional<Answer> answer;
  if (statements.size() == 1 && to.sql != nullptr && to.sql->can_begin()) {
    answer = guarded([&] { return to.sql->begin(statements.front(), first_look); });
    begun = true;
  }
  const std::lock_guard guard(mutex_);
  waited_ = begun;
  to.working = true;
  to.answer = std::move(answer);
  if (to.answer) return;
  to.begun = begun;
  to.statements = std::move(statements);
  to.lock = line.lock;
  to.row_step = line.rows;
  start_thread(to);
  to.given.notify_all();
}

bool Stage::at_work(const std::string& session) const {
  const std::lock_guard guard(mutex_);
  const auto found = parties_.find(session);
  return found != parties_.end() && found->second->working;
}

std::vector<std::string> Stage::working() const {
  std::vector<std::string> names;
  const std::lock_guard guard(mutex_);
  for (const auto& [name, party] : parties_) {
    if (party->working) names.push_back(name);
  }
  return names;
}

bool Stage::collect(Settled& settled) {
  const std::lock_guard guard(mutex_);
  bool any = false;
  for (const auto& [name, party] : parties_) {
    if (!party->answer) continue;
    settled.answers[name] = std::move(*party->answer);
    party->answer.reset();
    party->working = false;
    any = true;
  }
  if (any) since_ = Clock::now();
  return any;
}

View Stage::look() {
  View view;
  if (database_ != nullptr && script_.has_sql(engine_)) view = database_->look(since_);
  if (locks_ != nullptr) {
    View more = locks_->look();
    std::move(more.locks.begin(), more.locks.end(), std::back_inserter(view.locks));
    std::move(more.waits.begin(), more.waits.end(), std::back_inserter(view.waits));
  }
  since_ = Clock::now();
  return view;
}

bool Stage::await_look() {
  if (database_ == nullptr) return false;
  const Clock::time_point next = database_->next_look(since_);
  if (next <= Clock::now()) return false;
  std::unique_lock guard(mutex_);
  return answered_.wait_until(guard, ending_ ? std::stop_token() : options_.cancel, next, [&] {
    return std::any_of(parties_.begin(), parties_.end(), [](const auto& p) { return p.second->answer.has_value(); });
  });
}

Stage::Settled Stage::settle(const std::vector<std::string>& until, bool look_always) {
  Settled settled;
  const Clock::time_point end = Clock::now() + options_.patience;
  milliseconds pause = std::exchange(waited_, false) ? milliseconds(0) : first_look;
  for (;;) {
    {
      std::unique_lock guard(mutex_);
      const auto anything = [&] {
        return std::any_of(parties_.begin(), parties_.end(),
                           [](const auto& p) { return p.second->answer.has_value(); });
      };
      answered_.wait_for(guard, ending_ ? std::stop_token() : options_.cancel, pause, anything);
    }
    if (!ending_ && options_.cancel.stop_requested())
      throw Error(ErrorKind::cancelled, "playing the scenario was cancelled");
    if (collect(settled)) pause = first_look;  // something moved: others may, too
    std::vector<std::string> silent = working();
    if (silent.empty()) {
      if (look_always) settled.view = look();
      return settled;
    }
    if (await_look()) continue;
    settled.view = look();
    if (collect(settled)) continue;  // what was seen may be over
    const std::vector<std::string> cycle = find_cycle(settled.view);
    if (!cycle.empty() && settled.cycle.empty()) settled.cycle = cycle;
    const bool all_wait = std::all_of(silent.begin(), silent.end(), [&](const std::string& name) {
      return shown_to_wait(settled.view, name) && !contains(until, name);
    });
    // A circle is the engine's to break. If it does not, it is one of waits like any other.
    if (all_wait && cycle.empty()) return settled;
    if (Clock::now() >= end) {
      for (const std::string& name : silent) {
        if (!shown_to_wait(settled.view, name)) {
          settled.unknown.push_back(name);
        } else if (contains(until, name)) {
          settled.impatient.push_back(name);
        }
      }
      return settled;
    }
    pause = std::clamp(pause * 2, first_look, longest_pause);
  }
}

void Stage::retire(const std::string& session) {
  Party& who = party(session);
  if (who.locks != nullptr) who.locks->release_all();
  if (who.sql == nullptr) return;
  std::vector<std::string> statements{"rollback"};
  if (engine_ == "mysql" || engine_ == "mariadb") {
    statements.insert(statements.end(), {"unlock tables", "do release_all_locks()"});
  }
  if (engine_ == "postgres") statements.emplace_back("select pg_advisory_unlock_all()");
  try {
    for (const std::string& sql : statements) who.sql->execute(sql);
  } catch (const Error&) {  // it is gone: so is what it held
  }
  since_ = Clock::now();
}

}  // namespace hierlock::lab
