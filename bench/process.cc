#include "process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace bench {

namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::runtime_error(what + ": " + std::strerror(errno)); }

// Whole messages or nothing: the sockets keep their boundaries.
template <class T>
bool send_to(int socket, const T& message) {
  static_assert(std::is_trivially_copyable_v<T>);
  return send(socket, &message, sizeof message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof message);
}

template <class T>
bool receive_from(int socket, T& message) {
  ssize_t size = 0;
  do {
    size = recv(socket, &message, sizeof message, 0);
  } while (size < 0 && errno == EINTR);
  return size == static_cast<ssize_t>(sizeof message);
}

[[noreturn]] void serve(int socket, const std::function<Process::Service()>& begin) {
  try {
    const Process::Service service = begin();
    bool going_on = send_to(socket, 0.0);
    for (Order order; going_on && receive_from(socket, order);) going_on = send_to(socket, service(order));
  } catch (const std::exception& e) {
    fail(e.what());
  }
  std::_Exit(0);
}

}  // namespace

ScratchFolder::ScratchFolder() {
  std::string path = "/dev/shm/hierlock-bench-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) refuse("cannot make " + path);
  path_ = path;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string ScratchFolder::folder(std::string_view name) const {
  const std::string path = file(name);
  std::filesystem::create_directory(path);
  return path;
}

Process::Process(const std::function<Service()>& begin) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) refuse("no sockets");
  const pid_t parent = getpid();
  child_ = fork();
  if (child_ == 0) {
    close(ends[0]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) std::_Exit(0);
    serve(ends[1], begin);
  }
  close(ends[1]);
  socket_ = ends[0];
  if (child_ < 0) {
    close(socket_);
    refuse("cannot start a process");
  }
  try {
    answer();
  } catch (...) {
    end();
    throw;
  }
}

void Process::end() noexcept {
  close(socket_);
  kill(child_, SIGKILL);
  while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Process::tell(const Order& order) {
  if (!send_to(socket_, order)) refuse("a worker process is gone");
}

double Process::answer() {
  double value = 0;
  if (!receive_from(socket_, value)) throw std::runtime_error("a worker process has failed");
  return value;
}

std::vector<double> ProcessTurns::hand_overs(std::size_t hops) {
  hops = std::min(hops, most_hops);
  shared_.renew();
  for (auto& process : processes_) process->tell({.kind = Order::Kind::hops, .hops = hops});
  std::vector<double> all;
  for (std::size_t self = 0; self < 2; ++self) {
    const auto count = static_cast<std::size_t>(processes_[self]->answer());
    all.insert(all.end(), shared_->samples[self], shared_->samples[self] + count);
  }
  return all;
}

}  // namespace bench
