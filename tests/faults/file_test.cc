// The file of a table: what is opened, what is refused and left as it was, and who may make it.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "faults.h"
#include "support/rights.h"

namespace hierlock::conformance {
namespace {

namespace fs = std::filesystem;

constexpr uid_t somebody = 65534;  // nobody, as it is called: anybody but root

// What a file has where; a table is mostly holes.
std::map<off_t, std::string> read_file(const std::string& path) {
  std::map<off_t, std::string> parts;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) throw std::runtime_error("open " + path + ": " + std::strerror(errno));
  for (off_t at = 0; (at = ::lseek(fd, at, SEEK_DATA)) >= 0;) {
    const off_t end = ::lseek(fd, at, SEEK_HOLE);
    std::string bytes(static_cast<std::size_t>(end - at), '\0');
    if (::pread(fd, bytes.data(), bytes.size(), at) != end - at) throw std::runtime_error("read " + path);
    parts[at] = std::move(bytes);
    at = end;
  }
  ::close(fd);
  return parts;
}

void write_file(const std::string& path, const std::map<off_t, std::string>& parts, std::uintmax_t size) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  bool fine = fd >= 0 && ::ftruncate(fd, static_cast<off_t>(size)) == 0;
  for (const auto& [at, bytes] : parts) {
    fine = fine && ::pwrite(fd, bytes.data(), bytes.size(), at) == static_cast<ssize_t>(bytes.size());
  }
  ::close(fd);
  if (!fine) throw std::runtime_error("write " + path + ": " + std::strerror(errno));
}

void write_file(const std::string& path, const std::string& bytes) { write_file(path, {{0, bytes}}, bytes.size()); }

std::string peek(const std::string& path, off_t at, std::size_t size) {
  std::string bytes(size, '\0');
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool fine = ::pread(fd, bytes.data(), size, at) == static_cast<ssize_t>(size);
  ::close(fd);
  if (!fine) throw std::runtime_error("read " + path);
  return bytes;
}

void poke(const std::string& path, off_t at, const std::string& bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const bool fine = ::pwrite(fd, bytes.data(), bytes.size(), at) == static_cast<ssize_t>(bytes.size());
  ::close(fd);
  if (!fine) throw std::runtime_error("write " + path);
}

mode_t mode_of(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}

// A file, or whatever it is, as it was at a moment.
struct Seen {
  struct stat info {};
  std::map<off_t, std::string> parts;
  std::string leads_to;

  explicit Seen(const std::string& path) {
    if (::lstat(path.c_str(), &info) != 0) return;
    if (S_ISREG(info.st_mode)) parts = read_file(path);
    if (S_ISLNK(info.st_mode)) leads_to = fs::read_symlink(path);
  }

  friend bool operator==(const Seen& a, const Seen& b) {
    return a.info.st_ino == b.info.st_ino && a.info.st_mode == b.info.st_mode && a.info.st_uid == b.info.st_uid &&
           a.info.st_size == b.info.st_size && a.parts == b.parts && a.leads_to == b.leads_to;
  }
};

class File : public testing::Test {
 protected:
  std::string folder() const { return folder_.path(); }
  std::string path() const { return folder() + "/table"; }
  // Small, so that all of it can be looked at.
  std::string url() const { return "shm://" + path() + "?max_locks=64"; }

  // A table that nobody uses any more.
  void make() const {
    Locker locker = open(url());
    (void)locker.acquire("u1/a1/r1");
  }

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder())) found.push_back(entry.path().filename());
    std::sort(found.begin(), found.end());
    return found;
  }

  // It is refused with this kind of error, in words, and nothing has changed.
  void expect_refused(ErrorKind kind) const {
    const Seen before(path());
    const std::vector<std::string> around = names();
    EXPECT_EQ(kind_thrown_by([&] { return open(url()).url(); }), kind) << message();
    EXPECT_NE(message().find(path()), std::string::npos) << "it names the file: " << message();
    EXPECT_TRUE(Seen(path()) == before) << "the file was changed";
    EXPECT_EQ(names(), around) << "something was left behind";
  }

  std::string message() const {
    return message_of([&] { return open(url()).url(); });
  }

  std::uint32_t format() const {
    std::uint32_t format = 0;
    std::memcpy(&format, peek(path(), 8, sizeof format).data(), sizeof format);
    return format;
  }
  std::vector<std::uint32_t> other_formats() const {
    make();
    return {format() + 1, format() - 1, format() + 1000, ~format()};
  }
  // As another version of hierlock would have written it: the page's last eight bytes are the FNV-1a of the others.
  void set_format(std::uint32_t format) const {
    std::string page = peek(path(), 0, 4096);
    std::memcpy(page.data() + 8, &format, sizeof format);
    std::uint64_t sum = 0xcbf29ce484222325u;
    for (std::size_t i = 0; i < page.size() - 8; ++i)
      sum = (sum ^ static_cast<unsigned char>(page[i])) * 0x100000001b3u;
    std::memcpy(page.data() + page.size() - 8, &sum, sizeof sum);
    poke(path(), 0, page);
  }

 private:
  TemporaryFolder folder_;
};

// As another user, with no rights of root left.
void become_somebody(Complaints& child) {
  child.unless(::setresgid(somebody, somebody, somebody) == 0, "setresgid");
  child.unless(::setresuid(somebody, somebody, somebody) == 0, "setresuid");
}

void expect_kind(Complaints& child, ErrorKind kind, const std::string& url) {
  const std::optional<ErrorKind> thrown = kind_thrown_by([&] { return open(url).url(); });
  child.unless(thrown == kind, url + ": not " + std::string(to_string(kind)) + " but " +
                                   (thrown ? std::string(to_string(*thrown)) : "opened") + ": " +
                                   message_of([&] { return open(url).url(); }));
}

// --- what is not a table of ours ---------------------------------------------------------------------------

TEST_F(File, that_was_closed_is_opened_again) {
  make();
  Locker again = open(url());
  EXPECT_TRUE(again.try_acquire("u1/a1/r1").has_value());
  EXPECT_EQ(names(), std::vector<std::string>{"table"});
}

TEST_F(File, of_another_format_version_is_incompatible_while_somebody_uses_it) {
  const std::vector<std::uint32_t> formats = other_formats();
  Locker other_version = open(url());
  const Lock lock = other_version.acquire("u1");
  for (const std::uint32_t format : formats) {
    set_format(format);
    expect_refused(ErrorKind::incompatible);
    EXPECT_NE(message().find(std::to_string(format)), std::string::npos) << "it tells the version: " << message();
  }
}

TEST_F(File, of_another_format_version_is_replaced_when_nobody_uses_it) {
  for (const std::uint32_t format : other_formats()) {
    make();
    set_format(format);
    EXPECT_TRUE(open(url()).try_acquire("u1").has_value());
    EXPECT_NE(this->format(), format);
    EXPECT_EQ(names(), std::vector<std::string>{"table"});
  }
}

TEST_F(File, of_another_format_version_is_left_alone_by_those_who_only_look) {
  make();
  set_format(format() + 1);
  const Seen before(path());
  OpenOptions only_look;
  only_look.create = false;
  EXPECT_EQ(kind_thrown_by([&] { return open(url(), only_look).url(); }), ErrorKind::not_provisioned);
  EXPECT_TRUE(Seen(path()) == before) << "the file was changed";
}

TEST_F(File, of_the_other_byte_order_is_incompatible) {
  make();
  std::string bytes = peek(path(), 0, 16);
  std::reverse(bytes.begin(), bytes.begin() + 8);
  std::reverse(bytes.begin() + 8, bytes.begin() + 12);
  std::reverse(bytes.begin() + 12, bytes.end());
  poke(path(), 0, bytes);
  expect_refused(ErrorKind::incompatible);
}

TEST_F(File, whose_description_is_damaged_is_incompatible) {
  make();
  std::mt19937 random(17);
  for (off_t at = 0; at < 4096; ++at) {
    const std::string fine = peek(path(), at, 1);
    poke(path(), at, std::string(1, static_cast<char>(fine[0] ^ (1 << random() % 8))));
    ASSERT_EQ(kind_thrown_by([&] { return open(url()).url(); }), ErrorKind::incompatible) << "byte " << at;
    if (at % 64 == 0) expect_refused(ErrorKind::incompatible);
    poke(path(), at, fine);
  }
  EXPECT_TRUE(open(url()).try_acquire("u1").has_value()) << "the file is whole again";
}

TEST_F(File, that_is_something_else_is_incompatible) {
  make();
  const std::uintmax_t size = fs::file_size(path());
  std::string noise(std::size_t{1} << 20, '\0');
  std::mt19937 random(17);
  std::generate(noise.begin(), noise.end(), [&] { return static_cast<char>(random()); });
  for (const std::string& bytes : {std::string("a letter to my aunt\n"), noise, std::string(4096, '\0')}) {
    write_file(path(), bytes);
    expect_refused(ErrorKind::incompatible);
    write_file(path(), {{0, bytes}}, size);
    expect_refused(ErrorKind::incompatible);
  }
}

TEST_F(File, that_was_cut_short_is_incompatible) {
  make();
  const std::uintmax_t whole = fs::file_size(path());
  for (const std::uintmax_t size : {whole - 1, whole - 4096, whole / 2, std::uintmax_t{4096}, std::uintmax_t{4095},
                                    std::uintmax_t{12}, std::uintmax_t{0}}) {
    fs::resize_file(path(), size);
    SCOPED_TRACE("cut to " + std::to_string(size) + " of " + std::to_string(whole));
    expect_refused(ErrorKind::incompatible);
  }
}

TEST_F(File, whose_insides_are_damaged_crashes_nobody) {
  {
    Locker locker = open(url());
    const Lock one = locker.acquire("u1/a1/r1"), two = locker.acquire(shared("u2")), three = locker.acquire(named("n"));
  }
  const std::map<off_t, std::string> fine = read_file(path());
  const std::uintmax_t size = fs::file_size(path());
  const std::string copy = folder() + "/copy";
  std::string seed;
  std::mt19937 random = random_numbers(seed);
  SCOPED_TRACE("HIERLOCK_SEED=" + seed);
  for (int round = 0; round < 200 / slowness; ++round) {
    std::map<off_t, std::string> parts = fine;
    const int wounds = 1 << random() % 12;
    for (int i = 0; i < wounds; ++i) {
      const auto part = std::next(parts.begin(), static_cast<std::ptrdiff_t>(random() % parts.size()));
      const std::size_t at = random() % part->second.size();
      if (part->first + static_cast<off_t>(at) >= 4096) part->second[at] = static_cast<char>(random());
    }
    fs::remove(copy);
    write_file(copy, parts, size);
    // Whatever it answers: no crash, and no hang either.
    const std::string complaints = in_forked_child([&](Complaints& child) {
      try {
        Locker locker = open("shm://" + copy + "?max_locks=64");
        const auto start = Clock::now();
        for (int i = 0; i < 30; ++i) {
          const auto attempt = [&](const Target& target) {
            (void)kind_thrown_by([&] { return locker.try_acquire(target, 1ms).has_value(); });
          };
          attempt("u1/a" + std::to_string(i) + "/r1");
          attempt(shared("u1"));
          attempt("u" + std::to_string(i));
          attempt(named("n" + std::to_string(i)));
          attempt(slots("s", 2));
          (void)kind_thrown_by([&] { return locker.snapshot().holders.size(); });
        }
        child.unless(Clock::now() - start < 150 * 1ms + late_bound, "waits longer than it was asked to");
      } catch (const Error& error) {
        child.unless(error.kind() == ErrorKind::incompatible, std::string("refused in odd words: ") + error.what());
      }
    });
    ASSERT_EQ(complaints, "") << "round " << round;
  }
}

TEST_F(File, that_is_a_directory_is_incompatible) {
  ASSERT_EQ(::mkdir(path().c_str(), 0700), 0);
  expect_refused(ErrorKind::incompatible);
}

TEST_F(File, that_is_a_pipe_or_a_device_is_incompatible_and_nobody_waits_for_it) {
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  expect_refused(ErrorKind::incompatible);
  EXPECT_EQ(kind_thrown_by([] { return open("shm:///dev/null").url(); }), ErrorKind::incompatible);
}

TEST_F(File, that_is_a_link_is_not_followed) {
  const std::string elsewhere = folder() + "/elsewhere";
  {
    Locker real = open("shm://" + elsewhere + "?max_locks=64");
    (void)real.acquire("u1");
  }
  const Seen before(elsewhere);
  fs::create_symlink(elsewhere, path());
  expect_refused(ErrorKind::denied);
  EXPECT_TRUE(Seen(elsewhere) == before);
  fs::remove(elsewhere);
  expect_refused(ErrorKind::denied);
  EXPECT_FALSE(fs::exists(elsewhere)) << "made at the end of a dangling link";
}

TEST_F(File, of_before_the_machines_last_start_is_begun_anew) {
  std::int64_t last = 0;
  {
    ProcessParty holder("holder", url());
    Pending asked = holder.acquire("u1/a1/r1");
    ASSERT_TRUE(eventually([&] { return asked.ready(); }));
    last = asked.result.get().fence;
    holder.kill();
  }
  // The start of the machine is written at 24, and the description ends with a checksum (FNV-1a).
  std::string page = peek(path(), 0, 4096);
  page[24] = static_cast<char>(page[24] ^ 1);
  std::uint64_t sum = 0xcbf29ce484222325u;
  for (const char c : page.substr(0, 4088)) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  std::memcpy(page.data() + 4088, &sum, 8);
  poke(path(), 0, page);
  const Seen before(path());
  Locker locker = open(url());
  EXPECT_NE(Seen(path()).info.st_ino, before.info.st_ino);
  const std::optional<Lock> lock = locker.try_acquire("u1/a1/r1");
  ASSERT_TRUE(lock.has_value()) << "who held it before the start is not there any more";
  EXPECT_GT(lock->fence(), last);
  EXPECT_EQ(names(), std::vector<std::string>{"table"});
}

TEST_F(File, of_another_start_of_the_machine_is_shared_while_somebody_lives) {  // B1
  HIERLOCK_NEEDS_RIGHT(mount);
  Locker locker = open(url());
  std::optional<Lock> lock = locker.acquire("u1");
  const Seen before(path());
  const auto there = [&](bool held) {
    return in_forked_child([&](Complaints& child) {
      child.unless(see_another_start_of_the_machine(folder()), "cannot see another start");
      Locker own = open(url());
      child.unless(own.try_acquire("u1").has_value() != held, held ? "two hold it" : "it is not free");
      child.unless(own.try_acquire("u2").has_value(), "it does not work");
    });
  };
  EXPECT_EQ(there(true), "");
  EXPECT_EQ(Seen(path()).info.st_ino, before.info.st_ino) << "the table was replaced under its user";
  EXPECT_TRUE(lock->held());
  lock.reset();
  EXPECT_EQ(there(false), "");
}

// --- rights ------------------------------------------------------------------------------------------------

TEST_F(File, of_another_owner_is_denied) {
  HIERLOCK_NEEDS_RIGHT(give_file_away);
  make();
  ASSERT_EQ(::chown(path().c_str(), somebody, somebody), 0);
  expect_refused(ErrorKind::denied);
}

TEST_F(File, without_rights_is_denied) {
  HIERLOCK_NEEDS_RIGHT(become_another_user);
  make();
  ASSERT_EQ(::chmod(folder().c_str(), 0755), 0);
  const Seen before(path());
  const std::string complaints = in_forked_child([&](Complaints& child) {
    become_somebody(child);
    expect_kind(child, ErrorKind::denied, url());
  });
  EXPECT_EQ(complaints, "");
  EXPECT_TRUE(Seen(path()) == before);
}

TEST_F(File, of_ones_own_that_cannot_be_written_is_denied) {
  HIERLOCK_NEEDS_RIGHT(become_another_user);
  ASSERT_EQ(::chmod(folder().c_str(), 0777), 0);
  const std::string complaints = in_forked_child([&](Complaints& child) {
    become_somebody(child);
    make();
    child.unless(::chmod(path().c_str(), 0400) == 0, "chmod");
    expect_kind(child, ErrorKind::denied, url());
  });
  EXPECT_EQ(complaints, "");
}

TEST_F(File, in_a_folder_that_cannot_be_written_is_denied) {
  HIERLOCK_NEEDS_RIGHT(become_another_user);
  ASSERT_EQ(::chmod(folder().c_str(), 0755), 0);
  const std::string complaints = in_forked_child([&](Complaints& child) {
    become_somebody(child);
    expect_kind(child, ErrorKind::denied, url());
  });
  EXPECT_EQ(complaints, "");
  EXPECT_TRUE(names().empty());
}

TEST_F(File, in_a_folder_that_is_not_there_is_unavailable) {
  for (const char* where : {"/nowhere/table", "/nowhere/at/all/table"}) {
    EXPECT_EQ(kind_thrown_by([&] { return open("shm://" + folder() + where).url(); }), ErrorKind::unavailable);
  }
  write_file(folder() + "/plain", "not a folder");
  EXPECT_EQ(kind_thrown_by([&] { return open("shm://" + folder() + "/plain/table").url(); }), ErrorKind::unavailable);
  EXPECT_EQ(names(), std::vector<std::string>{"plain"});
}

TEST_F(File, has_the_mode_that_was_asked_for_whatever_the_umask) {
  const std::string complaints = in_forked_child([&](Complaints& child) {
    struct Case {
      mode_t umask;
      const char* option;
      mode_t expected;
    };
    int number = 0;
    for (const Case& one :
         {Case{0, "", 0600}, Case{0077, "", 0600}, Case{0777, "", 0600}, Case{0022, "&mode=0660", 0660},
          Case{0777, "&mode=0660", 0660}, Case{0, "&mode=0600", 0600}, Case{0077, "&mode=0666", 0666}}) {
      ::umask(one.umask);
      const std::string file = folder() + "/t" + std::to_string(number++);
      Locker locker = open("shm://" + file + "?max_locks=64" + one.option);
      child.unless(mode_of(file) == one.expected,
                   file + one.option + " has another mode: " + std::to_string(mode_of(file)));
      child.unless(locker.try_acquire("u1").has_value(), "it does not work");
    }
  });
  EXPECT_EQ(complaints, "");
}

TEST_F(File, with_a_mode_that_is_none_is_refused) {
  for (const char* mode : {"", "rw", "0999", "01777", "-1", "0x1ff", "0660 ", "0"}) {
    EXPECT_EQ(kind_thrown_by([&] { return open("shm://" + path() + "?mode=" + mode).url(); }),
              ErrorKind::invalid_argument)
        << mode;
  }
  EXPECT_TRUE(names().empty());
}

TEST_F(File, of_a_group_is_shared_by_its_members_and_nobody_else) {
  HIERLOCK_NEEDS_RIGHT(give_file_away);
  HIERLOCK_NEEDS_RIGHT(become_another_user);
  constexpr gid_t team = 54321;
  ASSERT_EQ(::chown(folder().c_str(), 0, team), 0);
  ASSERT_EQ(::chmod(folder().c_str(), 02770), 0);  // what is made in it belongs to the group
  const std::string shared_url = url() + "&mode=0660";
  const auto as = [&](uid_t user, gid_t group, const std::function<void(Complaints&)>& work) {
    return in_forked_child([&](Complaints& child) {
      child.unless(::setresgid(group, group, group) == 0 && ::setresuid(user, user, user) == 0, "become another");
      work(child);
    });
  };
  // Root is a member as well; the owner of the file must be somebody the members trust: themselves, or root.
  Locker locker = open(shared_url);
  const Lock lock = locker.acquire("u1");
  EXPECT_EQ(as(somebody, team,
               [&](Complaints& child) {
                 Locker member = open(shared_url);
                 child.unless(!member.try_acquire("u1").has_value(), "a member is not excluded");
                 child.unless(member.try_acquire("u2").has_value(), "a member cannot lock");
               }),
            "");
  EXPECT_EQ(as(somebody, somebody, [&](Complaints& child) { expect_kind(child, ErrorKind::denied, shared_url); }), "");
}

// --- room --------------------------------------------------------------------------------------------------

class FullDisk : public File {
 protected:
  // Runs `work` in a child whose folder() is a filesystem of its own with these options.
  std::string on_small_disk(const std::string& options, const std::function<void(Complaints&)>& work) const {
    return in_forked_child([&](Complaints& child) {
      child.unless(::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                       ::mount("small", folder().c_str(), "tmpfs", 0, options.c_str()) == 0,
                   std::string("mount: ") + std::strerror(errno));
      if (child.text().empty()) work(child);
    });
  }
};

TEST_F(FullDisk, is_exhausted_and_nothing_is_left_on_it) {
  HIERLOCK_NEEDS_RIGHT(mount);
  for (const char* options : {"size=4k", "size=64k", "nr_inodes=1"}) {
    EXPECT_EQ(on_small_disk(options,
                            [&](Complaints& child) {
                              expect_kind(child, ErrorKind::exhausted, "shm://" + path());
                              child.unless(names().empty(), std::string("left behind with ") + options);
                            }),
              "");
  }
}

// A container has 64 MiB of /dev/shm unless it asks for more.
TEST_F(FullDisk, of_64_megabytes_has_room_for_100_processes_with_100_locks) {  // B12
  HIERLOCK_NEEDS_RIGHT(mount);
  const auto work = [&](Complaints& child) {
    constexpr int processes = 100, locks = 100;
    std::array<int, 2> done{}, end{};
    child.unless(::pipe(done.data()) == 0 && ::pipe(end.data()) == 0, "pipe");
    std::vector<pid_t> pids;
    for (int p = 0; p < processes; ++p) {
      pids.push_back(::fork());
      if (pids.back() != 0) continue;
      ::close(end[1]);
      char answer = 'f';
      std::vector<Lock> held;
      std::optional<Locker> locker;
      try {
        locker.emplace(open("shm://" + path()));
        for (int i = 0; i < locks; ++i) {
          const std::string number = std::to_string(p * locks + i);
          held.push_back(locker->acquire("u" + number + "/a" + number + "/r"));
        }
        answer = '.';
      } catch (const Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
      }
      bool fine = ::write(done[1], &answer, 1) == 1 && ::read(end[0], &answer, 1) == 0;
      for (const Lock& lock : held) fine = fine && lock.held();
      ::_exit(fine ? 0 : 1);
    }
    int fine = 0;
    for (int p = 0; p < processes; ++p) {
      char answer = 0;
      if (::read(done[0], &answer, 1) == 1 && answer == '.') ++fine;
    }
    child.unless(fine == processes, std::to_string(processes - fine) + " processes found no room");
    struct stat file {};
    child.unless(::stat(path().c_str(), &file) == 0 && file.st_blocks * 512 < (24 << 20),
                 "the table takes " + std::to_string(file.st_blocks / 2048) + " MiB");
    ::close(end[1]);
    for (const pid_t pid : pids) child.unless(reap(pid) == 0, "a process lost its locks");
  };
  EXPECT_EQ(on_small_disk("size=64m", work), "");
}

TEST_F(FullDisk, lets_threads_share_and_tells_other_processes_what_to_do) {  // B12
  HIERLOCK_NEEDS_RIGHT(mount);
  const auto work = [&](Complaints& child) {
    Locker locker = open("shm://" + path());
    Locker other = open("shm://" + path());
    std::vector<Lock> held;
    for (int i = 0; i < 600; ++i) held.push_back(locker.acquire(shared("u" + std::to_string(i))));
    held.push_back(other.acquire("something"));  // what a first lock needs beside
    std::ofstream(folder() + "/other") << std::string(64 << 20, 'x');
    // There is no memory for new threads. They count together.
    for (int t = 0; t < 8; ++t) {
      std::thread([&] {
        for (int i = 0; i < 600; i += 50) {
          const std::string name = "u" + std::to_string(i);
          const Lock lock = locker.acquire(shared(name));
          child.unless(!other.try_acquire(name), "two hold " + name);
        }
      }).join();
    }
    try {
      const Lock lock = other.acquire(shared("u1"));
      child.unless(false, "the disk was not full");
    } catch (const Error& error) {
      child.unless(error.kind() == ErrorKind::exhausted, "another kind of error");
      child.unless(std::string(error.what()).find("make room there") != std::string::npos, error.what());
    }
    for (const Lock& lock : held) child.unless(lock.held(), "a lock was lost");
    held.clear();
    for (int i = 0; i < 600; ++i) {
      child.unless(other.try_acquire("u" + std::to_string(i)).has_value(), "something is still counted");
    }
    ::unlink((folder() + "/other").c_str());
    child.unless(other.acquire(shared("u1")).held(), "nothing can be shared any more");
  };
  EXPECT_EQ(on_small_disk("size=4m", work), "");
}

TEST_F(FullDisk, that_fills_up_later_is_exhausted_and_what_is_held_stays_held) {
  HIERLOCK_NEEDS_RIGHT(mount);
  for (const char* options : {"size=512k", "size=2m", "size=8m", "size=32m"}) {
    EXPECT_EQ(on_small_disk(options,
                            [&](Complaints& child) {
                              std::optional<Locker> locker;
                              const std::optional<ErrorKind> refused = kind_thrown_by([&] {
                                locker.emplace(open("shm://" + path()));
                                return 0;
                              });
                              if (refused) {
                                child.unless(refused == ErrorKind::exhausted,
                                             std::string("refused as ") + std::string(to_string(*refused)));
                                return;
                              }
                              const Lock first = locker->acquire("first");
                              // Whatever else is on the disk takes the room that is left.
                              const std::string other = folder() + "/other";
                              std::ofstream(other) << std::string(64 << 20, 'x');
                              std::vector<Lock> held;
                              std::optional<ErrorKind> end;
                              for (int i = 0; i < 300'000 && !end; ++i) {
                                end = kind_thrown_by([&] {
                                  held.push_back(locker->acquire("u" + std::to_string(i) + "/a/r"));
                                  return 0;
                                });
                              }
                              child.unless(!end || end == ErrorKind::exhausted, "another kind of error");
                              for (const Lock& lock : held) child.unless(lock.held(), "a lock was lost");
                              child.unless(first.held(), "the first lock was lost");
                              held.clear();
                              fs::remove(other);
                              child.unless(locker->try_acquire("u1/a/r").has_value(),
                                           "it does not go on when there is room");
                            }),
              "")
        << options;
  }
}

TEST_F(FullDisk, that_is_read_only_is_denied) {
  HIERLOCK_NEEDS_RIGHT(mount);
  EXPECT_EQ(on_small_disk("size=64m,ro", [&](Complaints& child) { expect_kind(child, ErrorKind::denied, url()); }), "");
}

// --- names -------------------------------------------------------------------------------------------------

class Names : public testing::Test {
 protected:
  Names() : name_("test-" + std::to_string(::getpid())) {}
  ~Names() override {
    for (const std::string& file : files_) ::unlink(file.c_str());
  }

  std::string url(const std::string& tail = {}) const { return "shm:" + name_ + tail + "?max_locks=64"; }
  Locker open_named(const std::string& tail = {}) {
    Locker locker = open(url(tail));
    files_.push_back(locker.snapshot().table);
    return locker;
  }

 private:
  const std::string name_;
  std::vector<std::string> files_;
};

TEST_F(Names, are_tables_that_all_processes_of_a_user_share) {
  Locker one = open_named(), two = open_named(), other = open_named(".other");
  const Lock lock = one.acquire("u1");
  EXPECT_FALSE(two.try_acquire("u1").has_value());
  EXPECT_TRUE(other.try_acquire("u1").has_value());
  ProcessParty elsewhere("elsewhere", url());
  Pending asked = elsewhere.try_acquire("u1");
  ASSERT_TRUE(eventually([&] { return asked.ready(); }));
  EXPECT_EQ(asked.result.get().error, ErrorKind::busy);
  EXPECT_EQ(mode_of(one.snapshot().table), 0600u);
}

TEST_F(Names, of_two_users_are_two_tables) {
  HIERLOCK_NEEDS_RIGHT(become_another_user);
  Locker locker = open_named();
  const Lock lock = locker.acquire("u1");
  const std::string mine = locker.snapshot().table;
  EXPECT_EQ(in_forked_child([&](Complaints& child) {
              become_somebody(child);
              Locker theirs = open(url());
              child.unless(theirs.snapshot().table != mine, "it is the same file");
              child.unless(theirs.try_acquire("u1").has_value(), "it is the same table");
              ::unlink(theirs.snapshot().table.c_str());
            }),
            "");
}

TEST_F(Names, that_are_none_are_refused) {
  for (const std::string name :
       {"a/b", "../a", "/etc/passwd", "//", "///", "//relative/table", "///dir/", "a b", "a\tb", "%2F", "caf\xC3\xA9",
        "0123456789012345678901234567890123456789012345678901234567890123456789"}) {
    EXPECT_EQ(kind_thrown_by([&] { return open("shm:" + name).url(); }), ErrorKind::invalid_argument) << name;
  }
  for (const char* option : {"max_locks=0", "max_locks=-1", "max_locks=many", "max_locks=99999999999999999999",
                             "nonsense=1", "mode=0600&mode=0660"}) {
    EXPECT_EQ(kind_thrown_by([&] { return open(url() + "&" + option).url(); }), ErrorKind::invalid_argument) << option;
  }
}

// --- many at once ------------------------------------------------------------------------------------------

// What the racers share apart from the table: if they are in one table, nobody is inside when one comes in.
struct Arena {
  std::atomic<int> inside = 0;
  std::atomic<int> met = 0;
  std::atomic<int> visits = 0;
  std::atomic<std::int64_t> last_fence = 0;
};

class Race : public File {
 protected:
  Race() {
    void* memory = ::mmap(nullptr, sizeof(Arena), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("mmap");
    arena_ = new (memory) Arena;
  }
  ~Race() override { ::munmap(arena_, sizeof(Arena)); }

  Arena& arena() { return *arena_; }

  static void visit(Locker& locker, Arena& arena) {
    const Lock lock = locker.acquire("u1/a1", {.timeout = patience});
    if (arena.inside.fetch_add(1) != 0) ++arena.met;
    if (arena.last_fence.exchange(lock.fence()) >= lock.fence()) ++arena.met;
    ++arena.visits;
    ::sched_yield();
    arena.inside.fetch_sub(1);
  }

  // Starts processes that wait behind a barrier, lets them go all at once, and waits for them. What they say.
  std::vector<int> race(int count, const std::function<void(int)>& work) {
    int barrier[2];
    if (::pipe2(barrier, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    std::vector<pid_t> racers;
    for (int i = 0; i < count; ++i) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::alarm(6 * static_cast<unsigned>(patience.count()));  // nothing waits so long, but all may take long
        ::close(barrier[1]);
        char nothing = 0;
        (void)!::read(barrier[0], &nothing, 1);
        try {
          work(i);
          ::_exit(0);
        } catch (const std::exception& error) {
          std::fprintf(stderr, "racer %d: %s\n", i, error.what());
        }
        ::_exit(1);
      }
      racers.push_back(child);
    }
    ::close(barrier[0]);
    ::close(barrier[1]);
    std::vector<int> ends;
    for (const pid_t racer : racers) ends.push_back(reap(racer));
    return ends;
  }

 private:
  Arena* arena_;
};

TEST_F(Race, to_create_a_table_ends_in_one_table) {
  constexpr int crowd = 12, visits = 10;
  const int rounds = 20 / slowness;
  for (int round = 0; round < rounds; ++round) {
    fs::remove(path());
    arena().visits = 0;
    const std::vector<int> ends = race(crowd, [&](int) {
      Locker locker = open(url());
      for (int i = 0; i < visits; ++i) visit(locker, arena());
    });
    EXPECT_EQ(ends, std::vector<int>(crowd, 0)) << "round " << round;
    EXPECT_EQ(arena().visits, crowd * visits);
    ASSERT_EQ(arena().met, 0) << "round " << round;
    EXPECT_EQ(names(), std::vector<std::string>{"table"});
  }
}

TEST_F(Race, with_creators_that_are_killed_ends_in_one_table) {
  constexpr int crowd = 10, visits = 5;
  const int rounds = 30 / slowness;
  std::string seed;
  std::mt19937 random = random_numbers(seed);
  SCOPED_TRACE("HIERLOCK_SEED=" + seed);
  for (int round = 0; round < rounds; ++round) {
    fs::remove(path());
    std::vector<unsigned> delays;
    for (int i = 0; i < crowd; ++i) delays.push_back(static_cast<unsigned>(random() % 3000));
    // The first half have a timer that kills them while they open, or soon after.
    const std::vector<int> ends = race(crowd, [&](int i) {
      if (i < crowd / 2) {
        std::thread([delay = delays[static_cast<std::size_t>(i)]] {
          std::this_thread::sleep_for(std::chrono::microseconds(delay));
          (void)::kill(::getpid(), SIGKILL);
        }).detach();
        for (;;) (void)open(url());
      }
      Locker locker = open(url());
      for (int v = 0; v < visits; ++v) visit(locker, arena());
    });
    for (int i = crowd / 2; i < crowd; ++i) EXPECT_EQ(ends[static_cast<std::size_t>(i)], 0) << "round " << round;
    ASSERT_EQ(arena().met, 0) << "round " << round;
    arena().last_fence = 0;
    arena().inside = 0;
    Locker locker = open(url());
    EXPECT_TRUE(locker.try_acquire("u1", patience).has_value());
  }
  // A creator that dies may leave a draft; they must not pile up.
  EXPECT_LE(names().size(), 3u) << testing::PrintToString(names());
}

TEST_F(Race, of_more_than_there_is_room_for_is_exhausted_and_recovers) {
  std::optional<ErrorKind> end;
  std::vector<Locker> all;
  while (!end && all.size() < 5000) {
    end = kind_thrown_by([&] {
      all.push_back(open(url()));
      return 0;
    });
  }
  EXPECT_EQ(end, ErrorKind::exhausted);
  EXPECT_GE(all.size(), 500u);
  EXPECT_TRUE(all.front().try_acquire("u1").has_value());
  all.erase(all.begin() + 1, all.end());
  Locker next = open(url());
  EXPECT_TRUE(next.try_acquire("u1").has_value());
}

// Nobody waits for a full table, so nobody would look for the dead.
TEST_F(Race, of_a_holder_of_everything_that_dies_leaves_room_at_once) {  // B5
  for (const bool open_before : {true, false}) {
    fs::remove(path());
    int told[2];
    ASSERT_EQ(::pipe(told), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      Locker locker = open(url());
      std::vector<Lock> all;
      try {
        for (int i = 0;; ++i) all.push_back(locker.acquire("u" + std::to_string(i) + "/a"));
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::exhausted || ::write(told[1], "x", 1) != 1) ::_exit(1);
      }
      for (;;) ::pause();
    }
    ::close(told[1]);
    char byte = 0;
    ASSERT_EQ(::read(told[0], &byte, 1), 1);
    ::close(told[0]);
    std::optional<Locker> survivor;
    if (open_before) {
      survivor = open(url());
      EXPECT_EQ(kind_thrown_by([&] { return survivor->acquire("new/a").fence(); }), ErrorKind::exhausted);
    }
    ::kill(child, SIGKILL);
    reap(child);
    if (!open_before) survivor = open(url());
    EXPECT_EQ(kind_thrown_by([&] { return survivor->acquire("new/a").fence(); }), std::nullopt);
  }
}

TEST_F(Race, of_openers_and_lookers_of_an_unused_table_of_another_format_replaces_it) {
  constexpr int rounds = 200 / slowness;
  for (int round = 0; round < rounds; ++round) {
    fs::remove(path());
    make();
    set_format(format() + 1);
    const std::vector<int> ends = race(4, [&](int i) {
      if (i % 2 == 0) {
        (void)open(url()).acquire("u1");
        return;
      }
      OpenOptions only_look;
      only_look.create = false;
      const std::optional<ErrorKind> end = kind_thrown_by([&] { return open(url(), only_look).url(); });
      if (end && end != ErrorKind::not_provisioned) throw std::runtime_error(std::string(to_string(*end)));
    });
    ASSERT_EQ(ends, std::vector<int>(4, 0)) << "round " << round;
  }
}

// Each kind takes a table that nobody uses for one of before a restart, and replaces it.
TEST_F(Race, of_openers_that_see_different_starts_of_the_machine_keeps_exclusion) {  // B1
  HIERLOCK_NEEDS_RIGHT(mount);
  constexpr int crowd = 2, visits = 10'000 / slowness;
  const std::vector<int> ends = race(crowd, [&](int i) {
    if (i % 2 == 0 && !see_another_start_of_the_machine(folder())) throw std::runtime_error("cannot see another start");
    for (int v = 0; v < visits; ++v) {
      Locker locker = open(url());
      visit(locker, arena());
    }
  });
  EXPECT_EQ(ends, std::vector<int>(crowd, 0));
  EXPECT_EQ(arena().visits, crowd * visits);
  EXPECT_EQ(arena().met, 0);
}

TEST_F(Race, of_openers_and_closers_keeps_exclusion) {
  constexpr int crowd = 8, visits = 50 / slowness;
  const std::vector<int> ends = race(crowd, [&](int) {
    for (int i = 0; i < visits; ++i) {
      Locker locker = open(url());
      visit(locker, arena());
    }
  });
  EXPECT_EQ(ends, std::vector<int>(crowd, 0));
  EXPECT_EQ(arena().visits, crowd * visits);
  EXPECT_EQ(arena().met, 0);
}

}  // namespace
}  // namespace hierlock::conformance
