// Names are resolved once, within a limit. This program has a resolver of its own.
#include "endpoint/resolve.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <atomic>
#include <cstring>
#include <future>

#include <hierlock/error.h>

namespace {

std::atomic<int> asked{0};
std::promise<void>* silence = nullptr;  // a name server that answers when this is kept

}  // namespace

// In place of the C library's, for this program.
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints, addrinfo** found) {
  using Resolve = int(const char*, const char*, const addrinfo*, addrinfo**);
  static Resolve* const real = reinterpret_cast<Resolve*>(dlsym(RTLD_NEXT, "getaddrinfo"));
  ++asked;
  if (std::strcmp(name, "silent.test") == 0) silence->get_future().wait();
  if (std::strcmp(name, "nobody.test") == 0) return EAI_NONAME;
  return real(std::strcmp(name, "db.test") == 0 ? "127.0.0.1" : name, service, hints, found);
}

namespace hierlock::endpoint {
namespace {

using namespace std::chrono_literals;
using Addresses = std::vector<std::string>;

TEST(Resolve, an_address_is_not_asked_for) {
  timed::Deadline late(1h);
  asked = 0;
  EXPECT_EQ(resolve("127.0.0.1", "", late), Addresses{"127.0.0.1"});
  EXPECT_EQ(resolve("::1", "", late), Addresses{"::1"});
  EXPECT_EQ(asked, 0);
}

TEST(Resolve, a_name_becomes_its_addresses_by_one_question) {
  timed::Deadline late(1h);
  asked = 0;
  EXPECT_EQ(resolve("db.test", "", late), Addresses{"127.0.0.1"});
  EXPECT_EQ(asked, 1);
}

TEST(Resolve, a_name_that_nobody_has_is_unavailable) {
  timed::Deadline late(1h);
  try {
    resolve("nobody.test", "nobody.test:1", late);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unavailable);
    EXPECT_NE(std::string(error.what()).find("nobody.test:1"), std::string::npos) << error.what();
  }
}

TEST(Resolve, a_name_server_that_says_nothing_is_given_up) {  // H2
  std::promise<void> answer;
  silence = &answer;
  const int before = asked;
  timed::Deadline soon(20ms);
  EXPECT_THROW(resolve("silent.test", "", soon), Error);
  while (asked == before) std::this_thread::yield();  // the thread that was left behind has the promise
  answer.set_value();
}

}  // namespace
}  // namespace hierlock::endpoint
