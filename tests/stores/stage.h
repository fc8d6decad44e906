// A stage for two processes: a table of their own, this process's engine on it, and a victim that does something while
// it is killed or stopped at its n-th shared store.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace hierlock::stores {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// How long a test waits for what must happen, before it fails. HIERLOCK_PATIENCE, in seconds, is for tests/mutants:
// there most tests fail.
inline const std::chrono::seconds patience = [] {
  const char* const asked = std::getenv("HIERLOCK_PATIENCE");
  return std::chrono::seconds(asked != nullptr ? std::max(1, std::atoi(asked)) : 20);
}();

std::optional<spi::Grant> ask(engine::Engine& engine, const std::vector<Target>& targets,
                              std::chrono::nanoseconds timeout, spi::OwnerId owner = {});

class Victim;

class Stage {
 public:
  explicit Stage(engine::Capacity capacity = engine::Capacity::for_locks(2000, 16));
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  engine::Engine& engine() { return *engine_; }
  std::unique_ptr<engine::Engine> open() const {
    return std::make_unique<engine::Engine>(options_, Owners::per_thread);
  }
  // For a victim: it never leaves the table but by its end.
  engine::Engine* open_for_good() const { return open().release(); }
  // Leaves the table and comes again.
  void reopen() {
    engine_.reset();
    engine_ = open();
  }
  const engine::FileOptions& options() const { return options_; }

  // What was minted, by target: whoever locks it later gets more.
  std::map<std::string, std::int64_t> fences;

  // Waits until this process is alone in the table: all others were collected. Then says what is wrong with the table.
  std::string verify();

 private:
  engine::FileOptions options_;
  std::unique_ptr<engine::Engine> engine_;
};

// What the victim does; it arms the hook itself, after its preparations.
struct Cue {
  std::function<void()> ready;  // tells the other side, and waits for its go
  std::function<void()> arm;
};
using Act = std::function<void(Stage& stage, const Cue& cue)>;

class Victim {
 public:
  // Begins at once, in a process of its own.
  Victim(Stage& stage, const Act& act, long n, int signal);
  ~Victim();
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;

  void wait_until_ready();    // or dead
  bool rests_before_ready();  // ended or stopped; or else ready
  bool says_ready();          // without waiting, and then wait_until_ready() does not either
  void go();

  enum class State { running, stopped, killed, finished, failed };
  State wait();    // for an end, or a stop
  bool at_rest();  // ended or stopped, without waiting
  bool was_stopped() const { return was_stopped_; }
  void resume();
  void kill();

 private:
  void note(int status);

  pid_t pid_ = -1;
  int from_ = -1, to_ = -1;
  State state_ = State::running;
  bool was_stopped_ = false;
};

}  // namespace hierlock::stores
