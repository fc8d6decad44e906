#include "cases.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "crowd.h"
#include "keys.h"
#include "measure.h"
#include "ours.h"
#include "peer_berkeley.h"
#include "peer_futex.h"
#include "peer_mysql.h"
#include "peer_rocksdb.h"
#include "peer_striped.h"
#include "process.h"
#include "programs.h"
#include "provision.h"
#include "sql_session.h"

namespace bench {

namespace {

using namespace std::chrono_literals;

constexpr Bar at_least(double value) { return {Bar::Kind::at_least, value}; }
constexpr Bar at_most(double value) { return {Bar::Kind::at_most, value}; }
constexpr std::optional<Bar> no_bar = std::nullopt;

constexpr auto rate = Unit::pairs_per_second;
constexpr auto time = Unit::nanoseconds;
constexpr auto bytes = Unit::bytes;
constexpr auto cores = Unit::cores;
constexpr auto instructions_run = Unit::instructions;

constexpr std::string_view spread = "1 thread, 1,000 users";
constexpr std::string_view of_a_pair = "instructions of a pair on memory:, prepared target";
constexpr std::string_view of_a_shared_pair = "the same, shared";
constexpr std::string_view of_a_string_pair = "the same from a plain string";
constexpr std::string_view hot_user = "1 thread, one hot user";
constexpr std::string_view apart = "2 threads, different users";
constexpr std::string_view hot_user_2 = "2 threads, one hot user";
constexpr std::string_view uuids = "1 thread, 1,000 users, ids of 36 bytes";
constexpr std::string_view tree_held = "1 thread, 10^6 other locks held";
constexpr std::string_view tree_held_there = "1 thread, in accounts where the 10^6 are held";
constexpr std::string_view tree_bytes = "memory of a held lock, 10^6 of 1,000 users";
constexpr std::string_view alone_held = "1 thread, 10^6 held, no two under one user";
constexpr std::string_view alone_bytes = "memory of a held lock, no two under one user";
constexpr std::string_view was_shared = "exclusive on an account that was shared, p99";
constexpr std::string_view hand_over = "from release to the waiting thread's return, p50";
constexpr std::string_view one_lock = "2 threads on one and the same lock";

constexpr std::string_view apart_processes = "2 processes, different users";
constexpr std::string_view hot_user_processes = "2 processes, one hot user";
constexpr std::string_view hand_over_processes = "from release to the waiting process's return, p50";
constexpr std::string_view exec_true = "hierlock exec --on shm: ... -- true, from start to end";

constexpr std::string_view idle_waiters = "what 400 processes use that wait for one name, shm:";
constexpr std::string_view drain_x = "4,000 waiting threads get a name one by one";
constexpr std::string_view drain_s = "4,000 waiting threads share a name";
constexpr std::string_view drain_slots = "4,000 waiting threads get one of 3 slots";
constexpr std::string_view drain_shm_x = "the same one by one on shm:";
constexpr std::string_view drain_shm_s = "the same shared on shm:";
constexpr std::string_view drain_shm_slots = "the same with 3 slots on shm:";
constexpr std::string_view second = "a limit of 1 s";
constexpr std::string_view new_wait = "a new wait among 800, one of whom holds a lock";
constexpr std::string_view wait_of_holder = "the same if somebody waits for the new waiter";
constexpr std::string_view wait_of_chain = "a new wait for which 800 in a chain wait";
constexpr std::string_view wait_many = "a new wait among 20 who hold 10,000 locks each";
constexpr std::string_view wait_many_shared = "the same if all of them wait for the new waiter";
constexpr std::string_view fifth_ms = "a limit of 0.2 ms of processor time";
constexpr std::string_view two_ms = "a limit of 2 ms of processor time";
constexpr std::string_view queue_of_futexes = "a bare futex queue";

constexpr std::string_view fill_mysql = "all rows of a level, made on MySQL";
constexpr std::string_view fill_mariadb = "all rows of a level, made on MariaDB";
constexpr std::string_view size_mysql = "the table after that, MySQL";
constexpr std::string_view size_mariadb = "the table after that, MariaDB";
constexpr std::string_view digits = "one INSERT of cross-joined digits";

constexpr std::string_view on_mysql = "MySQL, 1 thread, nobody in the way";
constexpr std::string_view on_mariadb = "MariaDB, 1 thread, nobody in the way";
constexpr std::string_view by_row = "a prepared and closed SELECT a row";

constexpr std::string_view bdb = "Berkeley DB, private region";
constexpr std::string_view bdb_stock = "Berkeley DB, default partitions";
constexpr std::string_view bdb_shared = "Berkeley DB, shared region";
constexpr std::string_view bdb_held = "Berkeley DB with as many held";
constexpr std::string_view mutexes = "bare striped std::shared_mutex";
constexpr std::string_view rocks = "RocksDB TransactionDB, point locks";

constexpr Case cases[] = {
    {"pair", "berkeley", "ours", "berkeley", rate, at_least(5), spread, bdb},
    {"pair", "striped", "ours", "striped", rate, at_least(0.45), spread, mutexes},
    {"pair", "rocksdb", "ours", "rocksdb", rate, no_bar, spread, rocks},
    {"pair", "berkeley-stock", "ours", "stock", rate, no_bar, spread, bdb_stock},
    {"instructions", "target", "target", "limit", instructions_run, at_most(1), of_a_pair, "a limit of 600"},
    {"instructions", "shared", "shared", "limit", instructions_run, no_bar, of_a_shared_pair, "a limit of 600"},
    {"instructions", "string", "string", "limit", instructions_run, no_bar, of_a_string_pair, "a limit of 600"},
    {"hot", "berkeley", "ours", "berkeley", rate, no_bar, hot_user, bdb},
    {"hot", "striped", "ours", "striped", rate, no_bar, hot_user, mutexes},
    {"disjoint2", "berkeley", "ours", "berkeley", rate, at_least(10), apart, bdb},
    {"disjoint2", "striped", "ours", "striped", rate, no_bar, apart, mutexes},
    {"disjoint2", "rocksdb", "ours", "rocksdb", rate, no_bar, apart, rocks},
    {"disjoint2", "berkeley-stock", "ours", "stock", rate, no_bar, apart, bdb_stock},
    {"hot2", "berkeley", "ours", "berkeley", rate, at_least(10), hot_user_2, bdb},
    {"hot2", "one-thread", "ours", "one-thread", rate, at_least(1.3), hot_user_2, "hierlock, 1 thread on that user"},
    {"hot2", "striped", "ours", "striped", rate, no_bar, hot_user_2, mutexes},
    {"hot2", "berkeley-stock", "ours", "stock", rate, no_bar, hot_user_2, bdb_stock},
    {"million", "berkeley", "ours", "berkeley", rate, at_least(5), tree_held, bdb_held},
    {"million", "same-users", "ours-there", "berkeley-there", rate, no_bar, tree_held_there, bdb_held},
    {"million", "bytes", "ours-bytes", "limit-bytes", bytes, at_most(1), tree_bytes, "a limit of 200 bytes"},
    {"million", "berkeley-bytes", "ours-bytes", "berkeley-bytes", bytes, no_bar, tree_bytes, bdb},
    {"million", "exclusive-p99", "ours-exclusive", "limit-time", time, at_most(1), was_shared, "a limit of 1 ms"},
    {"alone", "berkeley", "ours", "berkeley", rate, no_bar, alone_held, bdb_held},
    {"alone", "bytes", "ours-bytes", "limit-bytes", bytes, no_bar, alone_bytes, "the limit of million/bytes"},
    {"alone", "berkeley-bytes", "ours-bytes", "berkeley-bytes", bytes, no_bar, alone_bytes, bdb},
    {"handover", "futex", "ours", "futex", time, at_most(1.3), hand_over, "bare futex ping-pong"},
    {"handover", "berkeley", "ours", "berkeley", time, no_bar, hand_over, bdb},
    {"uuid", "berkeley", "ours", "berkeley", rate, no_bar, uuids, bdb},
    {"uuid", "striped", "ours", "striped", rate, no_bar, uuids, mutexes},
    {"string", "prepared", "string", "prepared", rate, at_least(0.85), "from a plain string",
     "hierlock, prepared target"},
    {"named", "berkeley", "ours", "berkeley", rate, no_bar, "1 thread, 4,096 names", "Berkeley DB, one lock_get"},
    {"slots", "named", "slots", "named", rate, no_bar, "1 thread, 4,096 counted locks of 3", "hierlock, names"},
    {"contended", "berkeley", "ours", "berkeley", rate, no_bar, one_lock, bdb},
    {"contended", "striped", "ours", "striped", rate, no_bar, one_lock, "bare std::shared_mutex, which is not fair"},
    {"shm", "memory", "ours", "memory", rate, at_least(0.9), "shm:, 1 thread, 1,000 users", "hierlock, memory:"},
    {"shm", "berkeley", "ours", "berkeley", rate, no_bar, "shm:, 1 thread, 1,000 users", bdb_shared},
    {"shm-disjoint2", "berkeley", "ours", "berkeley", rate, at_least(8), apart_processes, bdb_shared},
    {"shm-hot2", "berkeley", "ours", "berkeley", rate, at_least(8), hot_user_processes, bdb_shared},
    {"shm-handover", "futex", "ours", "futex", time, at_most(2), hand_over_processes, "futex ping-pong of processes"},
    {"shm-handover", "berkeley", "ours", "berkeley", time, no_bar, hand_over_processes, bdb_shared},
    {"exec", "flock", "ours", "flock", time, at_most(1.3), exec_true, "flock FILE true"},
    {"waiting", "limit", "ours", "limit", cores, at_most(1), idle_waiters, "a limit of 0.2 of a core"},
    {"waiting", "futex", "ours", "futex", cores, no_bar, idle_waiters, "as many in a futex, looking 10 times a second"},
    {"drain", "exclusive", "exclusive", "limit", time, at_most(1), drain_x, second},
    {"drain", "shared", "shared", "limit", time, at_most(1), drain_s, second},
    {"drain", "slots", "slots", "limit", time, at_most(1), drain_slots, second},
    {"drain", "shm-exclusive", "shm-exclusive", "limit", time, at_most(1), drain_shm_x, second},
    {"drain", "shm-shared", "shm-shared", "limit", time, at_most(1), drain_shm_s, second},
    {"drain", "shm-slots", "shm-slots", "limit", time, at_most(1), drain_shm_slots, second},
    {"drain", "exclusive-futex", "exclusive", "futex-exclusive", time, no_bar, drain_x, queue_of_futexes},
    {"drain", "shared-futex", "shared", "futex-shared", time, no_bar, drain_s, queue_of_futexes},
    {"drain", "slots-futex", "slots", "futex-slots", time, no_bar, drain_slots, queue_of_futexes},
    {"entangled", "one", "one", "limit", time, at_most(1), new_wait, fifth_ms},
    {"entangled", "holder", "holder", "limit", time, at_most(1), wait_of_holder, fifth_ms},
    {"entangled", "chain", "chain", "limit", time, at_most(1), wait_of_chain, fifth_ms},
    {"entangled", "many-locks", "many-locks", "limit", time, at_most(1), wait_many, fifth_ms},
    {"entangled", "many-shared", "many-shared", "limit-shared", time, no_bar, wait_many_shared, two_ms},
    {"entangled", "futex", "one", "futex", time, no_bar, new_wait, queue_of_futexes},
    {"mysql", "by-row", "ours", "by-row", rate, at_least(3), on_mysql, by_row},
    {"mariadb", "by-row", "ours", "by-row", rate, at_least(3), on_mariadb, by_row},
    {"provision-mysql", "digits", "ours", "digits", time, at_most(1), fill_mysql, digits},
    {"provision-mysql", "bytes", "ours-bytes", "digits-bytes", bytes, at_most(0.4), size_mysql, digits},
    {"provision-mariadb", "digits", "ours", "digits", time, at_most(1), fill_mariadb, digits},
    {"provision-mariadb", "bytes", "ours-bytes", "digits-bytes", bytes, at_most(1), size_mariadb, digits},
};

// A contender is measured once a round.
using Contender = std::function<double()>;
using Contenders = std::map<std::string, Contender, std::less<>>;

class Session {
 public:
  Session(const Effort& effort, const Progress& progress, std::vector<const Case*> selected)
      : effort_(effort), progress_(progress), selected_(std::move(selected)) {}

  Window window(std::size_t batch = 64) const { return {effort_.quick ? 15ms : 100ms, batch}; }
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
    for (const Case* c : selected_) {
      if (c->group == group) outcome_.skipped.push_back({c, why});
    }
  }

  Outcome outcome() && { return std::move(outcome_); }

 private:
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

const Berkeley::Config stock{.partitions = 0};

void pairs(Session& session, std::string_view group, const std::vector<std::vector<Path>>& keys,
           const std::vector<Path>& all_keys) {
  Team<Ours> ours("hierlock", keys);
  Team<Berkeley> berkeley("Berkeley DB", keys), default_berkeley("Berkeley DB", keys, stock);
  Team<Striped> striped("striped", keys);
  Team<RocksDb> rocksdb("RocksDB", keys);
  Team<Ours> one("hierlock", {all_keys});
  const Window window = session.window();
  Window wall = window;
  wall.always_wall_clock = true;
  session.measure(group, {{"ours", [&] { return pairs_per_second(ours.crew, window); }},
                          {"one-thread", [&] { return pairs_per_second(one.crew, wall); }},
                          {"berkeley", [&] { return pairs_per_second(berkeley.crew, window); }},
                          {"stock", [&] { return pairs_per_second(default_berkeley.crew, window); }},
                          {"striped", [&] { return pairs_per_second(striped.crew, window); }},
                          {"rocksdb", [&] { return pairs_per_second(rocksdb.crew, window); }}});
}

void pair(Session& session) { pairs(session, "pair", {spread_keys()}, {}); }

void hot(Session& session) { pairs(session, "hot", {hot_keys()}, {}); }

void uuid(Session& session) { pairs(session, "uuid", {long_keys()}, {}); }

void disjoint2(Session& session) {
  const std::vector<Path> keys = spread_keys();
  pairs(session, "disjoint2", {keys_by_user(keys, 0), keys_by_user(keys, 1)}, {});
}

void hot2(Session& session) {
  const std::vector<Path> keys = hot_keys();
  pairs(session, "hot2", {keys_by_resource(keys, 0), keys_by_resource(keys, 1)}, keys);
}

// p99 of acquiring an account exclusively that eight of its resources, and then the account itself, have just shared.
// Its user is one of those under which the 10^6 are held.
double exclusive_p99(hierlock::Locker& locker, std::size_t samples, std::size_t& next) {
  std::vector<double> times;
  on_threads(1, [&](std::size_t) {
    for (std::size_t n = 0; n < samples; ++n, ++next) {
      const Path held = held_tree_key(next * accounts * resources % held_count);
      const auto account = static_cast<std::uint32_t>(accounts + next / users);
      const hierlock::Target target_account = target(Path(held.user, account, 0), 2);
      {
        std::array<hierlock::Lock, 8> resource_locks;
        for (std::uint32_t r = 0; r < resource_locks.size(); ++r) {
          resource_locks[r] = locker.acquire(target(Path(held.user, account, r)));
        }
      }
      locker.acquire(hierlock::shared(target_account)).release();
      const Clock::time_point begin = Clock::now();
      const hierlock::Lock lock = locker.acquire(target_account);
      times.push_back(nanoseconds(Clock::now() - begin));
    }
  });
  return percentile(std::move(times), 99);
}

// 10^6 locks held by hierlock and by Berkeley DB at once; `key` says which.
void with_held(Session& session, std::string_view group, Path (*key)(std::size_t), std::size_t nodes_held) {
  // Handles are the caller's, like a std::unique_lock: they are in memory before the measuring begins.
  std::vector<hierlock::Lock> handles(held_count);
  const auto per_lock = [](std::size_t before) {
    const std::size_t after = resident_bytes();
    return (static_cast<double>(after) - static_cast<double>(before)) / static_cast<double>(held_count);
  };

  session.preparing(group, "hierlock takes 10^6 locks");
  std::size_t before = resident_bytes();
  const auto ours = std::make_unique<Ours>();
  for (std::size_t i = 0; i < held_count; ++i) handles[i] = ours->locker().acquire(target(key(i)));
  const double our_bytes = per_lock(before);

  std::unique_ptr<Berkeley> berkeley;
  std::unique_ptr<Berkeley::Worker> berkeley_holder;
  double berkeley_bytes = 0;
  if (session.needs(group, "berkeley") || session.needs(group, "berkeley-there") ||
      session.needs(group, "berkeley-bytes")) {
    session.preparing(group, "Berkeley DB takes 10^6 locks");
    before = resident_bytes();
    berkeley = std::make_unique<Berkeley>(Berkeley::Config{.max_nodes = nodes_held + 20'000});
    berkeley_holder = std::make_unique<Berkeley::Worker>(*berkeley, std::vector<Path>{});
    for (std::size_t i = 0; i < held_count; ++i) berkeley_holder->hold(key(i));
    berkeley_bytes = per_lock(before);
  }

  const std::vector<Path> keys = spread_keys();
  std::vector<Path> keys_there;
  for (const Path& path : keys) {
    const Path held = held_tree_key(path.user * accounts * resources);
    keys_there.emplace_back(held.user, path.account, resources + path.resource);
  }
  Crew<Ours::Worker> our_crew, our_crew_there;
  our_crew.push_back(std::make_unique<Ours::Worker>(*ours, keys));
  our_crew_there.push_back(std::make_unique<Ours::Worker>(*ours, keys_there));
  Crew<Berkeley::Worker> berkeley_crew, berkeley_crew_there;
  if (berkeley) {
    berkeley_crew.push_back(std::make_unique<Berkeley::Worker>(*berkeley, keys));
    berkeley_crew_there.push_back(std::make_unique<Berkeley::Worker>(*berkeley, keys_there));
    check_exclusion("Berkeley DB", *berkeley_crew[0], *berkeley_crew_there[0]);
  }
  check_exclusion("hierlock", *our_crew[0], *our_crew_there[0]);

  const Window window = session.window();
  const std::size_t samples = session.quick() ? 500 : 2000;
  std::size_t next = 0;
  session.measure(group, {{"ours", [&] { return pairs_per_second(our_crew, window); }},
                          {"ours-there", [&] { return pairs_per_second(our_crew_there, window); }},
                          {"berkeley", [&] { return pairs_per_second(berkeley_crew, window); }},
                          {"berkeley-there", [&] { return pairs_per_second(berkeley_crew_there, window); }},
                          {"ours-bytes", [&] { return our_bytes; }},
                          {"berkeley-bytes", [&] { return berkeley_bytes; }},
                          {"limit-bytes", [] { return 200.0; }},
                          {"ours-exclusive", [&] { return exclusive_p99(ours->locker(), samples, next); }},
                          {"limit-time", [] { return 1e6; }}});
  session.preparing(group, "releasing");
}

void million(Session& session) { with_held(session, "million", held_tree_key, held_count + users * accounts + users); }

void alone(Session& session) { with_held(session, "alone", held_alone_key, 3 * held_count); }

// One Berkeley DB lock that two lockers hand to each other.
class BerkeleyTurns {
 public:
  BerkeleyTurns() = default;
  explicit BerkeleyTurns(const Berkeley::Config& config) : store_(config) {}

  void acquire(std::size_t self) { sides_[self].hold(path_); }
  void release(std::size_t self) { sides_[self].drop(); }

 private:
  const Path path_{0, 0, 0};
  Berkeley store_;
  Berkeley::Worker sides_[2] = {{store_, {}}, {store_, {}}};
};

void handover(Session& session) {
  FutexTurns futex;
  if (!futex.is_turn_of(0) || futex.is_turn_of(1)) throw std::runtime_error("futex: self-check: it is nobody's turn");
  OurTurns ours;
  BerkeleyTurns berkeley;
  const std::size_t hops = session.quick() ? 100 : 500;
  const auto p50 = [hops](auto& turns) { return percentile(hand_overs(turns, hops), 50); };
  session.measure("handover", {{"ours", [&] { return p50(ours); }},
                               {"futex", [&] { return p50(futex); }},
                               {"berkeley", [&] { return p50(berkeley); }}});
}

void string(Session& session) {
  Team<Ours> ours("hierlock", {spread_keys()});
  Crew<Ours::StringWorker> strings;
  strings.push_back(std::make_unique<Ours::StringWorker>(*ours.store, spread_keys()));
  const Window window = session.window();
  session.measure("string", {{"prepared", [&] { return pairs_per_second(ours.crew, window); }},
                             {"string", [&] { return pairs_per_second(strings, window); }}});
}

Crew<Ours::Worker> crew_of(Ours& store, hierlock::Target (*make)(const Path&)) {
  std::vector<hierlock::Target> targets;
  for (const Path& path : spread_keys()) targets.push_back(make(path));
  Crew<Ours::Worker> crew;
  crew.push_back(std::make_unique<Ours::Worker>(store, std::move(targets)));
  return crew;
}

hierlock::Target as_name(const Path& path) { return hierlock::named(path.nodes[2]); }
hierlock::Target as_slots(const Path& path) { return hierlock::slots(path.nodes[2], 3); }

void named(Session& session) {
  Ours ours;
  Crew<Ours::Worker> names = crew_of(ours, as_name);
  Team<Berkeley> berkeley("Berkeley DB", {spread_keys()});
  const Window window = session.window();
  const auto node = [](Berkeley::Worker& worker, std::size_t i) { worker.pair_of_node(i); };
  session.measure("named", {{"ours", [&] { return pairs_per_second(names, window); }},
                            {"berkeley", [&] { return pairs_per_second(berkeley.crew, window, node); }}});
}

void slots(Session& session) {
  Ours ours;
  Crew<Ours::Worker> names = crew_of(ours, as_name), counted = crew_of(ours, as_slots);
  const Window window = session.window();
  session.measure("slots", {{"slots", [&] { return pairs_per_second(counted, window); }},
                            {"named", [&] { return pairs_per_second(names, window); }}});
}

void contended(Session& session) {
  const std::vector<std::vector<Path>> same{{Path(0, 0, 0)}, {Path(0, 0, 0)}};
  Team<Ours> ours("hierlock", same);
  Team<Berkeley> berkeley("Berkeley DB", same);
  Team<Striped> striped("striped", same);
  // A pair may take as long as a wake-up: the clock is read after each, so that nobody goes on alone for a batch.
  const Window window = session.window(1);
  session.measure("contended", {{"ours", [&] { return pairs_per_second(ours.crew, window); }},
                                {"berkeley", [&] { return pairs_per_second(berkeley.crew, window); }},
                                {"striped", [&] { return pairs_per_second(striped.crew, window); }}});
}

// A table of shm: and a region of Berkeley DB, in files in memory that processes share.
class SharedStores {
 public:
  std::string url() const { return "shm://" + folder_.file("table"); }
  Berkeley::Config berkeley() const { return {.folder = folder_.folder("berkeley"), .spins = 500}; }

 private:
  ScratchFolder folder_;
};

void shm(Session& session) {
  const SharedStores stores;
  Team<Ours> ours("hierlock, shm:", {spread_keys()}, stores.url()), memory("hierlock", {spread_keys()});
  Team<Berkeley> berkeley("Berkeley DB", {spread_keys()}, stores.berkeley());
  const Window window = session.window();
  session.measure("shm", {{"ours", [&] { return pairs_per_second(ours.crew, window); }},
                          {"memory", [&] { return pairs_per_second(memory.crew, window); }},
                          {"berkeley", [&] { return pairs_per_second(berkeley.crew, window); }}});
}

void process_pairs(Session& session, std::string_view group, const std::vector<std::vector<Path>>& keys) {
  const SharedStores stores;
  ProcessTeam<Ours> ours("hierlock, shm:", keys, stores.url());
  ProcessTeam<Berkeley> berkeley("Berkeley DB", keys, stores.berkeley());
  const Window window = session.window();
  session.measure(group, {{"ours", [&] { return ours.pairs_per_second(window); }},
                          {"berkeley", [&] { return berkeley.pairs_per_second(window); }}});
}

void shm_disjoint2(Session& session) {
  const std::vector<Path> keys = spread_keys();
  process_pairs(session, "shm-disjoint2", {keys_by_user(keys, 0), keys_by_user(keys, 1)});
}

void shm_hot2(Session& session) {
  const std::vector<Path> keys = hot_keys();
  process_pairs(session, "shm-hot2", {keys_by_resource(keys, 0), keys_by_resource(keys, 1)});
}

void shm_handover(Session& session) {
  const SharedStores stores;
  Shared<FutexTurns> word(FutexTurns::Between::processes);
  ProcessTurns ours([&] { return std::make_unique<OurTurns>(stores.url()); });
  ProcessTurns berkeley([config = stores.berkeley()] { return std::make_unique<BerkeleyTurns>(config); });
  ProcessTurns futex([&] { return std::unique_ptr<FutexTurns, void (*)(FutexTurns*)>(&*word, [](FutexTurns*) {}); });
  const std::size_t hops = session.quick() ? 100 : 500;
  const auto p50 = [hops](ProcessTurns& turns) { return percentile(turns.hand_overs(hops), 50); };
  session.measure("shm-handover", {{"ours", [&] { return p50(ours); }},
                                   {"futex", [&] { return p50(futex); }},
                                   {"berkeley", [&] { return p50(berkeley); }}});
}

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

void exec(Session& session) {
  const std::optional<std::string> tool = tool_path(), flock_path = found_in_path("flock");
  if (!tool) return session.skip("exec", "the tool is not built (HIERLOCK_BUILD_CLI is off)");
  if (!flock_path) return session.skip("exec", "there is no flock in PATH (it is in util-linux)");
  const ScratchFolder folder;
  const std::string url = "shm://" + folder.file("table"), file = folder.file("flock");
  // While somebody else holds it, both must refuse.
  on_threads(1, [&](std::size_t) {
    hierlock::Locker locker = hierlock::open(url);
    const hierlock::Lock lock = locker.acquire("u1/a1/r1");
    const Program again({*tool, "exec", "--on", url, "--no-wait", "u1/a1/r1", "--", "true"});
    if (again.run_quietly() != 75) throw std::runtime_error("hierlock exec: self-check: a lock was given to two");
    const FileLock file_lock(file);
    const Program flock_again({*flock_path, "--nonblock", file, "true"});
    if (flock_again.run_quietly() != 1) throw std::runtime_error("flock: self-check: a lock was given to two");
  });
  const Program ours({*tool, "exec", "--on", url, "u1/a1/r1", "--", "true"}), flock({*flock_path, file, "true"});
  InTurns round(
      session.quick() ? 11 : 41, [&] { return ours.time(); }, [&] { return flock.time(); });
  session.measure("exec", {{"ours", [&] { return round.ours(); }}, {"flock", [&] { return round.peer(); }}});
}

// Processor time that processes use while they wait. Nobody gets anything meanwhile.
void waiting(Session& session) {
  constexpr std::size_t crowd_size = 400;
  const ScratchFolder folder;
  const std::string url = "shm://" + folder.file("table");
  const auto take = [&url](const auto& about_to_wait, bool first) {
    hierlock::Locker locker = hierlock::open(url);
    if (!first) about_to_wait();
    const hierlock::Lock lock = locker.acquire(hierlock::named("wanted"));
    if (!first) throw std::runtime_error("waiting: a held name was given to two");
    about_to_wait();
    for (;;) pause();
  };
  session.preparing("waiting", "starting processes");
  const ProcessCrowd holder(1, [&](const auto& about_to_wait) { take(about_to_wait, true); });
  const ProcessCrowd ours(crowd_size, [&](const auto& about_to_wait) { take(about_to_wait, false); });
  // A waiter that would never look could not notice that the holder died.
  Shared<std::atomic<std::uint32_t>> word(0u);
  const ProcessCrowd futex(crowd_size, [&](const auto& about_to_wait) {
    about_to_wait();
    while (word->load() == 0) futex_sleep(*word, 0, 100ms, FutexTurns::Between::processes);
  });
  const auto share = [&session](const ProcessCrowd& crowd) {
    const double begin = crowd.processor_nanoseconds();
    const Clock::time_point begin_time = Clock::now();
    std::this_thread::sleep_for(session.quick() ? 300ms : 1000ms);
    return (crowd.processor_nanoseconds() - begin) / nanoseconds(Clock::now() - begin_time);
  };
  session.measure(
      "waiting",
      {{"ours", [&] { return share(ours); }}, {"futex", [&] { return share(futex); }}, {"limit", [] { return 0.2; }}},
      session.quick() ? 3 : 7);
}

// From a release until each of the waiting threads has had what was released, and has released it.
void drain(Session& session) {
  constexpr std::size_t crowd_size = 4'000, slot_count = 3;
  constexpr auto longest = 5s;  // who waits longer has failed
  const ScratchFolder folder;
  std::optional<hierlock::Locker> memory = hierlock::open("memory:"), shm = hierlock::open("shm://" + folder.file("t"));
  session.preparing("drain", "starting threads");
  ThreadCrowd crowd(crowd_size);
  const auto timed = [&](const auto& pair, const auto& release) {
    std::atomic<std::size_t> failed{0};
    crowd.start([&](std::size_t) {
      if (!pair()) ++failed;
    });
    const Clock::time_point begin = Clock::now();
    release();
    crowd.finish();
    const double took = nanoseconds(Clock::now() - begin);
    return failed == 0 ? took : std::max(took, nanoseconds(longest));
  };
  const auto ours = [&](hierlock::Locker& locker, const hierlock::Target& wanted) {
    const bool slots = wanted.space() == hierlock::Space::slots;
    std::vector<hierlock::Owner> owners;
    std::vector<hierlock::Lock> held;
    for (std::size_t i = 0; i < (slots ? slot_count : 1); ++i) {
      owners.push_back(locker.owner("holder"));
      held.push_back(locker.acquire(slots ? wanted : hierlock::named("drained"), {.owner = &owners.back()}));
    }
    return timed([&] { return locker.try_acquire(wanted, longest).has_value(); }, [&] { held.clear(); });
  };
  const auto futex = [&](std::size_t all, std::size_t each) {
    FutexQueue queue(all);
    queue.acquire(all);
    const auto pair = [&] {
      if (!queue.acquire(each, longest)) return false;
      queue.release(each);
      return true;
    };
    return timed(pair, [&] { queue.release(all); });
  };
  const hierlock::Target exclusive = hierlock::named("drained"), shared = hierlock::shared(hierlock::named("drained")),
                         slots = hierlock::slots("drained", slot_count);
  session.measure("drain",
                  {{"exclusive", [&] { return ours(*memory, exclusive); }},
                   {"shared", [&] { return ours(*memory, shared); }},
                   {"slots", [&] { return ours(*memory, slots); }},
                   {"shm-exclusive", [&] { return ours(*shm, exclusive); }},
                   {"shm-shared", [&] { return ours(*shm, shared); }},
                   {"shm-slots", [&] { return ours(*shm, slots); }},
                   {"futex-exclusive", [&] { return futex(1, 1); }},
                   {"futex-shared", [&] { return futex(crowd_size, 1); }},
                   {"futex-slots", [&] { return futex(slot_count, 1); }},
                   {"limit", [] { return 1e9; }}},
                  session.quick() ? 1 : 5);
}

// Threads that hold something and wait for something, until the object goes.
class Standstill {
 public:
  struct Place {
    std::vector<hierlock::Target> held;
    hierlock::Target wanted;
  };
  // The calling thread holds `mine`, an owner that does not wait holds `hot`. Everybody waits for one of these, or for
  // somebody who does.
  Standstill(std::size_t size, const std::function<Place(std::size_t)>& place)
      : held_(size),
        other_(locker_.owner("other")),
        hot_(locker_.acquire(hot(), {.owner = &other_})),
        mine_(locker_.acquire(mine())),
        crowd_(size) {
    crowd_.start([&](std::size_t i) {
      for (const hierlock::Target& target : place(i).held) held_[i].push_back(locker_.acquire(target));
    });
    crowd_.finish();
    crowd_.start([this, place](std::size_t i) {
      locker_.acquire(place(i).wanted).release();
      held_[i].clear();
    });
  }
  ~Standstill() {
    hot_.release();
    mine_.release();
    crowd_.finish();
  }
  Standstill(const Standstill&) = delete;
  Standstill& operator=(const Standstill&) = delete;

  static hierlock::Target hot() { return hierlock::named("hot"); }
  static hierlock::Target mine() { return hierlock::named("mine"); }

  // Waits for `hot` exclusively, in vain.
  void wait(std::chrono::nanoseconds longest) {
    if (locker_.try_acquire(hot(), longest)) throw std::runtime_error("entangled: a held name was given to two");
  }

 private:
  hierlock::Locker locker_ = hierlock::open("memory:");
  std::vector<std::vector<hierlock::Lock>> held_;
  hierlock::Owner other_;
  hierlock::Lock hot_, mine_;
  ThreadCrowd crowd_;
};

// What one more wait costs, in processor time of the thread that waits; the others are asleep.
void entangled(Session& session) {
  constexpr std::size_t crowd_size = 800, few = 20, locks = 10'000, accounts_each = 100;
  const hierlock::Target hot = hierlock::shared(Standstill::hot()), mine = Standstill::mine();
  using Place = Standstill::Place;
  const auto link = [](std::size_t i) { return hierlock::named("link " + std::to_string(i)); };
  const auto many = [](std::size_t i) {
    std::vector<hierlock::Target> targets;
    for (std::size_t n = 0; n < locks; ++n) {
      targets.emplace_back("u" + std::to_string(i) + "/a" + std::to_string(n % accounts_each) + "/r" +
                           std::to_string(n / accounts_each));
    }
    return targets;
  };
  const std::map<std::string, std::pair<std::size_t, std::function<Place(std::size_t)>>> scenes = {
      {"one",
       {crowd_size,
        [&](std::size_t i) {
          return i == 0 ? Place{{link(0)}, hot} : Place{{}, hot};
        }}},
      {"holder",
       {crowd_size,
        [&](std::size_t i) {
          return i == 0 ? Place{{link(0)}, mine} : Place{{}, hot};
        }}},
      {"chain",
       {crowd_size,
        [&](std::size_t i) {
          return Place{{link(i)}, i + 1 < crowd_size ? link(i + 1) : mine};
        }}},
      {"many-locks",
       {few,
        [&](std::size_t i) {
          return Place{many(i), hot};
        }}},
      // The first waits for a user that the second holds by intention: who holds it is written at their locks only.
      {"many-shared",
       {few,
        [&](std::size_t i) {
          return Place{many(i), i == 0 ? hierlock::Target("u1") : mine};
        }}},
  };
  const std::size_t samples = session.quick() ? 15 : 41;
  const auto cost = [samples](const auto& wait) {
    std::vector<double> times;
    for (std::size_t n = 0; n < samples; ++n) {
      const double begin = thread_nanoseconds();
      wait(1ms);
      times.push_back(thread_nanoseconds() - begin);
    }
    return summarize(times).median;
  };
  session.preparing("entangled", "starting threads");
  std::vector<std::unique_ptr<Standstill>> standing;
  Contenders contenders = {{"limit", [] { return 2e5; }}, {"limit-shared", [] { return 2e6; }}};
  for (const auto& [name, scene] : scenes) {
    if (!session.needs("entangled", name)) continue;
    standing.push_back(std::make_unique<Standstill>(scene.first, scene.second));
    contenders[name] = [&cost, &still = *standing.back()] {
      return cost([&](std::chrono::nanoseconds longest) { still.wait(longest); });
    };
  }
  FutexQueue queue(1);
  queue.acquire(1);
  ThreadCrowd crowd(crowd_size);
  crowd.start([&](std::size_t) {
    queue.acquire(1);
    queue.release(1);
  });
  contenders["futex"] = [&] {
    return cost([&](std::chrono::nanoseconds longest) {
      if (queue.acquire(1, longest)) throw std::runtime_error("futex: self-check: a lock was given to two");
    });
  };
  session.measure("entangled", contenders);
  queue.release(1);
  crowd.finish();
}

// The server that the environment names. Without one the group is skipped.
const char* server_for(Session& session, std::string_view group, const char* variable) {
  const std::string why = why_no_mysql();
  const char* const url = std::getenv(variable);
  if (!why.empty()) {
    session.skip(group, why);
  } else if (url == nullptr) {
    session.skip(group, std::string(variable) + " names no server: eval \"$(tools/servers env)\"");
  }
  return why.empty() ? url : nullptr;
}

// What one of the two locks, the other must find locked: otherwise they would not do the same work.
void check_same_rows(Ours& ours, SelectByRow& by_row_store) {
  Ours::Worker a(ours, std::vector<Path>{});
  SelectByRow::Worker b(by_row_store, {});
  check_exclusion("hierlock and SELECT by row", a, b);
}

void database_pairs(Session& session, std::string_view group, const char* variable) {
  const char* const url = server_for(session, group, variable);
  if (url == nullptr) return;
  session.preparing(group, "rows");
  const BucketTable table(url, 100'000);
  Team<Ours> ours("hierlock, mysql:", {spread_keys()}, table.url());
  Team<SelectByRow> selects("SELECT by row", {spread_keys()}, table);
  check_same_rows(*ours.store, *selects.store);
  // Many pairs a turn: after each turn of the other a session has to be woken up, which is not what a pair costs.
  constexpr std::size_t pairs_a_turn = 50;
  const auto timed = [](auto& worker) {
    return [&worker, i = std::size_t{0}]() mutable {
      const Clock::time_point begin = Clock::now();
      for (std::size_t n = 0; n < pairs_a_turn; ++n) worker.pair(i++ % worker.size());
      return nanoseconds(Clock::now() - begin) / pairs_a_turn;
    };
  };
  InTurns round(session.quick() ? 15 : 51, timed(*ours.crew[0]), timed(*selects.crew[0]));
  const auto per_second = [](double nanoseconds) { return 1e9 / nanoseconds; };
  session.measure(group, {{"ours", [&] { return per_second(round.ours()); }},
                          {"by-row", [&] { return per_second(round.peer()); }}});
}

// Instructions of one pair, as callgrind counts them: what twice as many pairs run more. They do not depend on the
// machine's speed, nor on what else it does.
double instructions_of_a_pair(const std::string& valgrind, const std::string& form) {
  constexpr std::size_t count = 10'000;
  const auto total = [&](std::size_t pairs) {
    const std::string text = Program({valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null", pairs_path(),
                                      std::to_string(pairs), form})
                                 .errors();
    constexpr std::string_view label = "Collected : ";
    const std::size_t at = text.find(label);
    if (at == text.npos) throw std::runtime_error("callgrind counted nothing: " + text);
    return std::strtod(text.c_str() + at + label.size(), nullptr);
  };
  return (total(2 * count) - total(count)) / count;
}

void instructions(Session& session) {
  const std::optional<std::string> valgrind = found_in_path("valgrind");
  if (!valgrind) return session.skip("instructions", "there is no valgrind in PATH");
  session.measure("instructions",
                  {{"target", [&] { return instructions_of_a_pair(*valgrind, "target"); }},
                   {"shared", [&] { return instructions_of_a_pair(*valgrind, "shared"); }},
                   {"string", [&] { return instructions_of_a_pair(*valgrind, "string"); }},
                   {"limit", [] { return 600.0; }}},
                  1);
}

void mysql(Session& session) { database_pairs(session, "mysql", "HIERLOCK_TEST_MYSQL"); }
void mariadb(Session& session) { database_pairs(session, "mariadb", "HIERLOCK_TEST_MARIADB"); }

void provision(Session& session, std::string_view group, const char* variable) {
  const char* const url = server_for(session, group, variable);
  if (url == nullptr) return;
  const std::uint64_t rows = session.full() ? 10'000'000 : session.quick() ? 100'000 : 1'000'000;
  Filling ours(url, rows, Filling::Way::ours), digits_joined(url, rows, Filling::Way::cross_joins);
  session.measure(group,
                  {{"ours", [&] { return ours.nanoseconds(); }},
                   {"ours-bytes", [&] { return ours.bytes(); }},
                   {"digits", [&] { return digits_joined.nanoseconds(); }},
                   {"digits-bytes", [&] { return digits_joined.bytes(); }}},
                  session.full() ? 1 : 5);
}

void provision_mysql(Session& session) { provision(session, "provision-mysql", "HIERLOCK_TEST_MYSQL"); }
void provision_mariadb(Session& session) { provision(session, "provision-mariadb", "HIERLOCK_TEST_MARIADB"); }

}  // namespace

std::span<const Case> all_cases() { return cases; }

Outcome run(const std::vector<const Case*>& selected, const Effort& effort, const Progress& progress) {
  constexpr std::pair<std::string_view, void (*)(Session&)> groups[] = {
      {"pair", pair},
      {"instructions", instructions},
      {"hot", hot},
      {"disjoint2", disjoint2},
      {"hot2", hot2},
      {"million", million},
      {"alone", alone},
      {"handover", handover},
      {"uuid", uuid},
      {"string", string},
      {"named", named},
      {"slots", slots},
      {"contended", contended},
      {"shm", shm},
      {"shm-disjoint2", shm_disjoint2},
      {"shm-hot2", shm_hot2},
      {"shm-handover", shm_handover},
      {"exec", exec},
      {"waiting", waiting},
      {"drain", drain},
      {"entangled", entangled},
      {"mysql", mysql},
      {"mariadb", mariadb},
      {"provision-mysql", provision_mysql},
      {"provision-mariadb", provision_mariadb},
  };
  Session session(effort, progress, selected);
  for (const auto& [group, measure] : groups) {
    const auto in_group = [name = group](const Case* c) { return c->group == name; };
    if (std::any_of(selected.begin(), selected.end(), in_group)) measure(session);
  }
  return std::move(session).outcome();
}

}  // namespace bench
