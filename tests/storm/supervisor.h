// Supervisor: starts the processes of the workers, kills them, starts others in their place, and adds up what they
// leave behind.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "store.h"
#include "witness.h"
#include "worker.h"

namespace storm {

struct Options {
  std::string on;                // the URL of a server; empty: shm:
  std::string on_name = "shm:";  // as it was said, without a password
  std::uint64_t kills = 0;       // 0: as many as are usual there
  std::chrono::seconds soak{0};  // as long as this instead of so many kills
  std::size_t processes = 0;     // 0: as many as are usual there
  std::size_t threads = 0;       // in each process; 0: as many as are usual there
  std::uint64_t seed = 0;
  unsigned stops = 10;               // of a hundred kills, how many are accompanied by a SIGSTOP for a while
  std::uint32_t own_stops = 20'000;  // see Setting
  unsigned danger = 13;              // see Setting
  unsigned hot = 0;                  // see Setting
  double pause_ms = -1;              // between two kills, on average; negative: as is usual there
  std::uint64_t quiet_kills = 0;     // of the second phase
  unsigned lease_ms = 2000;          // where locks are leases; 0: the store's default
  std::uint32_t max_locks = 0;       // 0: as many as the workers need, and few enough to run out of nodes
  Break fault = Break::nothing;
  bool keep = false;  // the files
};

// Runs `body` in a child, which ends with it. The child dies with its parent.
pid_t start(const std::function<void()>& body);
// Waits for it, at most until then; kills it if it takes longer. What waitpid says.
int reap(pid_t child, std::int64_t until_ns = INT64_MAX);
void sleep_us(std::int64_t us);

// A signal asked this program to end.
bool interrupted();

class Supervisor {
 public:
  Supervisor(const Witness& witness, const Options& options, const Store& store);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Until as many were killed as was asked for, or something is wrong.
  void run();
  void print() const;

 private:
  struct Process {
    pid_t pid = -1;
    std::int64_t go_on_at = 0;  // stopped until then; 0: it runs
  };
  // A step that a killed worker was about to make.
  using Step = std::pair<int, std::uint64_t>;  // place, from
  struct Casualty {
    std::uint64_t maker;
  };

  std::size_t process_of(std::size_t worker) const { return worker / setting_.threads; }
  void for_each_worker_of(std::size_t process, const std::function<void(std::size_t worker, Row&)>& what) const;
  void launch(std::size_t process);
  State doing(const Row& row, std::int64_t at) const;
  bool wished(State state, unsigned wish) const;
  std::size_t pick_victim();
  void kill_process_of(std::size_t worker);
  void bury_process_of(std::size_t worker);
  void bury(std::size_t worker);
  void replace_process_of(std::size_t worker);
  void stop_some();
  void continue_some();
  void look_for_deaths();
  void look_for_hangs();
  void resolve(bool at_end);
  void finish();
  void add_up();
  void progress(bool force);
  std::uint64_t total(Word<std::uint64_t> Row::*what) const;
  std::uint64_t table_bytes() const;
  unsigned below(unsigned end) { return static_cast<unsigned>(random_() % end); }
  bool over() const;

  const Witness& witness_;
  const Options options_;
  const Setting setting_;
  std::mt19937_64 random_;
  std::vector<Process> processes_;

  std::uint64_t kills_ = 0, stops_ = 0, killed_stopped_ = 0, bursts_ = 0;
  std::array<std::uint64_t, state_count> by_state_{};  // of the worker for whose sake its process was killed
  std::map<Step, std::vector<Casualty>> unresolved_;
  std::map<int, std::uint64_t> happened_;  // steps of the killed that were made, by place
  std::uint64_t casualties_ = 0, forgotten_ = 0;
  std::int64_t began_ = 0, ended_ = 0, told_ = 0;
  std::uint64_t told_kills_ = 0, told_grants_ = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> sizes_;  // kills, bytes of the table
};

// What is locked and awaited, as text; taken by a process of its own.
std::string describe_table(const std::string& url);

}  // namespace storm
