#include "engine/region.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include <hierlock/error.h>

namespace hierlock::engine {

namespace {

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

}  // namespace

Region::Region(std::size_t bytes) : size_((bytes + page_size() - 1) / page_size() * page_size()) {
  // PROT_NONE costs nothing, also where the kernel is told not to overcommit; commit() makes pages writable.
  void* address = mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    const int error = errno;
    throw Error(
        ErrorKind::exhausted,
        "cannot reserve " + std::to_string(size_ >> 20) +
            " MiB of addresses for the lock table: raise the limit (ulimit -v) or open with a smaller max_locks",
        error);
  }
  base_ = static_cast<std::byte*>(address);
}

Region::~Region() { munmap(base_, size_); }

bool Region::commit(std::size_t offset, std::size_t bytes) noexcept {
  const std::size_t first = offset / page_size() * page_size();
  const std::size_t last = (offset + bytes + page_size() - 1) / page_size() * page_size();
  if (last > size_) return false;
  return mprotect(base_ + first, last - first, PROT_READ | PROT_WRITE) == 0;
}

void Region::discard(std::size_t offset, std::size_t bytes) noexcept {
  const std::size_t first = (offset + page_size() - 1) / page_size() * page_size();
  const std::size_t last = (offset + bytes) / page_size() * page_size();
  if (first < last) madvise(base_ + first, last - first, MADV_DONTNEED);
}

}  // namespace hierlock::engine
