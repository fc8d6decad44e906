// Engine: the lock table with threads around it. It knows the calling thread, sleeps and wakes, and keeps deadlines.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <hierlock/options.h>
#include <hierlock/spi/backend.h>

#include "engine/named_table.h"
#include "engine/table.h"

namespace hierlock::engine {

class Scout;

class Engine {
 public:
  Engine(const Capacity& capacity, Owners owners);           // in private memory
  Engine(const FileOptions& options, Owners owners);         // in a file
  Engine(std::shared_ptr<NamedTable> table, Owners owners);  // in private memory, with the other Engines of this name
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // As spi::Backend says.
  std::optional<spi::Grant> acquire(const spi::Request& request);
  spi::Grant at_once(const spi::Chain& chain) noexcept;
  spi::Grant at_once_again(std::string_view path) noexcept;
  std::optional<spi::Grant> extend(const spi::Grant& grant, const spi::Request& request);
  // The same in two halves. After the first half the addition is held, and commit() or the destructor decides whether
  // it stays. Both must be called by the thread that began. Null: not in time. The plan of the request must outlive it.
  class Extension;
  std::unique_ptr<Extension> begin_extend(const spi::Grant& grant, const spi::Request& request);
  void release(const spi::Grant& grant) noexcept;
  spi::Grant give(const spi::Grant& grant, spi::OwnerId to);
  bool held(const spi::Grant& grant) noexcept;
  // Asks whether the table is still there, too.
  bool surely_held(const spi::Grant& grant) noexcept;
  std::size_t break_locks(const spi::Plan& plan, std::string_view reason);
  void log_deadlock(const Error& error) noexcept;
  int lifeline() noexcept { return table_.mapping().lifeline(); }
  spi::OwnerId make_owner(std::string_view name);
  void drop_owner(spi::OwnerId owner) noexcept;
  std::string owner_name(spi::OwnerId owner);
  std::array<std::uint64_t, 3> grants() const;
  // No handle is left that will be released, and no release is still under way. Only for a table in a file or with a
  // name. Such a table cannot be asked: it may have been taken away, and others hold locks in it.
  bool no_handles() const;
  // Nothing is held through this Engine.
  bool idle() const;
  // Leaves a table in a file for good: gives up the slot, the descriptor and the mapping. Requires no_handles(), and
  // that nobody acquires any more. Threads that used the engine may live on.
  void leave_table() noexcept;

  const Table& table() const noexcept { return table_; }
  Table& table() noexcept { return table_; }

 private:
  // What a thread has of this engine. Only its thread touches it; the counters are read by others.
  // Two lines, like a lane: a thread writes here at every lock.
  struct alignas(2 * line) Context {
    std::uint32_t lane = 0;
    Index owner = none;                                        // per_thread
    std::shared_ptr<NamedTable::ThreadOwner> owner_of_thread;  // keeps `owner`, in a named table
    Index free_record = none;                                  // free records of `owner`: a stack
    std::uint32_t free_records = 0;                            // how many, and
    std::uint32_t too_many = 0;                                // with how many some go back to the process
    std::vector<Index> idle_owners;                            // per_handle: owners with nothing held
    std::array<std::atomic<std::uint64_t>, 3> grants{};
    std::atomic<std::int64_t> handles{0};  // taken and not released by this thread; below zero if others' were
  };
  class OfThread;  // what a thread keeps of this engine
  friend class Engines;

  Context& context();
  Context* known_context() const noexcept;
  Context* find_context() const noexcept;
  Context& enter_thread();
  void leave_thread(Context& context) noexcept;
  void retire_owner_of(Context& context) noexcept;

  struct Party {
    Index owner, record;
    bool crowd;
  };
  Party party(Context& context, spi::OwnerId owner);
  [[gnu::always_inline]] void put_back(Context* context, Index record) noexcept;
  [[gnu::always_inline]] spi::Grant take_at_once(const Nodes::Found& found, Space space, Mode mode) noexcept;
  void release_unusual(const spi::Grant& grant) noexcept;
  void shed_records(Context& context) noexcept;
  RecordState state_of(const spi::Grant& grant) const noexcept;
  RecordState state_of(const Attempt& attempt) const noexcept;
  void return_to(Index owner, Context* context, Index record) noexcept;
  Attempt extending(const spi::Grant& grant, const spi::Request& request);
  std::optional<spi::Grant> run(Context& context, Attempt& attempt, const spi::Request& request);
  bool take(Attempt& attempt, const spi::Request& request);
  spi::Grant keep(Context& context, Attempt& attempt);
  Progress advance(Attempt& attempt, const spi::Request& request);
  Progress wait(Attempt& attempt, const spi::Request& request);
  void give_up(Attempt& attempt) noexcept;
  void count_handle(Context* context, int change) noexcept;
  static void count_grant(Context& context, Space space) noexcept;
  spi::Grant granted(Context& context, Space space, Index record, std::int64_t fence) noexcept;
  Error failure(const Attempt& attempt, Progress progress) const;
  Error full(const std::string& consequence) const;
  void check_table();
  Error lost_table() const;

  std::uint64_t id_ = 0;  // never used twice, so that a thread does not take a new engine for an old one
  const Owners owners_;
  const std::shared_ptr<NamedTable> named_;  // null: the table is this Engine's own
  const std::unique_ptr<Table> own_;
  Table& table_;  // one of both
  const bool counts_handles_;

  friend class Scout;
  std::mutex scouts_mutex_;      // guards what follows
  Scout* last_scout_ = nullptr;  // the waiting threads of this process, and
  Scout* scout_ = nullptr;       // the one of them that looks for the dead

  bool left_ = false;  // leave_table() was called; guarded by threads::mutex()

  mutable std::mutex threads_;  // guards what follows
  std::vector<std::unique_ptr<Context>> contexts_;
  std::array<std::uint64_t, 3> past_grants_{};  // of threads that ended
  std::atomic<std::int64_t> past_handles_{0};   // and of those that only release
};

class Engine::Extension {
 public:
  Extension(Engine& engine, Attempt attempt) : engine_(engine), attempt_(std::move(attempt)) {}
  ~Extension();  // without commit(): the grant is as it was
  Extension(const Extension&) = delete;
  Extension& operator=(const Extension&) = delete;
  spi::Grant commit();  // throws lost if the lock was taken away

 private:
  Engine& engine_;
  Attempt attempt_;
  bool open_ = true;
};

}  // namespace hierlock::engine
