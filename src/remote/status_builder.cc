#include "remote/status_builder.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <hierlock/error.h>
#include <hierlock/target.h>

#include "plan/buckets.h"

namespace hierlock::remote {

namespace {

using Contention = Snapshot::Contention;

const Node* at(std::span<const Node> nodes, const Cell& cell) {
  for (const Node& node : nodes) {
    if (same_place(node.cell, cell)) return &node;
  }
  return nullptr;
}

// What one session has, or waits for.
struct Stake {
  Snapshot::Party who;
  std::uint64_t session = 0;
  std::string transaction;  // only where the session is not known
  bool waits = false;
  bool own = false;                // what is held is in the snapshot already
  const Notice* notice = nullptr;  // that tells it, if there is one
  std::vector<Node> nodes;         // no text: only the cell is known
  std::int64_t fence = 0;
  std::chrono::nanoseconds age{};
};

class Builder {
 public:
  Builder(const Sources& sources, Snapshot& into) : sources_(sources), into_(into) {
    for (const Locked& lock : sources.view.locks) locks_of_[lock.session].push_back(&lock);
  }

  void build() {
    for (const Notice& notice : sources_.own) add(notice, true);
    for (const Notice& notice : sources_.others) {
      if (!notice.queued()) lives_[notice.locker()] |= confirmed(notice);
    }
    for (const Notice& notice : sources_.others) {
      if (confirmed(notice)) add(notice, false);
    }
    for (const Locked& lock : sources_.view.locks) {
      const std::size_t stake = find_or_add(lock);
      if (lock.waits && stake != none) waits_of_[stake].push_back(stake_of_.size());
      stake_of_.push_back(stake);
    }
    for (const Stake& stake : stakes_) {
      if (!stake.waits && !stake.own) show_holder(stake);
    }
    std::vector<std::size_t> waiters, queued;
    for (std::size_t i = 0; i < stakes_.size(); ++i) {
      const Stake& stake = stakes_[i];
      if (!stake.waits) continue;
      (stake.notice != nullptr && stake.notice->only_for_status() ? queued : waiters).push_back(i);
    }
    // Their numbers rise in the order of the queue.
    std::sort(queued.begin(), queued.end(), [this](std::size_t a, std::size_t b) {
      const Notice &one = *stakes_[a].notice, &other = *stakes_[b].notice;
      return std::pair(one.locker(), one.session) < std::pair(other.locker(), other.session);
    });
    for (const std::vector<std::size_t>& some : {waiters, queued}) {
      for (const std::size_t i : some) show_waiter(i);
    }
  }

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  std::uint64_t number(const std::string& owner) const {
    const auto known = sources_.numbers.find(owner);
    return known != sources_.numbers.end() ? known->second : std::hash<std::string>()(owner) | std::uint64_t{1} << 63;
  }
  std::uint64_t number_of_session(std::uint64_t session) const { return number("session " + std::to_string(session)); }

  void add(const Notice& notice, bool own) {
    Stake stake;
    stake.who = {number(notice.owner), notice.owner_name,     notice.process, notice.program,
                 notice.note,          Snapshot::Doing::runs, notice.host,    shown_session(notice.session)};
    stake.session = notice.session;
    stake.waits = notice.waits;
    stake.own = own;
    stake.notice = &notice;
    stake.nodes = notice.nodes;
    stake.fence = notice.fence;
    stake.age = notice.age;
    keep(std::move(stake));
    notices_.push_back(notice);
  }
  std::size_t keep(Stake stake) {
    stakes_with_[stake.session].push_back(stakes_.size());
    stakes_.push_back(std::move(stake));
    return stakes_.size() - 1;
  }

  // A notice goes a moment after its lock or wait, and that of a killed process stays for seconds.
  bool confirmed(const Notice& notice) const {
    if (notice.only_for_status()) return process_lives(notice);
    if (notice.queued()) return owner_holds(notice);
    return notice.waits ? !sources_.view.ended.contains(notice.session) : holds(notice);
  }

  // The store knows nothing of a queue inside of a process. But such a wait is published only if its owner holds
  // something: if nothing of that is there any more, the process is gone.
  bool owner_holds(const Notice& queued) const {
    bool any_told = false;
    for (const Notice& other : sources_.others) {
      if (other.waits || other.owner != queued.owner) continue;
      if (holds(other)) return true;
      any_told = true;
    }
    return !any_told;
  }

  // If the store shows that all locks and waits that a process has told of are over, so is its queue.
  bool process_lives(const Notice& queued) const {
    const auto found = lives_.find(queued.locker());
    return found == lives_.end() || found->second;
  }

  // No view shows names.
  bool holds(const Notice& notice) const {
    if (is_of_names(notice.session)) return true;
    if (sources_.view.with_locks && !sources_.view.with_locks->contains(notice.session)) return false;
    if (!sources_.view.all_holders) return true;
    const auto found = locks_of_.find(notice.session);
    if (found == locks_of_.end()) return false;
    const std::vector<const Locked*>& locks = found->second;
    const auto somewhere = std::count_if(locks.begin(), locks.end(), [](const Locked* lock) {
      return !lock->waits && !lock->cell;  // its page was not in memory
    });
    const auto missing = std::count_if(notice.nodes.begin(), notice.nodes.end(), [&](const Node& node) {
      return !by_name(node.cell) && std::none_of(locks.begin(), locks.end(), [&](const Locked* lock) {
        return !lock->waits && lock->cell && same_place(*lock->cell, node.cell) && covers(lock->mode, node.cell.mode);
      });
    });
    return missing <= somewhere;
  }

  Snapshot::Party stranger(const Locked& lock) const {
    if (lock.session == 0) {
      return {.owner = number("transaction " + lock.transaction),
              .owner_name = "a session that the server does not name"};
    }
    const auto found = sources_.view.sessions.find(lock.session);
    const SessionFacts facts = found == sources_.view.sessions.end() ? SessionFacts{} : found->second;
    std::string name = "session " + std::to_string(lock.session);
    if (!facts.user.empty()) name += " of " + facts.user + (facts.host.empty() ? "" : "@" + facts.host);
    if (!facts.program.empty()) name += ", program " + facts.program;
    return {.owner = number_of_session(lock.session),
            .owner_name = name,
            .process = facts.process,
            .host = facts.machine.empty() ? facts.host : facts.machine,
            .session = lock.session};
  }

  // Whose lock it is: of a session with a notice, or of one without, which gets a stake here.
  std::size_t find_or_add(const Locked& lock) {
    std::size_t somebody = none, waiter = none;  // the same session
    const std::vector<std::size_t> same = stakes_with_[lock.session];
    for (const std::size_t i : same) {
      const Stake& stake = stakes_[i];
      if (lock.session == 0) continue;
      somebody = i;
      const Node* const node = lock.cell ? at(stake.nodes, *lock.cell) : nullptr;
      if (stake.waits == lock.waits && (node != nullptr || !lock.cell)) return i;
      if (stake.waits && node != nullptr && !node->text.empty()) waiter = i;
    }
    if (sources_.is_own(lock.session) && waiter == none) return somebody;  // being asked for or released just now
    Stake stake;
    stake.session = lock.session;
    stake.transaction = lock.session == 0 ? lock.transaction : "";
    stake.waits = lock.waits;
    if (waiter != none && !lock.waits) {  // a part of what it waits for
      const Stake& of = stakes_[waiter];
      stake.who = of.who;
      stake.age = of.age;
      for (const Node& node : of.nodes) {
        if (same_place(node.cell, *lock.cell)) stake.nodes.push_back(node);
      }
      keep(std::move(stake));
      return waiter;
    }
    const auto facts = sources_.view.sessions.find(lock.session);
    if (facts != sources_.view.sessions.end()) stake.age = facts->second.age;
    stake.who = somebody != none ? stakes_[somebody].who : stranger(lock);
    Node node;
    if (lock.cell) node.cell = *lock.cell;
    node.asked = true;
    // One more cell of a session without a notice.
    for (const std::size_t i : same) {
      Stake& known = stakes_[i];
      if (known.notice != nullptr || known.who.owner != stake.who.owner || known.waits != lock.waits || !lock.cell)
        continue;
      if (known.nodes.empty() || !known.nodes.front().text.empty()) continue;
      known.nodes.push_back(node);
      return i;
    }
    if (lock.cell) stake.nodes.push_back(node);
    return keep(std::move(stake));
  }

  void show_holder(const Stake& stake) {
    const bool exclusive =
        std::any_of(stake.nodes.begin(), stake.nodes.end(), [](const Node& node) { return node.cell.mode == Mode::X; });
    for (const Node& node : stake.nodes) {
      // Of a stranger: what it shares beside something that it has alone is most likely above that.
      const bool asked = node.text.empty() ? node.cell.mode == Mode::X || !exclusive : node.asked;
      into_.holders.push_back({stake.who, node.text, node.cell.mode, asked,
                               stake.session != 0 ? stake.session : stake.who.owner, stake.fence, stake.age,
                               sources_.rows.of_cell(node.cell), node.leftover});
    }
    if (stake.nodes.empty()) into_.holders.push_back({stake.who, "", Mode::X, true, stake.session, 0, stake.age, {}});
  }

  void show_waiter(std::size_t index) {
    const Stake& stake = stakes_[index];
    Snapshot::Waiter waiter{.who = stake.who, .target = "", .wanted = "", .age = stake.age};
    for (const Node& node : stake.nodes) {
      if (node.asked && !node.text.empty()) waiter.wanted += (waiter.wanted.empty() ? "" : ", ") + node.text;
    }
    if (!seen_waiting(index, waiter)) guess_from_notices(stake, waiter);
    std::sort(waiter.blocked_by.begin(), waiter.blocked_by.end());
    waiter.blocked_by.erase(std::unique(waiter.blocked_by.begin(), waiter.blocked_by.end()), waiter.blocked_by.end());
    into_.waiters.push_back(std::move(waiter));
  }

  void stuck_at(const Stake& stake, const Cell& cell, Snapshot::Waiter& waiter) const {
    const Node* node = nullptr;
    for (const Node& one : stake.nodes) {
      if (same_place(one.cell, cell) && (node == nullptr || one.cell.mode == Mode::X)) node = &one;
    }
    waiter.target = node != nullptr ? node->text : "";
    waiter.mode = node != nullptr ? node->cell.mode : cell.mode;
    waiter.row = sources_.rows.of_cell(cell);
  }

  // True if the server shows that it waits, and for whom.
  bool seen_waiting(std::size_t index, Snapshot::Waiter& waiter) const {
    const Stake& stake = stakes_[index];
    const auto found = waits_of_.find(index);
    if (found == waits_of_.end()) return false;
    for (const std::size_t i : found->second) {
      const Locked& lock = sources_.view.locks[i];
      if (lock.blocked_by.empty()) continue;
      std::vector<std::span<const Node>> in_the_way;
      for (const std::size_t blocker : lock.blocked_by) {
        const Locked& other = sources_.view.locks[blocker];
        const std::vector<std::size_t> whose = stakes_of(blocker, lock);
        for (const std::size_t one : whose) {
          waiter.blocked_by.push_back(stakes_[one].who.owner);
          in_the_way.emplace_back(stakes_[one].nodes);
        }
        if (!whose.empty()) continue;
        waiter.blocked_by.push_back(number_of_session(other.session));
        in_the_way.emplace_back();
      }
      waiter.mode = lock.mode;
      waiter.contention = Contention::unknown;
      if (lock.cell) {
        stuck_at(stake, *lock.cell, waiter);
        waiter.contention = judge(*lock.cell, stake.nodes, in_the_way, true);
      }
      return true;
    }
    return false;
  }

  // Who has a lock that is in a wait's way. If the store does not name it: those whose notices say so.
  std::vector<std::size_t> stakes_of(std::size_t lock, const Locked& waiter) const {
    const Locked& other = sources_.view.locks[lock];
    if (other.session != 0) return stake_of_[lock] == none ? std::vector<std::size_t>{} : std::vector{stake_of_[lock]};
    std::vector<std::size_t> whose;
    for (std::size_t i = 0; i < stakes_.size() && waiter.cell; ++i) {
      const Node* const node =
          stakes_[i].notice == nullptr || stakes_[i].waits ? nullptr : at(stakes_[i].nodes, *waiter.cell);
      if (node != nullptr && !compatible(node->cell.mode, waiter.mode)) whose.push_back(i);
    }
    return whose.empty() ? std::vector{stake_of_[lock]} : whose;
  }

  void guess_from_notices(const Stake& stake, Snapshot::Waiter& waiter) const {
    if (stake.notice == nullptr) {  // it has begun to wait just now
      waiter.contention = Contention::unknown;
      if (!stake.nodes.empty()) stuck_at(stake, stake.nodes.front().cell, waiter);
      return;
    }
    // Rows are locked in one order, so it has got no further than the first that somebody else has.
    const std::vector<const Notice*> others = in_the_way(*stake.notice, notices_);
    const Node* stuck = nullptr;
    for (const Notice* other : others) {
      waiter.blocked_by.push_back(number(other->owner));
      for (const Node& wanted : stake.nodes) {
        const bool first = stuck == nullptr || place(wanted.cell) < place(stuck->cell);
        const auto in_its_way = [&](const Node& node) { return in_the_way(wanted.cell, node.cell); };
        if (first && std::any_of(other->nodes.begin(), other->nodes.end(), in_its_way)) stuck = &wanted;
      }
    }
    if (stuck == nullptr) {
      waiter.target = stake.nodes.back().text;
      waiter.mode = stake.nodes.back().cell.mode;
      waiter.contention = Contention::unknown;
      return;
    }
    std::vector<std::span<const Node>> there;
    bool alone = false;  // one holder has the cell exclusively, so nobody else can
    for (const Notice* other : others) {
      for (const Node& node : other->nodes) {
        if (!same_place(node.cell, stuck->cell)) continue;
        if (there.empty() || there.back().data() != other->nodes.data()) there.emplace_back(other->nodes);
        alone = alone || (!other->waits && node.cell.mode == Mode::X);
      }
    }
    stuck_at(stake, stuck->cell, waiter);
    waiter.contention = judge(stuck->cell, stake.nodes, there, alone);
  }

  const Sources& sources_;
  Snapshot& into_;
  std::map<std::string_view, bool> lives_;  // by Notice::locker(): whether anything that it has told is confirmed
  std::vector<Stake> stakes_;
  std::vector<Notice> notices_;                                              // of the stakes that have one
  std::unordered_map<std::uint64_t, std::vector<const Locked*>> locks_of_;   // by session
  std::unordered_map<std::uint64_t, std::vector<std::size_t>> stakes_with_;  // by session
  std::vector<std::size_t> stake_of_;                                        // by place in view.locks
  std::unordered_map<std::size_t, std::vector<std::size_t>> waits_of_;       // by stake: places in view.locks
};

// How many sessions hold anything without a notice that says what. They may hold locks here.
std::size_t unseen(const Sources& sources) {
  if (sources.view.all_holders || !sources.view.with_locks) return 0;
  std::set<std::uint64_t> known;
  for (const Locked& lock : sources.view.locks) known.insert(lock.session);
  for (const Notice& notice : sources.others) known.insert(notice.session);
  return static_cast<std::size_t>(
      std::count_if(sources.view.with_locks->begin(), sources.view.with_locks->end(),
                    [&](std::uint64_t session) { return !known.contains(session) && !sources.is_own(session); }));
}

}  // namespace

Contention judge(const Cell& cell, std::span<const Node> wanted, std::span<const std::span<const Node>> in_the_way,
                 bool all) {
  bool sure = all && !in_the_way.empty();
  for (const std::span<const Node> other : in_the_way) {
    bool any_wanted = false, any_had = false;
    for (const Node& mine : wanted) {
      if (!same_place(mine.cell, cell)) continue;
      any_wanted = true;
      if (mine.text.empty()) sure = false;
      for (const Node& its : other) {
        if (!same_place(its.cell, cell)) continue;
        any_had = true;
        if (its.text.empty()) sure = false;
        if (!mine.text.empty() && mine.text == its.text && remote::in_the_way(mine.cell, its.cell)) {
          return Contention::own_target;
        }
      }
    }
    if (!any_wanted || !any_had) sure = false;
  }
  return sure ? Contention::shared_bucket : Contention::unknown;
}

std::vector<Snapshot::Bucket> hot_buckets(const Snapshot& snapshot) {
  struct Meeting {
    Snapshot::Bucket bucket;
    std::set<std::pair<std::uint64_t, std::uint64_t>> locks;
    std::set<std::string> targets;
  };
  std::map<Snapshot::Row, Meeting> meetings;
  for (const Snapshot::Waiter& waiter : snapshot.waiters) {
    if (!waiter.row) continue;
    Meeting& meeting = meetings[*waiter.row];
    ++meeting.bucket.waiters;
    if (waiter.contention == Contention::shared_bucket) ++meeting.bucket.falsely;
    if (waiter.contention == Contention::unknown) ++meeting.bucket.unknown;
    if (!waiter.target.empty()) meeting.targets.insert(waiter.target);
  }
  for (const Snapshot::Holder& holder : snapshot.holders) {
    const auto found = holder.row ? meetings.find(*holder.row) : meetings.end();
    if (found == meetings.end()) continue;
    found->second.locks.emplace(holder.who.owner, holder.lock);
    if (!holder.target.empty()) found->second.targets.insert(holder.target);
  }
  std::vector<Snapshot::Bucket> buckets;
  for (auto& [row, meeting] : meetings) {
    meeting.bucket.row = row;
    meeting.bucket.holders = meeting.locks.size();
    meeting.bucket.targets.assign(meeting.targets.begin(), meeting.targets.end());
    buckets.push_back(std::move(meeting.bucket));
  }
  std::stable_sort(buckets.begin(), buckets.end(),
                   [](const Snapshot::Bucket& a, const Snapshot::Bucket& b) { return a.waiters > b.waiters; });
  return buckets;
}

RowNames names_of_rows(std::uint32_t buckets) {
  return {.of_target = [buckets](const std::string& text) -> std::optional<Snapshot::Row> {
            try {
              const Target target = Target::parse(text);
              if (target.space() != Space::path) return std::nullopt;
              const std::size_t level = target.depth() - 1;
              return Snapshot::Row{static_cast<unsigned>(level), plan::bucket_of(target.key(level), buckets)};
            } catch (const Error&) {
              return std::nullopt;
            }
          },
          .of_cell = [](const Cell& cell) -> std::optional<Snapshot::Row> {
            if (by_name(cell)) return std::nullopt;
            return Snapshot::Row{cell.level, static_cast<std::uint32_t>(cell.key)};
          }};
}

void build_status(const Sources& sources, Snapshot& into) {
  for (Snapshot::Holder& holder : into.holders) holder.row = sources.rows.of_target(holder.target);
  for (Snapshot::Waiter& waiter : into.waiters) waiter.row = sources.rows.of_target(waiter.target);
  Builder(sources, into).build();
  std::sort(into.holders.begin(), into.holders.end(), [](const Snapshot::Holder& a, const Snapshot::Holder& b) {
    return std::tie(a.target, a.who.owner, a.fence, a.row) < std::tie(b.target, b.who.owner, b.fence, b.row);
  });
  into.buckets = hot_buckets(into);
  into.notes.insert(into.notes.end(), sources.notes.begin(), sources.notes.end());
  if (!sources.view.note.empty()) into.notes.push_back(sources.view.note);
  if (const std::size_t count = unseen(sources); count > 0) {
    into.notes.push_back(std::to_string(count) + (count == 1 ? " session has" : " sessions have") + " " +
                         sources.view.unseen_note);
  }
}

}  // namespace hierlock::remote
