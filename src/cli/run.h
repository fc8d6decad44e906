// run: the tool without its main(). Reads, does, prints, and turns what went wrong into one line and an exit code.
#pragma once

namespace hierlock::cli {

int run(int argc, const char* const* argv) noexcept;

}  // namespace hierlock::cli
