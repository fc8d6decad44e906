// Region: the memory a lock table lives in. A large range of addresses is reserved once and never moves; its parts are
// given real memory as they are needed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hierlock::engine {

class Region {
 public:
  // Private memory of this process, all zeros. Throws Error(exhausted) if the addresses cannot be reserved.
  explicit Region(std::size_t bytes);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  std::byte* base() const noexcept { return base_; }
  std::size_t size() const noexcept { return size_; }

  // Makes [offset, offset + bytes) usable. Repeating it is harmless. False if there is no memory.
  bool commit(std::size_t offset, std::size_t bytes) noexcept;
  // Gives the whole pages inside the range back; they read as zeros afterwards.
  void discard(std::size_t offset, std::size_t bytes) noexcept;

 private:
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace hierlock::engine
