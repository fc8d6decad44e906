// Faults: what becomes of locks when processes die, stop, fork, and when the table's file is not what it was (B5, B6).
// Seen through the public headers only, on shm:, with parties that are processes of their own.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/process_party.h"
#include "support/shm_table.h"
#include "support/suite.h"

namespace hierlock::conformance {

// B5: a dead holder or waiter is out of the way within this time. It is judged where many die one after the other; a
// single one may meet a machine that stalls, and has late_bound more.
inline constexpr std::chrono::nanoseconds death_bound = 250ms * slowness;

// How much later than asked threads are woken on this machine just now: a bound in time is only as good as that.
class Unrest {
 public:
  Unrest();
  ~Unrest();
  Unrest(const Unrest&) = delete;
  Unrest& operator=(const Unrest&) = delete;
  std::chrono::nanoseconds worst() const { return worst_.load(); }

 private:
  std::atomic<bool> over_ = false;
  std::atomic<std::chrono::nanoseconds> worst_{};
  std::thread thread_;
};

class Faults : public Conformance {
 protected:
  ShmTable& table() { return dynamic_cast<ShmTable&>(Conformance::table()); }
  // The party as a process, started on first use.
  ProcessParty& process(const std::string& name) { return dynamic_cast<ProcessParty&>(party(name)); }
  // Started in an unusual way.
  ProcessParty& process(const std::string& name, const ProcessParty::How& how);

  // Ends all parties (one that died by itself fails the test) and makes a new table.
  void start_again();

  // Does `blow`, and waits until the request is granted; that must not take longer than `bound`, and what a machine
  // that stalls may add. Returns how long it was, less what this machine is known to have been late.
  std::chrono::nanoseconds granted_after(Pending& pending, const std::function<void()>& blow,
                                         std::chrono::nanoseconds bound = death_bound);
};

// Waits until the process has ended, and reaps it. Returns what waitpid says.
int reap(pid_t child);
// It runs, or is stopped: it may still be there for its parent to reap, but that is not alive.
bool alive(pid_t pid);

// The numbers under which this process has the file open.
std::vector<int> descriptors_of(const std::string& file);
// From here on this process sees another start of the machine than others do, as some containers are made to. Needs
// rights that root has; false without.
bool see_another_start_of_the_machine(const std::string& folder);

// Random numbers of a test. HIERLOCK_SEED repeats them, as far as processes allow.
std::mt19937 random_numbers(std::string& seed);

Backend shm_processes();

#define HIERLOCK_ON_SHM(suite)                                        \
  INSTANTIATE_TEST_SUITE_P(, suite, testing::Values(shm_processes()), \
                           [](const testing::TestParamInfo<Backend>& backend) { return backend.param.name; })

}  // namespace hierlock::conformance
