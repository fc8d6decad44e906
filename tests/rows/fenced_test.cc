// Fenced writes: a row refuses a holder whose lock has passed on to another.
#include <hierlock/locker.h>

#include "rows.h"

namespace hierlock::tests {
namespace {

class Fenced : public Rows {};
HIERLOCK_ON_EVERY_ENGINE(Fenced);

TEST_P(Fenced, a_lower_fence_is_refused_in_the_same_statement) {  // X11
  const Table table = stock();
  admin()->fenced_update(table, {"tea"}, 10, {set("quantity", 1)});
  admin()->fenced_update(table, {"tea"}, 10, {set("quantity", 2)});  // the same holder, once more
  admin()->fenced_update(table, {"tea"}, 12, {set("quantity", 3)});
  admin().spy().forget();
  EXPECT_EQ(kind_of([&] { admin()->fenced_update(table, {"tea"}, 11, {set("quantity", 4)}); }), ErrorKind::lost);
  EXPECT_EQ(admin().spy().sent().at(0).substr(0, 7), "UPDATE ") << "no look before the write";
  EXPECT_EQ(quantity(table, "tea"), 3);
  EXPECT_EQ(admin().ask<int>("SELECT fence FROM " + table.name() + " WHERE item = 'tea'"), 12);
  EXPECT_EQ(admin()->fetch(table, {"tea"})->version(), 3) << "a fenced write is seen by optimistic ones (X6)";
}

TEST_P(Fenced, misuse_is_told_apart) {  // X11
  const Table table = stock();
  EXPECT_EQ(kind_of([&] { admin()->fenced_update(table, {"rum"}, 11, {set("quantity", 4)}); }), ErrorKind::conflict);
  EXPECT_EQ(kind_of([&] { admin()->fenced_update(table, {"tea"}, 0, {set("quantity", 4)}); }),
            ErrorKind::invalid_argument);
  const Table plain(table.name(), {.key = {"item"}, .columns = {"quantity"}});
  EXPECT_EQ(kind_of([&] { admin()->fenced_update(plain, {"tea"}, 1, {set("quantity", 4)}); }),
            ErrorKind::invalid_argument);
}

// A holder may pause at any moment: its lease ends, others lock and write, and it wakes up and writes.
TEST(FencedPauses, no_stale_write_in_100000_random_pauses) {  // X11
  const auto client = bare_sqlite_client(":memory:");
  Session session(client->adapter());
  client->adapter().run("CREATE TABLE stock (item TEXT PRIMARY KEY, holder INTEGER, fence INTEGER)", {}, 0);
  const Table table("stock", {.key = {"item"}, .columns = {"holder"}, .fence = "fence"});
  session.insert(table, {"tea"}, {0});
  Locker locker = open("memory:");

  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::vector<std::int64_t> paused;  // fences of holders that are asleep and will wake up
  std::int64_t highest = 0, last_writer = 0;
  int accepted = 0, refused = 0, stale = 0;
  while (accepted + refused < 100'000) {
    if (paused.size() < 2 || (paused.size() < 8 && random() % 2 == 0)) {
      paused.push_back(locker.acquire("tea").fence());  // released at once, as by a lease that ends
      continue;
    }
    const std::size_t who = random() % paused.size();
    const std::int64_t fence = paused[who];
    if (random() % 4 != 0) paused.erase(paused.begin() + static_cast<std::ptrdiff_t>(who));  // or it writes once more
    try {
      session.fenced_update(table, {"tea"}, fence, {set("holder", fence)});
      ++accepted;
      stale += fence < highest ? 1 : 0;
      highest = std::max(highest, fence);
      last_writer = fence;
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::lost) << error.what();
      ASSERT_LT(fence, highest) << "only a lower fence is refused";
      ++refused;
    }
  }
  EXPECT_EQ(stale, 0);
  EXPECT_EQ(session.fetch(table, {"tea"})->get<std::int64_t>("holder"), last_writer);
  EXPECT_EQ(last_writer, highest);
  EXPECT_GT(accepted, 10'000);
  EXPECT_GT(refused, 10'000);
}

}  // namespace
}  // namespace hierlock::tests
