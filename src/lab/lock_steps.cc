#include "lab/lock_steps.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <hierlock/error.h>

#include "lab/dialect.h"

namespace hierlock::lab {

namespace {

class LockStepReader {
 public:
  explicit LockStepReader(Reader& reader) : reader_(reader) {}

  LockStep lock_step(std::size_t begin, std::size_t end) {
    const Reader::Limit limit(reader_, begin, end);
    LockStep step;
    const std::string_view verb = reader_.peek_word(" \t");
    if (verb == "extend") step.kind = LockStep::Kind::extend;
    if (verb == "release") step.kind = LockStep::Kind::release;
    if (verb != "named" && verb != "slots") reader_.word();
    reader_.skip_blanks();
    while (!reader_.ended()) {
      const std::string_view word = lock_word();
      if ((word == "timeout" || word == "nowait") && step.kind != LockStep::Kind::release) {
        reader_.word();
        step.timeout = std::chrono::nanoseconds(0);
        if (word == "timeout") {
          reader_.skip_blanks();
          const std::size_t at = reader_.at();
          step.timeout = duration(reader_, at, reader_.until(" \t"));
        }
        reader_.skip_blanks();
        if (!reader_.ended()) expected("the end of the step");
        break;
      }
      step.targets.push_back(target());
      reader_.skip_blanks();
      if (!reader_.take(',')) continue;
      reader_.skip_blanks();
      if (reader_.ended()) expected("another target");
    }
    if (step.targets.empty() && step.kind != LockStep::Kind::release) expected("a target, such as u1/a1/r1");
    return step;
  }

 private:
  // Of a word that is part of a path (`shared/a`, `timeout1`) this is empty.
  std::string_view lock_word() const { return reader_.peek_word(" \t,'\""); }

  // [shared] PATH, [shared] named NAME, slots NAME COUNT
  Target target() {
    const std::size_t at = reader_.at();
    const bool is_shared = lock_word() == "shared";
    if (is_shared) {
      reader_.word();
      reader_.skip_blanks();
    }
    const std::string_view word = lock_word();
    const bool is_named = word == "named", is_slots = word == "slots";
    if (is_named || is_slots) {
      reader_.word();
      reader_.skip_blanks();
    }
    const std::string text = quoted_or_word(is_named || is_slots ? "the name of the lock" : "a path, such as u1/a1/r1");
    std::uint32_t count = 0;
    if (is_slots) {
      reader_.skip_blanks();
      count = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(reader_.number("how many may hold it at once"), std::uint64_t{max_slots} + 1));
    }
    try {
      Target target = is_named ? named(text) : is_slots ? slots(text, count) : Target(text);
      return is_shared ? shared(std::move(target)) : target;
    } catch (const Error& error) {
      reader_.fail(at, error.what());
    }
  }
  std::string quoted_or_word(const std::string& what) {
    if (reader_.peek() == '"' || reader_.peek() == '\'') return reader_.quoted(what);
    const std::string_view word = reader_.until(" \t,");
    if (word.empty()) expected(what);
    return std::string(word);
  }

  [[noreturn]] void expected(const std::string& what) const { reader_.fail(reader_.at(), what + " expected"); }

  Reader& reader_;
};

}  // namespace

LockStep read_lock_step(Reader& reader, std::size_t begin, std::size_t end) {
  return LockStepReader(reader).lock_step(begin, end);
}

}  // namespace hierlock::lab
