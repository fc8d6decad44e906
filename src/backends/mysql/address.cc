#include "mysql/address.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
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

bool is_loopback(const Address& address) {
  const std::string& host = address.host;
  // A number: 127.0.0.1.example.com is somebody else's.
  const bool loopback_number = host.starts_with("127.") && host.find_first_not_of("0123456789.") == host.npos;
  return !address.socket.empty() || host == "localhost" || host == "::1" || loopback_number;
}

std::string first_line_of(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  if (!std::getline(in, line)) refuse("password_file=" + file + " cannot be read, or is empty");
  if (line.ends_with('\r')) line.pop_back();  // as editors on Windows end lines
  return line;
}

std::string from_environment(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  if (value == nullptr) refuse("password_env=" + name + ": there is no such variable in the environment");
  return value;
}

const std::string in_passwords = ", and in a password %2F for \"/\" and %3F for \"?\"";

// Does not show what was written: without a host, as in mysql://app:secret/shop, that is a password.
unsigned port_number(std::string_view text) {
  unsigned port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc{} || end != text.data() + text.size() || port < 1 || port > 65'535) {
    refuse("what follows the host's \":\" is no port from 1 to 65535: write mysql://user@host:3306/database" +
           in_passwords);
  }
  return port;
}

// //user:password@host:port/database
void read_authority(const std::string& rest, Address& address) {
  if (!rest.starts_with("//")) refuse("a mysql URL begins with mysql://, as in mysql://app@db/shop");
  std::string_view text = std::string_view(rest).substr(2);
  const std::size_t slash = text.find('/');
  std::string_view authority = text.substr(0, slash);
  const std::string_view database = slash == text.npos ? std::string_view() : text.substr(slash + 1);
  if (database.empty()) refuse("the URL names no database: write mysql://user@host/database" + in_passwords);
  if (database.find('/') != database.npos) {
    refuse("more than the database follows the host's \"/\": write mysql://user@host/database" + in_passwords);
  }
  address.database = spi::Url::decode(database);
  if (const std::size_t at = authority.rfind('@'); at != authority.npos) {
    const std::string_view who = authority.substr(0, at);
    const std::size_t colon = who.find(':');
    address.user = spi::Url::decode(who.substr(0, colon));
    // The server would show it in its messages.
    if (address.user.find(':') != address.user.npos) {
      refuse("the user has a \":\" in it, written as %3A: write mysql://user:password@host/database");
    }
    if (colon != who.npos) address.password = spi::Url::decode(who.substr(colon + 1));
    authority.remove_prefix(at + 1);
  }
  std::string_view port;
  if (authority.starts_with('[')) {  // [::1]:3306
    const std::size_t end = authority.find(']');
    if (end == authority.npos) refuse("the host's \"[\" has no \"]\": write [::1]:3306");
    address.host = authority.substr(1, end - 1);
    if (authority.size() > end + 1) {
      if (authority[end + 1] != ':') refuse("after the host's \"]\" there can only be a port: write [::1]:3306");
      port = authority.substr(end + 2);
    }
  } else {
    const std::size_t colon = authority.rfind(':');
    address.host = spi::Url::decode(authority.substr(0, colon));
    if (colon != authority.npos) port = authority.substr(colon + 1);
  }
  if (!port.empty()) address.port = port_number(port);
  // The client library would take the name of whoever runs the program.
  if (address.user.empty()) refuse("the URL names no user: write mysql://user@host/database" + in_passwords);
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

std::string Address::place() const {
  return socket.empty() ? host + ":" + std::to_string(port) : "the socket " + socket;
}

bool is_local(const Address& address) { return is_loopback(address); }

Options read_url(const spi::Url& url) {
  Options options;
  Address& address = options.address;
  options.url = url.safe_text();
  read_authority(url.rest, address);
  std::optional<Tls> tls;
  bool has_password = !address.password.empty();
  const auto take_password = [&](std::string password) {
    if (std::exchange(has_password, true)) {
      refuse("the password is given twice: keep one of the URL's own, password_file= and password_env=");
    }
    address.password = std::move(password);
  };
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
    } else if (name == "tls") {
      if (value != "off" && value != "on" && value != "verify") refuse("tls=" + value + ": write off, on or verify");
      tls = value == "off" ? Tls::off : value == "on" ? Tls::on : Tls::verify;
    } else if (name == "ca") {
      address.ca = value;
    } else if (name == "socket") {
      address.socket = value;
    } else if (name == "password_file") {
      take_password(first_line_of(value));
    } else if (name == "password_env") {
      take_password(from_environment(value));
    } else {
      refuse("mysql: has no option \"" + name +
             "\": it knows buckets, levels, table, provision, connections, publish_after, views, tls, ca, "
             "socket, password_file and password_env");
    }
  }
  if (address.host.empty() && address.socket.empty()) {
    refuse("the URL names no host: write mysql://user@host/database, or add ?socket=/path");
  }
  address.tls = tls.value_or(!address.ca.empty() || !is_loopback(address) ? Tls::verify : Tls::off);
  if (!address.ca.empty() && address.tls != Tls::verify) {
    refuse("ca= is for tls=verify: without it the server's certificate is not looked at");
  }
  return options;
}

}  // namespace hierlock::mysql
