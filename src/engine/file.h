// TableFile: the file that a shared lock table lives in. Finds it, creates it so that nobody ever sees half of one,
// refuses what is not a table of this kind, and notices when it is taken away.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "engine/descriptor.h"
#include "engine/table_size.h"

namespace hierlock::engine {

struct FileOptions {
  std::string path;
  mode_t mode = 0600;
  Capacity capacity{};        // of a table that is created; one that is there keeps its own
  std::string who_creates{};  // empty: we do, if there is none; otherwise that is an error, and tells who does
};

// The first page of the file: what it is. Written once, before anybody can see the file, and never changed, so that a
// checksum can vouch for it.
struct Description {
  static constexpr std::uint64_t the_magic = 0x6b636f6c72656968;  // "hierlock" in the order of bytes of this machine
  static constexpr std::uint32_t the_format = 6;
  static constexpr std::size_t bytes = 4096;

  std::uint64_t magic = the_magic;
  std::uint32_t format = the_format;
  std::uint32_t description_bytes = bytes;
  std::uint64_t file_bytes = 0;
  std::uint64_t boot[2] = {0, 0};      // of the machine: after a restart nobody of before is alive
  std::uint64_t index_multiplier = 1;  // odd, random: where keys fall is not known to those who choose them
  Capacity capacity;
};

std::uint64_t random_multiplier() noexcept;

class TableFile {
 public:
  explicit TableFile(const FileOptions& options) : options_(options) {}
  ~TableFile();
  TableFile(const TableFile&) = delete;
  TableFile& operator=(const TableFile&) = delete;

  // Opens the file if there is one: true, and description() says what it is. False if there is none. A table of another
  // format, or from before a restart, is replaced if nobody uses it. Throws Error for a file that cannot be used, and
  // leaves it as it is.
  bool open_existing();
  // A new file without a name, with everything but its contents.
  void create(std::uint64_t bytes);
  // Gives it its name. False if there is a file by now: then the new one is forgotten, and that one is to be opened.
  bool publish();

  int descriptor() const noexcept { return file_; }
  const Description& description() const noexcept { return description_; }
  const std::string& path() const noexcept { return options_.path; }

  // The name still leads to this file, and it has the size it must have.
  bool still_there() const noexcept;
  // In a forked child: the parent's lock must not live on in the child.
  void close_in_child() noexcept;
  // Nobody asks for the file any more.
  void close_for_good() noexcept { close_file(); }

 private:
  void check_kind() const;
  void check_rights() const;
  void read_description();
  [[noreturn]] void refuse_format() const;
  bool outlived() const;
  bool shut() const;
  void close_file() noexcept;
  std::string folder() const;

  const FileOptions options_;
  int file_ = -1;
  DescriptorMark mark_;
  std::string unnamed_;  // of a new file on a filesystem without nameless ones: its name so far
  Description description_;
};

}  // namespace hierlock::engine
