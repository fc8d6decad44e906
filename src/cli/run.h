// run: the tool without its main(). Reads, does, prints, and turns what went wrong into one line and an exit code.
#pragma once

namespace hierlock::cli {

struct LabCommand;

// `lab`: for the program that has one; the others hand that command to it.
int run(int argc, const char* const* argv, int (*lab)(const LabCommand&) = nullptr) noexcept;

}  // namespace hierlock::cli
