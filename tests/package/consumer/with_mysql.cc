// A program that has the component, and no server to use it with: what it says must be of the store.
#include <hierlock/hierlock.h>
#include <hierlock/mysql.h>

#include <iostream>

int main() {
  hierlock::mysql::enable();
  try {
    auto locker = hierlock::open("mysql://app@127.0.0.1:1/shop");
    std::cerr << "opened a store that is not there\n";
    return 1;
  } catch (const hierlock::Error& error) {
    std::cout << error.what() << '\n';
    return error.kind() == hierlock::ErrorKind::unavailable ? 0 : 1;
  }
}
