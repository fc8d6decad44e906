// shm: between the threads of this process, and between processes: the same table, two kinds of parties.
#include "support/backend.h"
#include "support/shm_table.h"

namespace hierlock::conformance {
namespace {

bool add(const char* name, ShmTable::Parties parties) {
  return add_backend(
      {.name = name, .make_table = [=] { return std::make_unique<ShmTable>(parties); }, .column = "`shm:`"});
}

[[maybe_unused]] const bool threads = add("shm", ShmTable::Parties::threads);
[[maybe_unused]] const bool processes = add("shm_processes", ShmTable::Parties::processes);

}  // namespace
}  // namespace hierlock::conformance
