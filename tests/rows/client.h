// Clients: a connection of the application to each kind of database, and the adapter over it.
#pragma once

#include <memory>
#include <string>

#include <hierlock/rows.h>

namespace hierlock::tests {

class Client {
 public:
  virtual ~Client() = default;
  virtual rows::Adapter& adapter() = 0;
  // Ends the statement that runs in another thread, if it has begun. SQLite only.
  virtual void interrupt() = 0;
};

// Through SOCI: `backend` as SOCI names it, `text` as SOCI wants it.
std::unique_ptr<Client> soci_client(const std::string& backend, const std::string& text);
// Through libsqlite3 alone.
std::unique_ptr<Client> bare_sqlite_client(const std::string& file);
// Through SOCI, by the URL of a server as tools/servers names it.
std::unique_ptr<Client> server_client(const std::string& url);

}  // namespace hierlock::tests
