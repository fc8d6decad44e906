// Fenced writes: a row refuses a holder whose lock has passed on to another.
#include <random>

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

// A holder may pause at any moment: its lease ends, others lock and write, and it wakes up and writes. Four connections
// race for the row. Each plays many holders, of whom up to eight pause at the same time.
TEST(FencedPauses, no_stale_write_in_100000_random_pauses) {  // X11
#if defined(__SANITIZE_ADDRESS__)
  constexpr int connections = 4, pauses_of_each = 2'500;
#else
  constexpr int connections = 4, pauses_of_each = 25'000;
#endif
  const SqliteFile file;
  const auto connect = [&](int number) {
    auto user = file.user(number % 2 == 0);
    user->sql("PRAGMA synchronous = off");
    user->sql("PRAGMA busy_timeout = 0", 1);  // SQLite would sleep for milliseconds, and the others would not race
    return user;
  };
  const auto admin = connect(0);
  admin->sql("PRAGMA journal_mode = wal", 1);
  admin->sql("CREATE TABLE stock (item TEXT PRIMARY KEY, holder INTEGER, fence INTEGER)");
  // The witness: SQLite has one order of all writes, and each writes who it is.
  admin->sql("CREATE TABLE seen (writes INTEGER, stale INTEGER)");
  admin->sql("INSERT INTO seen VALUES (0, 0)");
  admin->sql(
      "CREATE TRIGGER witness AFTER UPDATE ON stock BEGIN "
      "UPDATE seen SET writes = writes + 1, stale = stale + (new.holder < old.holder); END");
  const Table table("stock", {.key = {"item"}, .columns = {"holder"}, .fence = "fence"});
  (*admin)->insert(table, {"tea"}, {0});
  Locker locker = open("memory:");

  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::atomic<std::int64_t> highest = 0;  // of those who were not refused
  std::atomic<int> accepted = 0, refused = 0, pauses = 0;
  const auto when_free = [](const std::function<void()>& work) {
    while (true) {
      try {
        return work();
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::busy) throw;
        std::this_thread::yield();
      }
    }
  };
  const auto play = [&](int number) {
    const auto user = connect(number);
    std::mt19937 random(seed + static_cast<unsigned>(number));
    std::vector<std::int64_t> paused;  // fences of holders that will wake up
    for (int begun = 0; begun < pauses_of_each || !paused.empty();) {
      if (begun < pauses_of_each && (paused.size() < 2 || (paused.size() < 8 && random() % 2 == 0))) {
        paused.push_back(locker.acquire("tea").fence());  // released at once, as by a lease that ends
        ++begun;
        continue;
      }
      if (random() % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
      const std::size_t who = random() % paused.size();
      const std::int64_t fence = paused[who];
      if (random() % 4 != 0) {  // or it writes once more
        paused.erase(paused.begin() + static_cast<std::ptrdiff_t>(who));
        ++pauses;
      }
      try {
        when_free([&] { (*user)->fenced_update(table, {"tea"}, fence, {set("holder", fence)}); });
        ++accepted;
        std::int64_t before = highest;
        while (before < fence && !highest.compare_exchange_weak(before, fence)) continue;
      } catch (const Error& error) {
        ASSERT_EQ(error.kind(), ErrorKind::lost) << error.what();
        ++refused;
        std::int64_t holder = 0;
        when_free([&] { holder = (*user)->fetch(table, {"tea"})->get<std::int64_t>("holder"); });
        ASSERT_GT(holder, fence) << "only a lower fence is refused";
      }
    }
  };
  std::vector<std::jthread> all;
  for (int i = 0; i < connections; ++i) all.emplace_back(play, i);
  all.clear();
  EXPECT_EQ(pauses, connections * pauses_of_each);
  EXPECT_EQ(admin->ask<int>("SELECT stale FROM seen"), 0);
  EXPECT_EQ(admin->ask<int>("SELECT writes FROM seen"), accepted);
  EXPECT_EQ((*admin)->fetch(table, {"tea"})->get<std::int64_t>("holder"), highest);
  EXPECT_GT(accepted, pauses / 10);
  EXPECT_GT(refused, pauses / 10);
}

}  // namespace
}  // namespace hierlock::tests
