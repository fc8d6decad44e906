// Threads of one process, on memory:.
#include <array>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "berkeley_turns.h"
#include "groups.h"
#include "keys.h"
#include "measure.h"
#include "ours.h"
#include "peer_berkeley.h"
#include "peer_futex.h"
#include "peer_rocksdb.h"
#include "peer_striped.h"
#include "programs.h"
#include "session.h"

namespace bench::groups {

namespace {

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

}  // namespace

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

namespace {

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

}  // namespace

void million(Session& session) { with_held(session, "million", held_tree_key, held_count + users * accounts + users); }

void alone(Session& session) { with_held(session, "alone", held_alone_key, 3 * held_count); }

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

namespace {

Crew<Ours::Worker> crew_of(Ours& store, hierlock::Target (*make)(const Path&)) {
  std::vector<hierlock::Target> targets;
  for (const Path& path : spread_keys()) targets.push_back(make(path));
  Crew<Ours::Worker> crew;
  crew.push_back(std::make_unique<Ours::Worker>(store, std::move(targets)));
  return crew;
}

hierlock::Target as_name(const Path& path) { return hierlock::named(path.nodes[2]); }
hierlock::Target as_slots(const Path& path) { return hierlock::slots(path.nodes[2], 3); }

}  // namespace

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

namespace {

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

}  // namespace

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

}  // namespace bench::groups
