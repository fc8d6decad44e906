#include "cli/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "cli/exit_codes.h"
#include "plan/text.h"

namespace hierlock::cli {

void complain(const std::string& message) {
  const std::string line = "hierlock: " + plan::showable(message) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

bool write_out(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
}

int print(std::string_view text) { return write_out(text) ? exit_ok : cannot_write(errno); }

int cannot_write(int error) {
  complain(std::string("cannot write the output: ") + std::strerror(error) +
           "; send stdout somewhere that can take it");
  return exit_io;
}

}  // namespace hierlock::cli
