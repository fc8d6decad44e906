// A holder that was stopped past its lease, and goes on (X11). Needs the store valkey:.
#include <hierlock/locker.h>
#include <hierlock/valkey.h>

#include "rows.h"
#include "support/process_party.h"

namespace hierlock::tests {
namespace {

class StoppedHolder : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(, StoppedHolder, testing::Values("VALKEY", "REDIS"),
                         [](const testing::TestParamInfo<std::string>& server) { return server.param; });

TEST_P(StoppedHolder, cannot_overwrite_its_successor) {  // X11, B4
  HIERLOCK_NEEDS_SERVER(GetParam());
  valkey::enable();
  const auto client = bare_sqlite_client(":memory:");
  Session session(client->adapter());
  client->adapter().run("CREATE TABLE stock (item TEXT PRIMARY KEY, quantity INTEGER, fence INTEGER)", {}, 0);
  const Table table("stock", {.key = {"item"}, .columns = {"quantity"}, .fence = "fence"});
  session.insert(table, {"tea"}, {10});

  const std::string url = *server_variable(GetParam()) + "?table=stopped_" + std::to_string(getpid());
  conformance::ProcessParty holder("holder", url + "&lease=1000");
  const conformance::Outcome held = holder.acquire("tea").result.get();
  ASSERT_TRUE(held.granted()) << held;
  session.fenced_update(table, {"tea"}, held.fence, {set("quantity", 9)});
  holder.stop();

  Locker successor = open(url);
  const Lock taken = successor.acquire("tea", {.timeout = std::chrono::seconds(30)});
  ASSERT_GT(taken.fence(), held.fence);
  session.fenced_update(table, {"tea"}, taken.fence(), {set("quantity", 42)});

  holder.go_on();
  EXPECT_FALSE(holder.holds(held)) << "held() is false at once";
  EXPECT_EQ(holder.fence(held), 0) << "fence() throws lost, so there is none to write with";
  // It may have kept the number from before.
  EXPECT_EQ(kind_of([&] { session.fenced_update(table, {"tea"}, held.fence, {set("quantity", 7)}); }), ErrorKind::lost);
  EXPECT_EQ(session.fetch(table, {"tea"})->get<std::int64_t>("quantity"), 42);
}

}  // namespace
}  // namespace hierlock::tests
