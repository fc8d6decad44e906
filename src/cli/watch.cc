#include "cli/watch.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string_view>

#include <hierlock/error.h>

#include "cli/exit_codes.h"

namespace hierlock::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Signals as something to poll for. SIGWINCH: the size has changed; SIGTSTP: the terminal must be given back first.
class SignalFile {
 public:
  explicit SignalFile(bool screen) {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM}) sigaddset(&set, signal);
    if (screen) {
      for (const int signal : {SIGWINCH, SIGTSTP}) sigaddset(&set, signal);
    }
    sigprocmask(SIG_BLOCK, &set, &before_);
    file_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    // Without it the signals must do what they do by themselves.
    if (file_ < 0) sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  ~SignalFile() {
    if (file_ >= 0) close(file_);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  SignalFile(const SignalFile&) = delete;
  SignalFile& operator=(const SignalFile&) = delete;

  int file() const noexcept { return file_; }
  // The next one, or 0.
  int take() const noexcept {
    signalfd_siginfo info{};
    return file_ >= 0 && read(file_, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  sigset_t before_;
  int file_ = -1;
};

// A terminal whose other screen is ours, with keys that arrive at once and unseen.
class Screen {
 public:
  Screen() : keys_(isatty(STDIN_FILENO) == 1 && tcgetattr(STDIN_FILENO, &before_) == 0) { enter(); }
  ~Screen() { leave(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  bool has_keys() const noexcept { return keys_; }

  // As much of the text as there is room for, and a line about how to leave. False if it could not be written.
  bool draw(const std::string& text, std::chrono::nanoseconds interval) {
    const TerminalSize size = terminal_size();
    const std::size_t room = std::max<std::size_t>(size.rows, 2) - 1;
    const auto lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
    std::string out = "\x1B[H";
    // After the last column some terminals erase that column with the rest of the line: so a line is erased before.
    const auto add = [&](std::string_view line) { out += "\x1B[2K" + fit_begin(line, size.columns); };
    std::size_t row = 0;
    for (std::size_t at = 0; at < text.size() && row < room; ++row) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      if (row + 1 == room && lines > room) {
        add("… " + grouped(lines - row) + " more lines");
      } else {
        add(std::string_view(text).substr(at, end - at));
      }
      out += "\r\n";
      at = end + 1;
    }
    for (; row < room; ++row) out += "\x1B[2K\r\n";
    add("every " + brief_time(interval) + (keys_ ? "; q ends it" : "; Ctrl-C ends it"));
    return write_out(out);
  }

  // Gives the terminal back while the process is stopped.
  void stop() {
    leave();
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTSTP);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &set, nullptr);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    enter();
  }

 private:
  void enter() {
    if (keys_) {
      termios ours = before_;
      ours.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // ISIG stays: Ctrl-C is a signal
      ours.c_cc[VMIN] = 1;
      ours.c_cc[VTIME] = 0;
      tcsetattr(STDIN_FILENO, TCSADRAIN, &ours);
    }
    write_out("\x1B[?1049h\x1B[?25l\x1B[2J");  // the other screen, no cursor, empty
  }
  void leave() {
    write_out("\x1B[?25h\x1B[?1049l");
    if (keys_) tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
  }

  termios before_{};
  bool keys_;
};

}  // namespace

TerminalSize terminal_size() noexcept {
  TerminalSize result;
  winsize size{};
  if (isatty(STDOUT_FILENO) != 1 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return result;
  if (size.ws_col > 0) result.columns = std::max<std::size_t>(size.ws_col, 20);
  if (size.ws_row > 0) result.rows = size.ws_row;
  return result;
}

int watch(const std::function<std::string(std::size_t width)>& picture, std::chrono::nanoseconds interval,
          std::uint64_t count) {
  const bool on_terminal = isatty(STDOUT_FILENO) == 1;
  const SignalFile signals(on_terminal);
  std::optional<Screen> screen;
  bool keys = false;
  Clock::time_point next = Clock::now();
  bool draw = true;
  for (std::uint64_t shown = 0;;) {
    if (draw) {
      std::string text;
      try {
        text = picture(terminal_size().columns);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::cancelled) throw;
        while (const int signal = signals.take()) {
          if (signal != SIGWINCH && signal != SIGTSTP) return exit_by_signal + signal;
        }
        throw;
      }
      if (on_terminal && !screen) {  // not before there is something to show: a store may not be there
        screen.emplace();
        keys = screen->has_keys();
      }
      if (screen ? !screen->draw(text, interval) : !write_out(shown == 0 ? text : "\n" + text)) {
        const int error = errno;
        screen.reset();
        return cannot_write(error);
      }
      draw = false;
    }
    const Clock::time_point now = Clock::now();
    if (now >= next) {
      if (++shown == count) return exit_ok;
      next = now + interval;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - now).count();
    pollfd files[2] = {{signals.file(), POLLIN, 0}, {keys ? STDIN_FILENO : -1, POLLIN, 0}};
    poll(files, 2, static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000)));
    while (const int signal = signals.take()) {
      if (signal == SIGINT) return exit_ok;
      if (signal == SIGTSTP) screen->stop();
      if (signal == SIGWINCH || signal == SIGTSTP) {
        draw = true;
      } else {
        return exit_by_signal + signal;
      }
    }
    if (files[1].revents != 0) {
      char key = 0;
      const ssize_t got = read(STDIN_FILENO, &key, 1);
      if (got == 1 && (key == 'q' || key == 'Q')) return exit_ok;
      if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) keys = false;
    }
    if (Clock::now() >= next) draw = true;
  }
}

}  // namespace hierlock::cli
