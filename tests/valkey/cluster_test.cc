// A cluster of three primaries with a replica each: locks are where the cluster has put them, also while it moves them
// (B3, B4, B12).
#include <algorithm>
#include <csignal>
#include <future>
#include <memory>
#include <set>
#include <vector>

#include <hierlock/operate.h>

#include "node.h"
#include "on_valkey.h"
#include "support/own_server.h"
#include "witness.h"

namespace hierlock::valkey_tests {
namespace {

class Cluster : public testing::Test {
 protected:
  void SetUp() override {
    HIERLOCK_NEEDS_SERVER("VALKEY");
    valkey::enable();
    own_ = OwnServer::get("valkey", "--cluster");
    ASSERT_NE(own_, nullptr) << "tools/servers cannot start a cluster";
    std::string names = own_->name();
    for (int i = 2; i <= 6; ++i) names += " " + own_->name() + std::to_string(i);
    int count = 0;
    for (const std::string& line : lines_of(servers("env " + names))) {
      if (line.find("_OPERATOR='") == line.npos) continue;
      ++count;
      nodes_.push_back(std::make_unique<Node>(own_->name() + (count == 1 ? "" : std::to_string(count)), line));
    }
    ASSERT_EQ(nodes_.size(), 6u);
    ASSERT_TRUE(is_whole());
  }
  std::string url(const std::string& more = "lease=3000") const {
    return with(own_->url(), "table=" + table_ + "&" + more);
  }
  std::string url_at(const std::string& hosts, const std::string& more = "lease=3000") const {
    const std::string all = url(more);
    const std::size_t at = all.find('@');
    return all.substr(0, at + 1) + hosts + all.substr(all.find('/', at));
  }
  // All nodes are there, and have run for longer than a lease.
  bool is_whole() {
    return eventually(
        [&] {
          return std::all_of(nodes_.begin(), nodes_.end(), [](const auto& node) {
            const std::string replication = node->ask({"INFO", "replication"}), server = node->ask({"INFO", "server"});
            const std::size_t uptime = server.find("uptime_in_seconds:");
            return uptime != std::string::npos && std::stoi(server.substr(uptime + 18)) > 4 &&
                   node->ask({"CLUSTER", "INFO"}).find("cluster_state:ok") != std::string::npos &&
                   (replication.find("state=online") != std::string::npos ||
                    replication.find("master_link_status:up") != std::string::npos);
          });
        },
        60s);
  }

  std::string place_of(const std::string& root) const { return valkey_tests::place_of(url(), root); }
  std::string slot_of(const std::string& key) { return nodes_[0]->ask({"CLUSTER", "KEYSLOT", key}); }
  // The primary that serves this key.
  Node& owner_of(const std::string& key) {
    Node* owner = nullptr;
    EXPECT_TRUE(eventually([&] {
      for (const auto& node : nodes_) {
        // EXISTS is answered by the owner, or with MOVED.
        if (node->ask({"EXISTS", key}).size() == 1) owner = node.get();
      }
      return owner != nullptr;
    }));
    if (owner == nullptr) throw std::runtime_error("no node has " + key);
    return *owner;
  }
  std::vector<Node*> primaries() {
    std::vector<Node*> some;
    for (const auto& node : nodes_) {
      if (node->ask({"INFO", "replication"}).find("role:master") != std::string::npos) some.push_back(node.get());
    }
    return some;
  }
  // As operators do it, but one key at a time.
  void move_slot_of(const std::string& key) {
    const std::vector<Node*> all = primaries();
    Node& from = owner_of(key);
    const auto next = std::find(all.begin(), all.end(), &from) + 1;
    Node& to = next == all.end() ? *all.front() : **next;
    const std::string slot = slot_of(key), from_id = from.ask({"CLUSTER", "MYID"}), to_id = to.ask({"CLUSTER", "MYID"});
    ASSERT_EQ(to.ask({"CLUSTER", "SETSLOT", slot, "IMPORTING", from_id}), "OK");
    ASSERT_EQ(from.ask({"CLUSTER", "SETSLOT", slot, "MIGRATING", to_id}), "OK");
    for (std::vector<std::string> keys;
         !(keys = lines_of(from.ask({"CLUSTER", "GETKEYSINSLOT", slot, "10"}))).empty();) {
      for (const std::string& one : keys) {
        const std::string said = from.ask(
            {"MIGRATE", "127.0.0.1", to.port(), "", "0", "10000", "AUTH2", "operator", to.password(), "KEYS", one});
        ASSERT_TRUE(said == "OK" || said == "NOKEY") << said;
      }
    }
    ASSERT_EQ(to.ask({"CLUSTER", "SETSLOT", slot, "NODE", to_id}), "OK");
    ASSERT_EQ(from.ask({"CLUSTER", "SETSLOT", slot, "NODE", to_id}), "OK");
  }

  const OwnServer* own_ = nullptr;
  const std::string table_ = new_table();
  std::vector<std::unique_ptr<Node>> nodes_;
};

const std::vector<std::string> roots{"u1", "u2", "u3", "u4", "u5", "u6", "u7", "u8"};

TEST_F(Cluster, one_acquire_locks_roots_at_all_nodes) {
  Locker locker = hierlock::open(url()), other = hierlock::open(url());
  std::vector<Target> all{named("n1"), slots("s1", 1)};
  for (const std::string& root : roots) all.emplace_back(root + "/a");
  std::set<std::string> used;
  {
    const Lock lock = locker.acquire(all, {.timeout = 30s});
    for (const Target& target : all) EXPECT_FALSE(other.try_acquire(target).has_value());
    for (const std::string& root : roots) used.insert(owner_of(place_of(root)).name());
    EXPECT_EQ(used.size(), 3u);
  }
  EXPECT_TRUE(other.try_acquire(all).has_value());
}

TEST_F(Cluster, any_node_leads_to_all_others) {
  Locker locker = hierlock::open(url());
  const Lock lock = locker.acquire("u1", {.timeout = 30s});
  for (const auto& node : nodes_) {  // replicas, too
    EXPECT_FALSE(hierlock::open(url_at("127.0.0.1:" + node->port())).try_acquire("u1").has_value()) << node->name();
  }
  EXPECT_FALSE(hierlock::open(url_at("127.0.0.1:1,127.0.0.1:" + nodes_[1]->port())).try_acquire("u1").has_value())
      << "the first node of the URL is down";
}

// Waiters listen at one node, and grants are told by another one.
TEST_F(Cluster, messages_wake_waiters_at_all_nodes) {
  Locker holder = hierlock::open(url()), waiter = hierlock::open(url("lease=3000&publish_after=0"));
  std::vector<std::chrono::nanoseconds> times;
  for (int i = 0; i < 9; ++i) {
    const std::string& root = roots[static_cast<std::size_t>(i) % roots.size()];
    std::optional<Lock> lock = holder.acquire(root, {.timeout = 30s});
    Clock::time_point granted;
    std::thread waiting([&] {
      const Lock got = waiter.acquire(root);
      granted = Clock::now();
    });
    EXPECT_TRUE(eventually([&] { return holder.snapshot().anybody_waits(root); })) << "status sees all nodes";
    const Clock::time_point released = Clock::now();
    lock.reset();
    waiting.join();
    times.push_back(granted - released);
  }
  std::sort(times.begin(), times.end());
  EXPECT_LT(times[4], 250ms) << "without messages it is half a second";
}

TEST_F(Cluster, a_deadlock_through_two_nodes_is_found) {
  Locker one = hierlock::open(url()), two = hierlock::open(url());
  std::string other = "u2";
  for (const std::string& root : roots) {
    const Lock both = one.acquire(std::vector<Target>{Target("u1"), Target(root)}, {.timeout = 30s});
    if (&owner_of(place_of(root)) != &owner_of(place_of("u1"))) other = root;
  }
  std::atomic<int> deadlocks{0}, granted{0};
  const auto cross = [&](Locker& locker, const std::string& first, const std::string& second, std::atomic<int>& ready) {
    Lock lock = locker.acquire(first, {.timeout = 30s});
    ++ready;
    eventually([&] { return ready == 2; });
    try {
      lock.extend(second, {.timeout = 30s});
      ++granted;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::deadlock) ++deadlocks;
    }
  };
  std::atomic<int> ready{0};
  std::thread first([&] { cross(one, "u1", other, ready); });
  std::thread second([&] { cross(two, other, "u1", ready); });
  first.join();
  second.join();
  EXPECT_EQ(deadlocks, 1);
  EXPECT_EQ(granted, 1);
}

// In every second round one lock is held, and waited for, from before the first move until after the last.
TEST_F(Cluster, slots_are_moved_under_load) {
  const std::string where = url("lease=3000&gate=off&publish_after=0");
  Load load({where, where, where, where}, {"u1", "u2", "u3", "u4"});
  Locker keeper = hierlock::open(url("lease=10000"));
  ASSERT_TRUE(load.goes_on());
  for (int round = 0; round < 6; ++round) {
    std::optional<Lock> kept;
    std::optional<Visit> inside;
    if (round % 2 == 1) {
      kept = keeper.acquire("u1/a", {.timeout = 30s});
      inside.emplace(load.witness(), "u1", *kept);
      EXPECT_TRUE(eventually([&] { return keeper.snapshot().anybody_waits("u1/a"); }));
    }
    for (const char* root : {"u1", "u2", "u3", "u4"}) move_slot_of(place_of(root));
    move_slot_of("hl:" + table_ + ":{notices}");
    EXPECT_TRUE(!kept || kept->held());
    inside.reset();
    kept.reset();
    EXPECT_TRUE(load.goes_on());
  }
  EXPECT_EQ(load.end(), std::set<std::string>{});
  EXPECT_EQ(load.witness().overlaps(), 0);
  EXPECT_EQ(load.witness().falls(), 0);
}

// Those of another table do not exclude these, and what they have in common is only the witness.
TEST_F(Cluster, the_witness_sees_two_who_hold_one_lock) {
  Load load({url(), with(own_->url(), "table=" + table_ + "_other&lease=3000")}, {"u1"});
  EXPECT_TRUE(eventually([&] { return load.witness().overlaps() > 0; }));
  EXPECT_EQ(load.end(), std::set<std::string>{});
}

// A move that stands still: half of the keys are here and half are there.
TEST_F(Cluster, a_lock_whose_keys_are_at_two_nodes_is_not_granted) {
  Locker locker = hierlock::open(url("lease=1000"));
  { const Lock once = locker.acquire("u1", {.timeout = 30s}); }
  const std::string key = place_of("u1"), slot = slot_of(key);
  Node& from = owner_of(key);
  const std::vector<Node*> all = primaries();
  Node& to = &from == all[0] ? *all[1] : *all[0];
  const auto set = [&](Node& node, const std::string& state, Node& other) {
    return node.ask({"CLUSTER", "SETSLOT", slot, state, other.ask({"CLUSTER", "MYID"})});
  };
  const auto migrate = [&](const std::string& one) {
    return from.ask(
        {"MIGRATE", "127.0.0.1", to.port(), "", "0", "10000", "AUTH2", "operator", to.password(), "KEYS", one});
  };
  ASSERT_EQ(set(to, "IMPORTING", from), "OK");
  ASSERT_EQ(set(from, "MIGRATING", to), "OK");
  { const Lock still = locker.acquire("u1", {.timeout = 30s}); }
  ASSERT_EQ(migrate(key + ":l"), "OK");
  EXPECT_TRUE(fails_with(
      ErrorKind::unavailable, [&] { static_cast<void>(locker.acquire("u1")); }, "is being moved to another node"));
  ASSERT_EQ(migrate(key), "OK");
  EXPECT_TRUE(fails_with(ErrorKind::timeout, [&] { static_cast<void>(locker.acquire("u1", {.timeout = 300ms})); }));
  ASSERT_EQ(migrate(key + ":q"), "OK");
  { const Lock there = locker.acquire("u1", {.timeout = 30s}); }
  ASSERT_EQ(set(to, "NODE", to), "OK");
  ASSERT_EQ(set(from, "NODE", to), "OK");
  { const Lock after = locker.acquire("u1", {.timeout = 30s}); }
}

TEST_F(Cluster, a_slot_without_a_primary_is_told) {
  Locker locker = hierlock::open(url("lease=1000"));
  { const Lock once = locker.acquire("u1", {.timeout = 30s}); }
  const std::string key = place_of("u1"), slot = slot_of(key);
  Node& owner = owner_of(key);
  ASSERT_EQ(owner.ask({"CLUSTER", "DELSLOTS", slot}), "OK");
  EXPECT_TRUE(fails_with(
      ErrorKind::unavailable, [&] { static_cast<void>(locker.acquire("u1")); }, "have no primary"));
  ASSERT_EQ(owner.ask({"CLUSTER", "ADDSLOTS", slot}), "OK");
  ASSERT_TRUE(is_whole());
  { const Lock again = locker.acquire("u1", {.timeout = 30s}); }
}

TEST_F(Cluster, a_silent_node_ends_no_lock_at_another_one) {  // B4, B12
  Locker locker = hierlock::open(url("lease=1500"));
  Node& silent = owner_of(place_of("u1"));
  const Lock there = locker.acquire("u1", {.timeout = 30s});
  std::vector<Lock> elsewhere;
  for (const std::string& root : roots) {
    if (&owner_of(place_of(root)) != &silent) elsewhere.push_back(locker.acquire(root, {.timeout = 30s}));
  }
  ASSERT_FALSE(elsewhere.empty());
  ASSERT_EQ(silent.ask({"CLIENT", "PAUSE", "6000", "ALL"}), "OK");
  EXPECT_TRUE(eventually([&] { return !there.held(); }));
  const auto all_held = [&] {
    return std::all_of(elsewhere.begin(), elsewhere.end(), [](const Lock& lock) { return lock.held(); });
  };
  EXPECT_FALSE(eventually([&] { return !all_held(); }, 3s)) << "a lock at a node that answers is lost";
  EXPECT_TRUE(is_whole());
}

// The owner of the extend may never get what it asks for, but what it has does not depend on the silent node.
TEST_F(Cluster, an_extend_that_waits_at_a_silent_node_ends_and_leaves_its_lock) {  // B4
  Locker locker = hierlock::open(url("lease=1500")), other = hierlock::open(url("lease=1500"));
  Node& silent = owner_of(place_of("u1"));
  const auto elsewhere =
      std::find_if(roots.begin(), roots.end(), [&](const auto& root) { return &owner_of(place_of(root)) != &silent; });
  ASSERT_NE(elsewhere, roots.end());
  Lock lock = locker.acquire(*elsewhere, {.timeout = 30s});
  const Lock there = other.acquire("u1", {.timeout = 30s});
  auto extends = std::async(std::launch::async, [&] { lock.extend("u1", {.timeout = 30s}); });
  ASSERT_TRUE(eventually([&] { return locker.snapshot().anybody_waits("u1"); }));
  ASSERT_EQ(silent.ask({"CLIENT", "PAUSE", "6000", "ALL"}), "OK");
  EXPECT_TRUE(fails_with(ErrorKind::unavailable, [&] { extends.get(); }));
  EXPECT_TRUE(lock.held());
  EXPECT_TRUE(is_whole());
}

TEST_F(Cluster, a_deadlock_is_found_while_another_node_is_silent) {  // B11
  Locker one = hierlock::open(url("publish_after=0")), two = hierlock::open(url("publish_after=0"));
  Node* const notices = &owner_of("hl:" + table_ + ":{notices}");
  std::vector<std::string> alive;
  std::string there;
  for (const std::string& root : roots) {
    Node& node = owner_of(place_of(root));
    if (&node == notices) {
      alive.push_back(root);
    } else {
      there = root;
    }
  }
  for (int i = 0; alive.size() < 2; ++i) {
    const std::string root = "more" + std::to_string(i);
    if (&owner_of(place_of(root)) == notices) alive.push_back(root);
  }
  ASSERT_FALSE(there.empty());
  Lock taken = one.acquire(there, {.timeout = 30s});
  std::stop_source stop;
  std::jthread waits([&] {
    try {
      static_cast<void>(two.acquire(there, {.timeout = 60s, .cancel = stop.get_token()}));
    } catch (const Error&) {  // its node is silent
    }
  });
  Lock first = one.acquire(alive[0], {.timeout = 30s}), second = two.acquire(alive[1], {.timeout = 30s});
  ASSERT_TRUE(eventually([&] { return one.snapshot().anybody_waits(there); }));
  ASSERT_EQ(owner_of(place_of(there)).ask({"CLIENT", "PAUSE", "8000", "ALL"}), "OK");
  const auto crosses = [](Lock& lock, const std::string& root) {
    try {
      lock.extend(root, {.timeout = 30s});
      return false;
    } catch (const Error& error) {
      return error.kind() == ErrorKind::deadlock;
    }
  };
  const Clock::time_point begin = Clock::now();
  auto other_way = std::async(std::launch::async, [&] {
    const bool deadlock = crosses(second, alive[0]);
    second.release();
    return deadlock;
  });
  const bool deadlock = crosses(first, alive[1]);
  first.release();
  EXPECT_NE(deadlock, other_way.get());
  EXPECT_LT(Clock::now() - begin, 4s);
  stop.request_stop();
  waits.join();
  EXPECT_TRUE(is_whole());
}

// Requests to the silent node use all connections, and the locks need more than one round trip to be renewed.
TEST_F(Cluster, a_silent_node_does_not_delay_renewals_at_the_others) {  // B4, B12
  Locker locker = hierlock::open(url("lease=3000&connections=2&publish_after=60000"));
  Node& silent = owner_of(place_of("u1"));
  const Lock there = locker.acquire("u1", {.timeout = 30s});
  std::vector<Lock> elsewhere;
  for (int i = 0; elsewhere.size() < 1500; ++i) {
    const std::string root = "r" + std::to_string(i);
    const bool is_there = silent.ask({"EXISTS", place_of(root)}).size() == 1;  // otherwise: MOVED
    if (!is_there) elsewhere.push_back(locker.acquire(root, {.timeout = 30s}));
  }
  ASSERT_EQ(silent.ask({"CLIENT", "PAUSE", "9000", "ALL"}), "OK");
  std::atomic<bool> over{false};
  std::vector<std::jthread> askers;
  for (int i = 0; i < 4; ++i) {
    askers.emplace_back([&, i] {
      while (!over) {
        try {
          static_cast<void>(locker.try_acquire("u1/a" + std::to_string(i), 500ms));
        } catch (const Error&) {  // the node does not answer
        }
      }
    });
  }
  EXPECT_TRUE(eventually([&] { return !there.held(); }));
  const auto lost = [&] {
    return std::any_of(elsewhere.begin(), elsewhere.end(), [](const Lock& lock) { return !lock.held(); });
  };
  EXPECT_FALSE(eventually(lost, 4s)) << "a lock at a node that answers is lost";
  over = true;
  askers.clear();
  EXPECT_TRUE(is_whole());
}

// The node that grants may have been started a moment ago. A message comes through another node, and does not show it.
TEST_F(Cluster, a_message_alone_grants_nothing) {  // B3
  Locker holder = hierlock::open(url()), waiter = hierlock::open(url("lease=3000&publish_after=0"));
  std::optional<Lock> held = holder.acquire("u1", {.timeout = 30s});
  std::atomic<bool> granted{false};
  std::jthread waiting([&] {
    const Lock lock = waiter.acquire("u1");
    granted = true;
  });
  ASSERT_TRUE(eventually([&] { return holder.snapshot().anybody_waits("u1"); }));
  Node& owner = owner_of(place_of("u1"));
  for (const std::string& field : lines_of(owner.ask({"HKEYS", place_of("u1")}))) {
    if (field[0] != 'r') continue;
    const std::string id = field.substr(1), channel = "hl:" + table_ + ":wake:" + id.substr(0, id.find(':'));
    for (const char* question : {"1", "2"}) {
      owner.ask({"PUBLISH", channel, id + " " + question + " 1795000000000000 " + place_of("u1")});
    }
  }
  EXPECT_FALSE(eventually([&] { return granted.load(); }, 1s)) << "two hold the lock";
  held.reset();
  EXPECT_TRUE(eventually([&] { return granted.load(); }));
}

// The primary is killed, and its replica takes its place. Each lock was confirmed by the replica. One lock is held from
// before the kill until after the takeover.
TEST_F(Cluster, with_wait_replicas_no_lock_is_lost_when_a_primary_is_killed) {
  const std::string where = url("lease=3000&gate=off&wait_replicas=1");
  Load load({where, where, where, where}, {"u1", "u2", "u3", "u4"});
  ASSERT_TRUE(load.goes_on());
  Node& primary = owner_of(place_of("u1"));
  const std::string id = primary.ask({"CLUSTER", "MYID"});
  const auto replica = std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& node) {
    return node->ask({"CLUSTER", "NODES"}).find("myself,slave,nofailover " + id) != std::string::npos;
  });
  ASSERT_NE(replica, nodes_.end());
  Locker keeper = hierlock::open(url("lease=10000&wait_replicas=1"));
  std::optional<Lock> kept = keeper.acquire("u1/a", {.timeout = 30s});
  std::optional<Visit> inside(std::in_place, load.witness(), "u1", *kept);
  servers("kill " + primary.name());
  ASSERT_EQ((*replica)->ask({"CLUSTER", "FAILOVER", "TAKEOVER"}), "OK");
  servers("start " + primary.name());
  ASSERT_TRUE(is_whole());
  EXPECT_TRUE(kept->held());
  inside.reset();
  kept.reset();
  EXPECT_TRUE(load.goes_on());
  EXPECT_EQ(load.end(), std::set<std::string>{});
  EXPECT_EQ(load.witness().overlaps(), 0);
  EXPECT_EQ(load.witness().falls(), 0);
}

TEST_F(Cluster, doctor_sees_the_cluster) {
  // A node tells of a replica once it has heard how far that one is.
  const auto says = [&](const std::string& check, const std::string& more, Finding::Verdict verdict) {
    return eventually([&] {
      const std::vector<Finding> all = doctor(url(more));
      return std::any_of(all.begin(), all.end(),
                         [&](const Finding& one) { return one.check == check && one.verdict == verdict; });
    });
  };
  EXPECT_TRUE(says("cluster", "gate=on", Finding::Verdict::good));
  EXPECT_TRUE(says("role", "gate=on", Finding::Verdict::good));
  EXPECT_TRUE(says("replicas", "wait_replicas=0", Finding::Verdict::unknown));
  EXPECT_TRUE(says("replicas", "wait_replicas=1", Finding::Verdict::good));
  EXPECT_TRUE(says("replicas", "wait_replicas=2", Finding::Verdict::unsafe));
}

}  // namespace
}  // namespace hierlock::valkey_tests
