#include <soci/soci-platform.h>
#undef SOCI_HAVE_BOOST  // see src/rows_soci/adapter.cc

#include <soci/mysql/soci-mysql.h>
#include <soci/postgresql/soci-postgresql.h>
#include <soci/soci.h>
#include <soci/sqlite3/soci-sqlite3.h>

#include <hierlock/rows_soci.h>
#include <hierlock/spi/url.h>

#include "client.h"

namespace hierlock::tests {
namespace {

class SociClient final : public Client {
 public:
  SociClient(const soci::backend_factory& backend, const std::string& text)
      : session_(backend, text), adapter_(session_) {}
  rows::Adapter& adapter() override { return adapter_; }
  void interrupt() override {
    auto& backend = static_cast<soci::sqlite3_session_backend&>(*session_.get_backend());
    sqlite_api::sqlite3_interrupt(backend.conn_);
  }

 private:
  soci::session session_;
  rows::SociAdapter adapter_;
};

}  // namespace

std::unique_ptr<Client> soci_client(const std::string& backend, const std::string& text) {
  const soci::backend_factory& factory = backend == "mysql" ? static_cast<const soci::backend_factory&>(soci::mysql)
                                         : backend == "postgresql"
                                             ? static_cast<const soci::backend_factory&>(soci::postgresql)
                                             : static_cast<const soci::backend_factory&>(soci::sqlite3);
  return std::make_unique<SociClient>(factory, text);
}

std::unique_ptr<Client> server_client(const std::string& url) {
  const spi::Url parsed = spi::Url::parse(url);  // //user:password@host:port/database
  const std::string rest = parsed.rest.substr(2);
  const std::size_t at = rest.rfind('@'), slash = rest.rfind('/'), user_end = rest.find(':');
  const std::size_t port = rest.find(':', at);
  const auto part = [&](std::size_t from, std::size_t to) {
    return "'" + spi::Url::decode(rest.substr(from, to - from)) + "'";
  };
  const bool mysql = parsed.scheme == "mysql";
  return soci_client(mysql ? "mysql" : "postgresql",
                     "user=" + part(0, user_end) + " password=" + part(user_end + 1, at) +
                         " host=" + part(at + 1, port) + " port=" + part(port + 1, slash) +
                         (mysql ? " db=" : " dbname=") + part(slash + 1, rest.size()));
}

}  // namespace hierlock::tests
