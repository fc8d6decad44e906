#include "mysql/picture.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <hierlock/target.h>

namespace hierlock::mysql {

namespace {

using Contention = Snapshot::Contention;

bool same_row(const plan::Row& a, const plan::Row& b) { return a.level == b.level && a.bucket == b.bucket; }
bool clash(Mode a, Mode b) { return a == Mode::X || b == Mode::X; }
Snapshot::Row shown(const plan::Row& row) { return {row.level, row.bucket}; }

const Node* at(std::span<const Node> nodes, const plan::Row& row) {
  for (const Node& node : nodes) {
    if (same_row(node.row, row)) return &node;
  }
  return nullptr;
}

// Where the target of this text lies; none for what is no path.
std::optional<Snapshot::Row> row_of(const std::string& text, std::uint32_t buckets) {
  try {
    const Target target = Target::parse(text);
    if (target.space() != Space::path) return std::nullopt;
    const std::size_t level = target.depth() - 1;
    return Snapshot::Row{static_cast<unsigned>(level), plan::bucket_of(target.key(level), buckets)};
  } catch (const Error&) {
    return std::nullopt;
  }
}

// What one session has, or waits for.
struct Stake {
  Snapshot::Party who;
  std::uint64_t session = 0;
  std::string transaction;  // only where the session is not known
  bool waits = false;
  bool own = false;              // what is held is in the snapshot already
  const Entry* entry = nullptr;  // who told it, if anybody did
  std::vector<Node> nodes;       // no text: only the row is known
  std::int64_t fence = 0;
  std::chrono::nanoseconds age{};
};

class Drawing {
 public:
  Drawing(const Looked& looked, Snapshot& into) : looked_(looked), into_(into) {
    for (const Locked& lock : looked.view.locks) locks_of_[lock.session].push_back(&lock);
  }

  void draw() {
    for (const Entry& entry : looked_.own) add(entry, true);
    for (const Entry& entry : looked_.told) {
      if (confirmed(entry)) add(entry, false);
    }
    for (const Locked& lock : looked_.view.locks) {
      const std::size_t stake = find_or_add(lock);
      if (lock.waits && stake != none) waits_of_[stake].push_back(stake_of_.size());
      stake_of_.push_back(stake);
    }
    for (const Stake& stake : stakes_) {
      if (!stake.waits && !stake.own) show_holder(stake);
    }
    for (std::size_t i = 0; i < stakes_.size(); ++i) {
      if (stakes_[i].waits) show_waiter(i);
    }
  }

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  std::uint64_t number(const std::string& owner) const {
    const auto known = looked_.numbers.find(owner);
    return known != looked_.numbers.end() ? known->second : std::hash<std::string>()(owner) | std::uint64_t{1} << 63;
  }
  std::uint64_t number_of_session(std::uint64_t session) const { return number("session " + std::to_string(session)); }

  void add(const Entry& entry, bool own) {
    Stake stake;
    stake.who = {number(entry.owner), entry.owner_name,      entry.process, entry.command,
                 entry.note,          Snapshot::Doing::runs, entry.host,    entry.session};
    stake.session = entry.session;
    stake.waits = entry.waits;
    stake.own = own;
    stake.entry = &entry;
    stake.nodes = entry.nodes;
    stake.fence = entry.fence;
    stake.age = entry.age;
    keep(std::move(stake));
    entries_.push_back(entry);
  }
  std::size_t keep(Stake stake) {
    stakes_with_[stake.session].push_back(stakes_.size());
    stakes_.push_back(std::move(stake));
    return stakes_.size() - 1;
  }

  // What is written down about a lock goes a moment after the lock.
  bool confirmed(const Entry& entry) const {
    if (entry.waits) return true;
    if (looked_.view.with_rows && !looked_.view.with_rows->contains(entry.session)) return false;
    if (!looked_.view.all_holders) return true;
    const auto found = locks_of_.find(entry.session);
    if (found == locks_of_.end()) return false;
    const std::vector<const Locked*>& locks = found->second;
    const auto somewhere = std::count_if(locks.begin(), locks.end(), [](const Locked* lock) {
      return !lock->waits && !lock->row;  // its page was not in memory
    });
    const auto missing = std::count_if(entry.nodes.begin(), entry.nodes.end(), [&](const Node& node) {
      return std::none_of(locks.begin(), locks.end(), [&](const Locked* lock) {
        return !lock->waits && lock->row && same_row(*lock->row, node.row) &&
               (lock->mode == Mode::X || node.row.mode == Mode::S);
      });
    });
    return missing <= somewhere;
  }

  Snapshot::Party stranger(const Locked& lock) const {
    if (lock.session == 0) {
      return {.owner = number("transaction " + lock.transaction),
              .owner_name = "a session that the server does not name"};
    }
    const auto found = looked_.view.sessions.find(lock.session);
    const Session facts = found == looked_.view.sessions.end() ? Session{} : found->second;
    std::string name = "session " + std::to_string(lock.session);
    if (!facts.user.empty()) name += " of " + facts.user + (facts.host.empty() ? "" : "@" + facts.host);
    if (!facts.program.empty()) name += ", program " + facts.program;
    return {.owner = number_of_session(lock.session),
            .owner_name = name,
            .process = facts.process,
            .host = facts.machine.empty() ? facts.host : facts.machine,
            .session = lock.session};
  }

  // Whose lock it is: of somebody who has told, or of a stranger, who is made known here.
  std::size_t find_or_add(const Locked& lock) {
    std::size_t somebody = none, waiter = none;  // the same session
    const std::vector<std::size_t> same = stakes_with_[lock.session];
    for (const std::size_t i : same) {
      const Stake& stake = stakes_[i];
      if (lock.session == 0) continue;
      somebody = i;
      const Node* const node = lock.row ? at(stake.nodes, *lock.row) : nullptr;
      if (stake.waits == lock.waits && (node != nullptr || !lock.row)) return i;
      if (stake.waits && node != nullptr && !node->text.empty()) waiter = i;
    }
    if (looked_.is_own(lock.session) && waiter == none) return somebody;  // being asked for or released just now
    Stake stake;
    stake.session = lock.session;
    stake.transaction = lock.session == 0 ? lock.transaction : "";
    stake.waits = lock.waits;
    if (waiter != none && !lock.waits) {  // a part of what it waits for
      const Stake& of = stakes_[waiter];
      stake.who = of.who;
      stake.age = of.age;
      for (const Node& node : of.nodes) {
        if (same_row(node.row, *lock.row)) stake.nodes.push_back(node);
      }
      keep(std::move(stake));
      return waiter;
    }
    const auto facts = looked_.view.sessions.find(lock.session);
    if (facts != looked_.view.sessions.end()) stake.age = facts->second.age;
    stake.who = somebody != none ? stakes_[somebody].who : stranger(lock);
    Node node;
    if (lock.row) node.row = *lock.row;
    node.asked = true;
    // One more row of a stranger.
    for (const std::size_t i : same) {
      Stake& known = stakes_[i];
      if (known.entry != nullptr || known.who.owner != stake.who.owner || known.waits != lock.waits || !lock.row)
        continue;
      if (known.nodes.empty() || !known.nodes.front().text.empty()) continue;
      known.nodes.push_back(node);
      return i;
    }
    if (lock.row) stake.nodes.push_back(node);
    return keep(std::move(stake));
  }

  void show_holder(const Stake& stake) {
    const bool exclusive =
        std::any_of(stake.nodes.begin(), stake.nodes.end(), [](const Node& node) { return node.row.mode == Mode::X; });
    for (const Node& node : stake.nodes) {
      // Of a stranger: what it shares beside something that it has alone is most likely above that.
      const bool asked = node.text.empty() ? node.row.mode == Mode::X || !exclusive : node.asked;
      into_.holders.push_back({stake.who, node.text, node.row.mode, asked,
                               stake.session != 0 ? stake.session : stake.who.owner, stake.fence, stake.age,
                               shown(node.row)});
    }
    if (stake.nodes.empty()) into_.holders.push_back({stake.who, "", Mode::X, true, stake.session, 0, stake.age, {}});
  }

  void show_waiter(std::size_t index) {
    const Stake& stake = stakes_[index];
    Snapshot::Waiter waiter{.who = stake.who, .target = "", .wanted = "", .age = stake.age};
    for (const Node& node : stake.nodes) {
      if (node.asked && !node.text.empty()) waiter.wanted += (waiter.wanted.empty() ? "" : ", ") + node.text;
    }
    if (!seen_waiting(index, waiter)) guess_from_what_was_told(stake, waiter);
    std::sort(waiter.blocked_by.begin(), waiter.blocked_by.end());
    waiter.blocked_by.erase(std::unique(waiter.blocked_by.begin(), waiter.blocked_by.end()), waiter.blocked_by.end());
    into_.waiters.push_back(std::move(waiter));
  }

  void stuck_at(const Stake& stake, const plan::Row& row, Snapshot::Waiter& waiter) const {
    const Node* node = nullptr;
    for (const Node& one : stake.nodes) {
      if (same_row(one.row, row) && (node == nullptr || one.row.mode == Mode::X)) node = &one;
    }
    waiter.target = node != nullptr ? node->text : "";
    waiter.mode = node != nullptr ? node->row.mode : row.mode;
    waiter.row = shown(row);
  }

  // True if the server shows that it waits, and for whom.
  bool seen_waiting(std::size_t index, Snapshot::Waiter& waiter) const {
    const Stake& stake = stakes_[index];
    const auto found = waits_of_.find(index);
    if (found == waits_of_.end()) return false;
    for (const std::size_t i : found->second) {
      const Locked& lock = looked_.view.locks[i];
      if (lock.blocked_by.empty()) continue;
      std::vector<std::span<const Node>> in_the_way;
      for (const std::size_t blocker : lock.blocked_by) {
        const Locked& other = looked_.view.locks[blocker];
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
      if (lock.row) {
        stuck_at(stake, *lock.row, waiter);
        waiter.contention = judge(*lock.row, stake.nodes, in_the_way, true);
      }
      return true;
    }
    return false;
  }

  // Who has a lock that is in somebody's way: where the server does not name it, those who have told that they do.
  std::vector<std::size_t> stakes_of(std::size_t lock, const Locked& waiter) const {
    const Locked& other = looked_.view.locks[lock];
    if (other.session != 0) return stake_of_[lock] == none ? std::vector<std::size_t>{} : std::vector{stake_of_[lock]};
    std::vector<std::size_t> whose;
    for (std::size_t i = 0; i < stakes_.size() && waiter.row; ++i) {
      const Node* const node =
          stakes_[i].entry == nullptr || stakes_[i].waits ? nullptr : at(stakes_[i].nodes, *waiter.row);
      if (node != nullptr && clash(node->row.mode, waiter.mode)) whose.push_back(i);
    }
    return whose.empty() ? std::vector{stake_of_[lock]} : whose;
  }

  void guess_from_what_was_told(const Stake& stake, Snapshot::Waiter& waiter) const {
    if (stake.entry == nullptr) {  // it has begun to wait just now
      waiter.contention = Contention::unknown;
      if (!stake.nodes.empty()) stuck_at(stake, stake.nodes.front().row, waiter);
      return;
    }
    // Rows are locked in one order, so it has got no further than the first that somebody else has.
    const std::vector<const Entry*> others = in_the_way(*stake.entry, entries_);
    const Node* stuck = nullptr;
    for (const Entry* other : others) {
      waiter.blocked_by.push_back(number(other->owner));
      for (const Node& wanted : stake.nodes) {
        const bool first = stuck == nullptr || std::tie(wanted.row.level, wanted.row.bucket) <
                                                   std::tie(stuck->row.level, stuck->row.bucket);
        const auto in_its_way = [&](const Node& node) {
          return same_row(node.row, wanted.row) && clash(node.row.mode, wanted.row.mode);
        };
        if (first && std::any_of(other->nodes.begin(), other->nodes.end(), in_its_way)) stuck = &wanted;
      }
    }
    if (stuck == nullptr) {
      waiter.target = stake.nodes.back().text;
      waiter.mode = stake.nodes.back().row.mode;
      waiter.contention = Contention::unknown;
      return;
    }
    std::vector<std::span<const Node>> there;
    bool alone = false;  // somebody has the row exclusively, so nobody else can have it
    for (const Entry* other : others) {
      for (const Node& node : other->nodes) {
        if (!same_row(node.row, stuck->row)) continue;
        if (there.empty() || there.back().data() != other->nodes.data()) there.emplace_back(other->nodes);
        alone = alone || (!other->waits && node.row.mode == Mode::X);
      }
    }
    stuck_at(stake, stuck->row, waiter);
    waiter.contention = judge(stuck->row, stake.nodes, there, alone);
  }

  const Looked& looked_;
  Snapshot& into_;
  std::vector<Stake> stakes_;
  std::vector<Entry> entries_;                                               // of the stakes that have one
  std::unordered_map<std::uint64_t, std::vector<const Locked*>> locks_of_;   // by session
  std::unordered_map<std::uint64_t, std::vector<std::size_t>> stakes_with_;  // by session
  std::vector<std::size_t> stake_of_;                                        // by place in view.locks
  std::unordered_map<std::size_t, std::vector<std::size_t>> waits_of_;       // by stake: places in view.locks
};

// How many sessions have rows, of which nobody has told which: they may hold locks here.
std::size_t unseen(const Looked& looked) {
  if (looked.view.all_holders || !looked.view.with_rows) return 0;
  std::set<std::uint64_t> known;
  for (const Locked& lock : looked.view.locks) known.insert(lock.session);
  for (const Entry& entry : looked.told) known.insert(entry.session);
  return static_cast<std::size_t>(
      std::count_if(looked.view.with_rows->begin(), looked.view.with_rows->end(),
                    [&](std::uint64_t session) { return !known.contains(session) && !looked.is_own(session); }));
}

}  // namespace

Contention judge(const plan::Row& row, std::span<const Node> wanted, std::span<const std::span<const Node>> in_the_way,
                 bool all) {
  bool sure = all && !in_the_way.empty();
  for (const std::span<const Node> other : in_the_way) {
    bool any_wanted = false, any_had = false;
    for (const Node& mine : wanted) {
      if (!same_row(mine.row, row)) continue;
      any_wanted = true;
      if (mine.text.empty()) sure = false;
      for (const Node& its : other) {
        if (!same_row(its.row, row)) continue;
        any_had = true;
        if (its.text.empty()) sure = false;
        if (!mine.text.empty() && mine.text == its.text && clash(mine.row.mode, its.row.mode)) {
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

void draw(const Looked& looked, Snapshot& into) {
  for (Snapshot::Holder& holder : into.holders) holder.row = row_of(holder.target, looked.buckets);
  for (Snapshot::Waiter& waiter : into.waiters) waiter.row = row_of(waiter.target, looked.buckets);
  Drawing(looked, into).draw();
  std::sort(into.holders.begin(), into.holders.end(), [](const Snapshot::Holder& a, const Snapshot::Holder& b) {
    return std::tie(a.target, a.who.owner, a.fence, a.row) < std::tie(b.target, b.who.owner, b.fence, b.row);
  });
  into.buckets = hot_buckets(into);
  into.notes.insert(into.notes.end(), looked.notes.begin(), looked.notes.end());
  if (!looked.view.note.empty()) into.notes.push_back(looked.view.note);
  if (const std::size_t count = unseen(looked); count > 0) {
    into.notes.push_back(std::to_string(count) + (count == 1 ? " session has" : " sessions have") +
                         " rows locked that are not shown, of this table or of others: MariaDB tells which only when "
                         "somebody waits for them, and processes tell of a lock when they have held it for a second");
  }
}

}  // namespace hierlock::mysql
