// Hand-over of a hot lock inside a process (B8), between two real processes on a real server.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <new>
#include <vector>

#include "on_server.h"
#include "program.h"

namespace hierlock::mysql_tests {
namespace {

constexpr std::int64_t fences_of_a_grant = 128;  // docs/remote.md
constexpr std::int64_t most_hand_overs = 100;    // docs/mysql.md

// All grants in their order, in memory that the processes share. The hot lock alone guards it, so two holders at once
// would lose an entry, or write one twice.
struct Log {
  struct Entry {
    std::int64_t fence;
    std::size_t process;
  };
  static constexpr std::size_t room = 2'000'000;

  std::atomic<bool> over;
  std::array<std::atomic<std::uint64_t>, 2> grants, at_their_most;  // by process
  std::size_t size;                                                 // guarded by the hot lock
  std::array<Entry, room> entries;                                  // the same
};

class HandOver : public OnServer {
 protected:
  void SetUp() override {
    OnServer::SetUp();
    if (IsSkipped()) return;
    void* const memory = mmap(nullptr, sizeof(Log), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    log_ = new (memory) Log;  // zeros
  }
  void TearDown() override {
    if (log_ != nullptr) munmap(log_, sizeof(Log));
    OnServer::TearDown();
  }

  // What a process does: eight threads that take turns on one lock until it is over.
  void take_turns(std::size_t process, const std::string& more) const {
    Locker locker = open(more);
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&, process] {
        while (!log_->over) {
          const Lock lock = locker.acquire("hot");
          if (log_->size == Log::room) return;
          const std::int64_t fence = lock.fence();
          log_->entries[log_->size++] = {fence, process};
          ++log_->grants[process];
          if (fence % fences_of_a_grant == most_hand_overs) ++log_->at_their_most[process];
        }
      });
    }
  }

  Log* log_ = nullptr;
};

TEST_P(HandOver, raises_the_fence_in_two_processes_that_do_it_as_often_as_they_may) {  // B3, B8
  Process one([&] { take_turns(0, ""); }), two([&] { take_turns(1, ""); });
  EXPECT_TRUE(eventually([&] { return log_->at_their_most[0] >= 20 && log_->at_their_most[1] >= 20; }, 60s))
      << log_->at_their_most[0] << " and " << log_->at_their_most[1] << " times";
  log_->over = true;
  EXPECT_TRUE(one.ready());
  EXPECT_TRUE(two.ready());
  EXPECT_EQ(log_->size, log_->grants[0] + log_->grants[1]) << "two held the lock at once";
  std::size_t handed_over = 0, changes = 0;
  for (std::size_t i = 0; i < log_->size; ++i) {
    const Log::Entry& now = log_->entries[i];
    ASSERT_LE(now.fence % fences_of_a_grant, most_hand_overs) << "grant " << i;
    if (i == 0) continue;
    const Log::Entry& before = log_->entries[i - 1];
    ASSERT_GT(now.fence, before.fence) << "grant " << i;
    changes += now.process != before.process ? 1 : 0;
    if (now.fence % fences_of_a_grant == 0) continue;  // the server's own
    ++handed_over;
    ASSERT_EQ(now.fence, before.fence + 1) << "grant " << i;
    ASSERT_EQ(now.process, before.process) << "grant " << i;
  }
  EXPECT_GE(changes, 20u) << "both have their turns";
  std::printf("%s: %zu grants, %zu of them handed over; %zu times from one process to the other\n", GetParam().c_str(),
              log_->size, handed_over, changes);
}

TEST_P(HandOver, can_be_switched_off_in_one_process_alone) {  // B3, B8
  Process one([&] { take_turns(0, ""); }), two([&] { take_turns(1, "gate=off"); });
  EXPECT_TRUE(eventually([&] { return log_->at_their_most[0] >= 3 && log_->grants[1] >= 100; }, 60s))
      << log_->at_their_most[0] << " times, " << log_->grants[1] << " grants";
  log_->over = true;
  EXPECT_TRUE(one.ready());
  EXPECT_TRUE(two.ready());
  EXPECT_EQ(log_->size, log_->grants[0] + log_->grants[1]) << "two held the lock at once";
  for (std::size_t i = 0; i < log_->size; ++i) {
    const Log::Entry& now = log_->entries[i];
    ASSERT_GT(now.fence, i == 0 ? 0 : log_->entries[i - 1].fence) << "grant " << i;
    ASSERT_TRUE(now.process == 0 || now.fence % fences_of_a_grant == 0) << "grant " << i << " is not the server's";
  }
}

HIERLOCK_ON_BOTH_SERVERS(HandOver);

}  // namespace
}  // namespace hierlock::mysql_tests
