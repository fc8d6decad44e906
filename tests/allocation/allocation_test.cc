// An uncontended acquire and release allocates nothing, on paths of up to 8 levels, after warm-up.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>

#include <hierlock/hierlock.h>

namespace {

// Counted per thread: what other threads of the test program allocate is not asked about.
thread_local long allocations = 0;

void* counted(std::size_t size) {
  ++allocations;
  if (void* const memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size) { return counted(size); }
void* operator new[](std::size_t size) { return counted(size); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  ++allocations;
  const auto align = static_cast<std::size_t>(alignment);
  if (void* const memory = std::aligned_alloc(align, (size + align - 1) / align * align)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace hierlock {
namespace {

// The longest segments there are, so that no small-string trick helps.
std::string path_of(std::size_t depth, std::size_t bytes) {
  std::string path;
  for (std::size_t level = 0; level < depth; ++level) {
    if (level > 0) path += '/';
    path += std::string(bytes - 1, static_cast<char>('a' + level)) + std::to_string(level);
  }
  return path;
}

template <class F>
long allocations_of(F f) {
  f();  // warm-up
  f();
  const long before = allocations;
  for (int i = 0; i < 1000; ++i) f();
  return allocations - before;
}

TEST(Allocation, the_counter_counts) {
  EXPECT_GE(allocations_of([] { std::string(100, 'x').append("y"); }), 1000);
}

TEST(Allocation, acquire_and_release_of_a_path_allocate_nothing) {
  Locker locker = open("memory:");
  for (std::size_t depth = 1; depth <= max_depth; ++depth) {
    for (const std::size_t bytes : {std::size_t{3}, std::size_t{40}, max_segment_bytes}) {
      const std::string path = path_of(depth, bytes);
      const Target target = path;
      const Target reader = shared(path);
      EXPECT_EQ(allocations_of([&] { (void)locker.acquire(target); }), 0)
          << depth << " levels of " << bytes << " bytes, prepared";
      EXPECT_EQ(allocations_of([&] { (void)locker.acquire(path); }), 0)
          << depth << " levels of " << bytes << " bytes, a string";
      EXPECT_EQ(allocations_of([&] { (void)locker.acquire(reader); }), 0)
          << depth << " levels of " << bytes << " bytes, shared";
      EXPECT_EQ(allocations_of([&] { (void)locker.try_acquire(path); }), 0)
          << depth << " levels of " << bytes << " bytes, tried";
      EXPECT_EQ(allocations_of([&] { (void)locker.acquire(path, {.timeout = std::chrono::seconds(1)}); }), 0);
    }
  }
}

TEST(Allocation, neither_do_names_and_slots) {
  Locker locker = open("memory:");
  const Target name = named(std::string(max_name_bytes, 'n'));
  const Target slot = slots("import", 3);
  EXPECT_EQ(allocations_of([&] { (void)locker.acquire(name); }), 0);
  EXPECT_EQ(allocations_of([&] { (void)locker.acquire(slot); }), 0);
}

TEST(Allocation, neither_does_one_owner_per_handle) {
  Locker locker = open("memory:", {.owners = Owners::per_handle});
  EXPECT_EQ(allocations_of([&] { (void)locker.acquire("u1/a1/r1"); }), 0);
}

TEST(Allocation, neither_does_an_acquire_with_an_owner_and_a_note) {
  Locker locker = open("memory:");
  const Owner owner = locker.owner("request 17");
  EXPECT_EQ(allocations_of(
                [&] { (void)locker.acquire("u1/a1/r1", {.owner = &owner, .note = "order 4711, placed by hand"}); }),
            0);
}

}  // namespace
}  // namespace hierlock
