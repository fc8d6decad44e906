#include <hierlock/hierlock.h>

#include <chrono>
#include <cstdio>

using namespace std::chrono_literals;

void ship(const char* order, long long fence) { std::printf("%s, fence %lld\n", order, fence); }

int main() {
  auto locker = hierlock::open("shm:");  // all processes of this user on this machine; memory: is this process only
  {
    auto lock = locker.acquire("u1/a1/r1");  // user u1, account a1, resource r1: waits, or throws
    ship("order 17", lock.fence());          // every later lock has a higher fence: refuse a lower one
  }                                          // released

  if (auto lock = locker.try_acquire("u1/a1/r1", 50ms)) ship("order 18", lock->fence());

  auto both = locker.acquire({"u1/a1/r1", "u2/a7/r7"});          // all or nothing, in an order that cannot deadlock
  auto name = locker.acquire(hierlock::named("token-refresh"));  // a name: no hierarchy
  auto slot = locker.acquire(hierlock::slots("import", 3), {.timeout = 30s});  // at most 3 at once
  auto peek = locker.acquire(hierlock::shared("u3/a1"));  // many readers; no writer on u3/a1 or below it

  try {
    auto self = locker.acquire("u1");  // this thread holds u1/a1/r1 already: it would wait for itself
  } catch (const hierlock::Error& error) {
    std::printf("%s\n", error.what());
  }
}
