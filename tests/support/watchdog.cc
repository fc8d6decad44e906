#include "support/watchdog.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace hierlock::conformance {

Watchdog::Watchdog(std::string what, std::chrono::seconds limit, std::function<std::string()> describe) {
  thread_ = std::thread([this, what = std::move(what), limit, describe = std::move(describe)] {
    std::unique_lock guard(mutex_);
    if (wake_.wait_for(guard, limit, [&] { return over_; })) return;
    std::fprintf(stderr, "\n%s hangs: still running after %lld s.\n", what.c_str(),
                 static_cast<long long>(limit.count()));
    std::fflush(stderr);
    // The store itself may be stuck: then the alarm ends the program without the description.
    ::alarm(10);
    std::fprintf(stderr, "%s\n", describe().c_str());
    std::fflush(stderr);
    std::abort();
  });
}

Watchdog::~Watchdog() {
  {
    const std::scoped_lock guard(mutex_);
    over_ = true;
    wake_.notify_one();
  }
  thread_.join();
}

}  // namespace hierlock::conformance
