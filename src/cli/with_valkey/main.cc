#include <hierlock/valkey.h>

#include "cli/run.h"

int main(int argc, char** argv) {
  hierlock::valkey::enable();
  return hierlock::cli::run(argc, argv);
}
