// Opening: a URL names a store, and a bad one is told what is wrong with it.
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "support/shm_table.h"
#include "support/suite.h"

namespace hierlock::conformance {
namespace {

std::optional<ErrorKind> kind_of_opening(const std::string& url) {
  return kind_thrown_by([&] { return open(url).url(); });
}

TEST(Open, memory_is_always_there) {
  Locker locker = open("memory:");
  EXPECT_EQ(locker.url(), "memory:");
  EXPECT_TRUE(locker.acquire("u1").held());
  EXPECT_TRUE(open("MEMORY:").acquire("u1").held()) << "a scheme has no case";
}

TEST(Open, malformed_urls_are_refused) {
  for (const char* url : {"", "memory", ":", "://", " memory:", "mem ory:", "memory:\n", "memory:?=1",
                          "memory:?max_locks", "memory:?max_locks=", "memory:?max_locks=0", "memory:?max_locks=-1",
                          "memory:?max_locks=many", "memory:?max_locks=1e3", "memory:?max_locks=99999999999999999999",
                          "memory:?max_locks=10&max_locks=20", "memory:?nonsense=1", "memory:some where"}) {
    EXPECT_EQ(kind_of_opening(url), ErrorKind::invalid_argument) << '"' << url << '"';
    EXPECT_FALSE(message_of([&] { return open(url).url(); }).empty());
  }
}

TEST(Open, a_table_is_not_made_by_who_asks_not_to) {
  const TemporaryFolder folder;
  const std::string url = "shm://" + folder.path() + "/table";
  EXPECT_EQ(kind_thrown_by([&] { return open(url, {.create = false}).url(); }), ErrorKind::not_provisioned);
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/table"));
  Locker maker = open(url);
  const Lock lock = maker.acquire("u1");
  EXPECT_FALSE(open(url, {.create = false}).try_acquire("u1")) << "one that is there is the same for all";
}

TEST(Open, a_table_that_would_be_another_users_is_not_made) {
  for (const char* name : {"hierlock-4294967294", "hierlock-4294967294.jobs"}) {
    for (const char* url : {"shm:///dev/shm/", "shm:////dev/../dev/shm/"}) {
      EXPECT_EQ(kind_of_opening(std::string(url) + name + "?mode=0660"), ErrorKind::not_provisioned) << url << name;
      EXPECT_FALSE(std::filesystem::exists(std::string("/dev/shm/") + name));
    }
  }
  for (const char* url : {"shm:.", "shm:..", "shm:a/b", "shm://x"}) {
    EXPECT_EQ(kind_of_opening(url), ErrorKind::invalid_argument) << url;
  }
}

TEST(Open, the_log_tells_which_process_broke_a_lock) {
  const TemporaryFolder folder;
  Locker locker = open("shm://" + folder.path() + "/table");
  for (const char* reason : {"it hung", ""}) {
    const Lock lock = locker.acquire("u1");
    ASSERT_EQ(locker.break_locks("u1", reason), 1u);
    EXPECT_FALSE(lock.held());
  }
  const Snapshot snapshot = locker.snapshot();
  ASSERT_EQ(snapshot.log.size(), 2u);
  const std::string broken = "1 lock on u1 broken by process " + std::to_string(getpid());
  EXPECT_EQ(snapshot.log[0].text, broken + ": it hung");
  EXPECT_EQ(snapshot.log[1].text, broken);
  EXPECT_EQ(snapshot.log[1].targets, std::vector<std::string>{"u1"});
}

TEST(Open, the_log_of_a_file_tells_deadlocks_to_all_and_they_push_nothing_out) {
  const TemporaryFolder folder;
  const std::string url = "shm://" + folder.path() + "/table";
  Locker one = open(url), other = open(url);
  {
    const Lock lock = one.acquire("u2");
    ASSERT_EQ(one.break_locks("u2", ""), 1u);
  }
  const std::string long_name = "u1/" + std::string(255, 'a') + "/" + std::string(255, 'r');
  {
    const Lock held = one.acquire(long_name);
    for (int i = 0; i < 100; ++i) EXPECT_THROW(one.acquire("u1"), Error);
  }
  const Snapshot snapshot = other.snapshot();
  ASSERT_EQ(snapshot.log.size(), 33u) << "32 deadlocks, and what is not one";
  EXPECT_EQ(snapshot.log[0].targets, std::vector<std::string>{"u2"});
  EXPECT_TRUE(snapshot.log[0].cycle.empty());
  const Snapshot::Entry& last = snapshot.log.back();
  ASSERT_EQ(last.cycle.size(), 1u);
  EXPECT_EQ(last.cycle[0].waits_for, "u1");
  EXPECT_EQ(last.cycle[0].holds, long_name);
  EXPECT_LE(last.text.size(), 300u);
}

TEST(Open, an_unknown_option_is_named) {
  const std::string message = message_of([] { return open("memory:?max_lokcs=5").url(); });
  EXPECT_NE(message.find("max_lokcs"), std::string::npos) << message;
}

TEST(Open, a_store_that_is_not_there_is_unsupported) {
  EXPECT_EQ(kind_of_opening("nosuchstore:"), ErrorKind::unsupported);
  const std::string message = message_of([] { return open("nosuchstore://host/db").url(); });
  EXPECT_NE(message.find("nosuchstore"), std::string::npos) << message;
}

TEST(Open, a_password_never_appears_in_a_message) {
  for (const char* url : {"nosuchstore://app:hunter2@db/shop", "nosuchstore://app:hunter2@db/shop?x=1&x=2",
                          "memory://app:hunter2@db/shop", "nosuchstore://app:hunter2@db/shop\n"}) {
    const std::string message = message_of([&] { return open(url).url(); });
    EXPECT_FALSE(message.empty());
    EXPECT_EQ(message.find("hunter2"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace hierlock::conformance
