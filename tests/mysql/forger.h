// Forger: stands between a client and a server, like a proxy, and replaces some bytes by others of the same number, in
// either direction. So a real server can be seen as one that nobody has at hand.
#pragma once

#include <atomic>
#include <list>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace hierlock::mysql_tests {

class Forger {
 public:
  using Forgery = std::pair<std::string, std::string>;  // what is there, what is passed on instead
  // `url` is that of a server: mysql://user:password@host:port/database.
  Forger(const std::string& url, std::vector<Forgery> forgeries);
  ~Forger();
  Forger(const Forger&) = delete;
  Forger& operator=(const Forger&) = delete;

  // The same URL, through here.
  const std::string& url() const { return url_; }
  // Adds to the session's number in the server's greeting, as a proxy that counts its own clients does.
  void renumber_sessions() { renumber_ = true; }

 private:
  void accept_all();
  void serve(int client);
  std::string forged(std::string bytes, bool greeting) const;

  const std::vector<Forgery> forgeries_;
  std::string url_;
  unsigned port_ = 0;
  int listener_ = -1;
  std::atomic<bool> renumber_{false}, end_{false};
  std::list<std::thread> threads_;  // of acceptor_, until it has ended
  std::thread acceptor_;
};

}  // namespace hierlock::mysql_tests
