// Berkeley DB's lock subsystem, in a region of this process alone or one that processes share, in the fastest way it
// was found to allow:
//   - a whole path by one lock_vec call, and released by one; a locker id and the keys made outside the loop;
//   - DB_THREAD, because hierlock may be used by any thread too; no deadlock detector, no logging, no transactions;
//   - intention-write on ancestors and write on the target: the same exclusion as hierlock's. Read instead of
//     intention-write is not faster;
//   - one partition of its lock table: with one or two threads that is faster than its default (10 a core), because
//     lock_vec then takes one mutex for the whole path. The default is measured beside it;
//   - between processes: the same, files of the region in memory, and 500 tries of a taken mutex before sleeping (its
//     default is 50 a core). docs/bench.md says what else was tried.
// Not used: keys of exactly 28 bytes, for which it has a cheaper hash (its own page locks). Paths are not 28 bytes
// long.
#pragma once

#include <db.h>

#include <cstddef>
#include <string>
#include <vector>

#include "keys.h"

namespace bench {

class Berkeley {
 public:
  struct Config {
    std::size_t max_nodes = 20'000;  // room for this many nodes locked at once
    unsigned partitions = 1;         // 0: Berkeley DB's default
    std::string folder{};            // of the files with a region that processes share; empty: a private region
    unsigned spins = 0;              // how often a taken mutex is tried before sleeping; 0: Berkeley DB's default
  };

  Berkeley() : Berkeley(Config{}) {}
  explicit Berkeley(const Config& config);
  ~Berkeley();
  Berkeley(const Berkeley&) = delete;
  Berkeley& operator=(const Berkeley&) = delete;

  // One locker, used by one thread at a time.
  class Worker {
   public:
    Worker(Berkeley& store, const std::vector<Path>& keys);
    ~Worker();
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    std::size_t size() const noexcept { return paths_.size(); }
    // Acquires and releases the i-th key.
    void pair(std::size_t i);

    // The first `depth` nodes of the path, the last of them exclusively; kept until drop(). hold() waits.
    bool try_hold(const Path& path, std::size_t depth);
    void hold(const Path& path);
    void drop();

    // One node alone, exclusively, acquired and released.
    void pair_of_node(std::size_t i);

   private:
    // Addresses into text_ are kept, so it never moves: filled once.
    struct Nodes {
      DBT node[3];
    };

    DB_ENV* env_;
    u_int32_t locker_ = 0;
    std::vector<std::string> text_;
    std::vector<Nodes> paths_;
    DB_LOCKREQ get_[3];
    DB_LOCKREQ put_[3];
  };

 private:
  DB_ENV* env_ = nullptr;
};

}  // namespace bench
