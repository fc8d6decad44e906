// The store hook: counts the shared stores of one thread and, at the n-th, kills or stops the process.
#pragma once

#include <csignal>

namespace hierlock::stores {

// Nothing happens until armed; the signal is raised before the n-th store from then on is made.
void arm(long n, int signal) noexcept;
// How many stores were made since.
long disarm() noexcept;

}  // namespace hierlock::stores
