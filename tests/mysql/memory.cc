#include "memory.h"

#include <cstdlib>
#include <new>

thread_local long hierlock::mysql_tests::refused_allocation = 0;

void* operator new(std::size_t size) {
  long& refused = hierlock::mysql_tests::refused_allocation;
  if (refused > 0 && --refused == 0) throw std::bad_alloc();
  if (void* const memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
