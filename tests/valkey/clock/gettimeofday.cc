// The wall clock of a server, which a test sets forward and back. The server loads this library before the C library
// (LD_PRELOAD). HIERLOCK_TEST_CLOCK names a file with the microseconds to add, as a number of 8 bytes.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace {

const volatile std::int64_t* offset_us = nullptr;

__attribute__((constructor)) void map_offset() {
  const char* const path = std::getenv("HIERLOCK_TEST_CLOCK");
  const int file = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  void* const mapped = mmap(nullptr, sizeof(std::int64_t), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (mapped != MAP_FAILED) offset_us = static_cast<const volatile std::int64_t*>(mapped);
}

}  // namespace

extern "C" int gettimeofday(timeval* time, void*) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const std::int64_t us =
      std::int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1'000 + (offset_us != nullptr ? *offset_us : 0);
  time->tv_sec = us / 1'000'000;
  time->tv_usec = us % 1'000'000;
  return 0;
}
