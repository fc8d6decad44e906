// Relay: stands between a client and a server and sees what is said. It counts the commands of the MySQL protocol,
// falls silent, is far away, cuts, or pretends that the server has no TLS.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace hierlock::mysql_tests {

class Relay {
 public:
  enum class Tls : std::uint8_t { as_it_is, hidden };  // hidden: the server's greeting says that it has none

  // Listens on a port of its own on 127.0.0.1. `host` is a numeric address. Throws std::runtime_error.
  Relay(std::string host, unsigned port, Tls tls = Tls::as_it_is);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  unsigned port() const { return own_port_; }

  void pause();   // nothing is passed on any more, in either direction; connections are accepted and stay silent
  void resume();  // what came meanwhile is passed on
  // Pauses by itself, so that no thread of the test has to be quick: when a client says something that contains this
  // text (the empty one is in anything), or when so many connections were made.
  void pause_at(std::string text);
  void pause_at_connection(std::size_t number);
  void delay(std::chrono::milliseconds each_way);  // what is said from now on arrives so much later
  void cut();                                      // closes every connection, on both sides; new ones are served

  void lead_to(unsigned port) { port_ = port; }  // of another server, for those who connect from now on

  // What a client asked for, in order. (Of a connection with TLS nothing can be said.)
  struct Command {
    std::size_t connection;  // 0, 1, … in the order they were made
    std::uint8_t code;       // COM_QUERY = 3, COM_STMT_PREPARE = 22, COM_STMT_EXECUTE = 23, COM_STMT_CLOSE = 25, …
    std::string text;        // what follows it: the SQL of a query
  };
  std::vector<Command> commands() const;
  void forget();                    // the commands so far
  std::size_t connections() const;  // made so far
  std::size_t open() const;         // that are not closed

 private:
  struct Pair;
  void run();
  void accept_one();
  // False: this connection has ended.
  bool pass_on(Pair& pair, bool from_client);
  void deliver();  // what is due
  void read_commands(Pair& pair, const std::uint8_t* data, std::size_t size);
  void wake() const;

  const std::string host_;
  std::atomic<unsigned> port_;
  const Tls tls_;
  int listener_ = -1, wake_ = -1;
  unsigned own_port_ = 0;
  std::atomic<bool> paused_{false}, cut_{false}, end_{false};
  std::atomic<std::chrono::milliseconds> delay_{std::chrono::milliseconds(0)};

  mutable std::mutex mutex_;  // guards what follows
  std::vector<Command> commands_;
  std::size_t made_ = 0, open_ = 0;
  std::optional<std::string> pause_at_;
  std::size_t pause_at_connection_ = 0;

  struct OnItsWay {
    std::chrono::steady_clock::time_point due;
    std::size_t pair;  // its number
    bool from_client;
    std::vector<std::uint8_t> data;
  };
  std::deque<OnItsWay> on_its_way_;           // of thread_, the next first
  std::vector<std::unique_ptr<Pair>> pairs_;  // of thread_
  std::thread thread_;
};

inline constexpr std::uint8_t com_quit = 1, com_query = 3, com_ping = 14, com_stmt_prepare = 22, com_stmt_execute = 23,
                              com_stmt_close = 25;

inline bool rolls_back(const Relay::Command& command) {
  return command.code == com_query && command.text == "ROLLBACK";
}
// What looks after a session that nobody uses at the moment. It may be sent at any time.
inline bool is_heartbeat(const Relay::Command& command) {
  return command.code == com_query && command.text.starts_with("SELECT CONNECTION_ID(), @@global.read_only");
}
inline bool locks(const Relay::Command& command) { return command.code == com_stmt_execute; }

}  // namespace hierlock::mysql_tests
