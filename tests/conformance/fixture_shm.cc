// shm: between the threads of this process, and between processes: the same table, two kinds of parties.
#include "backend.h"
#include "shm_table.h"

namespace hierlock::conformance {
namespace {

[[maybe_unused]] const bool threads =
    add_backend({"shm", [] { return std::make_unique<ShmTable>(ShmTable::Parties::threads); }});
[[maybe_unused]] const bool processes =
    add_backend({"shm_processes", [] { return std::make_unique<ShmTable>(ShmTable::Parties::processes); }});

}  // namespace
}  // namespace hierlock::conformance
