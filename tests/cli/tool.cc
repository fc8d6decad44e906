#include "tool.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utmp.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <thread>

namespace tooltest {
namespace {

using Clock = std::chrono::steady_clock;

// In a child: becomes the program.
[[noreturn]] void become(const std::vector<std::string>& arguments, const char* url) {
  unsetenv("HIERLOCK_URL");
  unsetenv("HIERLOCK_FENCE");
  if (url != nullptr) setenv("HIERLOCK_URL", url, 1);
  const std::string folder = std::filesystem::path(tool()).parent_path();
  setenv("PATH", (folder + ":" + std::getenv("PATH")).c_str(), 1);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(127);
}

int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

std::string content(std::FILE* file) {
  if (file == nullptr) return {};
  std::string text;
  char buffer[4096];
  // By offset: the program writes through the same open file.
  for (ssize_t n; (n = pread(fileno(file), buffer, sizeof buffer, static_cast<off_t>(text.size()))) > 0;) {
    text.append(buffer, static_cast<std::size_t>(n));
  }
  return text;
}

}  // namespace

bool eventually(const std::function<bool()>& fact) {
  const auto deadline = Clock::now() + patience;
  while (!fact()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

std::string tool() {
  const char* given = std::getenv("HIERLOCK_BIN");
  return given != nullptr ? given : HIERLOCK_BIN;
}

Result run_program(const std::vector<std::string>& arguments, const char* url, const char* stdout_path) {
  std::FILE* out = std::tmpfile();
  std::FILE* err = std::tmpfile();
  const pid_t child = fork();
  if (child == 0) {
    dup2(fileno(out), 1);
    dup2(fileno(err), 2);
    if (stdout_path != nullptr) {
      close(1);
      if (std::string_view(stdout_path) != "-") static_cast<void>(open(stdout_path, O_WRONLY));
    }
    become(arguments, url);
  }
  int status = 0;
  waitpid(child, &status, 0);
  const Result result{code_of(status), content(out), content(err)};
  std::fclose(out);
  std::fclose(err);
  return result;
}

Result run(std::vector<std::string> arguments, const char* url, const char* stdout_path) {
  arguments.insert(arguments.begin(), tool());
  return run_program(arguments, url, stdout_path);
}

Store::Store() {
  std::string name = std::filesystem::temp_directory_path() / "hierlock-cli-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp: " + std::string(std::strerror(errno)));
  folder_ = name;
  url_ = "shm://" + folder_ + "/table";
}

Store::~Store() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

Running::Running(std::vector<std::string> arguments, const Options& options) {
  arguments.insert(arguments.begin(), tool());
  int input[2] = {-1, -1};
  if (options.terminal) {
    winsize size{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
    if (openpty(&terminal_, &keep_open_, nullptr, nullptr, &size) != 0) throw std::runtime_error("openpty");
    for (const int file : {terminal_, keep_open_}) fcntl(file, F_SETFD, FD_CLOEXEC);
  } else {
    out_ = std::tmpfile();
    err_ = std::tmpfile();
    if (pipe2(input, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  }
  pid_ = fork();
  if (pid_ == 0) {
    if (options.terminal) {
      login_tty(keep_open_);
    } else {
      setpgid(0, 0);
      dup2(input[0], 0);
      dup2(fileno(out_), 1);
      dup2(fileno(err_), 2);
      int broken[2];
      if (options.broken_stderr && pipe(broken) == 0) {
        dup2(broken[1], 2);
        close(broken[0]);
        close(broken[1]);
      }
    }
    // A shell that starts the tests with & has them ignore SIGINT, and programs inherit that.
    for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM}) ::signal(signal, SIG_DFL);
    for (const int signal : options.ignored) ::signal(signal, SIG_IGN);
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : options.blocked) sigaddset(&set, signal);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    become(arguments, options.url);
  }
  if (!options.terminal) {
    setpgid(pid_, pid_);  // whoever of the two comes first
    close(input[0]);
    if (write(input[1], options.input.data(), options.input.size()) < 0) perror("write");
    close(input[1]);
  }
}

Running::~Running() {
  // It has not been waited for yet, so that its number and its group's are still its own.
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  if (out_ != nullptr) std::fclose(out_);
  if (err_ != nullptr) std::fclose(err_);
  if (terminal_ >= 0) close(terminal_);
  if (keep_open_ >= 0) close(keep_open_);
}

void Running::look() {
  siginfo_t info{};
  const auto id = static_cast<id_t>(pid_);
  if (waitid(P_PID, id, &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 && info.si_pid == pid_) {
    stopped_ = info.si_code == CLD_STOPPED;
  }
  info = {};
  if (!ended_ && waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_) {
    ended_ = true;
    code_ = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
  }
  // After that: what it printed before it ended is there now.
  pollfd file{terminal_, POLLIN, 0};
  char buffer[4096];
  while (terminal_ >= 0 && poll(&file, 1, 0) > 0 && (file.revents & POLLIN) != 0) {
    const ssize_t n = read(terminal_, buffer, sizeof buffer);
    if (n <= 0) break;
    shown_.append(buffer, static_cast<std::size_t>(n));
  }
}

std::string Running::out() {
  look();
  return terminal_ >= 0 ? shown_ : content(out_);
}
std::string Running::err() { return content(err_); }

bool Running::waits_for(const std::function<bool()>& fact) {
  bool found = false;
  eventually([&] {
    look();
    const bool was_over = ended_;
    found = fact();
    return found || was_over;
  });
  return found;
}

bool Running::prints(std::string_view text) {
  return waits_for([&] { return out().find(text) != std::string::npos; });
}
bool Running::complains(std::string_view text) {
  return waits_for([&] { return err().find(text) != std::string::npos; });
}

void Running::type(std::string_view keys) const {
  if (write(terminal_, keys.data(), keys.size()) < 0) perror("write");
}

void Running::resize(int columns, int rows) const {
  const winsize size{static_cast<unsigned short>(rows), static_cast<unsigned short>(columns), 0, 0};
  ioctl(terminal_, TIOCSWINSZ, &size);
}

bool Running::goes_on() {
  look();
  return !ended_ && !stopped_;
}

bool Running::stops() {
  return waits_for([&] { return stopped_; });
}

Result Running::ends() {
  waits_for([&] { return ended_; });
  return {code_, out(), err()};
}

namespace {

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : rest_(text) {}
  bool valid() {
    const bool ok = value();
    space();
    return ok && rest_.empty();
  }

 private:
  void space() {
    while (!rest_.empty() && std::string_view(" \n\r\t").find(rest_[0]) != std::string_view::npos)
      rest_.remove_prefix(1);
  }
  bool take(std::string_view token) {
    space();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  bool string() {
    if (!take("\"")) return false;
    while (!rest_.empty() && rest_[0] != '"') {
      if (static_cast<unsigned char>(rest_[0]) < 0x20) return false;
      if (rest_[0] == '\\') {
        if (rest_.size() < 2 || std::string_view("\"\\/bfnrtu").find(rest_[1]) == std::string_view::npos) return false;
        rest_.remove_prefix(1);
      }
      rest_.remove_prefix(1);
    }
    if (rest_.empty()) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool list(std::string_view closer, bool named) {
    if (take(closer)) return true;
    do {
      if (named && (!string() || !take(":"))) return false;
      if (!value()) return false;
    } while (take(","));
    return take(closer);
  }
  bool value() {
    if (take("{")) return list("}", true);
    if (take("[")) return list("]", false);
    if (take("true") || take("false") || take("null")) return true;
    space();
    if (rest_.starts_with('"')) return string();
    const std::size_t size = std::min(rest_.find_first_not_of("0123456789.eE+-"), rest_.size());
    rest_.remove_prefix(size);
    return size > 0;
  }
  std::string_view rest_;
};

}  // namespace

bool is_json(std::string_view text) { return JsonReader(text).valid(); }

std::size_t widest_line(std::string_view text) {
  std::size_t widest = 0;
  std::size_t width = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i).starts_with("\x1B[")) {
      i = std::min(text.find_first_not_of("0123456789;?", i + 2), text.size());
      if (i < text.size() && text[i] == 'H') width = 0;  // back to the corner
    } else if (text[i] == '\n' || text[i] == '\r') {
      width = 0;
    } else if ((text[i] & 0xC0) != 0x80) {
      widest = std::max(widest, ++width);
    }
  }
  return widest;
}

}  // namespace tooltest
