// Process: workers in processes of their own, which share a lock table and nothing else.
//
// They are forked once and wait asleep for orders, so that the contenders of a group can take turns round by round as
// threads do. A child opens its own store: nothing of the parent's is used in it.
#pragma once

#include <sys/mman.h>
#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "keys.h"
#include "measure.h"

namespace bench {

// A folder in memory for what processes share; removed with all that is in it.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }
  // A folder in it, made by this call.
  std::string folder(std::string_view name) const;

 private:
  std::string path_;
};

// A T in memory that this process shares with the children it starts later.
template <class T>
class Shared {
 public:
  template <class... Args>
  explicit Shared(Args&&... args) {
    void* const memory = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no memory to share with other processes");
    value_ = new (memory) T(std::forward<Args>(args)...);
  }
  ~Shared() { munmap(value_, sizeof(T)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  T& operator*() const noexcept { return *value_; }
  T* operator->() const noexcept { return value_; }
  // A new one in its place, while no child uses it.
  template <class... Args>
  void renew(Args&&... args) {
    static_assert(std::is_trivially_destructible_v<T>);
    new (value_) T(std::forward<Args>(args)...);
  }

 private:
  T* value_;
};

// What a child is told to do. Each order is answered by one number.
struct Order {
  enum class Kind { hold, drop, pairs, hops };
  Kind kind = Kind::drop;
  std::uint32_t user = 0, account = 0, resource = 0;  // hold
  std::size_t depth = 0;                              // hold
  Window window{};                                    // pairs
  std::size_t hops = 0;                               // hops
};

class Process {
 public:
  using Service = std::function<double(const Order&)>;

  // Starts a child that calls begin() and then the service it returned, order by order. Returns when it is ready for
  // orders; throws if it did not get so far.
  explicit Process(const std::function<Service()>& begin);
  // Ends the child where it stands.
  ~Process() { end(); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void tell(const Order& order);
  // Waits for the answer to the oldest order without one. Throws if the child failed; it has said why.
  double answer();
  double ask(const Order& order) { return tell(order), answer(); }

 private:
  void end() noexcept;

  pid_t child_ = 0;
  int socket_ = -1;
};

// A worker in another process, for check_exclusion.
class RemoteWorker {
 public:
  explicit RemoteWorker(Process& process) : process_(process) {}
  bool try_hold(const Path& path, std::size_t depth) {
    return process_.ask({.kind = Order::Kind::hold,
                         .user = path.user,
                         .account = path.account,
                         .resource = path.resource,
                         .depth = depth}) != 0;
  }
  void drop() { process_.ask({.kind = Order::Kind::drop}); }

 private:
  Process& process_;
};

// Two processes, each with a store of its own, opened with the same arguments, and a worker with keys of its own;
// checked to exclude one another before anything is measured.
template <class Store>
class ProcessTeam {
 public:
  template <class... Args>
  ProcessTeam(std::string_view name, const std::vector<std::vector<Path>>& keys, const Args&... args)
      : start_(keys.size()), alone_(keys.size() == 1) {
    for (std::size_t p = 0; p < keys.size(); ++p) {
      processes_.push_back(std::make_unique<Process>([&] {
        if (!alone_) keep_to_own_core(p);
        return begin(keys[p], args...);
      }));
    }
    if (alone_) return;
    RemoteWorker a(*processes_[0]), b(*processes_[1]);
    check_exclusion(name, a, b);
  }

  // Of all together.
  double pairs_per_second(const Window& window) {
    start_.renew(processes_.size());
    for (auto& process : processes_) process->tell({.kind = Order::Kind::pairs, .window = window});
    double sum = 0;
    for (auto& process : processes_) sum += process->answer();
    return sum;
  }

 private:
  using Worker = typename Store::Worker;

  template <class... Args>
  Process::Service begin(const std::vector<Path>& keys, const Args&... args) {
    const auto store = std::make_shared<Store>(args...);
    const auto worker = std::make_shared<Worker>(*store, keys);
    return [this, store, worker](const Order& order) -> double {
      switch (order.kind) {
        case Order::Kind::hold:
          return worker->try_hold(Path(order.user, order.account, order.resource), order.depth) ? 1 : 0;
        case Order::Kind::drop:
          worker->drop();
          return 0;
        case Order::Kind::pairs:
          return timed_pairs(*worker, order.window, *start_, alone_, [](Worker& w, std::size_t i) { w.pair(i); });
        case Order::Kind::hops:
          break;
      }
      throw std::runtime_error("a worker that knows no turns was told to take some");
    };
  }

  Shared<StartLine> start_;
  bool alone_;
  std::vector<std::unique_ptr<Process>> processes_;
};

// Two processes that hand one lock to each other. `make` is called in each and returns its Turns, by pointer.
class ProcessTurns {
 public:
  static constexpr std::size_t most_hops = 1000;

  template <class Make>
  explicit ProcessTurns(const Make& make) {
    for (std::size_t self = 0; self < 2; ++self) {
      processes_.push_back(std::make_unique<Process>([&]() -> Process::Service {
        keep_to_own_core(self);
        return [this, self, turns = std::shared_ptr(make())](const Order& order) {
          const std::vector<double> samples = hand_over_side(*turns, self, order.hops, shared_->both);
          std::copy(samples.begin(), samples.end(), shared_->samples[self]);
          return static_cast<double>(samples.size());
        };
      }));
    }
  }

  // The times of all hand-overs, `hops` (at most most_hops) in each direction.
  std::vector<double> hand_overs(std::size_t hops);

 private:
  struct Common {
    HandOver both;
    double samples[2][most_hops];
  };
  Shared<Common> shared_;
  std::vector<std::unique_ptr<Process>> processes_;
};

}  // namespace bench
