#include "cli/store.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <hierlock/error.h>
#include <hierlock/spi/store.h>
#include <hierlock/spi/url.h>

#include "cli/arguments.h"
#include "cli/programs.h"
#include "plan/text.h"

namespace hierlock::cli {
namespace {

[[noreturn]] void refuse(const StoreUrl& url, const std::string& message) {
  throw UsageError(url.from + ": " + message);
}

// What goes wrong while reading the URL is told with where it came from.
template <class Action>
auto reading(const StoreUrl& url, Action action) {
  try {
    return action();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_argument) throw;
    refuse(url, error.what());
  }
}

// `shm:` is nobody's way out here: who names a store between machines would lock on one of them.
void check_scheme(const StoreUrl& url, const std::string& scheme) {
  if (spi::has_store(scheme)) return;
  if (scheme == "mysql") {
    throw AnotherProgram{
        scheme, url.from, built_with_mysql,
        "install libmariadb and its headers (Debian: libmariadb-dev), and configure and build it again"};
  }
  if (scheme == "valkey" || scheme == "redis") {
    throw AnotherProgram{
        "valkey", url.from, built_with_valkey,
        "install hiredis, OpenSSL and their headers (Debian: libhiredis-dev libssl-dev), and configure "
        "and build it again"};
  }
  constexpr std::string_view later[] = {"postgres", "etcd"};
  if (std::find(std::begin(later), std::end(later), scheme) != std::end(later)) {
    refuse(url, "there is no store " + scheme + ": yet; between machines use mysql:// or valkey://");
  }
  if (scheme == "mariadb") refuse(url, "there is no store mariadb:; write mysql://, which is for MariaDB as well");
  constexpr std::string_view sockets[] = {"@tcp(", "@unix(", "@/"};
  const auto in_url = [&](std::string_view part) { return url.text.find(part) != url.text.npos; };
  if (std::any_of(std::begin(sockets), std::end(sockets), in_url)) {
    refuse(url, "this is a data source name, no URL; write mysql://USER@HOST:PORT/DATABASE");
  }
  refuse(url, "there is no store " + plan::excerpt(scheme + ":") +
                  "; write mysql://USER@HOST/DATABASE between machines, " + "shm: on this one");
}

}  // namespace

std::string missing_program(const AnotherProgram& other, const std::string& here) {
  const std::string program = "hierlock-" + other.scheme;
  const std::string what =
      other.from + ": this hierlock has no " + (other.scheme == "lab" ? "lab" : other.scheme + ": store");
  if (!other.built) return what + ": it was built without; " + other.to_have_it;
  return what + ": " + program + " is neither in " + plan::showable(here) +
         " nor in ../libexec/hierlock from there; copy it " + "along, or use cmake --install";
}

void check_store(const StoreUrl& url) {
  if (url.text.starts_with('/')) refuse(url, "a file is no URL; write shm://" + plan::showable(url.text));
  const spi::Url parsed = reading(url, [&] { return spi::Url::parse(url.text); });
  check_scheme(url, parsed.scheme);
  if (parsed.scheme != "memory" || (parsed.rest.empty() && parsed.options.empty())) return;
  reading(url, [&] { return open(url.text); });  // the store knows its own options
}

bool needs_server(const StoreUrl& url) {
  const std::string scheme = spi::Url::parse(url.text).scheme;
  return scheme != "memory" && scheme != "shm";
}

Locker open_store(const StoreUrl& url, OpenOptions options) {
  return reading(url, [&] {
    check_scheme(url, spi::Url::parse(url.text).scheme);
    return open(url.text, std::move(options));
  });
}

}  // namespace hierlock::cli
