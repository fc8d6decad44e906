// Region: the memory a lock table lives in. A large range of addresses is reserved once and never moves; its parts are
// given real memory as they are needed. Private memory of this process, or a sparse file that others map too.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "engine/descriptor.h"

namespace hierlock::engine {

class Region {
 public:
  // Private memory, all zeros. Throws Error(exhausted) if the addresses cannot be reserved.
  explicit Region(std::size_t bytes);
  // A file of that size, mapped whole; the descriptor stays the caller's.
  Region(int file, std::size_t bytes);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  std::byte* base() const noexcept { return base_; }
  std::size_t size() const noexcept { return size_; }
  bool in_file() const noexcept { return file_ >= 0; }

  // Makes [offset, offset + bytes) usable. Repeating it is harmless. False if there is no memory: a sparse file on a
  // full disk would otherwise kill whoever touches it.
  bool commit(std::size_t offset, std::size_t bytes) noexcept;
  // Gives the whole pages inside the range back; they read as zeros afterwards.
  void discard(std::size_t offset, std::size_t bytes) noexcept;
  // Private memory: each page is used when it is touched, and not 2 MiB around it (transparent huge pages).
  void use_small_pages(std::size_t offset, std::size_t bytes) noexcept;

  // In a child after fork(), which does not inherit a file's mapping: another may come to lie there.
  void forget() noexcept;

  // The file became shorter under us: somebody touched what is not there. Private zeros stand in its place.
  bool torn() const noexcept { return torn_.load(std::memory_order_relaxed); }

 private:
  void watch_for_tearing();

  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
  int file_ = -1;
  DescriptorMark mark_;
  std::atomic<bool> torn_{false};
};

}  // namespace hierlock::engine
