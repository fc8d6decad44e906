#include "embedded/embedded.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>
#include <utility>

#include <hierlock/error.h>

#include "engine/engine.h"

namespace hierlock::embedded {

namespace {

constexpr std::uint64_t default_locks = 16'000'000;
constexpr std::uint64_t most_locks = 60'000'000;

class Embedded final : public spi::Backend {
 public:
  Embedded(std::string url, std::uint64_t locks, Owners owners)
      : url_(std::move(url)), engine_(engine::Capacity::for_locks(locks), owners) {}

  Capabilities capabilities() const override {
    return {.shared_inner = true,
            .shared_names = true,
            .slots = true,
            .fifo = true,
            .wakes_waiters = true,
            .extends = true,
            .deadlock_at_once = true,
            .exact_keys = true,
            .across_processes = false,
            .across_machines = false,
            .leases = false};
  }
  std::optional<spi::Grant> acquire(const spi::Request& request) override { return engine_.acquire(request); }
  spi::Grant at_once(const spi::Chain& chain) noexcept override { return engine_.at_once(chain); }
  std::optional<spi::Grant> extend(const spi::Grant& grant, const spi::Request& request) override {
    return engine_.extend(grant, request);
  }
  void release(const spi::Grant& grant) noexcept override { engine_.release(grant); }
  spi::Grant give(const spi::Grant& grant, spi::OwnerId to) override { return engine_.give(grant, to); }
  bool held(const spi::Grant& grant) const noexcept override { return engine_.held(grant); }
  std::stop_token lost(const spi::Grant&) override { return {}; }  // nobody can take it away
  spi::OwnerId make_owner(std::string_view name) override { return engine_.make_owner(name); }
  void drop_owner(spi::OwnerId owner) noexcept override { engine_.drop_owner(owner); }
  std::string owner_name(spi::OwnerId owner) override { return engine_.owner_name(owner); }
  std::array<std::uint64_t, 3> grants() const override { return engine_.grants(); }
  bool idle() const noexcept override { return engine_.table().nothing_held(); }
  Snapshot snapshot() const override;

 private:
  const std::string url_;
  engine::Engine engine_;
};

Snapshot Embedded::snapshot() const {
  const engine::Table& table = engine_.table();
  const engine::Table::Copy copy = table.copy();
  const std::int64_t now = engine::coarse_time();
  const auto since = [now](std::int64_t then) {
    return std::chrono::nanoseconds(std::max<std::int64_t>(0, now - then));
  };
  const auto party = [&](std::size_t index) {
    const engine::Table::PartyCopy& p = copy.parties[index];
    return Snapshot::Party{p.identity, p.name, p.process, {}, p.note};
  };

  Snapshot result;
  result.store = url_;
  result.holders.reserve(copy.holders.size());
  for (const auto& h : copy.holders) {
    result.holders.push_back(
        {party(h.party), h.target, h.mode, h.asked, h.fence, h.held ? since(h.since) : std::chrono::nanoseconds{}});
  }
  std::sort(result.holders.begin(), result.holders.end(), [](const Snapshot::Holder& a, const Snapshot::Holder& b) {
    return std::tie(a.target, a.who.owner, a.fence) < std::tie(b.target, b.who.owner, b.fence);
  });
  std::map<engine::Index, std::uint64_t> identities;
  for (const auto& h : copy.holders) identities[h.owner] = copy.parties[h.party].identity;
  for (const auto& w : copy.waiters) identities[w.owner] = copy.parties[w.party].identity;
  for (const auto& w : copy.waiters) {
    Snapshot::Waiter waiter{party(w.party), w.target, w.wanted, w.mode, since(w.since), {}};
    for (const engine::Index owner : table.blockers(copy, w)) waiter.blocked_by.push_back(identities[owner]);
    result.waiters.push_back(std::move(waiter));
  }
  return result;
}

}  // namespace

std::unique_ptr<spi::Backend> open_memory(const spi::Url& url, Owners owners) {
  if (!url.rest.empty()) {
    throw Error(ErrorKind::invalid_argument,
                "memory: takes no name, because it lives in this process only: write \"memory:\"");
  }
  std::uint64_t locks = default_locks;
  for (const auto& [name, value] : url.options) {
    if (name != "max_locks") {
      throw Error(ErrorKind::invalid_argument, "memory: has no option \"" + name + "\": it knows max_locks");
    }
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), locks);
    if (error != std::errc{} || end != value.data() + value.size() || locks < 1 || locks > most_locks) {
      throw Error(ErrorKind::invalid_argument,
                  "max_locks=" + value + " is not a whole number from 1 to " + std::to_string(most_locks));
    }
  }
  return std::make_unique<Embedded>(url.safe_text(), locks, owners);
}

}  // namespace hierlock::embedded
