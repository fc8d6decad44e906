// shm:, on a file of its own in a folder of its own, which goes with the table.
#pragma once

#include <optional>
#include <string>

#include "support/backend.h"

namespace hierlock::conformance {

// A folder in memory (/dev/shm) where there is one; removed with all that is in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class ShmTable : public Table {
 public:
  enum class Parties { threads, processes };
  explicit ShmTable(Parties parties) : parties_(parties) {}

  const std::string& folder() const { return folder_.path(); }
  std::string file() const { return folder() + "/table"; }
  std::string url() const { return "shm://" + file(); }

  Locker open(OpenOptions options) override { return hierlock::open(url(), std::move(options)); }
  bool one_for_all_lockers() const override { return true; }
  std::optional<Locker> open_small(std::size_t locks) override {
    return hierlock::open("shm://" + folder() + "/small?max_locks=" + std::to_string(locks));
  }
  std::unique_ptr<Party> make_party(std::string name, Locker& locker) override;

 private:
  TemporaryFolder folder_;
  Parties parties_;
};

}  // namespace hierlock::conformance
