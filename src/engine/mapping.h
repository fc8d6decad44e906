// Mapping: the memory of a table, private or a file that other processes map as well. It makes a table or joins one,
// takes a place among the processes that share it, leaves it, and knows when it was taken away.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/file.h"
#include "engine/parts.h"
#include "engine/region.h"

namespace hierlock::engine {

class Mapping {
 public:
  // In private memory.
  explicit Mapping(const Capacity& capacity);
  // In a file, with all other processes that open it. Creates it if there is none. Throws Error.
  explicit Mapping(const FileOptions& options);
  ~Mapping() { leave(); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  Parts parts() { return {capacity_, *region_, processes_, views_.get()}; }
  std::uint64_t index_multiplier() const noexcept { return index_multiplier_; }
  // A dead process whose place this one has taken, and that is to be collected; 0 if there is none.
  ProcessRef instead_of() const noexcept { return instead_of_; }

  // Where it is; empty in private memory.
  std::string path() const { return file_ ? file_->path() : std::string(); }
  // How many processes share it, those included that are dead and not collected yet.
  std::uint32_t processes() const noexcept;
  Snapshot::Doing doing(std::uint32_t slot) const noexcept { return processes_.doing(slot); }
  // A descriptor that keeps the locks of this process while it is open; -1 in private memory.
  int lifeline() noexcept;

  // The table was taken away from this process: the file is gone, was replaced or cut short, or the others have taken
  // this process for dead. There is no way back.
  bool lost() noexcept;
  // Asks the filesystem; lost() only knows what was found by then.
  bool look_for_loss() noexcept;
  std::int64_t last_look() const noexcept { return last_look_.load(std::memory_order_relaxed); }

  // In a child after fork(): the parent's death must be seen.
  void close_in_child() noexcept;
  // This process uses the table no more: its slot, descriptor and mapping go now. From here on only lost() may be
  // asked.
  void leave_for_good() noexcept;

 private:
  bool enter(const FileOptions& options);
  void open_or_create(const FileOptions& options);
  void initialise();
  void leave() noexcept;
  void map_lanes();
  Header* header() const noexcept;

  Capacity capacity_;
  std::uint64_t index_multiplier_ = 0;  // odd, random: where keys fall is not known to those who choose them
  std::unique_ptr<TableFile> file_;
  std::unique_ptr<Region> region_;
  Processes processes_;
  std::unique_ptr<LaneView[]> views_;  // by lane
  ProcessRef instead_of_ = 0;
  std::atomic<bool> lost_{false};
  std::atomic<std::int64_t> last_look_{0};
};

}  // namespace hierlock::engine
