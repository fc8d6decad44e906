#include "endpoint/resolve.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include <hierlock/error.h>

namespace hierlock::endpoint {

namespace {

bool is_numeric(const std::string& host) {
  in6_addr room{};
  return inet_pton(AF_INET, host.c_str(), &room) == 1 || inet_pton(AF_INET6, host.c_str(), &room) == 1;
}

// Shared with the thread that asks. The caller may give up and leave that thread behind.
struct Asked {
  std::mutex mutex;
  std::condition_variable answered;
  bool done = false;
};

}  // namespace

void await_name(const std::string& host, const std::string& place, timed::WaitLimit& limit) {
  if (is_numeric(host) || host == "localhost") return;
  const auto asked = std::make_shared<Asked>();
  const auto resolve = [asked, host] {
    addrinfo* found = nullptr;
    const addrinfo hints{.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    if (getaddrinfo(host.c_str(), nullptr, &hints, &found) == 0) freeaddrinfo(found);
    const std::lock_guard guard(asked->mutex);
    asked->done = true;  // whatever the answer is: if it is an error, the client library reports it
    asked->answered.notify_one();
  };
  try {
    std::thread(resolve).detach();
  } catch (const std::system_error& error) {
    throw Error(ErrorKind::exhausted, std::string("no thread can be made to resolve a name: ") + error.what());
  }
  std::unique_lock guard(asked->mutex);
  while (!asked->done) {
    const std::optional<timed::Clock::duration> time = limit.next();
    if (!time) {
      throw Error(ErrorKind::unavailable, "cannot connect to " + place +
                                              ": the name is not resolved, no name server answers. Is the host right?");
    }
    asked->answered.wait_for(guard, *time);
  }
}

}  // namespace hierlock::endpoint
