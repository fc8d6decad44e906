// Opening: a URL names a store, and a bad one is told what is wrong with it.
#include <algorithm>

#include "suite.h"

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
                          "memory:?max_locks=10&max_locks=20", "memory:?nonsense=1", "memory:somewhere"}) {
    EXPECT_EQ(kind_of_opening(url), ErrorKind::invalid_argument) << '"' << url << '"';
    EXPECT_FALSE(message_of([&] { return open(url).url(); }).empty());
  }
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
