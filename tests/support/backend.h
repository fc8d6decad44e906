// What the suite needs to know of a store. A store joins the suite with one file, fixture_NAME.cc, that derives a Table
// and registers it:
//
//     const bool registered =
//         add_backend({.name = "memory", .make_table = [] { return std::make_unique<MemoryTable>(); }});
//
// What the store cannot do it says by Locker::capabilities(); the tests then check that it fails loudly (B2).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <hierlock/hierlock.h>

#include "support/party.h"

namespace hierlock::conformance {

// A lock table of its own for one test: nobody holds or waits in it when the test begins.
class Table {
 public:
  virtual ~Table() = default;

  virtual Locker open(OpenOptions options = {}) = 0;

  // True when all Lockers that open() returns exclude each other; false when each is a table of its own.
  virtual bool one_for_all_lockers() const = 0;

  // How many levels a path may have here.
  virtual std::size_t levels() const { return max_depth; }

  // How many a Locker of open() can hold at once, at least.
  virtual std::size_t locks_at_once() const { return 1'000'000; }

  // Whether what is over in one process is so in everybody's snapshot at once, not only soon.
  virtual bool forgets_at_once() const { return true; }

  // Whether parties that hold a lock stand in queues before those that hold none.
  virtual bool holders_first() const { return false; }

  // A Locker with room for about `locks` locks at once; none where the store has no such bound.
  virtual std::optional<Locker> open_small(std::size_t locks) {
    (void)locks;
    return std::nullopt;
  }

  // A party of its own: another process where the store can, otherwise a thread that uses the test's own Locker.
  virtual std::unique_ptr<Party> make_party(std::string name, Locker& locker) {
    return make_thread_party(std::move(name), locker);
  }
};

struct Backend {
  std::string name;  // letters, digits and underscores
  std::function<std::unique_ptr<Table>()> make_table;
  // Its column in the table of docs/stores.md; empty if it has none.
  std::string column{};
  // Why it cannot be had here (no server); empty if it can. Then its tests are skipped, and with CI=true they fail.
  std::function<std::string()> missing = [] { return std::string(); };
};
inline std::ostream& operator<<(std::ostream& out, const Backend& backend) { return out << backend.name; }

bool add_backend(Backend backend);
const std::vector<Backend>& backends();

}  // namespace hierlock::conformance
