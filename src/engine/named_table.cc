#include "engine/named_table.h"

#include <unistd.h>

#include "threads/registry.h"

namespace hierlock::engine {

namespace {

// Guarded by threads::mutex().
struct TablesByName {
  pid_t process = getpid();
  std::map<std::string, std::weak_ptr<NamedTable>> tables;
};

TablesByName& names() {
  static auto* const names = new TablesByName;  // threads may end after static destructors ran
  // A child that was made without libc's knowledge (a bare clone) did not call forget_in_child().
  if (const pid_t now = getpid(); names->process != now) {
    names->process = now;
    names->tables.clear();
  }
  return *names;
}

void forget_in_child() noexcept { names(); }

}  // namespace

std::shared_ptr<NamedTable> NamedTable::open(const std::string& name, const Capacity& capacity) {
  threads::notice_forks(forget_in_child);
  const auto find = [&]() -> std::shared_ptr<NamedTable> {
    const auto found = names().tables.find(name);
    return found != names().tables.end() ? found->second.lock() : nullptr;
  };
  {
    const std::lock_guard guard(threads::mutex());
    if (auto found = find()) return found;
  }
  auto made = std::make_shared<NamedTable>(name, capacity);
  // If another thread was faster, `made` ends after the guard.
  const std::lock_guard guard(threads::mutex());
  if (auto found = find()) return found;
  names().tables[name] = made;
  return made;
}

NamedTable::~NamedTable() {
  const std::lock_guard guard(threads::mutex());
  const auto found = names().tables.find(name_);
  if (found != names().tables.end() && found->second.expired()) names().tables.erase(found);
}

std::shared_ptr<NamedTable::ThreadOwner> NamedTable::thread_owner() {
  std::shared_ptr<ThreadOwner> made;  // outside of the guard: an owner that ends takes the mutex
  const std::lock_guard guard(mutex_);
  std::weak_ptr<ThreadOwner>& known = thread_owners_[std::this_thread::get_id()];
  if (auto owner = known.lock()) return owner;
  made = std::make_shared<ThreadOwner>(*this);
  if (made->index() == none) return nullptr;
  known = made;
  return made;
}

NamedTable::ThreadOwner::ThreadOwner(NamedTable& in)
    : in_(in), index_(in.table_.records().make_owner({}, OwnerKind::thread)) {}

NamedTable::ThreadOwner::~ThreadOwner() {
  if (index_ != none) in_.table_.records().retire_owner(index_);
  const std::lock_guard guard(in_.mutex_);
  const auto found = in_.thread_owners_.find(thread_);
  if (found != in_.thread_owners_.end() && found->second.expired()) in_.thread_owners_.erase(found);
}

}  // namespace hierlock::engine
