// What some tests need and not every machine allows, not even to root: in a container root may not mount, for example.
// Each right is tried in a child process. A case without its right is skipped, also with CI=true, because the machine
// of a team's CI cannot have all of them. ./test counts such a case in a column of its own and shows its reason:
// tools/lib.sh knows it by the words below.
//
//     HIERLOCK_NEEDS_RIGHT(mount);
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace hierlock::tests {

enum class Right {
  mount,                   // in a mount namespace of its own, also over parts of /proc
  choose_process_number,   // clone3() with set_tid
  make_process_namespace,  // and a /proc for it
  make_network,            // network namespaces with a cable between them, with the program ip
  take_low_port,           // below 1024
  give_file_away,          // chown()
  become_another_user
};

// Tried once in this process.
bool has_right(Right right);
// What follows "needs rights: ".
std::string text_of(Right right);

}  // namespace hierlock::tests

// At the beginning of a test or SetUp().
#define HIERLOCK_NEEDS_RIGHT(right)                                                                  \
  if (!::hierlock::tests::has_right(::hierlock::tests::Right::right)) {                              \
    GTEST_SKIP() << "needs rights: " << ::hierlock::tests::text_of(::hierlock::tests::Right::right); \
  }                                                                                                  \
  static_assert(true, "a semicolon follows")
