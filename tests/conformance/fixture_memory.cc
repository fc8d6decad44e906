// memory: inside this process. Each Locker is a table of its own, so parties are threads that share one.
#include "support/backend.h"

namespace hierlock::conformance {
namespace {

class MemoryTable final : public Table {
 public:
  Locker open(OpenOptions options) override { return hierlock::open("memory:", std::move(options)); }
  bool one_for_all_lockers() const override { return false; }
  std::optional<Locker> open_small(std::size_t locks) override {
    return hierlock::open("memory:?max_locks=" + std::to_string(locks));
  }
};

[[maybe_unused]] const bool registered = add_backend(
    {.name = "memory", .make_table = [] { return std::make_unique<MemoryTable>(); }, .column = "`memory:`"});

}  // namespace
}  // namespace hierlock::conformance
