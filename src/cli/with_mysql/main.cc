#include <hierlock/mysql.h>

#include "cli/run.h"

int main(int argc, char** argv) {
  hierlock::mysql::enable();
  return hierlock::cli::run(argc, argv);
}
