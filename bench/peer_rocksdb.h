// RocksDB's TransactionDB, used for its point locks only, in the fastest way it was found to allow: one transaction a
// thread that lives for ever, GetForUpdate without a value and without validation (so nothing is read),
// UndoGetForUpdate to release, 256 stripes (16 by default), files in memory. Keys are made outside the loop. Its locks
// are shared and exclusive, on exact keys, with a wait; the order of a queue is not promised.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "keys.h"

namespace bench {

class RocksDb {
 public:
  RocksDb();
  ~RocksDb();
  RocksDb(const RocksDb&) = delete;
  RocksDb& operator=(const RocksDb&) = delete;

  class Worker {
   public:
    Worker(RocksDb& store, const std::vector<Path>& keys);
    ~Worker();
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    std::size_t size() const noexcept { return keys_.size(); }
    void pair(std::size_t i);
    bool try_hold(const Path& path, std::size_t depth);
    void drop();

   private:
    struct State;
    std::unique_ptr<State> state_;
    std::vector<Path> keys_;
  };

 private:
  struct Store;
  std::unique_ptr<Store> store_;
};

}  // namespace bench
