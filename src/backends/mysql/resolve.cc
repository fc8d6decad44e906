#include "mysql/resolve.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

namespace hierlock::mysql {

namespace {

bool is_numeric(const std::string& host) {
  in6_addr room{};
  return inet_pton(AF_INET, host.c_str(), &room) == 1 || inet_pton(AF_INET6, host.c_str(), &room) == 1;
}

// Shared with the thread that asks, which may be left behind.
struct Asked {
  std::mutex mutex;
  std::condition_variable answered;
  bool done = false;
};

}  // namespace

void await_name(const Address& address, WaitLimit& limit) {
  if (!address.socket.empty() || is_numeric(address.host) || address.host == "localhost") return;
  const auto asked = std::make_shared<Asked>();
  const auto resolve = [asked, host = address.host] {
    addrinfo* found = nullptr;
    const addrinfo hints{.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    if (getaddrinfo(host.c_str(), nullptr, &hints, &found) == 0) freeaddrinfo(found);
    const std::lock_guard guard(asked->mutex);
    asked->done = true;  // whatever the answer: the client library tells what is wrong
    asked->answered.notify_one();
  };
  try {
    std::thread(resolve).detach();
  } catch (const std::system_error& error) {
    throw Error(ErrorKind::exhausted, std::string("no thread can be made to resolve a name: ") + error.what());
  }
  std::unique_lock guard(asked->mutex);
  while (!asked->done) {
    const std::optional<Clock::duration> time = limit.next();
    if (!time) {
      throw Error(ErrorKind::unavailable, "cannot connect to " + address.place() +
                                              ": the name is not resolved, no name server answers. Is the host right?");
    }
    asked->answered.wait_for(guard, *time);
  }
}

}  // namespace hierlock::mysql
