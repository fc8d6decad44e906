#include "cli/run.h"

int main(int argc, char** argv) { return hierlock::cli::run(argc, argv); }
