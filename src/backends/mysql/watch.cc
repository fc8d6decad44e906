#include "mysql/watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "mysql_client/error_codes.h"

namespace hierlock::mysql {

namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr nanoseconds heartbeat_after = seconds(3);
constexpr milliseconds look_interval{100}, idle_interval{500};
constexpr seconds idle_kept{60};
constexpr seconds say_alive_interval{3}, look_at_server_interval{3};
// A primary that becomes a replica goes on locking rows, but they exclude nobody on the new primary any more.
constexpr std::string_view heartbeat = "SELECT CONNECTION_ID(), @@global.read_only",
                           fit_for_locks = "SELECT @@global.read_only";
// What is written down is less urgent than heartbeats, which the same thread sends: it may not hold them up for long,
// nor often. And at the end nobody waits for it longer than a second (B6).
constexpr seconds side_time{2}, side_pause{3};
constexpr milliseconds side_time_at_end{700}, shortest_end{100};
// Nor may it hold up a lock that was granted, or is released, for long.
constexpr milliseconds changed_time{200};
// What only may be a cycle, because the server does not show us who waits for whom, must have lasted for so long, and
// have been seen so often.
constexpr seconds may_be_cycle_for{3};
constexpr int may_be_cycle_looks = 4;
constexpr milliseconds ask_server_interval{750};

bool is_off(const std::optional<std::string>& value) { return value == "0" || value == "OFF"; }

// Of this Locker and no other, anywhere.
std::string process_name() {
  static std::atomic<unsigned> lockers{0};
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return host_name().substr(0, 100) + ":" + std::to_string(getpid()) + ":" + std::to_string(now.tv_sec) + "." +
         std::to_string(now.tv_nsec) + "." + std::to_string(lockers.fetch_add(1)) + ":";
}

}  // namespace

Watch::Watch(const Options& options, Sessions& sessions, Pool& pool, Fences& fences, spi::Backend& queue)
    : options_(options),
      sessions_(sessions),
      pool_(pool),
      fences_(fences),
      queue_(queue),
      process_(process_name()),
      host_(host_name()),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (wake_ < 0) throw Error(ErrorKind::exhausted, "no more file descriptors");
}

Watch::~Watch() {
  end(Clock::now() + side_time_at_end);
  if (thread_.joinable()) thread_.join();  // it took longer
  close(wake_);
}

void Watch::end(Clock::time_point by) noexcept {
  std::unique_lock guard(starting_);
  if (!runs_) return;
  ending_.set(std::min(ending_.get(), by));
  thread_.request_stop();
  wake();
  const bool ended = ended_.wait_until(guard, std::max(by, Clock::now() + shortest_end), [this] { return !runs_; });
  if (ended && thread_.joinable()) thread_.join();  // it has nothing more to do
}

void Watch::start() {
  const std::lock_guard guard(starting_);
  if (thread_.joinable()) return;
  try {
    thread_ = std::jthread([this](const std::stop_token& end) { run(end); });
    runs_ = true;
  } catch (const std::system_error& error) {
    throw Error(ErrorKind::exhausted, std::string("no thread can be made to look after locks: ") + error.what());
  }
}

void Watch::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof one);
}

void Watch::run(const std::stop_token& end) {
  while (!end.stop_requested()) {
    try {
      look_after(end);
    } catch (...) {  // no memory: once more
      std::this_thread::sleep_for(look_interval);
    }
  }
  for (Heartbeat& beat : beating_) beat.of->connection->give_up();
  beating_.clear();
  {
    const std::lock_guard guard(book_);
    if (!written_.empty()) write({forget(options_.layout.who_table(), written_)}, Clock::now() + side_time);
  }
  pool_.close(ending_.get());
  const std::lock_guard guard(starting_);
  runs_ = false;
  ended_.notify_all();
}

void Watch::look_after(const std::stop_token& end) {
  Clock::time_point side_again{};
  while (!end.stop_requested()) {
    AllHeld all = sessions_.all_held();
    std::erase_if(all, [](const auto& held) { return held->gone.load(); });
    listen(all);
    if (end.stop_requested()) return;
    begin_heartbeats(all);
    end_heartbeats();
    tend_idle();
    tell_again();
    if (Clock::now() < side_again) continue;
    for (const auto step : {&Watch::keep_the_book_in_turn, &Watch::clear_old, &Watch::look_for_cycles,
                            &Watch::raise_floor, &Watch::look_at_server}) {
      if (end.stop_requested()) return;
      (this->*step)();
      if (!side_failed_.exchange(false)) continue;
      side_again = Clock::now() + side_pause;
      break;
    }
  }
}

// --- what is held -----------------------------------------------------------------------------------------

void Watch::declare_lost(Held& held) {
  held.gone = true;
  std::stop_source lost{std::nostopstate};
  {
    const std::lock_guard guard(sessions_.mutex);
    lost = held.lost;
  }
  if (!lost.stop_possible() || lost.stop_requested()) return;  // nobody wants to know, or knows already
  // The callbacks are somebody else's, who may release the lock in them, or take long. So they have a thread of their
  // own, and this one goes on looking after the other locks.
  try {
    std::thread([lost]() mutable { lost.request_stop(); }).detach();
  } catch (...) {  // there is none to be had: later
    const std::lock_guard guard(sessions_.mutex);
    untold_.push_back(held.shared_from_this());
  }
}

void Watch::tell_again() {
  AllHeld untold;
  {
    const std::lock_guard guard(sessions_.mutex);
    untold.swap(untold_);
  }
  for (const auto& held : untold) declare_lost(*held);
}

// Deadline something happens, for a while at most.
void Watch::listen(const AllHeld& all) {
  std::vector<pollfd> fds{{wake_, POLLIN, 0}};
  for (const auto& held : all) fds.push_back({held->socket, POLLRDHUP, 0});
  for (const Heartbeat& beat : beating_) fds.push_back({beat.of->socket, POLLIN, 0});
  const bool busy = fds.size() > 1 || !sessions_.all_pending().empty() || anything_written_.load();
  poll(fds.data(), fds.size(), static_cast<int>((busy ? look_interval : idle_interval).count()));
  std::uint64_t woken = 0;
  if ((fds[0].revents & POLLIN) != 0) {
    [[maybe_unused]] const ssize_t read = ::read(wake_, &woken, sizeof woken);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool hung_up = (fds[i + 1].revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
    // A socket that was closed by a release means nothing.
    if ((hung_up || !all[i]->surely()) && sessions_.has(*all[i])) declare_lost(*all[i]);
  }
}

void Watch::begin_heartbeats(const AllHeld& all) {
  for (const auto& held : all) {
    if (held->gone.load() || now_with_suspend() - held->confirmed.load() < heartbeat_after.count()) continue;
    std::unique_lock talking(held->talking, std::try_to_lock);
    if (!talking || held->connection == nullptr) continue;  // being released or extended, or beating already
    beating_.reserve(beating_.size() + 1);                  // nothing fails between the question and the note of it
    const std::int64_t sent = now_with_suspend();
    held->connection->begin(heartbeat);
    beating_.push_back({held, std::move(talking), sent});
  }
}

void Watch::end_heartbeats() {
  std::erase_if(beating_, [this](Heartbeat& beat) {
    Held& held = *beat.of;
    if (!held.connection->go_on()) {
      if (sessions_.has(held) && held.surely()) return false;
      held.connection->give_up();
    } else {
      const Reply reply = held.connection->reply();
      if (reply.well() && !reply.rows.empty() && reply.rows[0].at(0) == std::to_string(held.session) &&
          is_off(reply.rows[0].at(1))) {
        held.confirmed = beat.sent;
      } else {
        held.connection->give_up();
      }
    }
    if (held.connection->broken() && sessions_.has(held)) declare_lost(held);
    if (!sessions_.has(held)) {  // released meanwhile, by somebody who may not have waited for us
      held.connection->give_up();
      pool_.put_back(std::move(held.connection), held.owner);
    }
    beat.talking.unlock();  // before another takes its place here, and with `of` the mutex may go
    return true;
  });
}

// Connections of nobody are kept for a while, and the server must not find them silent meanwhile. All are asked before
// the first is listened to, and have one time limit together: heartbeats wait for this.
void Watch::tend_idle() {
  std::vector<Pool::Idle> quiet = pool_.take_quiet(std::chrono::duration_cast<Clock::duration>(heartbeat_after));
  const Clock::time_point now = Clock::now();
  const auto kept = [&](const Pool::Idle& idle) { return now - idle.used < idle_kept; };
  for (Pool::Idle& idle : quiet) {
    if (kept(idle)) idle.connection->begin(fit_for_locks);
  }
  Deadline soon(milliseconds(500), &ending_);
  for (Pool::Idle& idle : quiet) {
    if (kept(idle)) {
      const Reply reply = idle.connection->end(soon);
      if (reply.well() && is_off(reply.rows.at(0).at(0))) {
        idle.spoken = now;
        pool_.put_idle(std::move(idle));
        continue;
      }
    }
    idle.connection.reset();
    pool_.drop_idle();
  }
}

// Idle connections and those of locks that last are asked one by one. One that is used all the time never is: for it
// the side connection, which is to the same server. And a lock on another server than the newest connection's is lost:
// the primary is elsewhere now.
void Watch::look_at_server() {
  const std::string server = pool_.server();
  for (const auto& held : sessions_.all_held()) {
    if (!held->gone.load() && held->server != server) declare_lost(*held);
  }
  const Clock::time_point now = Clock::now();
  if (now - looked_at_server_ < look_at_server_interval || !pool_.used_since(looked_at_server_)) return;
  looked_at_server_ = now;
  aside([&](Connection& side, WaitLimit& soon) {
    const Reply reply = side.query(fit_for_locks, soon);
    if (!reply.well()) return false;
    if (is_off(reply.rows.at(0).at(0))) return true;
    pool_.distrust();
    for (const auto& held : sessions_.all_held()) {
      if (held->server == side.identity()) declare_lost(*held);
    }
    return true;
  });
}

// --- who holds and waits ----------------------------------------------------------------------------------

bool Watch::aside(const std::function<bool(Connection&, WaitLimit&)>& use) {
  return aside(use, Clock::now() + side_time);
}

bool Watch::aside(const std::function<bool(Connection&, WaitLimit&)>& use, Clock::time_point end) {
  Deadline soon(end, &ending_);
  const bool done = pool_.on_the_side([&](Connection& side) { return use(side, soon); }, soon);
  if (!done) side_failed_ = true;
  return done;
}

bool Watch::write(const std::vector<std::string>& statements, Clock::time_point end, std::uint64_t* last_changed) {
  bool done = false;
  aside(
      [&](Connection& side, WaitLimit& soon) {
        // No table, no right to write there, …: locks do not depend on it. What cannot be written leaves the rest as it
        // is; but where two fail, one after the other, more will.
        bool all = true, failed = false;
        for (const std::string& sql : statements) {
          const Reply reply = side.query(sql, soon);
          if (!reply.well() && (failed || reply.code == codes::deadlock || side.broken())) {
            side.query("ROLLBACK", soon);
            return !side.broken();
          }
          failed = !reply.well();
          all = all && !failed;
          if (last_changed != nullptr) *last_changed = reply.changed;
        }
        const bool committed = side.query("COMMIT", soon).well();
        done = all && committed;
        return committed;
      },
      end);
  return done;
}

std::vector<Entry> Watch::own(bool queued) const {
  std::vector<Entry> entries;
  std::map<std::uint64_t, const Snapshot::Party*> parties;
  const Snapshot local = queue_.snapshot();
  for (const Snapshot::Holder& holder : local.holders) parties.emplace(holder.lock, &holder.who);
  const auto all_pending = sessions_.all_pending();
  // Whom somebody waits for in the queue, and for whom those do.
  const auto behind = [&](const Pending& waiter) {
    std::set<std::uint64_t> owners{waiter.queue_owner};
    for (bool more = true; std::exchange(more, false);) {
      for (const Snapshot::Waiter& w : local.waiters) {
        if (!owners.contains(w.who.owner)) continue;
        for (const std::uint64_t one : w.blocked_by) more = owners.insert(one).second || more;
      }
    }
    std::vector<std::uint64_t> at_server;
    for (const auto& p : all_pending) {
      const auto party = parties.find(p->local.id);
      if ((p->session & in_queue) != 0 || party == parties.end()) continue;
      if (party->second->owner != waiter.queue_owner && owners.contains(party->second->owner)) {
        at_server.push_back(p->session);
      }
    }
    return at_server;
  };
  const auto add = [&](std::uint64_t session, std::uint64_t owner, const spi::Grant& grant, std::int64_t fence,
                       const std::vector<Node>& nodes, Clock::time_point since, bool waits,
                       const std::string& name = {}) {
    const auto party = parties.find(grant.id);
    Entry entry;
    entry.session = session;
    entry.owner = process_ + std::to_string(owner);
    entry.host = host_;
    if (party != parties.end()) {
      entry.owner_name = party->second->owner_name;
      entry.command = party->second->program;
      entry.note = party->second->note;
      entry.process = party->second->process;
    } else {
      entry.owner_name = name;
      entry.process = getpid();
    }
    entry.fence = fence;
    entry.age = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - since);
    entry.waits = waits;
    entry.nodes = nodes;
    entries.push_back(std::move(entry));
  };
  for (const auto& held : sessions_.all_held()) {
    const std::lock_guard guard(sessions_.mutex);
    if (!held->gone.load())
      add(held->session, held->owner, held->local, held->fence, held->nodes.read(), held->since, false);
  }
  for (const auto& p : all_pending) {
    const bool in_the_queue = (p->session & in_queue) != 0;
    if (in_the_queue && !queued) continue;
    add(p->session, p->owner, p->local, 0, p->nodes, p->since, true, p->owner_name);
    if (in_the_queue) entries.back().behind = behind(*p);
  }
  return entries;
}

std::vector<Entry> Watch::others() {
  std::vector<Entry> entries = published();
  std::erase_if(entries, [this](const Entry& entry) { return entry.owner.starts_with(process_); });
  return entries;
}

std::vector<Entry> Watch::published() {
  std::vector<Entry> entries;
  aside([&](Connection& side, WaitLimit& soon) { return read_published(side, soon, entries); });
  return entries;
}

bool Watch::read_published(Connection& side, WaitLimit& soon, std::vector<Entry>& entries) const {
  const Reply reply = side.query(read_all(options_.layout.who_table()), soon);
  side.query("COMMIT", soon);
  if (reply.well()) entries = read_entries(reply);
  return !side.broken();
}

std::string Watch::who_is_in_the_way(std::uint64_t session, Clock::time_point end) {
  std::vector<Entry> all;
  Deadline soon(end);
  pool_.on_the_side([&](Connection& side) { return read_published(side, soon, all); }, soon);
  std::erase_if(all, [this](const Entry& entry) { return entry.owner.starts_with(process_); });
  for (Entry& mine : own()) all.push_back(std::move(mine));
  const auto waiter = std::find_if(all.begin(), all.end(), [&](const Entry& entry) {
    return entry.waits && entry.session == session && entry.owner.starts_with(process_);
  });
  if (waiter == all.end()) return {};
  std::string words;
  for (const Entry* other : in_the_way(*waiter, all)) {
    words += (words.empty() ? "" : ", ") + other->owner_name + " of process " + std::to_string(other->process) +
             " on " + other->host + (other->note.empty() ? "" : " (" + other->note + ")") + ", at " +
             conflict(*waiter, *other)->text;
  }
  return words;
}

void Watch::changed(std::optional<Clock::time_point> end) noexcept {
  if (options_.publish_after != options_.publish_after.zero()) return;
  const Clock::time_point now = Clock::now(), usual = now + changed_time;
  if (now < at_once_again_.load()) return wake();
  try {
    keep_the_book(end ? std::min(*end, usual) : usual);
  } catch (...) {  // no memory
    wake();
  }
  if (Clock::now() < usual) return;
  // Whoever gives up leaves a session behind that waits at the server. So not everybody tries; but the thread may,
  // which has more time.
  at_once_again_ = Clock::now() + side_pause;
  side_failed_ = false;
  wake();
}

void Watch::keep_the_book_in_turn() { keep_the_book(Clock::now() + side_time); }

void Watch::keep_the_book(Clock::time_point end) {
  std::unique_lock guard(book_, std::defer_lock);
  if (!guard.try_lock_until(end)) return wake();
  const Clock::time_point now = Clock::now();
  const auto old = [&](const auto& one) { return now - one->since >= options_.publish_after; };
  const auto held = sessions_.all_held();
  const auto pending = sessions_.all_pending();
  if (written_.empty() && std::none_of(held.begin(), held.end(), old) &&
      std::none_of(pending.begin(), pending.end(), old)) {
    return;
  }
  std::vector<Entry> entries = own(true);
  std::vector<std::string> waiting;
  const auto lasts = [&](const Entry& entry) { return entry.age >= options_.publish_after; };
  for (const Entry& entry : entries) {
    if (entry.waits && lasts(entry)) waiting.push_back(entry.owner);
  }
  std::erase_if(entries, [&](const Entry& entry) {
    return !lasts(entry) && std::find(waiting.begin(), waiting.end(), entry.owner) == waiting.end();
  });
  const std::string table = options_.layout.who_table();
  std::vector<std::uint64_t> over = written_, ids;
  std::vector<std::pair<std::uint64_t, std::string>> news;
  std::vector<std::string> statements;
  for (const Entry& entry : entries) {
    std::erase(over, entry.id());
    ids.push_back(entry.id());
    // The same session may be somebody else's by now, or hold more.
    std::string what = (entry.waits ? "waits " : "holds ") + std::to_string(entry.fence) + " " + entry.owner + " " +
                       std::to_string(entry.nodes.size());
    for (const std::uint64_t session : entry.behind) what += " " + std::to_string(session);
    if (const auto known = known_.find(entry.id()); known != known_.end() && known->second == what) continue;
    news.emplace_back(entry.id(), std::move(what));
    statements.push_back(publish(table, entry));
  }
  if (!over.empty()) statements.push_back(forget(table, over));
  const bool say_alive = !ids.empty() && now - said_alive_ >= say_alive_interval;
  if (say_alive) {
    said_alive_ = now;
    statements.push_back(still_alive(table, ids));
  }
  std::uint64_t alive = 0;
  if (statements.empty() || write(statements, end, &alive)) {
    const bool all_there = !say_alive || alive == ids.size();
    written_ = std::move(ids);
    for (const std::uint64_t id : over) known_.erase(id);
    for (auto& [id, what] : news) known_[id] = std::move(what);
    if (!all_there) known_.clear();  // somebody has emptied the table
  } else {
    known_.clear();  // all of it again, next time
    for (const std::uint64_t id : ids) {
      if (std::find(written_.begin(), written_.end(), id) == written_.end()) written_.push_back(id);
    }
  }
  anything_written_ = !written_.empty();
}

// What a process left behind that was killed.
void Watch::clear_old() {
  if (!anything_written_.load() || Clock::now() - looked_for_old_ < seconds(60)) return;
  looked_for_old_ = Clock::now();
  aside([&](Connection& side, WaitLimit& soon) {
    const Reply old = side.query(find_old(options_.layout.who_table()), soon);
    std::vector<std::uint64_t> ids;
    for (const auto& row : old.rows) ids.push_back(std::strtoull(row.at(0).value_or("0").c_str(), nullptr, 10));
    if (!ids.empty()) side.query(forget(options_.layout.who_table(), ids), soon);
    side.query("COMMIT", soon);
    return !side.broken();
  });
}

void Watch::raise_floor() {
  if (!fences_.due()) return;
  aside([&](Connection& side, WaitLimit& soon) { return fences_.raise(side, soon).well(); });
}

// Who waits for whom at the server; none: it was not asked, and will be. In a transaction, for MariaDB.
std::optional<View> Watch::waits_at_server() {
  View view;
  if (!options_.views) return view;
  const bool asked = aside([&](Connection& side, WaitLimit& soon) {
    side.query("SELECT 1 FROM `" + options_.layout.settings_table() + "`", soon);
    view = look(side, options_, soon);
    side.query("COMMIT", soon);
    return !side.broken();
  });
  if (!asked) return std::nullopt;
  return view;
}

// What surely is a cycle, by who.h, and is seen twice, is one: once, it may be something that is written down still and
// over already. For longer, if whoever has to take it out is stopped, or cannot: so the server is asked, too, about
// this as about what only may be a cycle. Both are rare. All members see the same, so all choose the same victim:
// therefore our own entries are looked at as they are written down, too, with the age that they have there. (It is a
// little less than the true one, by the time that writing took.)
void Watch::look_for_cycles() {
  const Clock::time_point now = Clock::now();
  if (now - looked_for_cycles_ < options_.publish_after / 4) return;
  std::vector<std::shared_ptr<Pending>> waiting = sessions_.all_pending();
  std::erase_if(waiting, [&](const auto& p) { return now - p->since < options_.publish_after || p->victim.load(); });
  if (waiting.empty()) return;
  looked_for_cycles_ = now;
  std::vector<Entry> mine_now = own(true);
  const bool holds = std::any_of(mine_now.begin(), mine_now.end(), [](const Entry& entry) { return !entry.waits; });
  if (!holds) return;  // whoever holds no lock is no victim
  std::vector<Entry> all = published();
  const auto in = [](const std::vector<Entry>& entries, const Entry& one) {
    return std::any_of(entries.begin(), entries.end(),
                       [&](const Entry& e) { return e.id() == one.id() && e.owner == one.owner; });
  };
  std::erase_if(all, [&](const Entry& e) { return e.owner.starts_with(process_) && !in(mine_now, e); });
  for (Entry& entry : mine_now) {
    if (!in(all, entry)) all.push_back(std::move(entry));
  }
  std::optional<View> view;
  bool suspects = false;
  for (const auto& pending : waiting) {
    const auto mine = std::find_if(all.begin(), all.end(), [&](const Entry& entry) {
      return entry.waits && entry.session == pending->session && entry.owner.starts_with(process_);
    });
    std::optional<Cycle> cycle = mine == all.end() ? std::nullopt : find_cycle(*mine, all);
    if (cycle) {
      if (!view && (cycle->surely || now >= ask_server_again_)) view = waits_at_server();
      cycle = view ? find_cycle(*mine, all, &*view) : std::nullopt;
    }
    Pending::Suspicion& suspicion = pending->suspicion;
    if (!cycle || cycle->victim != &*mine) {
      suspicion = {};
      continue;
    }
    suspects = true;
    const std::string key = cycle->key();
    if (suspicion.key != key || cycle->age() < now - suspicion.since) suspicion = {key, now, 0};
    ++suspicion.looks;
    const bool lasts = suspicion.looks >= may_be_cycle_looks && now - suspicion.since >= may_be_cycle_for;
    if (cycle->surely ? suspicion.looks >= 2 : lasts) pending->choose(cycle->text());
  }
  if (view && !suspects) ask_server_again_ = now + ask_server_interval;  // it is not asked for nothing all the time
}

}  // namespace hierlock::mysql
