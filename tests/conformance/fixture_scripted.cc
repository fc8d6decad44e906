// scripted: the session driver on a server in this process, as the unit tests of src/remote use it. All that the remote
// room does with sessions runs here under both sanitizers, without a real server. Parties are threads; each further
// Locker is another process, as far as the room can tell.
#include <hierlock/spi/store.h>

#include "remote/testing/scripted_store.h"
#include "support/backend.h"

namespace hierlock::conformance {
namespace {

class ScriptedTable final : public Table {
 public:
  Locker open(OpenOptions options) override {
    static const bool added = [] {
      spi::add_store("scripted", {.open = [](const spi::Url&, const OpenOptions& asked) {
                       return remote::testing::open_scripted(*opened_, sessions, publish_after, asked.owners);
                     }});
      return true;
    }();
    static_cast<void>(added);
    opened_ = &server_;
    return hierlock::open("scripted:", std::move(options));
  }
  bool one_for_all_lockers() const override { return true; }
  std::size_t levels() const override { return remote::testing::ScriptedStore::levels; }
  std::size_t locks_at_once() const override { return sessions - 1; }
  bool forgets_at_once() const override { return false; }

 private:
  static constexpr std::size_t sessions = 64;
  static constexpr std::chrono::milliseconds publish_after{1000};
  // A Locker may outlive its table. So servers are never destroyed; each test has its own.
  static remote::testing::ScriptedServer& one_more() {
    static auto& servers = *new std::list<remote::testing::ScriptedServer>;
    return servers.emplace_back();
  }
  remote::testing::ScriptedServer& server_ = one_more();
  static inline thread_local remote::testing::ScriptedServer* opened_ = nullptr;
};

[[maybe_unused]] const bool registered =
    add_backend({.name = "scripted", .make_table = [] { return std::make_unique<ScriptedTable>(); }});

}  // namespace
}  // namespace hierlock::conformance
