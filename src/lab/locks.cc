#include "lab/locks.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>

#include <hierlock/spi/url.h>

#include "lab/leftovers.h"

namespace hierlock::lab {

namespace {

std::string encoded(std::string_view value) {
  constexpr char digits[] = "0123456789ABCDEF";
  std::string text;
  for (const char c : value) {
    if (std::string_view("%&?# +").find(c) == std::string_view::npos) {
      text += c;
    } else {
      text += {'%', digits[(static_cast<unsigned char>(c) >> 4) & 15], digits[static_cast<unsigned char>(c) & 15]};
    }
  }
  return text;
}

// In the lab's schema; rows are made when they are needed; and what is held and waited for is told to others at once.
std::string at_server(const spi::Url& url) {
  const bool sql = url.scheme == "mysql";  // otherwise a table is a part of keys, and nothing has to be made
  std::string text = url.scheme + ":" + (sql ? url.rest.substr(0, url.rest.find('/', 2)) + "/hierlock_lab" : url.rest);
  char mark = '?';
  for (const auto& [name, value] : url.options) {
    if (name == "provision" || name == "publish_after" || (name == "table" && !sql)) continue;
    text += mark + name + "=" + encoded(value);
    mark = '&';
  }
  return text + mark + (sql ? "provision=lazy" : "table=hierlock_lab") + "&publish_after=0";
}

constexpr std::string_view table_begin = "hierlock-lab.";

std::string own_file(const spi::Url& url) {
  static std::atomic<unsigned> count{0};
  std::string folder = "/dev/shm/";
  if (url.rest.starts_with("///")) folder = url.rest.substr(2, url.rest.rfind('/') - 1);
  return folder + std::string(table_begin) + std::to_string(getpid()) + "." + std::to_string(count.fetch_add(1));
}

// Whether shared or not.
bool same_thing(const Target& a, const Target& b) {
  return a.space() == b.space() && a.depth() == b.depth() && a.key(a.depth() - 1) == b.key(b.depth() - 1);
}

}  // namespace

Answer answer_of(const Error& error) {
  Answer answer;
  switch (error.kind()) {
    case ErrorKind::deadlock:
      answer.kind = Answer::Kind::deadlock;
      break;
    case ErrorKind::timeout:
      answer.kind = Answer::Kind::timeout;
      break;
    case ErrorKind::busy:
      answer.kind = Answer::Kind::busy;
      break;
    case ErrorKind::serialization:
      answer.kind = Answer::Kind::serialization;
      break;
    default:
      answer.kind = Answer::Kind::error;
  }
  answer.code = to_string(error.kind());
  answer.message = error.what();
  for (const Error::Wait& wait : error.cycle()) answer.cycle.push_back(wait.owner);
  return answer;
}

// --- a session ------------------------------------------------------------------------------------------

Answer LockSession::execute(const LockStep& step) {
  try {
    const AcquireOptions options{
        .timeout = step.timeout, .cancel = cancel_.get_token(), .owner = &owner_, .note = name_};
    switch (step.kind) {
      case LockStep::Kind::acquire:
        held_.push_back({locker_->acquire(std::span<const Target>(step.targets), options), step.targets});
        break;
      case LockStep::Kind::extend:
        if (held_.empty()) throw Error(ErrorKind::invalid_argument, "there is no lock to extend");
        for (const Target& target : step.targets) {
          try {
            held_.back().lock.extend(target, options);
          } catch (const Error& error) {
            if (error.kind() == ErrorKind::deadlock) held_.pop_back();  // all of it was released
            throw;
          }
          held_.back().targets.push_back(target);
        }
        break;
      case LockStep::Kind::release:
        if (step.targets.empty()) held_.clear();
        for (const Target& target : step.targets) release(target);
        break;
    }
    return {};
  } catch (const Error& error) {
    return answer_of(error);
  }
}

void LockSession::release(const Target& target) {
  const auto found = std::find_if(held_.rbegin(), held_.rend(), [&](const Held& held) {
    return std::any_of(held.targets.begin(), held.targets.end(),
                       [&](const Target& t) { return same_thing(t, target); });
  });
  if (found == held_.rend()) {
    throw Error(ErrorKind::invalid_argument, name_ + " holds no lock on " + target.str());
  }
  held_.erase(std::next(found).base());
}

// --- the store ------------------------------------------------------------------------------------------

Locks::Locks(std::string_view text) {
  const spi::Url url = spi::Url::parse(text);
  if (url.scheme == "shm") {
    file_ = own_file(url);
    url_ = "shm://" + file_;
    remove_leftovers(std::filesystem::path(file_).parent_path(), table_begin);
  } else if (url.scheme == "memory") {
    url_ = text;
  } else {
    url_ = at_server(url);
  }
  observer_ = std::make_shared<Locker>(open(url_));
}

Locks::~Locks() {
  observer_.reset();
  if (!file_.empty()) unlink(file_.c_str());
}

void Locks::check(const LockStep& step) const {
  const Capabilities can = observer_->capabilities();
  const auto need = [&](bool has, const std::string& what) {
    if (!has) throw Error(ErrorKind::unsupported, "this store has no " + what + " (yet)");
  };
  need(step.kind != LockStep::Kind::extend || can.extends, "extend");
  for (const Target& target : step.targets) {
    need(target.space() != Space::name || can.names, "names");
    need(target.space() != Space::slots || can.slots, "slots");
    need(target.space() != Space::name || !target.is_shared() || can.shared_names, "shared names");
  }
}

std::unique_ptr<LockSession> Locks::session(const std::string& name) {
  // Where processes share the table, each session comes as one of its own would: through a Locker of its own.
  const bool together = !observer_->capabilities().across_processes;
  return std::make_unique<LockSession>(together ? observer_ : std::make_shared<Locker>(open(url_)), name);
}

View Locks::look() const {
  const Snapshot snapshot = observer_->snapshot();
  std::map<std::uint64_t, std::string> names;
  const auto name = [&](const Snapshot::Party& who) { return who.note.empty() ? who.owner_name : who.note; };
  for (const Snapshot::Holder& holder : snapshot.holders) names.emplace(holder.who.owner, name(holder.who));
  for (const Snapshot::Waiter& waiter : snapshot.waiters) names.emplace(waiter.who.owner, name(waiter.who));
  View view;
  for (const Snapshot::Holder& holder : snapshot.holders) {
    view.locks.push_back({name(holder.who), holder.target, std::string(to_string(holder.mode)), true});
  }
  for (const Snapshot::Waiter& waiter : snapshot.waiters) {
    view.locks.push_back({name(waiter.who), waiter.target, std::string(to_string(waiter.mode)), false});
    WaitSeen wait{name(waiter.who), {}, waiter.target};
    for (const std::uint64_t owner : waiter.blocked_by) {
      const auto known = names.find(owner);
      std::string blocker = known != names.end() ? known->second : "outsider " + std::to_string(owner);
      if (std::find(wait.blockers.begin(), wait.blockers.end(), blocker) == wait.blockers.end()) {
        wait.blockers.push_back(std::move(blocker));
      }
    }
    // For a moment nobody is in the way: it is free to go, and has not run yet.
    if (!wait.blockers.empty()) view.waits.push_back(std::move(wait));
  }
  return view;
}

}  // namespace hierlock::lab
