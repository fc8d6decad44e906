#include "threads/registry.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace hierlock::threads {
namespace {

// What happened to the keepsakes of a test, in order.
struct Story {
  std::vector<std::uint64_t> told, gone;
  std::atomic<bool> object_ended{false};
};

class Told final : public Keepsake {
 public:
  Told(std::uint64_t object, Story& story) : Keepsake(object), story_(story) {}
  ~Told() override {
    EXPECT_TRUE(mutex().try_lock()) << "destroyed under the mutex";
    mutex().unlock();
    story_.gone.push_back(object());
  }
  bool useless() const noexcept override { return story_.object_ended; }
  void thread_ends() noexcept override {
    EXPECT_TRUE(ending());
    story_.told.push_back(object());
  }

 private:
  Story& story_;
};

TEST(Registry, a_thread_that_ends_tells_the_newest_first) {
  Story story;
  const std::uint64_t first = next_number(), second = next_number();
  std::thread([&] {
    keep(std::make_unique<Told>(first, story));
    keep(std::make_unique<Told>(second, story));
  }).join();
  EXPECT_EQ(story.told, (std::vector{second, first}));
  EXPECT_EQ(story.gone, story.told);
}

TEST(Registry, a_thread_finds_what_it_keeps_and_nothing_of_others) {
  Story story;
  const std::uint64_t object = next_number();
  std::thread([&] {
    EXPECT_EQ(find(object), nullptr);
    keep(std::make_unique<Told>(object, story));
    ASSERT_NE(find(object), nullptr);
    EXPECT_EQ(find(object)->object(), object);
    std::thread([&] { EXPECT_EQ(find(object), nullptr); }).join();
    drop(object);
    EXPECT_EQ(find(object), nullptr);
  }).join();
  EXPECT_TRUE(story.told.empty()) << "what is dropped is not told";
  EXPECT_EQ(story.gone.size(), 1u);
}

TEST(Registry, what_is_kept_of_an_object_that_ended_goes_when_something_else_is_kept) {
  Story gone, kept;
  std::thread([&] {
    keep(std::make_unique<Told>(next_number(), gone));
    gone.object_ended = true;
    keep(std::make_unique<Told>(next_number(), kept));
    EXPECT_EQ(gone.gone.size(), 1u);
    EXPECT_TRUE(kept.gone.empty());
  }).join();
  EXPECT_TRUE(gone.told.empty());
  EXPECT_EQ(kept.told.size(), 1u);
}

// A variable of the thread's own that is destroyed after what the thread keeps: it was made before.
TEST(Registry, a_thread_that_has_ended_keeps_and_finds_nothing) {
  Story story;
  const std::uint64_t object = next_number();
  static std::atomic<int> looked{0};
  struct Late {
    std::uint64_t object = 0;
    ~Late() {
      if (object == 0) return;
      EXPECT_TRUE(ending());
      EXPECT_EQ(find(object), nullptr);
      tidy();
      drop(object);
      ++looked;
    }
  };
  std::thread([&] {
    thread_local Late late;
    late.object = object;
    keep(std::make_unique<Told>(object, story));
  }).join();
  EXPECT_EQ(looked, 1);
  EXPECT_EQ(story.told.size(), 1u);
}

std::atomic<int> children{0};

TEST(Registry, a_forked_child_is_told_once_and_finds_the_mutex_free) {
  const auto in_child = +[]() noexcept { ++children; };
  notice_forks(in_child);
  notice_forks(in_child);
  std::atomic<bool> end{false};
  std::thread busy([&] {
    while (!end) {
      const std::lock_guard guard(mutex());
    }
  });
  for (int i = 0; i < 50; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const bool is_free = mutex().try_lock();
      _exit(is_free && children == 1 ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  end = true;
  busy.join();
  EXPECT_EQ(children, 0) << "the parent is not told";
}

}  // namespace
}  // namespace hierlock::threads
