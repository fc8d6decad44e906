// ProcessParty: a Party that lives in another process (support/holder), which can therefore be stopped and killed.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "support/party.h"
#include "support/wire.h"

namespace hierlock::conformance {

class ProcessParty final : public Party {
 public:
  // What is unusual about the process. All of it needs rights that root has: std::system_error if they are missing.
  struct How {
    pid_t pid = 0;                   // exactly this number; EEXIST if it is taken
    bool own_pid_namespace = false;  // it is number 1 there
    bool own_proc = false;           // and its /proc shows that namespace, instead of the one it came from
    pid_t beside = 0;                // it lives in the namespace of this process, where `pid` is its number
  };

  // Starts the process and waits until it has opened the store; if it could not, throws the Error that it met.
  ProcessParty(std::string name, const std::string& url) : ProcessParty(std::move(name), url, How()) {}
  ProcessParty(std::string name, const std::string& url, const How& how);
  // The process ends, by itself or by force. One that ends badly without having been told to fails the test.
  ~ProcessParty() override;

  void abandon() override;
  // What a process that is gone was asked for ends with `unavailable`.
  std::future<Outcome> run(Command command) override;

  pid_t pid() const { return pid_; }
  // SIGKILL, and it is gone: its pid may be used again, its memory and files are given back.
  void kill();
  // The same without waiting until it is gone.
  void strike();
  // SIGSTOP, and it has stopped; SIGCONT.
  void stop();
  void go_on();
  // For the process itself: see wire.h.
  void tell(wire::Control control);

 private:
  void start(const std::string& url, const How& how);
  void listen(std::promise<Outcome> ready);
  void reap();
  void send(const std::string& line);

  pid_t pid_ = 0;
  int orders_ = -1;    // its stdin
  int answers_ = -1;   // its stdout
  bool gone_ = false;  // and reaped
  bool may_die_ = false;
  bool stopped_ = false;

  std::mutex mutex_;  // guards what follows, and writing to orders_
  std::uint64_t last_id_ = 0;
  std::map<std::uint64_t, std::promise<Outcome>> asked_;
  bool silent_ = false;  // it will not answer any more

  std::thread listener_;
};

}  // namespace hierlock::conformance
