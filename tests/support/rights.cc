#include "support/rights.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>

namespace hierlock::tests {

namespace {

constexpr uid_t somebody = 65534;  // nobody, as it is called: anybody but root

// Whether it is true in a child process, which it may change as it likes.
bool in_child(const std::function<bool()>& attempt) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(attempt() ? 0 : 1);
  int status = 0;
  while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool own_mounts() { return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0; }

bool try_mount() {
  return ::unshare(CLONE_NEWNS) == 0 && own_mounts() &&
         ::mount("/proc/version", "/proc/sys/kernel/random/boot_id", nullptr, MS_BIND, nullptr) == 0 &&
         ::mount("hidden", "/proc", "tmpfs", 0, nullptr) == 0;
}

// The kernel looks at the right before it finds that the number is taken.
bool try_process_number() {
  const pid_t taken = ::getpid();
  clone_args clone{};
  clone.exit_signal = SIGCHLD;
  clone.set_tid = reinterpret_cast<std::uintptr_t>(&taken);
  clone.set_tid_size = 1;
  const long child = ::syscall(SYS_clone3, &clone, sizeof clone);
  if (child == 0) ::_exit(0);
  return child < 0 && errno == EEXIST;
}

bool try_process_namespace() {
  return ::unshare(CLONE_NEWPID | CLONE_NEWNS) == 0 && own_mounts() &&
         in_child([] { return ::mount("proc", "/proc", "proc", 0, nullptr) == 0; });
}

bool try_network() {
  return ::unshare(CLONE_NEWNET) == 0 &&
         std::system(
             "{ ip link add cable type veth peer name other && ip link set cable up && "
             "echo 1 >/proc/sys/net/ipv4/conf/cable/route_localnet; } >/dev/null 2>&1") == 0;
}

// Taken by somebody else is not forbidden.
bool try_low_port() {
  const int listener = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(53);
  address.sin_addr.s_addr = htonl(0x7f353535);
  return ::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno == EADDRINUSE;
}

bool try_giving_away() {
  std::string name = testing::TempDir() + "hierlock-rights.XXXXXX";
  const int file = ::mkstemp(name.data());
  const bool given = file >= 0 && ::fchown(file, somebody, somebody) == 0;
  if (file >= 0) ::unlink(name.c_str());
  return given;
}

bool try_becoming_another() {
  return ::setresgid(somebody, somebody, somebody) == 0 && ::setresuid(somebody, somebody, somebody) == 0;
}

struct Known {
  bool (*attempt)();
  const char* text;
};
const std::map<Right, Known>& all() {
  static const std::map<Right, Known> rights{
      {Right::mount, {try_mount, "to mount, also over parts of /proc (CAP_SYS_ADMIN)"}},
      {Right::choose_process_number, {try_process_number, "to choose a process number (CAP_CHECKPOINT_RESTORE)"}},
      {Right::make_process_namespace, {try_process_namespace, "to make a process namespace (CAP_SYS_ADMIN)"}},
      {Right::make_network, {try_network, "to make network namespaces (CAP_SYS_ADMIN, CAP_NET_ADMIN)"}},
      {Right::take_low_port, {try_low_port, "to take a port below 1024 (CAP_NET_BIND_SERVICE)"}},
      {Right::give_file_away, {try_giving_away, "to give a file to another user (CAP_CHOWN)"}},
      {Right::become_another_user, {try_becoming_another, "to become another user (CAP_SETUID, CAP_SETGID)"}},
  };
  return rights;
}

}  // namespace

bool has_right(Right right) {
  static std::mutex mutex;
  static std::map<Right, bool> tried;
  const std::scoped_lock guard(mutex);
  const auto [found, is_new] = tried.try_emplace(right);
  if (is_new) found->second = in_child(all().at(right).attempt);
  return found->second;
}

std::string text_of(Right right) { return all().at(right).text; }

}  // namespace hierlock::tests
