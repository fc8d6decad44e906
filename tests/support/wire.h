// Wire: commands and outcomes as lines of text, between a test and a party that lives in another process. A line is
// words separated by single spaces; a byte that would be in the way is written %HH, so it can be typed and read by a
// person:
//
//     7 acquire timeout=50000000 target=u1/a1 target=named%20"x"      the number is the request's; answers repeat it
//     7 granted handle=1 fence=225179981368 took=8123
//     8 timeout handle=0 fence=0 took=50061000 retryable message=...
//
// A line without a request is for the process itself, and has no answer: `abandon`, `exit`, `die`, `stop`, `close`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "support/party.h"

namespace hierlock::conformance::wire {

struct Request {
  std::uint64_t id;
  Command command;
};
struct Answer {
  std::uint64_t id;
  Outcome outcome;
};
// For the process itself: give back everything (Party::abandon); end at once, and give nothing back; SIGKILL or SIGSTOP
// yourself; close every descriptor but the standard ones, as daemons do, so that others get their numbers.
enum class Control : std::uint8_t { abandon, exit, die, stop, close };

// Each with its line end. A command with an Owner or a stop_token cannot be written: std::logic_error.
std::string line_of(const Request& request);
std::string line_of(const Answer& answer);
std::string line_of(Control control);

// Of a line without its end. Throw std::invalid_argument, or hierlock::Error for a malformed target.
std::variant<Request, Control> read_order(std::string_view line);
Answer read_answer(std::string_view line);

// The number a line begins with, or 0: to answer even what cannot be read.
std::uint64_t id_of(std::string_view line);

// Takes bytes as they come through a pipe, gives whole lines.
class Lines {
 public:
  // False at the end of the pipe, or when it failed.
  bool read_from(int fd);
  // The next whole line, valid until the next call of anything.
  bool next(std::string_view& line);

 private:
  std::string bytes_;
  std::size_t begin_ = 0;
};

// All of it, or false.
bool write_all(int fd, std::string_view text);

}  // namespace hierlock::conformance::wire
