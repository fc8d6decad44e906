// toy: the driver of docs/remote.md behind the Gate. Each Locker is a table of its own, so parties are threads that
// share one. It shows what the remote room promises for any driver.
#include <hierlock/spi/store.h>

#include "remote/testing/toy_driver.h"
#include "support/backend.h"

namespace hierlock::conformance {
namespace {

class ToyTable final : public Table {
 public:
  Locker open(OpenOptions options) override {
    static const bool added = [] {
      spi::add_store("toy", {.open = [](const spi::Url&, const OpenOptions& asked) {
                       return remote::make_gate(std::make_unique<remote::testing::ToyDriver>(),
                                                {.owners = asked.owners});
                     }});
      return true;
    }();
    static_cast<void>(added);
    return hierlock::open("toy:", std::move(options));
  }
  bool one_for_all_lockers() const override { return false; }
  std::size_t locks_at_once() const override { return 1000; }
};

// A child of a process with threads starts threads here. The thread sanitizer of gcc 12 takes them for old ones ("dup
// thread with used id"); what it would see, it sees in the unit tests of the room.
#if !defined(__SANITIZE_THREAD__)
[[maybe_unused]] const bool registered =
    add_backend({.name = "toy", .make_table = [] { return std::make_unique<ToyTable>(); }});
#endif

}  // namespace
}  // namespace hierlock::conformance
