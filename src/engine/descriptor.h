// DescriptorMark: how a descriptor of the table's file is known again.
//
// Somebody may close it behind our back (closefrom, daemons), and its number then is another file's, or that of another
// Locker of the same table. So it is known by its file and by its position, which means nothing otherwise: whoever
// reads or writes here names the place.
#pragma once

#include <sys/types.h>

namespace hierlock::engine {

class DescriptorMark {
 public:
  // Marks a descriptor that was just opened, unlike any other of this process.
  static void put_on(int file) noexcept;
  static DescriptorMark of(int file) noexcept;

  bool is_on(int file) const noexcept;
  ino_t inode() const noexcept { return inode_; }

 private:
  ino_t inode_ = 0;
  dev_t device_ = 0;
  off_t position_ = -1;
};

}  // namespace hierlock::engine
