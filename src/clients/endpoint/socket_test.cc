#include "endpoint/socket.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

#include "endpoint/sql.h"
#include "endpoint/warden.h"

namespace hierlock::endpoint {
namespace {

using namespace std::chrono_literals;
using timed::Clock;

class Sockets : public testing::Test {
 protected:
  Sockets() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_), 0); }
  ~Sockets() override {
    hang_up();
    close(ends_[0]);
  }
  int here() const { return ends_[0]; }
  void say() { EXPECT_EQ(send(ends_[1], "x", 1, 0), 1); }
  void hang_up() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }

 private:
  int ends_[2] = {-1, -1};
};

TEST_F(Sockets, watching_tells_what_is_there_and_nothing_else) {
  EXPECT_EQ(watch(here(), readable, -1, 0ms), 0);
  EXPECT_EQ(watch(here(), readable | writable, -1, 1h), writable);
  say();
  EXPECT_EQ(watch(here(), readable | writable | urgent, -1, 1h), readable | writable);
  EXPECT_EQ(watch(here(), readable, -1, 1h), readable);
}

TEST_F(Sockets, a_connection_that_has_ended_is_readable) {
  EXPECT_FALSE(has_input(here()));
  hang_up();
  EXPECT_TRUE(has_input(here()));
  EXPECT_EQ(watch(here(), readable | writable, -1, 1h), readable | writable);
}

TEST_F(Sockets, watching_ends_when_it_is_woken) {
  const int wake = eventfd(1, EFD_CLOEXEC);
  const auto begin = Clock::now();
  EXPECT_EQ(watch(here(), readable, wake, 1h), 0);
  EXPECT_LT(Clock::now() - begin, 1min);
  close(wake);
}

TEST_F(Sockets, a_brief_look_sees_an_answer_and_does_not_wait_for_long) {
  BriefLook look;
  look.prepare(here());
  ASSERT_TRUE(look.possible());
  EXPECT_FALSE(BriefLook::readable(here()));
  say();
  EXPECT_TRUE(BriefLook::readable(here()));
}

// H2: the server says nothing for ever, and the library reads from it.
TEST_F(Sockets, a_warden_ends_a_call_that_blocks) {
  timed::Deadline soon(20ms);
  Warden warden(soon);
  char byte = 0;
  EXPECT_EQ(warden.during(here(), [&] { return static_cast<int>(recv(here(), &byte, 1, 0)); }), 0);
  EXPECT_TRUE(warden.gave_up());
}

TEST_F(Sockets, a_warden_leaves_a_call_alone_that_ends_by_itself) {
  timed::Deadline late(1h);
  Warden warden(late);
  say();
  char byte = 0;
  EXPECT_EQ(warden.during(here(), [&] { return static_cast<int>(recv(here(), &byte, 1, 0)); }), 1);
  EXPECT_FALSE(warden.gave_up());
  EXPECT_EQ(watch(here(), readable, -1, 0ms), 0) << "the socket still works";
}

TEST(Sql, numbers_are_read_from_fields) {
  EXPECT_EQ(number(Field("18446744073709551615")), 18'446'744'073'709'551'615u);
  EXPECT_EQ(number<std::int64_t>(Field("-7")), -7);
  EXPECT_EQ(number(Field()), 0u);
  EXPECT_EQ(number(Field("OFF")), 0u);
}

TEST(Sql, statements_are_filled_in_and_numbers_listed) {
  const std::vector<std::uint64_t> numbers{7, 18'446'744'073'709'551'615u};
  EXPECT_EQ(filled_in("a=? AND b=?", numbers), "a=7 AND b=18446744073709551615");
  EXPECT_EQ(listed(numbers), "7, 18446744073709551615");
  EXPECT_EQ(listed(std::vector<int>{}), "");
}

TEST(Sql, text_is_written_in_digits_and_what_is_no_utf8_is_replaced) {
  EXPECT_EQ(hexadecimal("'\xc3\xa9\\"), "27c3a95c");
  EXPECT_EQ(hexadecimal("caf\xe9!"), "6361663f21");
  EXPECT_EQ(hexadecimal(""), "");
}

}  // namespace
}  // namespace hierlock::endpoint
