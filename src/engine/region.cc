#include "engine/region.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include <hierlock/error.h>

namespace hierlock::engine {

namespace {

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

std::byte* reserve(std::size_t bytes, int protection, int flags, int file) {
  void* const address = mmap(nullptr, bytes, protection, flags, file, 0);
  if (address == MAP_FAILED) {
    const int error = errno;
    throw Error(ErrorKind::exhausted,
                "cannot reserve " + std::to_string(bytes >> 20) +
                    " MiB of addresses for the lock table: raise the limit (ulimit -v), or use one made with a smaller "
                    "max_locks",
                error);
  }
  return static_cast<std::byte*>(address);
}

// Somebody may cut the file short while it is mapped. The kernel's answer to touching what is gone is SIGBUS, so there
// is a handler: it puts private zeros in the place of the whole table, which then says of itself that it is lost. A
// signal that is not about a table goes where it went before.
// Without a mutex: a child that is forked meanwhile would inherit it taken.
struct Mapped {
  std::atomic<bool> taken{false};
  std::atomic<std::byte*> base{nullptr};
  std::atomic<std::size_t> size{0};
  std::atomic<std::atomic<bool>*> torn{nullptr};
};
std::array<Mapped, 4096> mapped;
struct sigaction before;

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (Mapped& m : mapped) {
    std::byte* const base = m.base.load();
    const auto begin = reinterpret_cast<std::uintptr_t>(base);
    if (base == nullptr || address < begin || address >= begin + m.size.load()) continue;
    const int error = errno;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    if (mmap(base, m.size.load(), PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED) break;
    if (std::atomic<bool>* const torn = m.torn.load(); torn != nullptr) torn->store(true);
    errno = error;
    return;
  }
  if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != nullptr) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN && before.sa_handler != nullptr) {
    before.sa_handler(signal);
  } else {
    ::signal(SIGBUS, SIG_DFL);  // and the instruction that failed fails again
  }
}

}  // namespace

Region::Region(std::size_t bytes) : size_((bytes + page_size() - 1) / page_size() * page_size()) {
  // PROT_NONE costs nothing, also where the kernel is told not to overcommit; commit() makes pages writable.
  base_ = reserve(size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
}

Region::Region(int file, std::size_t bytes)
    : size_((bytes + page_size() - 1) / page_size() * page_size()), file_(file) {
  base_ = reserve(size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file);
  mark_ = DescriptorMark::of(file);
  // Otherwise a dump of a process that crashed would take the gigabytes of zeros with it.
  madvise(base_, size_, MADV_DONTDUMP);
  // What is mapped keeps the file's locks, as a descriptor does: a child must not hide the death of its parent.
  madvise(base_, size_, MADV_DONTFORK);
  watch_for_tearing();
}

void Region::watch_for_tearing() {
  static const bool installed = [] {
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, &before) == 0;
  }();
  for (Mapped& m : mapped) {
    if (!installed || m.taken.exchange(true)) continue;
    m.torn.store(&torn_);
    m.size.store(size_);
    m.base.store(base_);
    return;
  }
  munmap(base_, size_);
  throw Error(ErrorKind::exhausted, "too many lock tables are open in this process: close some");
}

void Region::forget() noexcept {
  if (!in_file()) return;
  for (Mapped& m : mapped) {
    if (m.base.load() != base_) continue;
    m.base.store(nullptr);
    m.torn.store(nullptr);
    m.taken.store(false);
    return;
  }
}

Region::~Region() {
  forget();
  munmap(base_, size_);
}

bool Region::commit(std::size_t offset, std::size_t bytes) noexcept {
  const std::size_t first = offset / page_size() * page_size();
  const std::size_t last = (offset + bytes + page_size() - 1) / page_size() * page_size();
  if (last > size_ || last < first) return false;
  if (!in_file()) return mprotect(base_ + first, last - first, PROT_READ | PROT_WRITE) == 0;
  // The descriptor may have been closed by others, and its number be that of a file of theirs. And not posix_fallocate,
  // which where the filesystem cannot do it writes to the file instead.
  if (!mark_.is_on(file_)) return false;
  int done = 0;
  do {
    done = fallocate(file_, 0, static_cast<off_t>(first), static_cast<off_t>(last - first));
  } while (done != 0 && errno == EINTR);
  return done == 0;
}

void Region::use_small_pages(std::size_t offset, std::size_t bytes) noexcept {
  if (!in_file()) madvise(base_ + offset, bytes, MADV_NOHUGEPAGE);  // where there are no huge pages it may fail
}

void Region::discard(std::size_t offset, std::size_t bytes) noexcept {
  const std::size_t first = (offset + page_size() - 1) / page_size() * page_size();
  const std::size_t last = (offset + bytes) / page_size() * page_size();
  if (first < last) madvise(base_ + first, last - first, in_file() ? MADV_REMOVE : MADV_DONTNEED);
}

}  // namespace hierlock::engine
