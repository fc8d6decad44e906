#include "locker/stores.h"

#include <map>
#include <mutex>

#include <hierlock/error.h>
#include <hierlock/operate.h>

#include "embedded/embedded.h"
#include "threads/registry.h"

namespace hierlock {

namespace {

// Guarded by threads::mutex(), which a forked child finds unlocked.
struct Stores {
  std::map<std::string, spi::Store> by_scheme{
      {"memory",
       {.open = [](const spi::Url& url, const OpenOptions& o) { return embedded::open_memory(url, o.owners); }}},
      {"shm", {.open = [](const spi::Url& url, const OpenOptions& o) {
         return embedded::open_shm(url, o.owners, o.create);
       }}}};
};

Stores& stores() {
  static auto* const stores = new Stores;  // a static object's destructor may still open one
  return *stores;
}

[[noreturn]] void nothing_to(const spi::Url& url, const std::string& what) {
  throw Error(ErrorKind::unsupported, url.scheme + ": " + what);
}

}  // namespace

spi::Store find_store(const std::string& scheme) {
  threads::notice_forks([]() noexcept {});  // from the first open() on
  const std::lock_guard guard(threads::mutex());
  const auto& known = stores().by_scheme;
  if (const auto found = known.find(scheme); found != known.end()) return found->second;
  std::string have;
  for (const auto& [name, store] : known) have += (have.empty() ? "" : ", ") + name + ":";
  const std::string missing =
      scheme == "mysql" ? "mysql: is a component of its own: link hierlock::mysql and call hierlock::mysql::enable()"
      : scheme == "valkey" || scheme == "redis"
          ? scheme + ": is a component of its own: link hierlock::valkey and call hierlock::valkey::enable()"
      : scheme == "mariadb" ? "no store called \"mariadb:\": write mysql://, which is for MariaDB as well"
                            : "no store called \"" + scheme + ":\"";
  throw Error(ErrorKind::unsupported, missing + "; this program has " + have);
}

void spi::add_store(const std::string& scheme, const Store& store) {
  const std::lock_guard guard(threads::mutex());
  stores().by_scheme.emplace(scheme, store);
}

bool spi::has_store(const std::string& scheme) {
  const std::lock_guard guard(threads::mutex());
  return stores().by_scheme.contains(scheme);
}

void provision(std::string_view text, const ProvisionOptions& options) {
  const spi::Url url = spi::Url::parse(text);
  const spi::Store store = find_store(url.scheme);
  if (store.provision == nullptr) nothing_to(url, "needs no provisioning: just use it");
  store.provision(url, options);
}

std::vector<Finding> doctor(std::string_view text) {
  const spi::Url url = spi::Url::parse(text);
  const spi::Store store = find_store(url.scheme);
  if (store.doctor == nullptr) nothing_to(url, "has no settings that could be wrong: doctor has nothing to check");
  return store.doctor(url);
}

std::string statements(std::string_view text, std::span<const Target> targets) {
  const spi::Url url = spi::Url::parse(text);
  const spi::Store store = find_store(url.scheme);
  if (store.statements == nullptr) nothing_to(url, "is no database: its locks become no statements");
  return store.statements(url, spi::Plan(targets));
}

std::string_view to_string(Finding::Verdict verdict) noexcept {
  switch (verdict) {
    case Finding::Verdict::good:
      return "good";
    case Finding::Verdict::slow:
      return "slow";
    case Finding::Verdict::unsafe:
      return "unsafe";
    case Finding::Verdict::unknown:
      break;
  }
  return "unknown";
}

}  // namespace hierlock
