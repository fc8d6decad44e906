// NamedTable: a lock table in private memory that every Engine of the process with the same name uses (memory:NAME).
//
// The table lives as long as an Engine uses it. An Engine ends when its Locker is gone and nothing is held through it,
// so a lock keeps its table. A later open() of the name then makes a new table. A forked child has none of its parent's
// tables: they may be in the middle of a change.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "engine/table.h"

namespace hierlock::engine {

class NamedTable {
 public:
  // The table of that name, made with `capacity` if there is none. Throws Error.
  static std::shared_ptr<NamedTable> open(const std::string& name, const Capacity& capacity);
  NamedTable(std::string name, const Capacity& capacity) : name_(std::move(name)), table_(capacity) {}
  ~NamedTable();
  NamedTable(const NamedTable&) = delete;
  NamedTable& operator=(const NamedTable&) = delete;

  Table& table() noexcept { return table_; }

  // A thread is one owner in the whole table, so that it does not wait for itself through another Engine. The owner
  // retires with the last reference. The table must outlive the reference.
  class ThreadOwner {
   public:
    explicit ThreadOwner(NamedTable& in);
    ~ThreadOwner();
    ThreadOwner(const ThreadOwner&) = delete;
    ThreadOwner& operator=(const ThreadOwner&) = delete;
    Index index() const noexcept { return index_; }

   private:
    NamedTable& in_;
    const Index index_;
    const std::thread::id thread_ = std::this_thread::get_id();
  };
  // Of the calling thread; null if the table has no room for an owner.
  std::shared_ptr<ThreadOwner> thread_owner();

 private:
  const std::string name_;
  Table table_;

  std::mutex mutex_;  // guards what follows
  std::map<std::thread::id, std::weak_ptr<ThreadOwner>> thread_owners_;
};

}  // namespace hierlock::engine
