#include "support/wire.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <stdexcept>
#include <utility>

namespace hierlock::conformance::wire {

namespace {

using What = Command::What;

constexpr std::array<std::pair<std::string_view, What>, 6> whats = {{{"acquire", What::acquire},
                                                                     {"try_acquire", What::try_acquire},
                                                                     {"extend", What::extend},
                                                                     {"release", What::release},
                                                                     {"look", What::look},
                                                                     {"lost", What::lost}}};

constexpr std::array<std::pair<std::string_view, Control>, 5> controls = {{{"abandon", Control::abandon},
                                                                           {"exit", Control::exit},
                                                                           {"die", Control::die},
                                                                           {"stop", Control::stop},
                                                                           {"close", Control::close}}};

template <class List>
auto by_name(const List& list, std::string_view name) {
  for (const auto& [known, value] : list) {
    if (known == name) return value;
  }
  throw std::invalid_argument("unknown word: " + std::string(name));
}

template <class List, class Value>
std::string_view name_of(const List& list, Value wanted) {
  for (const auto& [known, value] : list) {
    if (value == wanted) return known;
  }
  throw std::logic_error("a command that cannot go to another process");
}

std::string escaped(std::string_view text) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= ' ' || byte == '%' || byte == 0x7F) {
      out += '%';
      out += digits[byte >> 4];
      out += digits[byte & 15];
    } else {
      out += c;
    }
  }
  return out;
}

std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    unsigned value = 0;
    if (i + 2 >= text.size() ||
        std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ptr != text.data() + i + 3) {
      throw std::invalid_argument("a % without two digits");
    }
    out += static_cast<char>(value);
    i += 2;
  }
  return out;
}

template <class Number>
Number number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw std::invalid_argument("not a number: " + std::string(text));
  }
  return value;
}

std::string_view next_word(std::string_view& rest) {
  const std::string_view word = rest.substr(0, rest.find(' '));
  rest.remove_prefix(std::min(word.size() + 1, rest.size()));
  return word;
}

// The key of `key=value`, and the value, unescaped; a word without = is a key alone.
std::pair<std::string_view, std::string> key_and_value(std::string_view word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) return {word, {}};
  return {word.substr(0, equals), unescaped(word.substr(equals + 1))};
}

ErrorKind kind_of(std::string_view name) {
  for (int kind = 0; kind < error_kind_count; ++kind) {
    if (to_string(static_cast<ErrorKind>(kind)) == name) return static_cast<ErrorKind>(kind);
  }
  throw std::invalid_argument("unknown outcome: " + std::string(name));
}

}  // namespace

std::string line_of(const Request& request) {
  const Command& command = request.command;
  const Ask& ask = command.ask;
  if (ask.owner != nullptr || ask.cancel.stop_possible()) {
    throw std::logic_error("an Owner or a stop_token cannot go to another process: use Conformance::thread()");
  }
  std::string line = std::to_string(request.id);
  line += ' ';
  line += name_of(whats, command.what);
  if (command.handle != 0) line += " handle=" + std::to_string(command.handle);
  if (ask.timeout) line += " timeout=" + std::to_string(ask.timeout->count());
  if (ask.then_release) line += " release";
  if (ask.plain) line += " plain";
  for (const Target& target : command.targets) line += " target=" + escaped(target.str());
  return line + '\n';
}

std::string line_of(const Answer& answer) {
  const Outcome& outcome = answer.outcome;
  std::string line = std::to_string(answer.id);
  line += ' ';
  line += outcome.error ? to_string(*outcome.error) : "granted";
  line += " handle=" + std::to_string(outcome.handle) + " fence=" + std::to_string(outcome.fence) +
          " took=" + std::to_string(outcome.took.count());
  if (outcome.retryable) line += " retryable";
  if (!outcome.message.empty()) line += " message=" + escaped(outcome.message);
  return line + '\n';
}

std::string line_of(Control control) { return std::string(name_of(controls, control)) + '\n'; }

std::variant<Request, Control> read_order(std::string_view line) {
  const std::string_view first = next_word(line);
  if (id_of(first) == 0) return by_name(controls, first);
  Request request{number<std::uint64_t>(first), {by_name(whats, next_word(line))}};
  Command& command = request.command;
  while (!line.empty()) {
    const auto [key, value] = key_and_value(next_word(line));
    if (key == "handle") {
      command.handle = number<int>(value);
    } else if (key == "timeout") {
      command.ask.timeout = std::chrono::nanoseconds(number<std::int64_t>(value));
    } else if (key == "release") {
      command.ask.then_release = true;
    } else if (key == "plain") {
      command.ask.plain = true;
    } else if (key == "target") {
      command.targets.push_back(Target::parse(value));
    } else {
      throw std::invalid_argument("unknown word: " + std::string(key));
    }
  }
  const bool asks = command.what == What::acquire || command.what == What::try_acquire || command.what == What::extend;
  if (asks && command.what != What::acquire && command.targets.size() != 1) {
    throw std::invalid_argument("exactly one target is needed");
  }
  if (command.what == What::try_acquire && !command.ask.timeout) command.ask.timeout = std::chrono::nanoseconds(0);
  return request;
}

Answer read_answer(std::string_view line) {
  Answer answer{number<std::uint64_t>(next_word(line)), {}};
  Outcome& outcome = answer.outcome;
  if (const std::string_view word = next_word(line); word != "granted") outcome.error = kind_of(word);
  while (!line.empty()) {
    const auto [key, value] = key_and_value(next_word(line));
    if (key == "handle") {
      outcome.handle = number<int>(value);
    } else if (key == "fence") {
      outcome.fence = number<std::int64_t>(value);
    } else if (key == "took") {
      outcome.took = std::chrono::nanoseconds(number<std::int64_t>(value));
    } else if (key == "retryable") {
      outcome.retryable = true;
    } else if (key == "message") {
      outcome.message = value;
    } else {
      throw std::invalid_argument("unknown word: " + std::string(key));
    }
  }
  return answer;
}

std::uint64_t id_of(std::string_view line) {
  std::uint64_t id = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), id);
  return error == std::errc() ? id : 0;
}

bool Lines::read_from(int fd) {
  bytes_.erase(0, begin_);
  begin_ = 0;
  constexpr std::size_t room = 65536;
  const std::size_t before = bytes_.size();
  bytes_.resize(before + room);
  ssize_t got = 0;
  do {
    got = ::read(fd, bytes_.data() + before, room);
  } while (got < 0 && errno == EINTR);
  bytes_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return got > 0;
}

bool Lines::next(std::string_view& line) {
  const std::size_t end = bytes_.find('\n', begin_);
  if (end == std::string::npos) return false;
  line = std::string_view(bytes_).substr(begin_, end - begin_);
  begin_ = end + 1;
  return true;
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace hierlock::conformance::wire
