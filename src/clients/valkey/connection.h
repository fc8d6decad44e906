// Connection: one connection to a Valkey or Redis server. hiredis reads replies. The connection has its own code for
// the socket and for TLS, because hiredis 0.14 knows neither TLS nor its caller's deadlines.
//
// Every call keeps a WaitLimit. If the limit gives up, or the server hangs up, the connection is broken: it can only be
// closed. One thread uses a connection at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <hierlock/error.h>

#include "endpoint/socket.h"
#include "timed/wait_limit.h"
#include "valkey_client/address.h"

struct redisReader;
struct ssl_st;
struct ssl_ctx_st;

namespace hierlock::valkey {

using timed::WaitLimit;

struct Reply {
  enum class Kind : std::uint8_t { nil, number, text, error, array };
  Kind kind = Kind::nil;
  std::int64_t number = 0;
  std::string text{};  // of an error too
  std::vector<Reply> items{};

  bool is_error(std::string_view code) const {
    return kind == Kind::error && std::string_view(text).substr(0, text.find(' ')) == code;
  }
};

using Command = std::vector<std::string>;

// Commands as they go to the server: begin(), then each of the words.
class Request {
 public:
  void begin(std::size_t words);
  void word(std::string_view text);
  std::size_t commands() const noexcept { return commands_; }
  const std::string& bytes() const noexcept { return bytes_; }

 private:
  void line(char kind, std::size_t number);

  std::string bytes_;
  std::size_t commands_ = 0;
};

// What an error of the server means. The message is "cannot `doing`: `message`", with advice.
Error error_of(const Reply& reply, const std::string& doing);

class Connection {
 public:
  // Connects and logs in. With TLS nothing of the login is sent before the connection is encrypted. Throws Error.
  Connection(const Address& address, WaitLimit& limit);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool broken() const noexcept { return broken_; }
  bool hung_up() const noexcept;
  const std::string& cipher() const noexcept { return cipher_; }  // empty: no TLS

  // Throws unavailable if there is no answer; an error of the server is a Reply.
  Reply call(const Command& command, WaitLimit& limit);
  // All in one round trip.
  std::vector<Reply> call_all(std::span<const Command> commands, WaitLimit& limit);
  // The same, but an error of the server is thrown.
  Reply ask(const Command& command, const std::string& doing, WaitLimit& limit);

  // call_all() in two halves, so that several servers work at once.
  void send_all(const Request& request, WaitLimit& limit) { write(request.bytes(), limit); }
  std::vector<Reply> receive_all(std::size_t count, WaitLimit& limit);
  // No value: the limit gave up before there was anything to read; the connection is as it was.
  std::optional<Reply> receive(WaitLimit& limit);

 private:
  void open_socket(const Address& address, WaitLimit& limit);
  void encrypt(const Address& address, WaitLimit& limit);
  void write(std::string_view bytes, WaitLimit& limit);
  bool read_more(WaitLimit& limit);
  bool wait(int events, WaitLimit& limit);
  [[noreturn]] void fail(const std::string& why);
  void close() noexcept;

  const std::string place_;
  int socket_ = -1;
  endpoint::BriefLook brief_;
  ssl_ctx_st* context_ = nullptr;
  ssl_st* tls_ = nullptr;
  redisReader* reader_ = nullptr;
  bool broken_ = false, heard_ = false;
  std::string cipher_;
};

}  // namespace hierlock::valkey
