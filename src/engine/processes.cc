#include "engine/processes.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "engine/latch.h"

namespace hierlock::engine {

namespace {

// Far beyond the end of the file: locks need no bytes to lie on, and nobody else locks there by accident. The same in
// every format of the table: so a version can tell whether processes of another one use it.
constexpr off_t first_byte = off_t{1} << 61;

struct flock byte_of(std::uint32_t slot, short type) noexcept {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = first_byte + static_cast<off_t>(slot);
  lock.l_len = 1;
  return lock;
}

bool lock_byte(int file, std::uint32_t slot) noexcept {
  struct flock lock = byte_of(slot, F_WRLCK);
  return fcntl(file, F_OFD_SETLK, &lock) == 0;
}

void unlock_byte(int file, std::uint32_t slot) noexcept {
  struct flock lock = byte_of(slot, F_UNLCK);
  fcntl(file, F_OFD_SETLK, &lock);
}

// By the first word of its command line, without folders. Never by more: arguments hold passwords, and others read
// this.
std::array<char, ProcessSlot::program_words * 8> own_program() noexcept {
  std::array<char, ProcessSlot::program_words * 8> name{};
  std::array<char, 4096> text{};
  const int file = ::open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (file < 0) return name;
  const ssize_t size = read(file, text.data(), text.size() - 1);
  close(file);
  if (size <= 0) return name;
  const char* const slash = std::strrchr(text.data(), '/');
  const char* const begin = slash != nullptr ? slash + 1 : text.data();
  std::memcpy(name.data(), begin, std::min(std::strlen(begin), name.size() - 1));
  return name;
}

// Where ids and start times mean what they mean here: start times are shown in the reader's time namespace.
std::uint64_t own_namespace() noexcept {
  struct stat pid {};
  struct stat time {};
  if (stat("/proc/self/ns/pid", &pid) != 0) return 0;
  if (stat("/proc/self/ns/time", &time) != 0) time.st_ino = 0;  // an older kernel has one only
  return static_cast<std::uint64_t>(pid.st_ino) << 32 ^ static_cast<std::uint64_t>(time.st_ino);
}

// A /proc that came from another namespace has others under our numbers.
bool proc_is_own() noexcept {
  std::array<char, 32> self{};
  if (readlink("/proc/self", self.data(), self.size() - 1) <= 0) return false;
  return std::strtol(self.data(), nullptr, 10) == getpid();
}

struct ProcessLook {
  bool there = false;  // could be read
  char state = 0;
  long threads = 0;
  std::uint64_t started = 0;
};

// What /proc/PID/stat says: state is field 3, the number of threads field 20, the start time field 22.
ProcessLook look_at(int pid) noexcept {
  ProcessLook look;
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/stat", pid);
  const int file = ::open(path.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return look;
  std::array<char, 1024> text{};
  const ssize_t size = read(file, text.data(), text.size() - 1);
  close(file);
  if (size <= 0) return look;
  const char* at = std::strrchr(text.data(), ')');  // the command, in parentheses, may hold anything
  if (at == nullptr || std::strlen(at) < 4) return look;
  look.state = at[2];
  int field = 3;
  for (at += 2; *at != 0 && field < 22; ++at) {
    if (*at != ' ') continue;
    ++field;
    if (field == 20) std::from_chars(at + 1, text.data() + size, look.threads);
    if (field == 22) look.there = std::from_chars(at + 1, text.data() + size, look.started).ec == std::errc{};
  }
  return look;
}

}  // namespace

// Model: L1 to L4.
Latching Latch::lock_slowly(Processes& processes, std::int64_t patience) noexcept {
  constexpr int spins = 100;
  // Whoever has the latch wakes a sleeper when it lets go, so in private memory a sleeper looks for itself only to be
  // safe. A process that dies wakes nobody: there sleepers look soon, and less often when many must be waiting.
  constexpr std::int64_t first_look = 10'000'000;  // ns
  constexpr std::int64_t last_look = 100'000'000;
  constexpr std::int64_t look_when_alone = 1'000'000'000;
  const std::uint32_t mine = processes.self() << 1;
  for (int i = 0; i < spins; ++i) {
    std::uint32_t seen = word_.relaxed();
    if (seen == 0 && word_.cas(seen, mine)) return Latching::taken;
    pause();
  }
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  };
  const std::int64_t began = now();
  std::int64_t slept = 0;
  std::int64_t look_again = processes.alone() ? look_when_alone : first_look;
  for (bool was_asleep = false;; was_asleep = true) {
    std::uint32_t seen = word_.ordered();
    if (seen == 0) {
      if (word_.cas(seen, mine | 1)) return Latching::taken;  // others may sleep
      continue;
    }
    // Its owner is dead: ours by one compare-and-swap. The word names the process, not only its slot: otherwise it
    // might be the same again by then, and name the slot's next user.
    if (!processes.runs(seen >> 1)) {
      if (word_.cas(seen, mine | 1)) return Latching::taken_over;
      continue;
    }
    // Whoever goes may have been woken, and the others sleep on: then the next one is woken instead.
    if (was_asleep && (seen & 1) == 0) {
      if (!word_.cas(seen, seen | 1)) continue;
      seen |= 1;
    }
    if (slept >= patience) return Latching::late;
    if (slept >= first_look && !processes.alone() && seen >> 1 != processes.self() &&
        processes.find_dead(slot_of(seen >> 1), true)) {
      continue;
    }
    if ((seen & 1) == 0 && !word_.cas(seen, seen | 1)) continue;
    futex_wait(word_, seen | 1, std::min(look_again, patience - slept), processes.reach());
    if (!processes.alone()) look_again = std::min(2 * look_again, last_look);
    slept = now() - began;
  }
}

void Processes::begin_alone(ProcessSlot* slots, Cell<std::uint32_t>* used) noexcept {
  slots_ = slots;
  used_ = used;
  self_ = 1;
  slots_[1].pid.set(getpid());
  slots_[1].word.set(live_word(self_));
  used_->set(2);
}

std::uint32_t Processes::used() const noexcept { return std::min(used_->ordered(), process_count); }

bool Processes::begin(ProcessSlot* slots, Cell<std::uint32_t>* used, int file, const void* base,
                      ProcessRef& instead_of) noexcept {
  slots_ = slots;
  used_ = used;
  file_ = file;
  base_ = reinterpret_cast<std::uintptr_t>(base);
  self_ = 0;
  know_oneself();
  instead_of = 0;
  for (std::uint32_t index = 1; index < process_count; ++index) {
    if (state(index) != ProcessState::free) continue;
    // The byte first: a slot that says live has its byte locked, or its process is dead.
    if (!lock_byte(file, index)) continue;
    if (state(index) == ProcessState::free && take(index, slot(index).word.ordered())) return true;
    unlock_byte(file, index);
  }
  // As many died as there are places, and nobody is left to collect them.
  for (std::uint32_t index = 1; index < process_count; ++index) {
    if (!find_dead(index, true) || !lock_byte(file, index)) continue;
    const std::uint64_t word = slot(index).word.ordered();
    if (word >> 32 == static_cast<std::uint32_t>(ProcessState::dead) && take(index, word)) {
      instead_of = static_cast<ProcessRef>(word);
      return true;
    }
    unlock_byte(file, index);
  }
  return false;
}

// Model: N2, with the byte locked (N1).
bool Processes::take(std::uint32_t index, std::uint64_t word) noexcept {
  ProcessSlot& mine = slots_[index];
  for (std::uint32_t seen = used_->ordered(); seen <= index && !used_->cas(seen, index + 1);) {
  }
  introduce(mine);
  const auto next = ((static_cast<ProcessRef>(word) & ~(process_count - 1)) + process_count) & process_ref_mask;
  self_ = next | index;
  if (mine.word.cas(word, live_word(self_))) return true;
  self_ = 0;
  return false;
}

void Processes::know_oneself() noexcept {
  mark_ = DescriptorMark::of(file_);
  const ProcessLook self = look_at(getpid());
  namespace_ = self.there && proc_is_own() ? own_namespace() : 0;
  started_ = self.started;
}

void Processes::introduce(ProcessSlot& slot) const noexcept {
  slot.orphan.set(0);
  slot.lifeline.set(0);
  slot.entangled.set(0);
  slot.common_lane.set(0);
  slot.pid.set(getpid());
  slot.pid_namespace.set(namespace_);
  slot.started.set(started_);
  slot.base.set(base_);
  const auto text = own_program();
  for (std::size_t i = 0; i < ProcessSlot::program_words; ++i) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, text.data() + i * 8, 8);
    slot.program[i].set(bytes);
  }
}

std::string Processes::program(std::uint32_t index) const {
  std::array<char, ProcessSlot::program_words * 8> text{};
  for (std::size_t i = 0; i < ProcessSlot::program_words; ++i) {
    const std::uint64_t bytes = slot(index).program[i].acquire();
    std::memcpy(text.data() + i * 8, &bytes, 8);
  }
  return {text.data(), strnlen(text.data(), text.size())};
}

bool Processes::byte_is_mine() const noexcept {
  return alone() || (mark_.is_on(file_) && lock_byte(file_, self_slot()));
}

bool Processes::shut(int file) noexcept {
  struct flock all = byte_of(0, F_WRLCK);
  all.l_len = process_count;
  return fcntl(file, F_OFD_SETLK, &all) == 0;
}

// One question, because between two it may be shut and opened again. Only who has shut it has the byte of slot 0.
Processes::Use Processes::use_by_others(int file) noexcept {
  struct flock all = byte_of(0, F_WRLCK);
  all.l_len = process_count;
  if (fcntl(file, F_OFD_GETLK, &all) != 0) return Use::used;
  if (all.l_type == F_UNLCK) return Use::none;
  return all.l_start == first_byte ? Use::shut : Use::used;
}

// By its number, which only within one namespace means anything.
bool Processes::process_gone(const ProcessSlot& slot, bool thorough) const noexcept {
  const int pid = slot.pid.acquire();
  if (kill(pid, 0) != 0 && errno == ESRCH) return true;
  if (!thorough) return false;
  const ProcessLook look = look_at(pid);
  // A first thread that ended while others run is shown as a zombie, too.
  const bool ended = (look.state == 'Z' || look.state == 'X') && look.threads <= 1;
  return look.there && (ended || look.started != slot.started.acquire());
}

Snapshot::Doing Processes::doing(std::uint32_t index) const noexcept {
  const ProcessSlot& other = slot(index);
  if (alone()) return Snapshot::Doing::runs;
  if (other.orphan.acquire() == ref(index)) return Snapshot::Doing::gone;
  if (namespace_ == 0 || other.pid_namespace.acquire() != namespace_) return Snapshot::Doing::runs;
  if (process_gone(other, true)) return Snapshot::Doing::gone;
  const ProcessLook look = look_at(other.pid.acquire());
  return look.there && (look.state == 'T' || look.state == 't') ? Snapshot::Doing::stopped : Snapshot::Doing::runs;
}

// Model: W1 the slot's word, W2 the kernel, W3 exactly that word is changed.
bool Processes::find_dead(std::uint32_t index, bool thorough) noexcept {
  if (alone()) return false;
  ProcessSlot& other = slot(index);
  std::uint64_t word = other.word.ordered();
  const auto now = static_cast<ProcessState>(word >> 32);
  if (now != ProcessState::live) return now == ProcessState::dead;
  if (word == live_word(self_)) return false;
  const auto unlocked = [&] {
    struct flock lock = byte_of(index, F_WRLCK);
    return fcntl(file_, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
  };
  // As a rule the byte is locked, and one question is enough. If not, it is asked again, with a look before and after:
  // what was asked was the table's file, and not what another thread has opened in its place.
  bool gone = unlocked();
  if (gone) gone = mark_.is_on(file_) && unlocked() && mark_.is_on(file_);
  const bool known = namespace_ != 0 && other.pid_namespace.acquire() == namespace_ && other.pid.acquire() > 0;
  if (known && other.word.ordered() == word) {
    if (gone) {
      gone = !has_table_mapped(other);
    } else if (process_gone(other, thorough)) {
      if (other.lifeline.acquire() == 0) {
        gone = true;
      } else if (other.orphan.acquire() != static_cast<ProcessRef>(word)) {
        other.orphan.exchange(static_cast<ProcessRef>(word));
      }
    }
  }
  if (!gone) return false;
  other.word.cas(word, word_of(ProcessState::dead, static_cast<ProcessRef>(word)));  // unless somebody else did
  return state(index) == ProcessState::dead;
}

// The process of the slot, and not one that came to its number later, nor a program that it became by exec. As far as
// this process may know; of another user's it may not.
bool Processes::has_table_mapped(const ProcessSlot& slot) const noexcept {
  const int pid = slot.pid.acquire();
  const std::uint64_t base = slot.base.acquire();
  const ProcessLook look = look_at(pid);
  if (!look.there || look.started != slot.started.acquire()) return false;
  // The program it became may have the table open at the same address, if addresses are not random: then it has a slot.
  for (std::uint32_t index = 1; index < used(); ++index) {
    const ProcessSlot& other = slots_[index];
    if (&other == &slot || !slot_live(index) || other.pid.acquire() != pid || other.base.acquire() != base) continue;
    if (other.pid_namespace.acquire() == namespace_) return false;
  }
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/maps", pid);
  const int maps = ::open(path.data(), O_RDONLY | O_CLOEXEC);
  if (maps < 0) return false;
  // begin-end perms offset device inode path
  bool found = false;
  std::array<char, 4096> text;
  unsigned word = 0;
  std::uint64_t begin = 0;
  std::uint64_t inode = 0;
  bool in_begin = true;
  for (ssize_t size = 0; !found && (size = read(maps, text.data(), text.size())) > 0;) {
    for (ssize_t i = 0; i < size && !found; ++i) {
      const char c = text[static_cast<std::size_t>(i)];
      const unsigned digit = c >= '0' && c <= '9'   ? static_cast<unsigned>(c - '0')
                             : c >= 'a' && c <= 'f' ? static_cast<unsigned>(c - 'a' + 10)
                                                    : 16;
      if (c == '\n') {
        word = 0;
        begin = inode = 0;
        in_begin = true;
      } else if (c == ' ') {
        found = word == 4 && inode == mark_.inode() && begin == base;
        ++word;
      } else if (word == 0) {
        in_begin = in_begin && digit < 16;
        if (in_begin) begin = begin * 16 + digit;
      } else if (word == 4 && digit < 10) {
        inode = inode * 10 + digit;
      }
    }
  }
  close(maps);
  return found;
}

// Model: V1; V2 is the descriptor being closed.
void Processes::leave() noexcept {
  ProcessSlot& mine = slot(self_slot());
  std::uint64_t word = live_word(self_);
  mine.word.cas(word, word_of(ProcessState::dead, self_));
}

// Model: C7.
void Processes::free_slot(ProcessRef ref) noexcept {
  std::uint64_t word = word_of(ProcessState::dead, ref);
  slot(slot_of(ref)).word.cas(word, word_of(ProcessState::free, ref));
}

}  // namespace hierlock::engine
