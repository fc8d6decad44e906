// Store: which store a command works on, and its opening.
#pragma once

#include <string>

#include <hierlock/locker.h>
#include <hierlock/options.h>

namespace hierlock::cli {

struct StoreUrl {
  std::string text = "shm:";
  std::string from = "the default store";  // where it was given, for messages
};

// Thrown for a store whose client library this program does not load: hierlock-SCHEME is the same tool with it.
struct AnotherProgram {
  std::string scheme;
  std::string from;        // what asks for it, for messages
  bool built = false;      // with this one; otherwise there is none to look for
  std::string to_have_it;  // what to do if it was not
};

// What to say if there is none in the folder of this program, `here`, nor where it is installed.
std::string missing_program(const AnotherProgram& other, const std::string& here);

// Throws UsageError unless it names a store of this build and is well-formed, as far as that can be told without
// opening a store that others see.
void check_store(const StoreUrl& url);

// It is somewhere else, and connecting to it may take long.
bool needs_server(const StoreUrl& url);

// Throws UsageError for what is wrong with the URL, and Error for what is wrong with the store.
Locker open_store(const StoreUrl& url, OpenOptions options = {});

}  // namespace hierlock::cli
