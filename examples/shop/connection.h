// The shop's database: SQLite in a file of its own, or a server by its URL. This is what an application has anyway.
#pragma once

#include <memory>
#include <string>

#include <hierlock/rows.h>

namespace shop {

// A session of the application's own client, SOCI here, with the adapter of hierlock/rows.h over it.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual hierlock::rows::Adapter& adapter() = 0;
  // A statement of the application itself.
  virtual void execute(const std::string& sql) = 0;
  virtual long long number(const std::string& sql) = 0;
};

// sqlite:FILE, mysql://USER:PASSWORD@HOST[:PORT]/DATABASE, postgres://USER:PASSWORD@HOST[:PORT]/DATABASE. The servers
// take ?password_env=NAME and ?password_file=FILE, MySQL also ?socket=PATH. Throws invalid_argument for other options.
std::unique_ptr<Connection> connect(const std::string& url);

}  // namespace shop
