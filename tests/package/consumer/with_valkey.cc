// A program that has the component, and no server to use it with: what it says must be of the store.
#include <hierlock/hierlock.h>
#include <hierlock/valkey.h>

#include <iostream>

int main() {
  hierlock::valkey::enable();
  for (const char* const url : {"valkey://app@127.0.0.1:1", "redis://app@127.0.0.1:1"}) {
    try {
      auto locker = hierlock::open(url);
      std::cerr << "opened a store that is not there\n";
      return 1;
    } catch (const hierlock::Error& error) {
      std::cout << error.what() << '\n';
      if (error.kind() != hierlock::ErrorKind::unavailable) return 1;
    }
  }
}
