// Machines: two machines and a cable between them, which a test can cut.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <future>
#include <stdexcept>
#include <string>

namespace hierlock::tests {

// Two machines and a cable: network namespaces without any other way out. Threads and processes that are started in one
// stay there. 127.0.0.1 of the client's is the server's, so that the server needs no other address than it always has.
class Machines {
 public:
  // Throws std::runtime_error where this is not allowed.
  Machines() : server_(make()), client_(make()) {
    in(server_, [&] {
      run("ip link set lo up");
      run("ip link add cable type veth peer name cable netns /proc/" + std::to_string(getpid()) + "/fd/" +
          std::to_string(client_));
      run("ip addr add 10.213.0.1/30 dev cable && ip link set cable up");
      run("echo 1 >/proc/sys/net/ipv4/conf/cable/route_localnet");
    });
    in(client_, [&] {
      run("ip addr add 10.213.0.2/30 dev cable && ip link set cable up");
      run("echo 1 >/proc/sys/net/ipv4/conf/cable/route_localnet");
      run("ip route add 127.0.0.1 via 10.213.0.1 src 10.213.0.2");
    });
  }
  ~Machines() {
    close(server_);
    close(client_);
  }
  Machines(const Machines&) = delete;
  Machines& operator=(const Machines&) = delete;

  void at_server(const std::function<void()>& work) const { in(server_, work); }
  void at_client(const std::function<void()>& work) const { in(client_, work); }
  void cut() const {
    at_server([] { run("ip link set cable down"); });
  }

 private:
  // On a thread of its own, which is there; what it throws is thrown here.
  static void in(int machine, const std::function<void()>& work) {
    std::async(std::launch::async, [&] {
      if (setns(machine, CLONE_NEWNET) != 0) throw std::runtime_error("setns is not allowed");
      work();
    }).get();
  }
  static int make() {
    return std::async(std::launch::async,
                      [] {
                        if (unshare(CLONE_NEWNET) != 0) throw std::runtime_error("network namespaces are not allowed");
                        return ::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
                      })
        .get();
  }
  static void run(const std::string& command) {
    if (std::system(("{ " + command + "; } 2>/dev/null").c_str()) != 0) throw std::runtime_error("fails: " + command);
  }

  const int server_, client_;
};

}  // namespace hierlock::tests
