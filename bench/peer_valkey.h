// A connection to Valkey as people write it by hand: hiredis, one command at a time.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

namespace bench {

std::string why_no_valkey();  // empty: this program has the client library

// Lets hierlock::open() open valkey:// URLs.
void enable_valkey();

class ValkeySession {
 public:
  explicit ValkeySession(const std::string& url);  // valkey://USER:PASSWORD@HOST:PORT/
  ~ValkeySession();
  ValkeySession(const ValkeySession&) = delete;
  ValkeySession& operator=(const ValkeySession&) = delete;

  std::string ask(std::initializer_list<std::string_view> command);
  void ping() { ask({"PING"}); }
  // SET NX PX, and a script that deletes the key if it still has the same value.
  void pair_by_hand();
  // The sum of these numbers of INFO; each is `name:N` or, of a command, `name:calls=N`.
  double info(const char* section, std::initializer_list<std::string_view> names);

 private:
  struct Client;
  const std::unique_ptr<Client> client_;
  std::string release_;
};

}  // namespace bench
