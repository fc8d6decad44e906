// Impostor: whoever answers in place of a server. It offers no TLS, asks for one proof after the other that it likes,
// and remembers what it is told.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace hierlock::tests {

class Impostor {
 public:
  enum class Age : std::uint8_t { today, old };  // old: knows of no plugins

  explicit Impostor(std::string proof, Age age = Age::today);
  ~Impostor();
  Impostor(const Impostor&) = delete;
  Impostor& operator=(const Impostor&) = delete;

  std::string url(const std::string& user, const std::string& password, const std::string& options) const;
  std::string heard() const;

 private:
  void run();
  void serve(int client);

  const std::string proof_;
  const Age age_;
  int listener_ = -1;
  unsigned port_ = 0;
  std::atomic<bool> end_{false};
  mutable std::mutex mutex_;
  std::string heard_;
  std::thread thread_;
};

}  // namespace hierlock::tests
