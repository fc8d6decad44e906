#include "endpoint/resolve.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <algorithm>
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
  int error = 0;
  std::vector<std::string> addresses;
};

void ask(Asked& asked, const std::string& host) {
  addrinfo* found = nullptr;
  const addrinfo hints{.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  std::vector<std::string> addresses;
  for (const addrinfo* one = error == 0 ? found : nullptr; one != nullptr; one = one->ai_next) {
    char text[NI_MAXHOST] = {};
    if (getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) continue;
    if (std::find(addresses.begin(), addresses.end(), text) == addresses.end()) addresses.emplace_back(text);
  }
  if (error == 0) freeaddrinfo(found);
  const std::lock_guard guard(asked.mutex);
  asked.done = true;
  asked.error = error;
  asked.addresses = std::move(addresses);
  asked.answered.notify_one();
}

}  // namespace

std::vector<std::string> resolve(const std::string& host, const std::string& place, timed::WaitLimit& limit) {
  if (is_numeric(host)) return {host};
  const auto asked = std::make_shared<Asked>();
  try {
    std::thread([asked, host] { ask(*asked, host); }).detach();
  } catch (const std::system_error& error) {
    throw Error(ErrorKind::exhausted, std::string("no thread can be made to resolve a name: ") + error.what());
  }
  const auto failed = [&](const std::string& why) {
    return Error(ErrorKind::unavailable, "cannot connect to " + place + ": the name is not resolved, " + why +
                                             ". Is the host of the URL right?");
  };
  std::unique_lock guard(asked->mutex);
  while (!asked->done) {
    const std::optional<timed::Clock::duration> time = limit.next();
    if (!time) throw failed("no name server answers");
    asked->answered.wait_for(guard, *time);
  }
  if (asked->addresses.empty()) throw failed(asked->error != 0 ? gai_strerror(asked->error) : "it has no address");
  return asked->addresses;
}

}  // namespace hierlock::endpoint
