// valkey: on Valkey and on Redis: between the threads of this process, and between processes. The environment names the
// servers (H10).
#include <unistd.h>

#include <hierlock/valkey.h>

#include "support/backend.h"
#include "support/process_party.h"
#include "support/server.h"

namespace hierlock::conformance {
namespace {

enum class Parties { threads, processes };

// LockManager and everything else that runs on memory: for development runs here for production (M5).
class ValkeyTable final : public Table {
 public:
  ValkeyTable(const char* server, Parties parties, const std::string& more) : parties_(parties) {
    valkey::enable();
    static int tables = 0;
    url_ = tests::server_url(server) + "?publish_after=" + (parties == Parties::processes ? "0" : "1000") +
           "&table=conformance_" + std::to_string(getpid()) + "_" + std::to_string(++tables) + more;
  }
  Locker open(OpenOptions options) override { return hierlock::open(url_, std::move(options)); }
  bool one_for_all_lockers() const override { return true; }
  std::size_t locks_at_once() const override { return 1'000; }
  bool forgets_at_once() const override { return false; }                       // notices are removed soon after
  bool holders_first() const override { return parties_ == Parties::threads; }  // the local queue does it
  std::unique_ptr<Party> make_party(std::string name, Locker& locker) override {
    if (parties_ == Parties::threads) return Table::make_party(std::move(name), locker);
    return std::make_unique<ProcessParty>(std::move(name), url_);
  }

 private:
  const Parties parties_;
  std::string url_;
};

bool add(const char* name, const char* server, Parties parties, const std::string& more = "") {
  return add_backend({.name = name,
                      .make_table = [=] { return std::make_unique<ValkeyTable>(server, parties, more); },
                      .column = "`valkey://`",
                      .missing = [server]() -> std::string {
                        if (!tests::server_url(server).empty()) return {};
                        return std::string("HIERLOCK_TEST_") + server +
                               " names no server: eval \"$(tools/servers env)\"";
                      }});
}

[[maybe_unused]] const bool valkey_threads = add("valkey", "VALKEY", Parties::threads);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // they would see what they see above, at length
[[maybe_unused]] const bool redis = add("redis", "REDIS", Parties::threads);
[[maybe_unused]] const bool redis_processes = add("redis_processes", "REDIS", Parties::processes);
[[maybe_unused]] const bool valkey_processes = add("valkey_processes", "VALKEY", Parties::processes);
#endif

}  // namespace
}  // namespace hierlock::conformance
