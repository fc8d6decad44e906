// What the command line tool says on valkey: and redis:.
#ifdef HIERLOCK_BIN
#include "support/tool.h"
#endif

#include <fstream>
#include <iterator>

#include "on_valkey.h"

#ifdef HIERLOCK_BIN

namespace hierlock::valkey_tests {
namespace {

class ToolOnValkey : public OnValkey {
 protected:
  std::string on(const std::string& more = "") const { return " --on '" + url(more) + "' "; }
};

TEST_P(ToolOnValkey, exec_inside_of_exec_is_told_that_it_waits_for_its_parent) {
  Tool tool("exec" + on("publish_after=0") + "u1 -- '" HIERLOCK_BIN "' exec" + on() + "--no-wait u1/a1 -- true");
  EXPECT_EQ(tool.ends(), 75) << tool.said();
  EXPECT_NE(tool.said().find("held by your own parent command"), std::string::npos) << tool.said();
}

TEST_P(ToolOnValkey, explain_refuses_a_wrong_option_and_prints_nothing_else) {
  Tool tool("explain" + on("lease=10s") + "u1");
  EXPECT_EQ(tool.ends(), 64);
  EXPECT_NE(tool.said().find("milliseconds"), std::string::npos) << tool.said();
  EXPECT_EQ(std::count(tool.said().begin(), tool.said().end(), '\n'), 1) << tool.said();
}

// What explain prints is what the server gets: the key is where it keeps the lock.
TEST_P(ToolOnValkey, explain_prints_the_calls_and_the_script) {
  Tool tool("explain" + on("lease=7000") + "u1/a1");
  EXPECT_EQ(tool.ends(), 0);
  const std::string place = place_of(url(), "u1"), keys = " 3 " + place + " " + place + ":l " + place + ":q ";
  EXPECT_TRUE(place.starts_with("hl:" + table() + ":{p")) << place;
  for (const std::string& part :
       {"EVALSHA locks.lua" + keys + "take ID 7000 ", std::string("'u1\n2\n0\nu1/a1\n4\n0\n'"),
        "EVALSHA locks.lua" + keys + "drop ID 0 FENCE\n", std::string("-- Locks of one root: everything")}) {
    EXPECT_NE(tool.said().find(part), std::string::npos) << part << " is missing in: " << tool.said();
  }
  std::ifstream file(HIERLOCK_LOCKS_LUA);
  const std::string script{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(tool.said().find(script), std::string::npos) << "and all of the script";
  Locker locker = hierlock::open(url());
  EXPECT_EQ(ask("EXISTS '" + place + "'"), "0\n");
  const Lock lock = locker.acquire("u1/a1");
  EXPECT_EQ(ask("EXISTS '" + place + "'"), "1\n");
}

TEST_P(ToolOnValkey, status_shows_all_of_a_long_url) {
  const std::string more = "lease=60000&connections=100&publish_after=1000&gate=on";
  Tool tool("status" + on(more));
  EXPECT_EQ(tool.ends(), 0) << tool.said();
  EXPECT_NE(tool.said().find("table=" + table() + "&" + more), std::string::npos) << tool.said();
}

// The holder has not published its lock yet.
TEST_P(ToolOnValkey, a_wait_for_an_unpublished_lock_does_not_say_somebody) {
  Locker locker = hierlock::open(url("publish_after=60000"));
  std::string blocked_by;
  std::stop_source told;
  Locker waits = hierlock::open(url(), {.on_event = [&](const Event& event) {
                                  if (event.kind != Event::Kind::wait_begins) return;
                                  blocked_by = event.blocked_by;
                                  told.request_stop();
                                }});
  const Lock lock = locker.acquire("u1");
  EXPECT_TRUE(fails_with(ErrorKind::cancelled, [&] {
    static_cast<void>(waits.acquire("u1", {.timeout = 30s, .cancel = told.get_token()}));
  }));
  EXPECT_NE(blocked_by.find("not published yet"), std::string::npos) << blocked_by;
}

HIERLOCK_ON_VALKEY_AND_REDIS(ToolOnValkey);

}  // namespace
}  // namespace hierlock::valkey_tests

#endif
