// A server that goes down while 64 threads of a process want one path or name: each request ends with a grant or a
// clear error.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <stop_token>
#include <vector>

#include "on_own_server.h"

namespace hierlock::mysql_tests {
namespace {

constexpr std::size_t many = 64;

// How requests have ended: grants by fence, errors by kind and text.
class Ends {
 public:
  void granted(std::int64_t fence) {
    const std::lock_guard guard(mutex_);
    fences_.push_back(fence);
  }
  void failed(const Error& error) {
    const std::lock_guard guard(mutex_);
    ++errors_[std::string(to_string(error.kind())) + ": " + error.what()];
    // Down is down, and nothing else. The caller is told to try again.
    if (error.kind() != ErrorKind::unavailable || !error.retryable()) unclear_ = error.what();
  }
  void granted_and_lost() {
    const std::lock_guard guard(mutex_);
    ++lost_;
  }
  std::vector<std::int64_t> fences() const {
    const std::lock_guard guard(mutex_);
    return fences_;
  }
  std::size_t grants() const {
    const std::lock_guard guard(mutex_);
    return fences_.size() + lost_;
  }
  std::size_t errors() const {
    const std::lock_guard guard(mutex_);
    std::size_t sum = 0;
    for (const auto& [text, count] : errors_) sum += count;
    return sum;
  }
  std::string unclear() const {
    const std::lock_guard guard(mutex_);
    return unclear_;
  }
  std::string text() const {
    const std::lock_guard guard(mutex_);
    std::string text = std::to_string(fences_.size()) + " grants, " + std::to_string(lost_) + " lost at once\n";
    for (const auto& [error, count] : errors_) text += std::to_string(count) + " x " + error + "\n";
    return text;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::int64_t> fences_;
  std::size_t lost_ = 0;
  std::map<std::string, std::size_t> errors_;
  std::string unclear_;
};

class Restart : public OnOwnServer {
 protected:
  void TearDown() override {
    if (has_server()) own().control("start");
  }
  std::string url() const { return url_of("restart"); }

  // A request without a timeout. What still waits at the end of a test that has failed is cancelled.
  bool ask(Locker& locker, const std::stop_token& cancel, Ends& ends) const {
    Lock lock;
    try {
      lock = locker.acquire(hot_, {.cancel = cancel});
    } catch (const Error& error) {
      ends.failed(error);
      return false;
    }
    const std::optional<Error> error = error_of([&] { ends.granted(lock.fence()); });
    if (error) {
      EXPECT_EQ(error->kind(), ErrorKind::lost) << error->what();
      ends.granted_and_lost();
    }
    return true;
  }

  void every_queued_request_ends(const std::string& how);
  void threads_go_on(const std::string& how);

  Target hot_ = "hot";
};

// One of them waits at the server, the others in the local queue.
void Restart::every_queued_request_ends(const std::string& how) {
  Locker others = hierlock::open(url()), locker = hierlock::open(url());
  Lock lock = others.acquire(hot_);
  const std::int64_t before = lock.fence();
  std::stop_source cancel;
  Ends ends;
  std::atomic<std::size_t> ended = 0;
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < many; ++i) {
    threads.emplace_back([&] {
      ask(locker, cancel.get_token(), ends);
      ++ended;
    });
  }
  EXPECT_TRUE(eventually([&] { return locker.snapshot().waiters.size() == many; }));
  EXPECT_TRUE(own().control(how));
  EXPECT_TRUE(own().control("start"));
  EXPECT_TRUE(eventually([&] { return ended == many; })) << many - ended << " requests hang";
  cancel.request_stop();
  threads.clear();
  EXPECT_EQ(ends.unclear(), "") << ends.text();
  // A request for a name asks again a few times.
  if (hot_.space() == Space::path) {
    EXPECT_GE(ends.errors(), 1u) << "that of the request at the server";
  }
  EXPECT_EQ(ends.grants() + ends.errors(), many);
  for (const std::int64_t fence : ends.fences()) EXPECT_GT(fence, before);  // B3
  EXPECT_TRUE(eventually([&] { return !lock.held(); })) << "its Locker looks at its connections twice a second";
  EXPECT_TRUE(locker.acquire(hot_, {.timeout = 10s}).held()) << "the Locker goes on";
  std::printf("%s, %s: %s", GetParam().c_str(), how.c_str(), ends.text().c_str());
}

// They hand the lock over to each other all the time.
void Restart::threads_go_on(const std::string& how) {
  Locker locker = hierlock::open(url());
  std::stop_source cancel;
  std::atomic<bool> over = false;
  std::atomic<std::size_t> ended = 0;
  Ends ends;
  std::array<std::atomic<std::uint64_t>, many> turns{}, granted{};
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < many; ++i) {
    threads.emplace_back([&, i] {
      while (!over) {
        if (ask(locker, cancel.get_token(), ends)) {
          ++granted[i];
        } else {
          std::this_thread::sleep_for(1ms);  // as programs do that are told to try again
        }
        ++turns[i];
      }
      ++ended;
    });
  }
  const auto all_go_on = [](const auto& counts) {
    std::array<std::uint64_t, many> from{};
    for (std::size_t i = 0; i < many; ++i) from[i] = counts[i];
    return eventually([&, from] {
      for (std::size_t i = 0; i < many; ++i) {
        if (counts[i] == from[i]) return false;
      }
      return true;
    });
  };
  EXPECT_TRUE(all_go_on(granted));
  EXPECT_TRUE(own().control(how));
  // The sockets of a killed server are closed a moment after it is gone.
  EXPECT_TRUE(eventually([&] { return ends.errors() >= many; })) << "each thread is told\n" << ends.text();
  EXPECT_TRUE(all_go_on(turns)) << "every request ends while the server is down\n" << ends.text();
  const std::vector<std::int64_t> before = ends.fences();
  EXPECT_TRUE(own().control("start"));
  EXPECT_TRUE(all_go_on(granted)) << "every thread gets the lock again\n" << ends.text();
  over = true;
  EXPECT_TRUE(eventually([&] { return ended == many; })) << many - ended << " threads hang";
  cancel.request_stop();
  threads.clear();
  EXPECT_EQ(ends.unclear(), "") << ends.text();
  const std::vector<std::int64_t> all = ends.fences();
  const std::int64_t highest = *std::max_element(before.begin(), before.end());
  for (std::size_t i = before.size(); i < all.size(); ++i) ASSERT_GT(all[i], highest);  // B3
  std::printf("%s, %s: %s", GetParam().c_str(), how.c_str(), ends.text().c_str());
}

TEST_P(Restart, of_the_server_ends_every_request_in_the_queue) { every_queued_request_ends("stop"); }  // B4, B8

TEST_P(Restart, of_a_killed_server_ends_every_request_in_the_queue) { every_queued_request_ends("kill"); }  // B4, B8

TEST_P(Restart, of_the_server_stops_no_thread_that_hands_over) { threads_go_on("stop"); }  // B3, B8

TEST_P(Restart, of_a_killed_server_stops_no_thread_that_hands_over) { threads_go_on("kill"); }  // B3, B8

TEST_P(Restart, of_a_killed_server_ends_every_request_for_a_name) {  // B4, N6
  hot_ = named("hot");
  every_queued_request_ends("kill");
}

TEST_P(Restart, of_a_killed_server_stops_no_thread_that_wants_a_name) {  // B3, N6
  hot_ = named("hot");
  threads_go_on("kill");
}

HIERLOCK_ON_OWN_SERVERS(Restart);

}  // namespace
}  // namespace hierlock::mysql_tests
