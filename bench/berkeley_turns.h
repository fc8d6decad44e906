// One Berkeley DB lock that two lockers hand to each other.
#pragma once

#include <cstddef>

#include "keys.h"
#include "peer_berkeley.h"

namespace bench {

class BerkeleyTurns {
 public:
  BerkeleyTurns() = default;
  explicit BerkeleyTurns(const Berkeley::Config& config) : store_(config) {}

  void acquire(std::size_t self) { sides_[self].hold(path_); }
  void release(std::size_t self) { sides_[self].drop(); }

 private:
  const Path path_{0, 0, 0};
  Berkeley store_;
  Berkeley::Worker sides_[2] = {{store_, {}}, {store_, {}}};
};

}  // namespace bench
