#include "remote/notice_board.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <set>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "remote/queue_graph.h"

namespace hierlock::remote {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds look_interval{100}, idle_interval{500}, shortest_end{100};
// A wait that may be part of a deadlock is published, and looked at, after so long (B11).
constexpr milliseconds suspect_after{20};
// Any other wait at the store is published after so long. Its owner holds nothing, but a request that is compatible
// with all holders may stand behind it in the store's queue, and its owner may hold a lock.
constexpr milliseconds in_the_way_after{60};
constexpr seconds say_alive_interval{3}, remove_old_interval{60};
constexpr seconds longest_publish{2};
// After the first failure, and after many in a row. Meanwhile no deadlock is found.
constexpr milliseconds first_pause_after_failure{200}, pause_after_failure{3'000};
// Publishing may not hold up a lock that was granted, or is released, for long.
constexpr milliseconds longest_publish_at_once{200};
// While such a wait lasts, looks are so far apart: more and more, until something changes.
constexpr milliseconds first_pause{20}, longest_pause{250};
// The store's view costs the server more than reading notices. It is asked so often at most; for one wait less and less
// often, as long as it confirms no cycle.
constexpr milliseconds first_view_pause{40}, longest_view_pause{640};
// Only the process of the victim asks for the view at first. The cycle that the view shows may be another one, with
// another victim. So the others ask, too, if the cycle still lasts after so long.
constexpr milliseconds others_ask_after{300};
// A cycle must have lasted for so long after it was first seen. Some member may be a notice whose process has not come
// to remove it. The store's view shows who really waits there. It does not show queues of other processes, nor who
// waits for a name: these may have given up, which their process takes back at once.
constexpr milliseconds seen_by_store{20}, seen_in_queues{120};
constexpr milliseconds seen_in_notices{250}, seen_in_noticed_queues{400};
// If the store does not show who waits for whom, what only may be a cycle must last for so long, and be seen so often.
constexpr seconds may_be_cycle_for{3};
constexpr int may_be_cycle_looks = 4;
// So many locks of names are published for `status`. One Locker may hold ten thousands of them, and each is a row at
// the store. What an owner holds that waits is published in any case.
constexpr std::size_t most_names_published = 200;
// So many waits whose owners hold nothing are published for `status`, in the local queue and for names at the store:
// the first of both, and a count.
constexpr std::size_t most_idle_waits_published = 64;
// With publish_after=0: if more is held, publishing takes too long for each acquire to wait for it.
constexpr std::size_t most_held_at_once = 300;
// A request lets the same wait pass so often at most. If that wait stands behind it again and again, it does not help,
// and there must be a victim.
constexpr int most_passes = 5;

// The name of this Locker, unique anywhere.
std::string process_name() {
  static std::atomic<unsigned> lockers{0};
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return host_name().substr(0, 100) + ":" + std::to_string(getpid()) + ":" + std::to_string(now.tv_sec) + "." +
         std::to_string(now.tv_nsec) + "." + std::to_string(lockers.fetch_add(1)) + ":";
}

std::uint64_t session_of(std::uint64_t id) { return id / 2 & ~in_queue; }  // Notice::id()

bool queued(const Pending& pending) { return (pending.session & in_queue) != 0; }

}  // namespace

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

NoticeBoard::NoticeBoard(Driver& driver, Locks& locks, embedded::Queue& queue, milliseconds publish_after)
    : driver_(driver),
      locks_(locks),
      queue_(queue),
      publish_after_(publish_after),
      names_are_shared_(driver.capabilities().shared_names),
      process_(process_name()),
      host_(host_name()) {}

NoticeBoard::~NoticeBoard() {
  end(Clock::now());
  if (thread_.joinable()) thread_.join();
}

// --- the thread ------------------------------------------------------------------------------------------

void NoticeBoard::start() {
  const std::lock_guard guard(mutex_);
  if (thread_.joinable()) return;
  try {
    thread_ = std::jthread([this](const std::stop_token& end) { run(end); });
    runs_ = true;
  } catch (const std::system_error& error) {
    throw Error(ErrorKind::exhausted, std::string("no thread can be made to publish notices: ") + error.what());
  }
}

void NoticeBoard::wake() noexcept {
  {
    const std::lock_guard guard(mutex_);
    wake_ = true;
  }
  woken_.notify_one();
}

void NoticeBoard::expect(bool may_block) noexcept {
  const milliseconds after = may_block ? suspect_after : in_the_way_after;
  const Clock::time_point soon = Clock::now() + std::min(after, publish_after_);
  const std::lock_guard guard(mutex_);
  if (may_block) pause_ = first_pause;
  if (due_ <= soon) return;
  due_ = soon;
  woken_.notify_one();
}

bool NoticeBoard::stands(std::uint64_t session) const noexcept {
  const std::lock_guard guard(standing_mutex_);
  return standing_.contains(session);
}

void NoticeBoard::end(Clock::time_point by) noexcept {
  std::unique_lock guard(mutex_);
  if (!runs_) return;
  ending_.set(std::min(ending_.get(), by));
  thread_.request_stop();
  wake_ = true;
  woken_.notify_one();
  const bool ended = ended_.wait_until(guard, std::max(by, Clock::now() + shortest_end), [this] { return !runs_; });
  if (ended && thread_.joinable()) thread_.join();  // it has nothing more to do
}

void NoticeBoard::rest() {
  const bool busy = anything_written_.load() || !locks_.empty() || !locks_.all_pending().empty();
  const Clock::time_point until = Clock::now() + (busy ? look_interval : idle_interval);
  std::unique_lock guard(mutex_);
  while (!wake_ && Clock::now() < std::min(until, due_)) woken_.wait_until(guard, std::min(until, due_));
  wake_ = false;
  if (Clock::now() >= due_) due_ = Clock::time_point::max();
}

void NoticeBoard::run(const std::stop_token& end) {
  Clock::time_point again{}, tended{};
  milliseconds pause = first_pause_after_failure;
  while (!end.stop_requested()) {
    try {
      rest();
      if (end.stop_requested()) break;
      const bool tends = Clock::now() - tended >= look_interval;
      if (tends) {
        tended = Clock::now();
        let_pass();
        Deadline limit = soon();
        driver_.housekeep(limit);  // also while notices cannot be written: the store may refuse all writes by now
      }
      driver_.notices_changed();  // one that cannot be removed does not keep its session for ever
      if (Clock::now() < again) continue;
      failed_ = false;
      publish(Clock::now() + longest_publish);
      if (!failed_ && !end.stop_requested()) remove_old();
      if (!failed_ && !end.stop_requested()) find_deadlocks();
      if (failed_.exchange(false)) {
        again = Clock::now() + pause;
        pause = std::min(2 * pause, pause_after_failure);
      } else {
        pause = first_pause_after_failure;
      }
    } catch (...) {  // no memory: once more
    }
  }
  try {
    const std::lock_guard guard(publishing_);
    std::vector<std::uint64_t> ids;
    for (const auto& [id, what] : written_) ids.push_back(id);
    Deadline limit = soon();
    if (!ids.empty()) driver_.notices().remove(ids, limit);
  } catch (...) {  // no memory: other processes remove them some time
  }
  const std::lock_guard guard(mutex_);
  runs_ = false;
  ended_.notify_all();
}

// An owner that holds a lock may wait in the local queue for a request that stands in line for a session. Its own
// session may be the one that the line waits for. So such requests let others pass.
void NoticeBoard::let_pass() {
  const std::vector<Driver::InLine> in_line = driver_.in_line();
  if (in_line.empty()) return;
  std::vector<std::uint64_t> from;
  for (const auto& pending : locks_.all_pending()) {
    if (queued(*pending)) from.push_back(pending->queue_owner);
  }
  if (from.empty()) return;
  std::unordered_map<std::uint64_t, std::uint64_t> owners;  // by lock of the local queue
  for (const Snapshot::Holder& holder : queue_.holders().holders) owners.emplace(holder.lock, holder.who.owner);
  std::vector<std::uint64_t> to;
  for (const Driver::InLine& one : in_line) {
    const auto owner = owners.find(one.place);
    to.push_back(owner == owners.end() ? 0 : owner->second);
  }
  const std::vector<bool> waited_for = QueueGraph(queue_.waits()).waited_for(from, to);
  std::unordered_set<std::uint64_t> places;
  for (std::size_t i = 0; i < in_line.size(); ++i) {
    if (waited_for[i]) places.insert(in_line[i].place);
  }
  if (!places.empty()) driver_.let_pass(places);
}

// --- what this Locker has --------------------------------------------------------------------------------

// By wait in the local queue: the sessions of the requests at the store that it stands behind, directly or through
// others. `owners`: by lock of the local queue, its owner's number there.
std::vector<std::vector<std::uint64_t>> NoticeBoard::behind(
    const std::vector<std::shared_ptr<Pending>>& waits, const std::vector<std::shared_ptr<Pending>>& at_store,
    const std::map<std::uint64_t, std::uint64_t>& owners) const {
  std::vector<std::uint64_t> from, to;
  for (const auto& wait : waits) from.push_back(wait->queue_owner);
  for (const auto& pending : at_store) {
    const auto found = owners.find(pending->local.id);
    to.push_back(found == owners.end() ? 0 : found->second);
  }
  std::vector<std::vector<std::uint64_t>> result;
  for (const std::vector<std::size_t>& reached : QueueGraph(queue_.waits()).reached(from, to)) {
    std::vector<std::uint64_t>& sessions = result.emplace_back();
    for (const std::size_t i : reached) sessions.push_back(at_store[i]->session);
    std::sort(sessions.begin(), sessions.end());
  }
  return result;
}

std::vector<Notice> NoticeBoard::own(bool with_queue) const {
  std::vector<std::shared_ptr<Pending>> at_store = locks_.all_pending(), in_the_queue;
  const auto first_queued = std::partition(at_store.begin(), at_store.end(), [](const auto& p) { return !queued(*p); });
  in_the_queue.assign(first_queued, at_store.end());
  at_store.erase(first_queued, at_store.end());
  // Nobody waits for an owner that has released its last lock. And `status` takes a wait in the queue of a process for
  // over if the store shows none of its owner's locks. Others that wait for long are only shown.
  std::vector<std::shared_ptr<Pending>> shown;
  std::erase_if(in_the_queue, [&](const auto& p) {
    if (locks_.any_of(p->owner)) return false;
    if (!p->may_block) shown.push_back(p);
    return true;
  });

  const Snapshot local = queue_.holders();
  std::map<std::uint64_t, const Snapshot::Party*> parties;  // by lock of the local queue
  std::map<std::uint64_t, std::uint64_t> owners;
  for (const Snapshot::Holder& holder : local.holders) {
    parties.emplace(holder.lock, &holder.who);
    owners.emplace(holder.lock, holder.who.owner);
  }
  std::vector<Notice> notices;
  const auto add = [&](std::uint64_t session, std::uint64_t owner, const spi::Grant& grant, std::vector<Node> nodes,
                       Clock::time_point since) -> Notice& {
    const auto party = parties.find(grant.id);
    Notice& notice = notices.emplace_back();
    notice.session = session;
    notice.owner = owner_of(owner);
    notice.host = host_;
    notice.process = getpid();
    if (party != parties.end()) {
      notice.owner_name = party->second->owner_name;
      notice.program = party->second->program;
      notice.note = party->second->note;
      notice.process = party->second->process;
    }
    notice.age = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - since);
    notice.began = since.time_since_epoch().count();
    notice.nodes = std::move(nodes);
    return notice;
  };
  const CellOf cell_of = [this](auto space, auto level, auto key, auto mode) {
    return driver_.cell_of(space, level, key, mode);
  };
  for (const auto& held : locks_.all_held()) {
    const std::lock_guard guard(locks_.mutex);
    std::vector<Node> nodes;
    if (!held->hold->gone()) {
      nodes = held->nodes.read(cell_of);
    } else {  // others may wait for what the store still keeps of it
      for (const Node& node : held->nodes.read(cell_of)) {
        if (held->hold->keeps(node.cell)) nodes.push_back(node);
      }
      if (nodes.empty()) continue;
    }
    Notice& notice = add(held->hold->session(), held->owner, held->local, std::move(nodes), held->since);
    notice.fence = held->fence;
    notice.publish_after = publish_after_;
  }
  const auto add_wait = [&](const Pending& p) -> Notice& {
    Notice& notice = add(p.session, p.owner, p.local, p.nodes, p.since);
    if (notice.owner_name.empty()) notice.owner_name = p.owner_name;
    if (notice.note.empty()) notice.note = p.note;
    notice.waits = true;
    notice.may_block = p.may_block || locks_.any_of(p.owner);
    notice.publish_after = published_after(p);
    return notice;
  };
  const auto add_first = [&](std::vector<std::shared_ptr<Pending>>& waits, const char* more, auto comes_before) {
    const std::size_t first = std::min(waits.size(), most_idle_waits_published);
    std::partial_sort(waits.begin(), waits.begin() + static_cast<std::ptrdiff_t>(first), waits.end(), comes_before);
    for (std::size_t i = 0; i < first; ++i) {
      Notice& notice = add_wait(*waits[i]);
      if (i + 1 < first || first == waits.size()) continue;
      notice.note += (notice.note.empty() ? "" : "; ") + std::to_string(waits.size() - first) + more;
    }
  };
  if (!with_queue) {
    for (const auto& pending : at_store) add_wait(*pending);
    return notices;
  }
  add_first(shown, " more wait behind it in the queue of its process",
            [](const auto& a, const auto& b) { return a->session < b->session; });
  std::vector<std::vector<std::uint64_t>> sessions;
  if (!in_the_queue.empty()) sessions = behind(in_the_queue, at_store, owners);
  std::unordered_set<std::uint64_t> in_the_way;
  for (const auto& some : sessions) in_the_way.insert(some.begin(), some.end());
  std::vector<std::shared_ptr<Pending>> idle;
  for (const auto& pending : at_store) {
    if (in_no_cycle(*pending) && !in_the_way.contains(pending->session)) {
      idle.push_back(pending);
    } else {
      add_wait(*pending);
    }
  }
  add_first(idle, " more requests of its process wait for other names", [](const auto& a, const auto& b) {
    return std::pair(a->since, a->session) < std::pair(b->since, b->session);
  });
  for (std::size_t i = 0; i < in_the_queue.size(); ++i) add_wait(*in_the_queue[i]).behind = std::move(sessions[i]);
  return notices;
}

// A wait at the store whose owner holds nothing, for a name that nobody can share. A request that waits behind it waits
// for the holder of the name, too. So a cycle through both is one without this wait.
bool NoticeBoard::in_no_cycle(const Pending& pending) const {
  return !pending.may_block && !locks_.any_of(pending.owner) && !names_are_shared_ &&
         std::all_of(pending.nodes.begin(), pending.nodes.end(), [](const Node& node) { return by_name(node.cell); });
}

// --- publishing ------------------------------------------------------------------------------------------

void NoticeBoard::changed(std::optional<Clock::time_point> end) noexcept {
  if (publish_after_ != publish_after_.zero()) return;
  const Clock::time_point now = Clock::now(), usual = now + longest_publish_at_once;
  if (now < at_once_again_.load() || locks_.size() > most_held_at_once) return wake();
  try {
    publish(end ? std::min(*end, usual) : usual);
  } catch (...) {  // no memory
    wake();
  }
  if (Clock::now() < usual) return;
  // A request that gives up leaves a session behind that waits at the store. So not every request tries again; the
  // thread does, which has more time.
  at_once_again_ = Clock::now() + pause_after_failure;
  wake();
}

void NoticeBoard::publish(Clock::time_point end) {
  std::unique_lock guard(publishing_, std::defer_lock);
  if (!guard.try_lock_until(end)) return wake();
  const Clock::time_point now = Clock::now();
  const std::uint64_t version = locks_.version();
  const bool alive_due = !written_.empty() && now - said_alive_ >= say_alive_interval;
  // Every few seconds all is looked at anyway: a lock that was lost changes no version.
  if (version == published_version_ && !alive_due && (all_published_ || now < again_)) return;
  const auto pending = locks_.all_pending();
  for (const auto& one : pending) {  // expect() keeps only the first of several times
    const Clock::time_point due = one->since + published_after(*one);
    if (due > now) look_again(due);
  }
  if (written_.empty()) {
    const auto old = [&](const auto& one) { return now - one->since >= publish_after_; };
    const auto old_wait = [&](const auto& one) { return now - one->since >= published_after(*one); };
    const auto held = locks_.all_held();
    if (std::none_of(held.begin(), held.end(), old) && std::none_of(pending.begin(), pending.end(), old_wait)) return;
  }
  Deadline limit(end, &ending_);
  std::vector<Notice> notices = own(true);
  const std::size_t count = notices.size();
  const auto lasts = [](const Notice& notice) { return notice.age >= notice.publish_after; };
  std::set<std::string> waiting;
  for (const Notice& notice : notices) {
    if (notice.waits && lasts(notice)) waiting.insert(notice.owner);
  }
  std::erase_if(notices, [&](const Notice& notice) { return !lasts(notice) && !waiting.contains(notice.owner); });
  const std::size_t lasting = notices.size();
  leave_out_names(notices, waiting);
  // What a wait in the local queue is behind changes without a version.
  const bool queue_waits = std::any_of(notices.begin(), notices.end(), [](const Notice& notice) {
    return notice.queued() && !notice.only_for_status();
  });
  all_published_ = count == lasting && !queue_waits;

  std::unordered_map<std::uint64_t, std::string> now_true;
  std::vector<Notice> news;
  for (Notice& notice : notices) {
    // The same session may be another lock's by now, or hold more.
    std::string what = (notice.waits ? "waits " : "holds ") + std::to_string(notice.fence) + " " + notice.owner + " " +
                       std::to_string(notice.nodes.size()) + " " + std::to_string(notice.began);
    for (const std::uint64_t session : notice.behind) what += " " + std::to_string(session);
    if (notice.waits && !notice.may_block) what += " " + notice.note;  // it may count others
    const auto known = written_.find(notice.id());
    const bool is_news = known == written_.end() || known->second != what;
    const std::uint64_t id = notice.id();
    if (is_news) news.push_back(std::move(notice));
    now_true.emplace(id, std::move(what));
  }
  stand_by(news);
  std::vector<std::uint64_t> over;
  for (const auto& [id, what] : written_) {
    if (!now_true.contains(id)) over.push_back(id);
  }
  // One that may have been written, or not, counts as written: it is removed some time. One that the store refuses is
  // not there, and is tried again after a pause.
  NoticeStore::Published done;
  if (!news.empty()) done = driver_.notices().publish(news, limit);
  for (std::size_t i = 0; i < news.size(); ++i) {
    const std::uint64_t id = news[i].id();
    if (done.written[i]) {
      written_[id] = now_true.at(id);
    } else if (done.failed || written_.contains(id)) {
      written_[id].clear();
    }
  }
  const bool removed = over.empty() || driver_.notices().remove(over, limit);
  if (removed) {
    for (const std::uint64_t id : over) written_.erase(id);
  }
  {
    const std::lock_guard standing(standing_mutex_);
    standing_.clear();
    for (const auto& [id, what] : written_) standing_.insert(session_of(id));
  }
  driver_.notices_changed();
  const bool all_written = std::find(done.written.begin(), done.written.end(), false) == done.written.end();
  all_published_ = all_published_ && all_written && removed;
  if (!all_written && !done.failed) again_ = now + pause_after_failure;
  published_version_ = version;
  if (done.failed || !removed) failed_ = true;
  std::vector<std::uint64_t> ids;
  for (const auto& [id, what] : written_) {
    if (!what.empty()) ids.push_back(id);
  }
  if (alive_due && !ids.empty() && !failed_) say_alive(ids, limit);
  anything_written_ = !written_.empty();
}

// Those that are published already stay.
void NoticeBoard::leave_out_names(std::vector<Notice>& notices, const std::set<std::string>& waiting) const {
  const auto may_go = [&](const Notice& notice) {
    return !notice.waits && is_of_names(notice.session) && !waiting.contains(notice.owner);
  };
  const auto count = static_cast<std::size_t>(std::count_if(notices.begin(), notices.end(), may_go));
  if (count <= most_names_published) return;
  const auto is_written = [&](const Notice& notice) { return written_.contains(notice.id()); };
  const auto written = static_cast<std::size_t>(std::count_if(
      notices.begin(), notices.end(), [&](const Notice& notice) { return may_go(notice) && is_written(notice); }));
  std::size_t more = most_names_published - std::min(most_names_published, written);
  std::erase_if(notices, [&](const Notice& notice) {
    if (!may_go(notice) || is_written(notice)) return false;
    return more == 0 || more-- == 0;
  });
}

// From now on the sessions of these notices are not used for another lock, until their notices are gone. A lock that
// was released, or a wait that has ended, before that has no notice: its session may be another's by now.
void NoticeBoard::stand_by(std::vector<Notice>& news) {
  if (news.empty()) return;
  std::unordered_set<std::int64_t> fences;
  {
    const std::lock_guard guard(standing_mutex_);
    for (const Notice& notice : news) {
      standing_.insert(session_of(notice.id()));
      if (!notice.waits) fences.insert(notice.fence);
    }
  }
  const std::unordered_set<std::int64_t> held = locks_.mark_published(fences);
  std::set<std::pair<std::uint64_t, std::int64_t>> waits;
  for (const auto& pending : locks_.all_pending()) {
    waits.emplace(pending->session, pending->since.time_since_epoch().count());
  }
  std::erase_if(news, [&](const Notice& notice) {
    return notice.waits ? !waits.contains({notice.session, notice.began}) : !held.contains(notice.fence);
  });
}

void NoticeBoard::say_alive(const std::vector<std::uint64_t>& ids, Deadline& limit) {
  const std::optional<std::size_t> there = driver_.notices().keep_alive(ids, limit);
  if (!there) {
    failed_ = true;
    return;
  }
  said_alive_ = Clock::now();
  if (*there == ids.size()) return;
  for (auto& [id, what] : written_) what.clear();  // somebody has emptied the board: all of it again
  all_published_ = false;
}

// The notices of processes that were killed.
void NoticeBoard::remove_old() {
  if (!anything_written_.load() || Clock::now() - removed_old_ < remove_old_interval) return;
  removed_old_ = Clock::now();
  Deadline limit = soon();
  driver_.notices().remove_old(limit);
}

std::string NoticeBoard::in_the_way_of(std::uint64_t session, Clock::time_point end) {
  Deadline limit(end);
  std::vector<Notice> all = driver_.notices().read(limit).value_or(std::vector<Notice>{});
  std::erase_if(all, [this](const Notice& notice) { return is_own(notice); });
  for (Notice& mine : own(false)) all.push_back(std::move(mine));
  const auto waiter = std::find_if(all.begin(), all.end(), [&](const Notice& notice) {
    return notice.waits && notice.session == session && is_own(notice);
  });
  if (waiter == all.end()) return {};
  std::string words;
  for (const Notice* other : in_the_way(*waiter, all)) {
    words += (words.empty() ? "" : ", ") + other->owner_name + " of process " + std::to_string(other->process) +
             " on " + other->host + (other->note.empty() ? "" : " (" + other->note + ")") + ", at " +
             meeting(*waiter, *other)->text;
  }
  return words;
}

// --- deadlocks -------------------------------------------------------------------------------------------

milliseconds NoticeBoard::published_after(const Pending& pending) const {
  if (pending.may_block || locks_.any_of(pending.owner)) return std::min(suspect_after, publish_after_);
  if (queued(pending) || in_no_cycle(pending)) return publish_after_;
  return std::min(in_the_way_after, publish_after_);
}

// A cycle counts only if it is seen twice. The first sighting may be a stale notice: the process that has to remove it
// may be stopped. So the store is asked, too. All members see the same notices, so all choose the same victim.
// Therefore our own notices are judged as they are published, with the age that they have there.
void NoticeBoard::find_deadlocks() {
  const Clock::time_point now = Clock::now();
  const std::vector<std::shared_ptr<Pending>> all_pending = locks_.all_pending();
  std::vector<std::shared_ptr<Pending>> waiting = all_pending;
  requests_.clear();
  for (const auto& pending : all_pending) requests_.emplace(pending->session, pending.get());
  std::erase_if(waiting, [&](const auto& p) {
    if (p->victim() || !locks_.any_of(p->owner)) return true;  // only a holder is a victim
    const bool young = now - p->since < published_after(*p);
    if (young) look_again(p->since + published_after(*p));
    return young;
  });
  if (waiting.empty()) return;
  milliseconds pause{};
  {
    const std::lock_guard guard(mutex_);
    pause = pause_;
  }
  if (now - looked_ < pause) return look_again(looked_ + pause);
  looked_ = now;
  std::vector<Notice> mine = own(true);
  Deadline limit = soon();
  std::optional<std::vector<Notice>> read = driver_.notices().read(limit);
  if (!read) {
    failed_ = true;
    return;
  }
  std::vector<Notice>& all = *read;
  std::set<NoticeKey> true_now, published;
  for (const Notice& notice : mine) true_now.emplace(notice.id(), notice.owner);
  std::erase_if(all, [&](const Notice& n) { return is_own(n) && !true_now.contains({n.id(), n.owner}); });
  for (const Notice& notice : all) published.emplace(notice.id(), notice.owner);
  for (Notice& notice : mine) {
    if (!published.contains({notice.id(), notice.owner})) all.push_back(std::move(notice));
  }
  std::map<std::uint64_t, const Notice*> own_waits;  // by session
  for (const Notice& notice : all) {
    if (notice.waits && is_own(notice)) own_waits.emplace(notice.session, &notice);
  }

  note_sightings(all, now);
  std::vector<Notice> without_queues = all;
  for (Notice& notice : without_queues) notice.behind.clear();
  const auto alone = [&](const Notice& n) -> const Notice& {
    return without_queues[static_cast<std::size_t>(&n - all.data())];
  };
  DeadlockFinder finder(all);
  std::optional<DeadlockFinder> of_owners;
  std::vector<std::pair<Pending*, const Notice*>> suspects;
  bool ask = false, any_let_pass = false;
  for (const auto& pending : waiting) {
    const auto found = own_waits.find(pending->session);
    const std::optional<Cycle> cycle = found == own_waits.end() ? std::nullopt : finder.find(*found->second);
    Pending::Suspicion& suspicion = pending->suspicion;
    if (!cycle) {
      suspicion = {};
      continue;
    }
    // What the queues alone make is undone at once: that harms nobody, so it need not be certain.
    if (!of_owners) of_owners.emplace(without_queues);
    if (!of_owners->find(alone(*found->second)) && let_pass_in(*cycle)) any_let_pass = true;
    suspects.emplace_back(pending.get(), found->second);
    if (++suspicion.looks == 1) suspicion.pause = first_view_pause;
    const milliseconds mine_after = in_other_queues(*cycle) || through_names(*cycle) ? seen_in_queues : seen_by_store;
    const Clock::time_point due = seen_since(*cycle) + (cycle->victim == found->second ? mine_after : others_ask_after);
    ask = ask || now >= std::max(due, suspicion.ask_at);
  }
  if (ask && !any_let_pass && now >= ask_store_again_) {
    const std::optional<View> view = driver_.waits(limit);
    milliseconds again = first_view_pause;
    if (view) {
      again = std::max(again, view->next);
      DeadlockFinder with_view(all, &*view), owners_with_view(without_queues, &*view);
      for (const auto& [pending, notice] : suspects) {
        judge(*pending, *notice, alone(*notice), with_view, owners_with_view, *view, now);
      }
    }
    ask_store_again_ = Clock::now() + again;
  }
  pause = !suspects.empty() ? first_pause : std::min(2 * pause, longest_pause);
  {
    const std::lock_guard guard(mutex_);
    pause_ = pause;
  }
  look_again(Clock::now() + pause);
}

// Since when each of these was seen. One that has changed meanwhile is another one.
void NoticeBoard::note_sightings(const std::vector<Notice>& all, Clock::time_point now) {
  std::map<NoticeKey, Sighting> seen;
  for (const Notice& notice : all) {
    Sighting sighting{now, notice.fence, notice.behind};
    const auto known = sightings_.find({notice.id(), notice.owner});
    const bool same = known != sightings_.end() && known->second.fence == sighting.fence &&
                      known->second.behind == sighting.behind && notice.age >= now - known->second.since;
    if (same) sighting.since = known->second.since;
    seen.emplace(NoticeKey(notice.id(), notice.owner), std::move(sighting));
  }
  sightings_.swap(seen);
}

// Since when all of a cycle was seen.
Clock::time_point NoticeBoard::seen_since(const Cycle& cycle) const {
  Clock::time_point since{};
  for (const auto* const notices : {&cycle.members, &cycle.between, &cycle.evidence}) {
    for (const Notice* notice : *notices) {
      since = std::max(since, sightings_.at({notice->id(), notice->owner}).since);
    }
  }
  return since;
}

// Whether a member of the cycle waits in the queue of another process.
bool NoticeBoard::in_other_queues(const Cycle& cycle) const {
  return std::any_of(cycle.members.begin(), cycle.members.end(),
                     [this](const Notice* member) { return member->queued() && !is_own(*member); });
}

bool NoticeBoard::through_names(const Cycle& cycle) {
  for (std::size_t i = 0; i < cycle.members.size(); ++i) {
    if (meet_at_name(*cycle.members[i], *cycle.between[i])) return true;
  }
  return false;
}

// Whether the store confirms the cycle, as far as it can. Of a name it tells the holder: that of a name which a request
// of this Locker waits for must be the session of the notice.
bool NoticeBoard::shown_by(const View& view, const Cycle& cycle) const {
  for (std::size_t i = 0; i < cycle.members.size(); ++i) {
    const Notice &member = *cycle.members[i], &other = *cycle.between[i];
    if (!meet_at_name(member, other)) {
      if (!view.seen || !view.note.empty()) return false;
    } else if (is_own(member) && !(member.queued() && is_own(other))) {
      const auto holder = view.name_holders.find(member.session);
      if (holder == view.name_holders.end()) return false;
      const auto is_known = [&](std::uint64_t session) {
        const auto has_it = [&](const Notice* notice) {
          return !notice->waits && shown_session(notice->session) == session && meet_at_name(member, *notice);
        };
        return has_it(&other) || std::any_of(cycle.evidence.begin(), cycle.evidence.end(), has_it);
      };
      if (!std::all_of(holder->second.begin(), holder->second.end(), is_known)) return false;
    }
  }
  return true;
}

void NoticeBoard::look_again(Clock::time_point at) {
  const std::lock_guard guard(mutex_);
  due_ = std::min(due_, at);
}

// A request of several cells has its places in the local queue while it waits at the store for the first of them. An
// owner behind it there may hold a lock that the request would not wait for in another order of the queue. Such a cycle
// is none of the owners' making, and it is undone if that request lets the owner pass. That harms nobody. So every
// process does it for its own members of the cycle, whoever would be the victim. An extend cannot give back what it has
// reached. False: there is no such request.
bool NoticeBoard::let_pass_in(const Cycle& cycle) {
  bool any = false;
  for (std::size_t i = 0; i < cycle.members.size(); ++i) {
    const Notice &member = *cycle.members[i], &first = *cycle.between[i];
    if (!member.queued() || !first.waits || !is_own(first)) continue;
    const auto found = requests_.find(first.session);
    if (found == requests_.end() || found->second->passes == nullptr) continue;
    Pending& request = *found->second;
    int& passed = (*request.passes)[{member.id(), member.owner}];
    if (passed >= most_passes || stays_in_the_way(request, member)) continue;
    if (!request.lets_pass()) ++passed;  // it may be asked several times before it does so
    request.let_pass();
    any = true;
  }
  return any;
}

// Whether it would be in the way of another wait also without its place in the local queue: its owner holds what the
// other one wants, or it is an extend.
bool NoticeBoard::stays_in_the_way(const Pending& pending, const Notice& other) const {
  const CellOf cell_of = [this](auto space, auto level, auto key, auto mode) {
    return driver_.cell_of(space, level, key, mode);
  };
  return locks_.has_session(pending.owner, pending.session) ||
         locks_.collision(pending.owner, nullptr, other.nodes, cell_of).has_value();
}

// `alone` is the same wait, without the queues of processes.
void NoticeBoard::judge(Pending& pending, const Notice& wait, const Notice& alone, DeadlockFinder& with_view,
                        DeadlockFinder& of_owners, const View& view, Clock::time_point now) {
  Pending::Suspicion& suspicion = pending.suspicion;
  suspicion.ask_at = now + suspicion.pause;
  suspicion.pause = std::min(2 * suspicion.pause, longest_view_pause);
  const std::optional<Cycle> cycle = with_view.find(wait);
  if (!cycle) return;
  const Clock::time_point since = seen_since(*cycle);
  const Clock::duration lasted = now - since;
  const bool in_queues = in_other_queues(*cycle);
  const Clock::duration surely_after = shown_by(view, *cycle)
                                           ? (in_queues || through_names(*cycle) ? seen_in_queues : seen_by_store)
                                           : (in_queues ? seen_in_noticed_queues : seen_in_notices);
  const bool lasts = suspicion.looks >= may_be_cycle_looks && lasted >= may_be_cycle_for;
  if (!(cycle->surely ? lasted >= surely_after : lasts)) {
    if (cycle->surely) suspicion.ask_at = std::min(suspicion.ask_at, since + surely_after);
    return;
  }
  const std::optional<Cycle> without_queues = of_owners.find(alone);
  const bool by_queues = !without_queues || (cycle->surely && !without_queues->surely);
  if (by_queues && let_pass_in(*cycle)) return;
  const Cycle& closed = by_queues ? *cycle : *without_queues;
  if (closed.victim == nullptr) return;  // its owner has released what it held
  if (closed.victim->id() == wait.id() && closed.victim->owner == wait.owner) {
    pending.choose_as_victim(closed.text(), closed.waits());
  }
}

}  // namespace hierlock::remote
