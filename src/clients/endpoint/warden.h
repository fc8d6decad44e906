// Warden: keeps a WaitLimit during calls of a client library that block, such as a TLS handshake. Such a call lasts for
// ever if the server says nothing. So a thread of the Warden ends it by shutting the socket down.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "timed/wait_limit.h"

namespace hierlock::endpoint {

class Warden {
 public:
  // `limit` must outlive it. Throws Error(exhausted) if there is no thread.
  explicit Warden(timed::WaitLimit& limit);
  ~Warden();
  Warden(const Warden&) = delete;
  Warden& operator=(const Warden&) = delete;

  // Makes the call, and returns what it returns. No other thread may use the limit meanwhile.
  int during(int socket, const std::function<int()>& call);
  // The limit gave up during a call: the socket is shut down.
  bool gave_up();

 private:
  void set(int socket);
  void run();

  timed::WaitLimit& limit_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  int socket_ = -1;
  bool over_ = false, gave_up_ = false;
  std::thread thread_;
};

}  // namespace hierlock::endpoint
