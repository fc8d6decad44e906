// memory: inside this process. Without a name each Locker is a table of its own, so parties are threads that share one.
// With a name each party is a thread with a Locker of its own.
#include <atomic>
#include <memory>
#include <vector>

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

class NamedMemoryTable final : public Table {
 public:
  Locker open(OpenOptions options) override { return hierlock::open(url_, std::move(options)); }
  bool one_for_all_lockers() const override { return true; }
  std::optional<Locker> open_small(std::size_t locks) override {
    return hierlock::open(url_ + ".small?max_locks=" + std::to_string(locks));
  }
  std::unique_ptr<Party> make_party(std::string name, Locker&) override {
    lockers_.push_back(std::make_unique<Locker>(open({})));
    return make_thread_party(std::move(name), *lockers_.back());
  }

 private:
  static std::string next_url() {
    static std::atomic<int> tables{0};
    return "memory:conformance-" + std::to_string(++tables);
  }

  const std::string url_ = next_url();
  std::vector<std::unique_ptr<Locker>> lockers_;
};

[[maybe_unused]] const bool registered = add_backend(
    {.name = "memory", .make_table = [] { return std::make_unique<MemoryTable>(); }, .column = "`memory:`"});
[[maybe_unused]] const bool registered_named = add_backend(
    {.name = "memory_named", .make_table = [] { return std::make_unique<NamedMemoryTable>(); }, .column = "`memory:`"});

}  // namespace
}  // namespace hierlock::conformance
