#include "cli/store.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <hierlock/error.h>
#include <hierlock/spi/store.h>
#include <hierlock/spi/url.h>

#include "cli/arguments.h"
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

void check_scheme(const StoreUrl& url, const std::string& scheme) {
  if (spi::has_store(scheme)) return;
  if (scheme == "mysql") throw AnotherProgram{scheme, url.from + ": this build has no mysql store; use shm:"};
  constexpr std::string_view others[] = {"postgres", "valkey", "etcd"};
  if (std::find(std::begin(others), std::end(others), scheme) != std::end(others)) {
    refuse(url, "this build has no " + scheme + " store; use shm:");
  }
  refuse(url, "there is no store " + plan::excerpt(scheme) + "; use shm:");
}

}  // namespace

void check_store(const StoreUrl& url) {
  if (url.text.starts_with('/')) refuse(url, "a file is no URL; write shm://" + plan::showable(url.text));
  const spi::Url parsed = reading(url, [&] { return spi::Url::parse(url.text); });
  check_scheme(url, parsed.scheme);
  if (parsed.scheme != "memory" || (parsed.rest.empty() && parsed.options.empty())) return;
  reading(url, [&] { return open(url.text); });  // the store knows its own options
}

Locker open_store(const StoreUrl& url, OpenOptions options) {
  return reading(url, [&] {
    check_scheme(url, spi::Url::parse(url.text).scheme);
    return open(url.text, std::move(options));
  });
}

}  // namespace hierlock::cli
