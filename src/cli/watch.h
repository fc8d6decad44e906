// Watch: a text that is shown again and again, on the whole screen of a terminal or one after another in a file.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "cli/output.h"

namespace hierlock::cli {

struct TerminalSize {
  std::size_t columns = line_width;
  std::size_t rows = 24;
};

// Of the terminal on stdout; the defaults if it is none, or does not say.
TerminalSize terminal_size() noexcept;

// Shows what `picture` returns for a width, `count` times (0: without end), `interval` apart. On a terminal it ends
// with q or Ctrl-C, and whatever ends it, also SIGTERM and an exception, the terminal is as it was. Signals are kept
// back before the first picture is asked for: threads that it starts inherit that. Returns the exit code.
int watch(const std::function<std::string(std::size_t width)>& picture, std::chrono::nanoseconds interval,
          std::uint64_t count);

}  // namespace hierlock::cli
