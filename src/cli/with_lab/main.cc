#ifdef HIERLOCK_WITH_MYSQL
#include <hierlock/mysql.h>
#endif
#ifdef HIERLOCK_WITH_VALKEY
#include <hierlock/valkey.h>
#endif

#include "cli/run.h"
#include "lab.h"

int main(int argc, char** argv) {
#ifdef HIERLOCK_WITH_MYSQL
  hierlock::mysql::enable();
#endif
#ifdef HIERLOCK_WITH_VALKEY
  hierlock::valkey::enable();
#endif
  return hierlock::cli::run(argc, argv, hierlock::cli::lab);
}
