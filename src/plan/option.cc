#include "plan/option.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <hierlock/error.h>

namespace hierlock::plan {

namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::invalid_argument, message); }

}  // namespace

std::uint64_t read_number(const std::string& name, const std::string& value, std::uint64_t least, std::uint64_t most) {
  std::uint64_t result = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
  if (error != std::errc{} || end != value.data() + value.size() || result < least || result > most) {
    refuse(name + "=" + value + " is not a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return result;
}

std::chrono::milliseconds read_milliseconds(const std::string& name, const std::string& value, std::uint64_t least,
                                            std::uint64_t most) {
  try {
    return std::chrono::milliseconds(read_number(name, value, least, most));
  } catch (const Error& error) {
    refuse(error.what() + std::string(". It is a time in milliseconds, written without a unit"));
  }
}

std::uint64_t read_count(const std::string& name, const std::string& value, std::uint64_t least, std::uint64_t most) {
  std::string digits = value;
  for (const auto& [unit, zeros] : {std::pair{'k', "000"}, std::pair{'M', "000000"}, std::pair{'G', "000000000"}}) {
    if (digits.size() < 2 || !digits.ends_with(unit)) continue;
    digits.replace(digits.size() - 1, 1, zeros);
    break;
  }
  try {
    return read_number(name, digits, least, most);
  } catch (const Error&) {
    return read_number(name, value, least, most);  // in the words that were written
  }
}

bool read_choice(const std::string& name, const std::string& value, const std::string& yes, const std::string& no) {
  if (value != yes && value != no) refuse(name + "=" + value + ": write " + yes + " or " + no);
  return value == yes;
}

std::string read_table_name(const std::string& name, const std::string& value, std::size_t most) {
  const bool plain = std::all_of(value.begin(), value.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
  if (!plain || value.empty() || value.size() > most) {
    refuse(name + "=" + value + ": a table's name has 1 to " + std::to_string(most) + " letters, digits or \"_\"");
  }
  return value;
}

}  // namespace hierlock::plan
