#include "engine/file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>

#include <hierlock/error.h>

#include "engine/processes.h"

namespace hierlock::engine {

namespace {

// 128 bits that tell one start of the machine from another; zeros if it cannot be known.
std::array<std::uint64_t, 2> boot_id() {
  std::array<std::uint64_t, 2> id{0, 0};
  const int file = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (file < 0) return id;
  std::array<char, 64> text{};
  const ssize_t size = read(file, text.data(), text.size() - 1);
  close(file);
  std::size_t digits = 0;
  for (ssize_t i = 0; i < size; ++i) {
    const char c = text[static_cast<std::size_t>(i)];
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) continue;
    id[digits / 16 % 2] = id[digits / 16 % 2] << 4 | static_cast<std::uint64_t>(digit);
    ++digits;
  }
  return id;
}

// FNV-1a: against accidents, not against malice; whoever may write to the file may do anything to it.
std::uint64_t checksum(const void* bytes, std::size_t size) noexcept {
  std::uint64_t sum = 0xcbf29ce484222325u;
  for (std::size_t i = 0; i < size; ++i) sum = (sum ^ static_cast<const unsigned char*>(bytes)[i]) * 0x100000001b3u;
  return sum;
}

using Page = std::array<unsigned char, Description::bytes>;

Page page_of(const Description& description) {
  Page page{};
  std::memcpy(page.data(), &description, sizeof description);
  const std::uint64_t sum = checksum(page.data(), page.size() - 8);
  std::memcpy(page.data() + page.size() - 8, &sum, 8);
  return page;
}

std::string octal(mode_t mode) {
  std::array<char, 8> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), mode & 0777, 8).ptr;
  return "0" + std::string(text.data(), end);
}

std::string quoted(const std::string& path) { return "\"" + path + "\""; }

[[noreturn]] void refuse(ErrorKind kind, const std::string& message, int code = 0) { throw Error(kind, message, code); }

[[noreturn]] void refuse_system(const std::string& what, const std::string& path, int code) {
  const std::string why = what + " " + quoted(path) + ": " + std::strerror(code);
  switch (code) {
    case EACCES:
    case EPERM:
      refuse(ErrorKind::denied, why + ". Ask its owner for the right to read and write it, or use another table", code);
    case EROFS:
      refuse(ErrorKind::denied, why + ". Use a table in a folder that can be written to: shm:///folder/file", code);
    case ELOOP:
      refuse(ErrorKind::denied, why + ". A lock table is never opened through a symbolic link: give its real path",
             code);
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EFBIG:
      refuse(ErrorKind::exhausted, why + ". Make room there, or use a table elsewhere: shm:///folder/file", code);
    default:
      refuse(ErrorKind::unavailable, why + ". Use a table in a folder that exists: shm:///folder/file", code);
  }
}

// Locks of one machine mean nothing to another, so a file that several machines see must not be a table.
bool on_network(int file) noexcept {
  struct statfs system {};
  if (fstatfs(file, &system) != 0) return false;
  constexpr std::array<std::uint32_t, 9> network{0x6969,     0x517B,     0xFF534D42, 0xFE534D42, 0x01021997,
                                                 0x65735546, 0x00C36400, 0x5346414F, 0x0BD00BD0};
  return std::find(network.begin(), network.end(), static_cast<std::uint32_t>(system.f_type)) != network.end();
}

// Asked for before the file grows: the kernel's answer to one that grows too long is SIGXFSZ, which ends the process.
void check_limit(std::uint64_t bytes, const std::string& path) {
  struct rlimit limit {};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || bytes <= limit.rlim_cur) return;
  refuse(ErrorKind::exhausted,
         "cannot create the lock table " + quoted(path) + ": it is a file of " + std::to_string(bytes >> 20) +
             " MiB (most of them holes), and this process may make none of more than " +
             std::to_string(limit.rlim_cur >> 20) +
             " MiB. Raise the limit (ulimit -f), or let a process without one open the table first",
         EFBIG);
}

}  // namespace

std::uint64_t random_multiplier() noexcept {
  std::uint64_t random = 0;
  if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random) {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    random = static_cast<std::uint64_t>(now.tv_nsec) * 0x9E3779B97F4A7C15u;
  }
  return random | 1;
}

// In what is left of the first page: whoever writes to a lifeline by mistake hits nothing there.
void DescriptorMark::put_on(int file) noexcept {
  constexpr std::uint32_t unused = 61'440;
  static std::atomic<std::uint32_t> last{0};
  lseek(file, static_cast<off_t>(Description::bytes + last.fetch_add(8) % unused), SEEK_SET);
}

DescriptorMark DescriptorMark::of(int file) noexcept {
  DescriptorMark mark;
  struct stat status {};
  if (fstat(file, &status) != 0) return mark;
  mark.inode_ = status.st_ino;
  mark.device_ = status.st_dev;
  mark.position_ = lseek(file, 0, SEEK_CUR);
  return mark;
}

bool DescriptorMark::is_on(int file) const noexcept {
  struct stat status {};
  return file >= 0 && fstat(file, &status) == 0 && status.st_ino == inode_ && status.st_dev == device_ &&
         lseek(file, 0, SEEK_CUR) == position_;
}

TableFile::~TableFile() { close_file(); }

void TableFile::close_file() noexcept {
  if (!unnamed_.empty()) unlink(unnamed_.c_str());
  unnamed_.clear();
  if (mark_.is_on(file_)) close(file_);
  file_ = -1;
}

void TableFile::close_in_child() noexcept {
  if (mark_.is_on(file_)) close(file_);
  file_ = -1;
}

std::string TableFile::folder() const {
  const std::size_t slash = options_.path.rfind('/');
  return slash == 0 ? "/" : options_.path.substr(0, slash);
}

bool TableFile::open_existing() {
  for (;;) {
    close_file();
    file_ = ::open(options_.path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (file_ < 0) {
      if (errno == ENOENT) {
        struct stat status {};
        if (stat(folder().c_str(), &status) == 0) return false;
        refuse_system("cannot open the lock table", options_.path, ENOENT);
      }
      if (errno == EISDIR || errno == ENXIO) {
        refuse(ErrorKind::incompatible, quoted(options_.path) + " is not a file, so it cannot be a lock table", errno);
      }
      refuse_system("cannot open the lock table", options_.path, errno);
    }
    DescriptorMark::put_on(file_);
    mark_ = DescriptorMark::of(file_);
    check_kind();
    read_description();
    check_rights();
    if (!outlived()) return true;
    const bool only_looks = !options_.who_creates.empty();
    if (only_looks ? Processes::use_by_others(file_) == Processes::Use::used : !shut()) {
      if (description_.format == Description::the_format) return true;  // a container was given a boot id of its own
      refuse_format();
    }
    if (only_looks) return false;
    if (still_there() && unlink(options_.path.c_str()) != 0) {
      refuse_system("cannot replace the unused lock table", options_.path, errno);
    }
  }
}

void TableFile::check_kind() const {
  struct stat status {};
  if (fstat(file_, &status) != 0) refuse_system("cannot look at the lock table", options_.path, errno);
  const std::string name = quoted(options_.path);
  if (!S_ISREG(status.st_mode)) {
    refuse(ErrorKind::incompatible, name + " is not a regular file, so it cannot be a lock table");
  }
  if (on_network(file_)) {
    refuse(ErrorKind::unsafe_topology, name +
                                           " is on a network or user-space filesystem, where the locks of one machine "
                                           "mean nothing to another: use one on a disk or memory of this machine");
  }
}

void TableFile::check_rights() const {
  struct stat status {};
  if (fstat(file_, &status) != 0) refuse_system("cannot look at the lock table", options_.path, errno);
  const std::string name = quoted(options_.path);
  const bool for_others = (options_.mode & 0077) != 0;  // asked for: then it may be anybody's who lets us in
  if (status.st_uid != geteuid() && !for_others) {
    refuse(ErrorKind::denied, name + " belongs to user " + std::to_string(status.st_uid) + ", not to you (" +
                                  std::to_string(geteuid()) +
                                  "): to share a table, or if you mean theirs, "
                                  "open it with ?mode=0660; otherwise use a name of your own, shm:NAME");
  }
  if ((status.st_mode & 0077 & ~options_.mode) != 0) {
    refuse(ErrorKind::denied, name +
                                  " can be opened by more users than was asked for: chmod it, or open it with ?mode=" +
                                  octal(status.st_mode));
  }
}

void TableFile::read_description() {
  Page page{};
  const ssize_t size = pread(file_, page.data(), page.size(), 0);
  if (size < 0) refuse_system("cannot read the lock table", options_.path, errno);
  std::memcpy(&description_, page.data(), sizeof description_);
  const std::string name = quoted(options_.path);
  const std::string way_out = ". It was left as it is: use another name, or remove it when no process uses it";
  if (description_.magic == __builtin_bswap64(Description::the_magic)) {
    refuse(ErrorKind::incompatible, name + " was made on a machine with the other byte order" + way_out);
  }
  if (static_cast<std::size_t>(size) < page.size() || description_.magic != Description::the_magic) {
    refuse(ErrorKind::incompatible,
           name + " is not a lock table, and was left as it is: name one, or a file that is not there yet");
  }
  // Every format keeps the magic, its number, the file's size and the checksum where they are.
  std::uint64_t sum = 0;
  std::memcpy(&sum, page.data() + page.size() - 8, 8);
  struct stat status {};
  if (sum != checksum(page.data(), page.size() - 8) || fstat(file_, &status) != 0 ||
      static_cast<std::uint64_t>(status.st_size) != description_.file_bytes) {
    refuse(ErrorKind::incompatible, name + " is damaged" + way_out);
  }
}

void TableFile::refuse_format() const {
  refuse(ErrorKind::incompatible, quoted(options_.path) + " has format " + std::to_string(description_.format) +
                                      ", this hierlock knows format " + std::to_string(Description::the_format) +
                                      ", and a process uses the table. Processes of both cannot share one: stop the "
                                      "old ones, or give the new ones another name (shm:NAME)");
}

// Of another format, or from before the machine's last stop: its pages may then be of different moments, and nobody it
// tells of is alive.
bool TableFile::outlived() const {
  if (description_.format != Description::the_format) return true;
  const auto now = boot_id();
  const auto known = [](const std::uint64_t* id) { return (id[0] | id[1]) != 0; };
  if (!known(now.data()) || !known(description_.boot)) return false;
  return description_.boot[0] != now[0] || description_.boot[1] != now[1];
}

// From here on nobody begins to use the file: who has opened it and comes too late finds it gone, and opens the next
// (Mapping::enter). False if somebody uses it.
bool TableFile::shut() const {
  for (int tries = 0; tries < 200; ++tries) {
    if (Processes::shut(file_)) return true;
    const Processes::Use use = Processes::use_by_others(file_);
    if (use == Processes::Use::used) return false;
    if (use == Processes::Use::shut) usleep(10'000);
  }
  refuse(ErrorKind::unavailable,
         "somebody else is replacing " + quoted(options_.path) + ", and does not come to an end: try again");
}

void TableFile::create(std::uint64_t bytes) {
  close_file();
  if (!options_.who_creates.empty()) {
    refuse(ErrorKind::not_provisioned,
           "there is no lock table " + quoted(options_.path) + " yet: " + options_.who_creates);
  }
  check_limit(bytes, options_.path);
  file_ = ::open(folder().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, options_.mode);
  if (file_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    unnamed_ = options_.path + ".new." + std::to_string(getpid()) + "." + std::to_string(now.tv_nsec);
    file_ = ::open(unnamed_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, options_.mode);
    if (file_ < 0) unnamed_.clear();
  }
  if (file_ < 0) refuse_system("cannot create the lock table", options_.path, errno);
  DescriptorMark::put_on(file_);
  mark_ = DescriptorMark::of(file_);
  if (on_network(file_)) {
    refuse(ErrorKind::unsafe_topology,
           quoted(options_.path) +
               " would be on a network or user-space filesystem, where the locks of one "
               "machine mean nothing to another: use one on a disk or memory of this machine");
  }
  if (fchmod(file_, options_.mode) != 0 || ftruncate(file_, static_cast<off_t>(bytes)) != 0) {
    refuse_system("cannot create the lock table", options_.path, errno);
  }
  description_ = {};
  description_.file_bytes = bytes;
  description_.capacity = options_.capacity;
  const auto boot = boot_id();
  std::copy(boot.begin(), boot.end(), description_.boot);
  description_.index_multiplier = random_multiplier();
  const Page page = page_of(description_);
  if (pwrite(file_, page.data(), page.size(), 0) != static_cast<ssize_t>(page.size())) {
    refuse_system("cannot create the lock table", options_.path, errno != 0 ? errno : ENOSPC);
  }
}

bool TableFile::publish() {
  int done = 0;
  if (unnamed_.empty()) {
    const std::string self = "/proc/self/fd/" + std::to_string(file_);
    done = linkat(AT_FDCWD, self.c_str(), AT_FDCWD, options_.path.c_str(), AT_SYMLINK_FOLLOW);
  } else {
    done = link(unnamed_.c_str(), options_.path.c_str());
  }
  if (done == 0) {
    if (!unnamed_.empty()) unlink(unnamed_.c_str());
    unnamed_.clear();
    return true;
  }
  const int code = errno;
  close_file();
  if (code == EEXIST) return false;
  refuse_system("cannot create the lock table", options_.path, code);
}

bool TableFile::still_there() const noexcept {
  struct stat mine {};
  struct stat named {};
  if (file_ < 0 || fstat(file_, &mine) != 0 || lstat(options_.path.c_str(), &named) != 0) return false;
  return mine.st_ino == named.st_ino && mine.st_dev == named.st_dev &&
         static_cast<std::uint64_t>(mine.st_size) == description_.file_bytes;
}

}  // namespace hierlock::engine
