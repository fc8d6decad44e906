// Snapshots of a database, and `hierlock status` (B7, H15): from the server's own views, joined with what processes
// tell.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <set>

#include "on_server.h"
#include "program.h"
#include "relay.h"

namespace hierlock::mysql_tests {
namespace {

using Contention = Snapshot::Contention;
using Row = Snapshot::Row;

const std::string untold = "publish_after=60000", told = "publish_after=0";

std::string host() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

const Snapshot::Waiter* waiter_for(const Snapshot& snapshot, const std::string& target) {
  for (const Snapshot::Waiter& waiter : snapshot.waiters) {
    if (waiter.target == target) return &waiter;
  }
  return nullptr;
}

const Snapshot::Holder* holder_at(const Snapshot& snapshot, const Row& row, std::uint64_t session = 0) {
  for (const Snapshot::Holder& holder : snapshot.holders) {
    if (holder.row == row && (session == 0 || holder.who.session == session)) return &holder;
  }
  return nullptr;
}

std::string notes(const Snapshot& snapshot) {
  std::string all;
  for (const std::string& note : snapshot.notes) all += note + "\n";
  return all;
}

// Somebody who waits, on a Locker of its own, so that it does so at the server. It gives up when the test is over.
class Waits {
 public:
  Waits(Locker locker, const std::string& target, const std::string& note = "")
      : locker_(std::move(locker)), done_(std::async(std::launch::async, [this, target, note] {
          try {
            const Lock lock = locker_.acquire(Target::parse(target), {.cancel = stop_.get_token(), .note = note});
          } catch (const Error&) {
          }
        })) {}
  ~Waits() { end(); }
  Waits(const Waits&) = delete;
  Waits& operator=(const Waits&) = delete;
  void end() {
    stop_.request_stop();
    if (done_.valid()) done_.get();
  }

 private:
  Locker locker_;
  std::stop_source stop_;
  std::future<void> done_;
};

class Status : public OnServer {
 protected:
  // As one who may read the views.
  Locker watcher(const std::string& more = "") const { return hierlock::open(url(operator_server(), more)); }
  // A look at which this is so.
  static Snapshot look(const Locker& locker, const std::function<bool(const Snapshot&)>& fact) {
    Snapshot last;
    const bool so = eventually([&] {
      last = locker.snapshot();
      return fact(last);
    });
    EXPECT_TRUE(so) << last.holders.size() << " hold, " << last.waiters.size() << " wait\n" << notes(last);
    return last;
  }
  // So many wait for somebody, and have told, if they ever do, for what.
  static Snapshot look(const Locker& locker, std::size_t waiters, bool they_tell = true) {
    return look(locker, [&](const Snapshot& now) {
      return now.waiters.size() == waiters &&
             std::none_of(now.waiters.begin(), now.waiters.end(),
                          [&](const auto& one) { return one.blocked_by.empty() || (they_tell && one.target.empty()); });
    });
  }
};

TEST_P(Status, a_holder_in_another_process_is_shown_before_it_has_told_anybody) {  // B7
  Process other([&] { static Lock lock = open("buckets=1&" + untold).acquire("u1/a1/r1"); });
  ASSERT_TRUE(other.ready());
  const Locker all = watcher();
  if (!mariadb()) {
    const Snapshot now = all.snapshot();
    ASSERT_EQ(now.holders.size(), 3u) << "each of its rows";
    EXPECT_EQ(holder_at(now, {0, 0})->mode, Mode::S);
    EXPECT_FALSE(holder_at(now, {0, 0})->asked);
    const Snapshot::Holder* const leaf = holder_at(now, {2, 0});
    ASSERT_NE(leaf, nullptr);
    EXPECT_EQ(leaf->mode, Mode::X);
    EXPECT_TRUE(leaf->asked);
    EXPECT_EQ(leaf->who.process, other.pid());
    EXPECT_EQ(leaf->who.host, host());
    EXPECT_TRUE(now.buckets.empty()) << "nobody waits";
  }
  // MariaDB shows a lock when somebody waits for it.
  Waits waits(open(untold), "u1/a1/r1");
  const Snapshot now = look(all, 1, false);
  const Snapshot::Holder* const leaf = holder_at(now, {2, 0});
  ASSERT_NE(leaf, nullptr);
  EXPECT_EQ(leaf->target, "") << "nobody has told it";
  EXPECT_GT(leaf->who.session, 0u);
  EXPECT_EQ(
      plain().one("SELECT COUNT(*) FROM information_schema.processlist WHERE ID=" + std::to_string(leaf->who.session)),
      "1");
  EXPECT_NE(leaf->who.owner_name.find("session " + std::to_string(leaf->who.session) + " of " + server().user),
            std::string::npos)
      << leaf->who.owner_name;
  EXPECT_EQ(now.waiters[0].blocked_by, std::vector{leaf->who.owner});
  EXPECT_EQ(now.waiters[0].row, (Row{2, 0}));
  EXPECT_EQ(now.waiters[0].target, "");
  EXPECT_EQ(now.waiters[0].contention, Contention::unknown) << "no path is known";
  look(all, [](const Snapshot& snapshot) { return notes(snapshot).empty(); });
}

TEST_P(Status, does_not_say_that_nothing_is_held_where_that_cannot_be_seen) {  // B7: MariaDB
  Locker first = open("buckets=1&" + untold);
  const Locker all = watcher();
  Lock lock = first.acquire("u1/a1/r1");
  const Snapshot now = look(all, [&](const Snapshot& s) { return !s.holders.empty() || !s.notes.empty(); });
  if (mariadb()) {
    EXPECT_NE(notes(now).find("rows locked that are not shown"), std::string::npos) << notes(now);
  } else {
    EXPECT_EQ(notes(now), "") << "MySQL shows every lock";
  }
  lock.release();
  EXPECT_TRUE(eventually([&] { return notes(all.snapshot()).empty(); })) << "and only then";
}

// Row by row, 200 round trips would take longer than a process publishes at a time (2 s).
TEST_P(Status, two_hundred_locks_on_a_far_server_are_published) {  // B7, B12
  constexpr int many = 200, paths = 50;                            // a path has a connection of its own
  Relay relay(server().host, server().port);
  Server behind = server();
  behind.port = relay.port();
  Locker locker = hierlock::open(url(behind, "tls=off&connections=" + std::to_string(paths)));
  std::vector<Target> targets;
  for (int i = 0; i < paths; ++i) targets.push_back(Target::parse("u" + std::to_string(i)));
  locker.acquire(targets).release();  // their rows are there now
  for (int i = paths; i < many; ++i) targets.push_back(named("n" + std::to_string(i)));
  std::vector<Lock> held;
  held.reserve(many);
  for (const Target& target : targets) held.push_back(locker.acquire(target));
  relay.forget();
  relay.delay(6ms);  // a round trip takes 12 ms
  const auto published = [&] { return plain().one("SELECT COUNT(*) FROM `" + table() + "_notices` WHERE waits=0"); };
  EXPECT_TRUE(eventually([&] { return published() == std::to_string(many); })) << published();
  int statements = 0;
  for (const Relay::Command& command : relay.commands()) statements += command.text.starts_with("REPLACE INTO") ? 1 : 0;
  EXPECT_LT(statements, many / 2);
  for (const Lock& lock : held) EXPECT_TRUE(lock.held());
}

TEST_P(Status, a_waiter_is_shown_with_everybody_in_its_way) {  // B7
  Locker first = open(told);
  const Lock lock = first.acquire("u1/a1/r1", {.note = "first"});
  Waits second(open(told), "u1/a1/r1", "second");
  const Locker all = watcher();
  look(all, 1);
  Waits third(open(told), "u1", "third");
  const Snapshot now = look(all, 2);
  const Snapshot::Waiter* const waiter = waiter_for(now, "u1");
  ASSERT_NE(waiter, nullptr);
  EXPECT_EQ(waiter->who.note, "third");
  EXPECT_EQ(waiter->who.process, getpid());
  EXPECT_EQ(waiter->who.host, host());
  EXPECT_EQ(waiter->contention, Contention::own_target);
  // The second waits for the leaf, and has the user meanwhile.
  std::set<std::string> in_the_way;
  for (const Snapshot::Holder& holder : now.holders) {
    const auto& owners = waiter->blocked_by;
    if (std::find(owners.begin(), owners.end(), holder.who.owner) != owners.end()) in_the_way.insert(holder.who.note);
    EXPECT_EQ(holder.fence, holder.who.note == "first" ? lock.fence() : 0) << "the second holds only a part so far";
  }
  EXPECT_EQ(in_the_way, (std::set<std::string>{"first", "second"}));
}

TEST_P(Status, the_queue_of_a_process_is_shown_in_its_order) {  // B7, B8
  Locker locker = hierlock::open(url(operator_server()));
  Lock held = locker.acquire("u1");
  std::vector<std::string> notes;
  for (int i = 0; i < 5; ++i) notes.push_back("thread " + std::to_string(i));
  std::mutex mutex;
  std::vector<std::string> granted;
  std::vector<std::jthread> threads;
  Snapshot now;
  for (const std::string& note : notes) {
    threads.emplace_back([&] {
      const Lock lock = locker.acquire("u1", {.timeout = 20s, .note = note});
      const std::lock_guard guard(mutex);
      granted.push_back(note);
    });
    now = look(locker, threads.size());
  }
  ASSERT_EQ(now.holders.size(), 1u);
  const Snapshot::Holder& holder = now.holders.front();
  EXPECT_EQ(holder.target, "u1");
  EXPECT_EQ(holder.fence, held.fence());
  ASSERT_EQ(now.waiters.size(), notes.size());
  for (std::size_t i = 0; i < notes.size(); ++i) {
    const Snapshot::Waiter& waiter = now.waiters[i];
    EXPECT_EQ(waiter.who.note, notes[i]);
    EXPECT_EQ(waiter.who.process, getpid());
    EXPECT_EQ(waiter.target, "u1");
    EXPECT_NE(std::find(waiter.blocked_by.begin(), waiter.blocked_by.end(), holder.who.owner), waiter.blocked_by.end())
        << notes[i];
  }
  EXPECT_EQ(how_many_wait(), 0) << "all of them wait in the process";
  held.release();
  threads.clear();
  EXPECT_EQ(granted, notes) << "and that is the order in which they are granted";
  EXPECT_TRUE(eventually([&] { return locker.snapshot().waiters.empty(); }));
}

TEST_P(Status, the_queue_of_another_process_is_shown_in_its_order) {  // B7, B8
  constexpr int queued = 70, published = 64;
  for (const Target& target : {Target("u1"), named("n")}) {
    SCOPED_TRACE(target.str());
    Process other([&] {
      static std::atomic<int> waiting = 0;
      static Locker locker = open("", {.on_event = [](const Event& event) {
                                    if (event.kind == Event::Kind::wait_begins) ++waiting;
                                  }});
      static Lock held = locker.acquire(target);
      for (int i = 0; i < queued; ++i) {
        std::thread([i, target] { (void)locker.acquire(target, {.note = "thread " + std::to_string(i)}); }).detach();
        if (!eventually([&] { return waiting.load() == i + 1; })) throw std::runtime_error("a thread does not wait");
      }
    });
    ASSERT_TRUE(other.ready());
    const Locker all = watcher();
    Snapshot now;
    const std::string last = "thread 63; 6 more wait behind it in the queue of its process";
    // The last threads may be counted a look later.
    ASSERT_TRUE(eventually([&] {
      now = all.snapshot();
      return now.waiters.size() == published && now.waiters.back().who.note == last;
    })) << now.waiters.size();
    ASSERT_EQ(now.holders.size(), 1u);
    for (int i = 0; i < published; ++i) {
      const Snapshot::Waiter& waiter = now.waiters[static_cast<std::size_t>(i)];
      EXPECT_EQ(waiter.who.note, i + 1 < published ? "thread " + std::to_string(i) : last);
      EXPECT_EQ(waiter.who.process, now.holders[0].who.process);
      EXPECT_EQ(waiter.wanted, now.holders[0].target);
    }
    other.kill();
    // No view shows names. What a killed process has told counts for 10 s.
    const auto soon = target.space() == Space::path ? 8s : 20s;
    EXPECT_TRUE(eventually([&] { return all.snapshot().waiters.empty(); }, soon)) << "the queue goes with its process";
  }
}

TEST_P(Status, waiting_for_another_path_of_the_same_bucket_is_called_false_contention) {  // H15
  Locker first = open("buckets=1&" + told);
  const Lock lock = first.acquire("u1/a1/r1");
  Waits falsely(open(told), "u2"), truly(open(told), "u1");
  const Locker all = watcher();
  const Snapshot now = look(all, [](const Snapshot& snapshot) {
    const auto *u1 = waiter_for(snapshot, "u1"), *u2 = waiter_for(snapshot, "u2");
    return u1 != nullptr && u2 != nullptr && !u1->blocked_by.empty() && !u2->blocked_by.empty();
  });
  EXPECT_EQ(waiter_for(now, "u2")->contention, Contention::shared_bucket);
  EXPECT_EQ(waiter_for(now, "u1")->contention, Contention::own_target);
  EXPECT_EQ(waiter_for(now, "u2")->row, (Row{0, 0}));
  ASSERT_EQ(now.buckets.size(), 1u);
  EXPECT_EQ(now.buckets[0].row, (Row{0, 0}));
  EXPECT_EQ(now.buckets[0].holders, 1u);
  EXPECT_EQ(now.buckets[0].waiters, 2u);
  EXPECT_EQ(now.buckets[0].falsely, 1u);
  EXPECT_EQ(now.buckets[0].unknown, 0u);
  EXPECT_EQ(now.buckets[0].targets, (std::vector<std::string>{"u1", "u2"}));
}

TEST_P(Status, false_contention_is_not_guessed_where_a_path_is_not_known) {  // H15
  Locker first = open("buckets=1&" + untold);
  const Lock lock = first.acquire("u1/a1/r1");
  Waits waits(open(told), "u2");
  const Locker all = watcher();
  const Snapshot now = look(all, 1);
  EXPECT_EQ(now.waiters[0].target, "u2");
  EXPECT_EQ(now.waiters[0].contention, Contention::unknown);
  ASSERT_EQ(now.buckets.size(), 1u);
  EXPECT_EQ(now.buckets[0].unknown, 1u);
  // Whoever holds it knows, and tells its own process.
  const Snapshot inside = look(first, 1);
  if (const auto view = notes(inside); view.empty()) {
    EXPECT_EQ(inside.waiters[0].contention, Contention::shared_bucket);
  }
}

TEST_P(Status, somebody_elses_session_on_the_table_is_shown) {  // B7
  { const Lock made = open("buckets=1").acquire("u1/a1/r1"); }  // the rows are there
  Plain foreign(operator_server());
  foreign.ask("BEGIN");
  foreign.ask("SELECT * FROM " + table() + " WHERE level=0 FOR UPDATE");
  Waits waits(open(told), "u1/a1");
  const Locker all = watcher();
  const Snapshot now = look(all, 1);
  const Snapshot::Holder* const holder = holder_at(now, {0, 0}, foreign.id());
  ASSERT_NE(holder, nullptr);
  EXPECT_EQ(holder->mode, Mode::X);
  EXPECT_EQ(holder->target, "");
  EXPECT_NE(holder->who.owner_name.find(" of " + operator_server().user + "@"), std::string::npos)
      << holder->who.owner_name;
  EXPECT_EQ(now.waiters[0].target, "u1");
  EXPECT_EQ(now.waiters[0].wanted, "u1/a1");
  EXPECT_EQ(now.waiters[0].blocked_by, std::vector{holder->who.owner});
  EXPECT_EQ(now.waiters[0].contention, Contention::unknown);
}

TEST_P(Status,
       a_row_that_somebody_has_just_made_is_that_sessions) {  // B7: the server notes such a lock under another's
  const Locker all = watcher("buckets=1");
  Plain foreign(operator_server());
  foreign.ask("BEGIN");
  foreign.ask("INSERT INTO " + table() + " (level, bucket) VALUES (0, 0)");
  Waits waits(open(told), "u1");
  const Snapshot now = look(all, 1);
  const Snapshot::Holder* const holder = holder_at(now, {0, 0}, foreign.id());
  ASSERT_NE(holder, nullptr) << "of session " << foreign.id();
  EXPECT_EQ(now.waiters[0].blocked_by, std::vector{holder->who.owner});
}

TEST_P(Status, somebody_else_who_waits_is_shown_with_whom_it_waits_for) {  // B7
  Locker first = open("buckets=1&" + told);
  const Lock lock = first.acquire("u1");
  Plain foreign(operator_server());
  foreign.ask("SET SESSION innodb_lock_wait_timeout=50");
  const unsigned long id = foreign.id();
  auto waits = std::async(std::launch::async, [&] {
    return foreign.code_of("SELECT * FROM " + table() + " WHERE level=0 AND bucket=0 LOCK IN SHARE MODE");
  });
  const Locker all = watcher();
  const Snapshot now = look(all, 1, false);
  EXPECT_EQ(now.waiters[0].who.session, id);
  EXPECT_EQ(now.waiters[0].mode, Mode::S);
  const Snapshot::Holder* const holder = holder_at(now, {0, 0});
  ASSERT_NE(holder, nullptr);
  EXPECT_EQ(holder->target, "u1");
  EXPECT_EQ(now.waiters[0].blocked_by, std::vector{holder->who.owner});
  plain().ask("KILL QUERY " + std::to_string(id));
  EXPECT_NE(waits.get(), 0u);
}

TEST_P(Status, readers_in_the_way_of_a_writer_are_all_shown) {  // B7: to MariaDB all who only read are one and the same
  Locker first = open(told), second = open(told);
  const Lock one = first.acquire(shared("u1/a1/r1")), two = second.acquire(shared("u1/a1/r1"));
  Waits waits(open(told), "u1/a1/r1");
  const Locker all = watcher();
  const Snapshot now = look(all, 1);
  EXPECT_EQ(now.waiters[0].blocked_by.size(), 2u);
  for (const std::uint64_t owner : now.waiters[0].blocked_by) {
    EXPECT_TRUE(std::any_of(now.holders.begin(), now.holders.end(), [&](const Snapshot::Holder& holder) {
      return holder.who.owner == owner && holder.target == "u1/a1/r1";
    }));
  }
  EXPECT_EQ(now.waiters[0].contention, Contention::own_target);
}

TEST_P(Status, the_most_waited_for_bucket_comes_first) {  // H15
  Locker first = open(told);
  const Lock lock = first.acquire({"u1", "u2", "u3"});
  Waits a(open(told), "u1"), b(open(told), "u2"), c(open(told), "u2"), d(open(told), "u2"), e(open(told), "u3"),
      f(open(told), "u3");
  const Snapshot now = look(watcher(), 6);
  ASSERT_EQ(now.buckets.size(), 3u);
  EXPECT_EQ(now.buckets[0].targets, std::vector<std::string>{"u2"});
  EXPECT_EQ(now.buckets[0].waiters, 3u);
  EXPECT_EQ(now.buckets[1].targets, std::vector<std::string>{"u3"});
  EXPECT_EQ(now.buckets[1].waiters, 2u);
  EXPECT_EQ(now.buckets[2].targets, std::vector<std::string>{"u1"});
  for (const Snapshot::Bucket& bucket : now.buckets) {
    EXPECT_EQ(bucket.holders, 1u);
    EXPECT_EQ(bucket.falsely, 0u);
  }
}

TEST_P(Status, a_look_is_not_older_than_the_moment_it_was_asked_for) {  // B7: MariaDB keeps its views for a while
  Locker first = open(told);
  const Lock lock = first.acquire("u1");
  const Locker all = watcher();
  for (int round = 0; round < 3; ++round) {
    {
      Waits waits(open(told), "u1");
      look(all, 1);
    }
    EXPECT_TRUE(all.snapshot().waiters.empty()) << "it has given up";
  }
}

TEST_P(Status, what_a_killed_process_had_told_is_not_shown_when_the_server_has_freed_it) {  // B7
  Process other([&] { static Lock lock = open(told).acquire("u1"); });
  ASSERT_TRUE(other.ready());
  const Locker all = watcher();
  look(all, [](const Snapshot& now) { return now.holders.size() == 1 && now.holders[0].target == "u1"; });
  other.kill();
  EXPECT_TRUE(eventually([&] { return all.snapshot().holders.empty(); }, 8s));
  EXPECT_EQ(plain().one("SELECT COUNT(*) FROM " + table() + "_notices"), "1") << "and yet it is written down";
}

// The server notices the death when its own wait is over, after 2 s at most. The notices stay for 10 s.
TEST_P(Status, a_wait_of_a_killed_process_is_not_shown) {  // B7
  Process holder([&] { static Lock lock = open(told).acquire("u1"); });
  ASSERT_TRUE(holder.ready());
  Process other([&] {
    static Locker locker = open(told);
    std::thread([] { (void)locker.acquire("u1"); }).detach();
  });
  ASSERT_TRUE(other.ready());
  const Locker all = watcher();
  look(all, 1);
  other.kill();
  EXPECT_TRUE(eventually([&] { return all.snapshot().waiters.empty(); }, 8s));
  EXPECT_EQ(plain().one("SELECT COUNT(*) FROM " + table() + "_notices WHERE waits=1"), "1")
      << "and yet it is written down";
}

TEST_P(Status, a_queued_wait_of_a_killed_process_is_not_shown) {  // B7
  Process holder([&] { static Lock lock = open(told).acquire("u1"); });
  ASSERT_TRUE(holder.ready());
  Process other([&] {
    static std::atomic<bool> waits = false;
    static Locker locker = open(told, {.on_event = [](const Event& event) {
                                  if (event.kind == Event::Kind::wait_begins) waits = true;
                                }});
    std::thread([] { (void)locker.acquire("u1"); }).detach();
    if (!eventually([&] { return waits.load(); })) throw std::runtime_error("it does not wait");
    static Lock own;
    std::thread([] {
      own = locker.acquire("u2");
      (void)locker.acquire("u1");  // in the queue of the process, behind the first
    }).detach();
  });
  ASSERT_TRUE(other.ready());
  const Locker all = watcher();
  look(all, 2);
  other.kill();
  EXPECT_TRUE(eventually([&] { return all.snapshot().waiters.empty(); }, 8s));
}

TEST_P(Status, a_wait_that_goes_on_is_shown_at_every_look) {  // B7: the server ends it every 2 s, and it asks anew
  Locker holder = open(told);
  const Lock held = holder.acquire("u1");
  Waits waits(open(told), "u1");
  const Locker all = watcher();
  look(all, 1);
  for (const auto end = Clock::now() + 5s; Clock::now() < end;) ASSERT_EQ(all.snapshot().waiters.size(), 1u);
}

TEST_P(Status, without_the_right_to_see_the_views_tells_what_was_told_and_which_right_is_missing) {  // B7
  Locker first = open("buckets=1&" + told);
  const Lock lock = first.acquire("u1");
  Waits falsely(open(told), "u2"), truly(open(told), "u1/a1");
  const std::string everything = "`" + server().database + "`.*";
  const Server user = make_user("SELECT, INSERT, UPDATE, DELETE", everything);
  const Locker its = hierlock::open(user.url("table=" + table()));
  const Snapshot now = look(its, 2);
  ASSERT_NE(waiter_for(now, "u2"), nullptr);
  EXPECT_EQ(waiter_for(now, "u2")->contention, Contention::shared_bucket) << "the other has the row alone";
  ASSERT_NE(waiter_for(now, "u1"), nullptr);
  EXPECT_EQ(waiter_for(now, "u1")->contention, Contention::own_target);
  ASSERT_EQ(now.notes.size(), 1u);
  const std::size_t grant = now.notes[0].find("GRANT ");
  ASSERT_NE(grant, std::string::npos) << now.notes[0];
  EXPECT_EQ(now.notes[0].substr(grant),
            std::string(mariadb() ? "GRANT PROCESS ON *.* TO " : "GRANT SELECT ON performance_schema.* TO ") + "'" +
                user.user + "'@'%'");
  plain().ask(now.notes[0].substr(grant));
  look(hierlock::open(user.url("table=" + table())), [](const Snapshot& snapshot) { return notes(snapshot).empty(); });
}

TEST_P(Status, without_the_right_to_read_what_was_told_says_so) {  // B7
  Locker first = open("buckets=1&" + told);
  const Lock lock = first.acquire("u1");
  const Server user = make_user("SELECT, UPDATE", "`" + server().database + "`." + table());
  plain().ask("GRANT SELECT, UPDATE ON `" + server().database + "`." + table() + "_settings TO '" + user.user +
              "'@'%'");
  const Snapshot now = hierlock::open(user.url("table=" + table())).snapshot();
  ASSERT_EQ(now.notes.size(), 2u) << notes(now);
  EXPECT_NE(now.notes[0].find("cannot be read"), std::string::npos) << now.notes[0];
  EXPECT_NE(now.notes[1].find("GRANT "), std::string::npos) << now.notes[1];
}

TEST_P(Status, of_a_server_that_does_not_answer_takes_no_longer_than_two_seconds_and_says_so) {  // B7
  Relay relay("127.0.0.1", server().port);
  Server behind = server();
  behind.port = relay.port();
  Locker locker = hierlock::open(url(behind, "tls=off&" + untold));
  const Lock lock = locker.acquire("u1");
  ASSERT_EQ(locker.snapshot().holders.size(), 1u);
  relay.pause();
  Snapshot silent;
  EXPECT_TRUE(once_within(
      3s, [&] { return time_of([&] { silent = locker.snapshot(); }); }, 2));
  EXPECT_EQ(silent.holders.size(), 1u) << "what it holds itself it knows";
  EXPECT_NE(notes(silent).find("does not answer"), std::string::npos) << notes(silent);
  relay.resume();
  EXPECT_TRUE(eventually([&] { return notes(locker.snapshot()).find("does not answer") == std::string::npos; }));
  EXPECT_TRUE(lock.held());
}

TEST_P(Status, looking_is_in_nobodys_way) {  // B7, B4: a deadline is kept by a KILL from the side
  Locker first = open("buckets=1");
  const Lock lock = first.acquire("u1");
  Locker second = watcher();
  std::atomic<bool> over{false};
  auto looks = std::async(std::launch::async, [&] {
    while (!over) second.snapshot();
  });
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(once_within(1s, [&] { return time_of([&] { EXPECT_FALSE(second.try_acquire("u1", 100ms)); }); }));
  }
  over = true;
  looks.get();
}

#ifdef HIERLOCK_BIN

TEST_P(Status, of_the_tool_is_told_as_text_as_json_and_as_a_picture) {  // B7, H15
  Locker first = open("buckets=1&" + told);
  const Lock lock = first.acquire("u1/a1/r1", {.note = "nightly"});
  Waits waits(open(told), "u2");
  look(watcher(), 1);
  look(watcher(), [](const Snapshot& snapshot) { return notes(snapshot).empty(); });  // sessions of others have ended
  const auto tool = [&](const std::vector<std::string>& more, const Server& as) {
    std::vector<std::string> arguments{HIERLOCK_BIN, "--on", as.url("table=" + table()), "status"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Program program(arguments);
    program.says_all();
    EXPECT_EQ(program.wait(), 0) << program.said();
    return program.said();
  };
  const auto has = [](const std::string& text, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) {
      EXPECT_NE(text.find(part), std::string::npos) << "no " << part << "\nin " << text;
    }
  };
  has(tool({}, operator_server()),
      {"u1/a1/r1  X", "    note     nightly\n", "    session  ", "    host     " + host() + "\n",
       "    false    only another id of its row is held: level 0, bucket 0\n",
       "level  bucket  hold  wait  falsely  targets\n"
       "    0       0     1     1  1        u1, u2\n"});
  // Other tests may lock rows of other tables on this server, which a note then tells.
  std::string json;
  EXPECT_TRUE(eventually([&] {
    json = tool({"--json"}, operator_server());
    return json.find("\"notes\": []") != std::string::npos;
  }));
  has(json, {"\"note\": \"nightly\"", "\"host\": \"" + host() + "\"", "\"false_contention\": true",
             "\"row\": {\n        \"level\": 0,\n        \"bucket\": 0\n      }",
             "  \"buckets\": [\n    {\n      \"level\": 0,\n      \"bucket\": 0,\n      \"holders\": 1,\n"
             "      \"waiters\": 1,\n      \"falsely\": 1,\n      \"unknown\": 0,\n      \"targets\": [\n"
             "        \"u1\",\n        \"u2\"\n      ]\n    }\n  ],\n  \"notes\": [],\n"});
  has(tool({"--dot"}, operator_server()), {"[label=\"u2\\nfalse contention\", style=dashed];", "on " + host()});
  has(tool({"--watch", "--count", "2", "--interval", "50ms"}, operator_server()), {"falsely"});
  const std::string grant = mariadb() ? "GRANT PROCESS ON *.* TO " : "GRANT SELECT ON performance_schema.* TO ";
  const Server user = make_user("SELECT, INSERT, UPDATE, DELETE", "`" + server().database + "`.*");
  has(tool({"--json"}, user),
      {"  \"notes\": [\n    \"this account may not see who waits for whom, ", grant + "'" + user.user + "'@'%'"});
  has(tool({}, user), {"\nNote: this account may not see who waits for whom"});
}

#endif

HIERLOCK_ON_BOTH_SERVERS(Status);

}  // namespace
}  // namespace hierlock::mysql_tests
