// Locks between machines: the same calls on a MySQL or MariaDB server. The URL is the program's argument.
#include <hierlock/hierlock.h>
#include <hierlock/mysql.h>

#include <chrono>
#include <cstdio>

using namespace std::chrono_literals;

int main(int argc, char** argv) {
  const char* const url = argc > 1 ? argv[1] : "mysql://app@db/shop?password_env=DB_PASSWORD&provision=lazy";
  hierlock::mysql::enable();  // link hierlock::mysql
  auto locker = hierlock::open(url);
  auto lock = locker.acquire("u1/a1/r1", {.timeout = 5s});       // a path: rows of a table in that database
  auto name = locker.acquire(hierlock::named("token-refresh"));  // a name: GET_LOCK, of any length
  std::printf("u1/a1/r1 is held, fence %lld\n", static_cast<long long>(lock.fence()));
}
