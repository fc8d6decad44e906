#include "mysql/options.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <hierlock/error.h>
#include <hierlock/target.h>

namespace hierlock::mysql {

namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::invalid_argument, message); }

std::uint64_t number(const std::string& name, const std::string& value, std::uint64_t least, std::uint64_t most) {
  std::uint64_t result = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
  if (error != std::errc{} || end != value.data() + value.size() || result < least || result > most) {
    refuse(name + "=" + value + " is not a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return result;
}

// `100k`, `10M`, as --buckets takes it.
std::uint64_t number_of_buckets(const std::string& value) {
  constexpr std::uint64_t most = 2'147'483'647;
  std::string digits = value;
  for (const auto& [unit, zeros] : {std::pair{'k', "000"}, std::pair{'M', "000000"}, std::pair{'G', "000000000"}}) {
    if (digits.size() < 2 || !digits.ends_with(unit)) continue;
    digits.replace(digits.size() - 1, 1, zeros);
    break;
  }
  try {
    return number("buckets", digits, 1, most);
  } catch (const Error&) {
    return number("buckets", value, 1, most);  // in the words that were written
  }
}

std::string table_name(const std::string& name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
  if (!plain || name.empty() || name.size() > 50) {
    refuse("table=" + name + ": a table's name has 1 to 50 letters, digits or \"_\"");
  }
  return name;
}

}  // namespace

Options read_url(const spi::Url& url) {
  Options options;
  options.address = read_address(url, endpoint::Database::needed);
  options.url = url.safe_text();
  for (const auto& [name, value] : url.options) {
    if (name == "buckets") {
      options.layout.buckets = static_cast<std::uint32_t>(number_of_buckets(value));
    } else if (name == "levels") {
      options.layout.levels = static_cast<unsigned>(number(name, value, 1, max_depth));
    } else if (name == "table") {
      options.layout.table = table_name(value);
    } else if (name == "provision") {
      if (value != "lazy" && value != "ahead") refuse("provision=" + value + ": write lazy or ahead");
      options.layout.lazy = value == "lazy";
    } else if (name == "connections") {
      options.connections = number(name, value, 1, 1000);
    } else if (name == "views") {
      if (value != "on" && value != "off") refuse("views=" + value + ": write on or off");
      options.views = value == "on";
    } else if (name == "publish_after") {
      options.publish_after = std::chrono::milliseconds(number(name, value, 0, 60'000));
    } else if (!endpoint::is_option(name)) {
      refuse("mysql: has no option \"" + name +
             "\": it knows buckets, levels, table, provision, connections, publish_after, views, tls, ca, "
             "socket, password_file and password_env");
    }
  }
  return options;
}

}  // namespace hierlock::mysql
