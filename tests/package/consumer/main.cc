// A user's program: it must find the headers, link, and get a lock that excludes.
#include <hierlock/hierlock.h>

#include <cstdio>

int main() {
  auto locker = hierlock::open("memory:");
  auto other = locker.owner("somebody else");
  auto lock = locker.acquire("u1/a1/r1");
  const bool excluded = !locker.try_acquire("u1/a1", {}, {.owner = &other});
  lock.release();
  const bool free_again = locker.try_acquire("u1/a1", {}, {.owner = &other}).has_value();
  std::printf("hierlock %s: excluded %d, free again %d\n", HIERLOCK_VERSION, excluded, free_again);
  return excluded && free_again ? 0 : 1;
}
