#include <stdexcept>

#include "bare_sqlite.h"
#include "client.h"

namespace hierlock::tests {
namespace {

class BareClient final : public Client {
 public:
  explicit BareClient(const std::string& file) {
    if (sqlite3_open(file.c_str(), &connection_) != SQLITE_OK) throw std::runtime_error("cannot open " + file);
    adapter_ = std::make_unique<BareSqlite>(connection_);
  }
  ~BareClient() override { sqlite3_close(connection_); }
  rows::Adapter& adapter() override { return *adapter_; }
  void interrupt() override { sqlite3_interrupt(connection_); }

 private:
  sqlite3* connection_ = nullptr;
  std::unique_ptr<BareSqlite> adapter_;
};

}  // namespace

std::unique_ptr<Client> bare_sqlite_client(const std::string& file) { return std::make_unique<BareClient>(file); }

}  // namespace hierlock::tests
