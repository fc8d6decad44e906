#include "cli/provision.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include <hierlock/error.h>
#include <hierlock/operate.h>

#include "cli/output.h"

namespace hierlock::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Progress = ProvisionOptions::Progress;
using namespace std::chrono_literals;

volatile sig_atomic_t signal_that_came = 0, at_work = 0;

// Before the work begins, a signal ends the program at once. Later the first signal is remembered, and the chunk under
// way is finished; a second one ends the program at once. Nothing is lost either way.
class EndAfterChunk {
 public:
  EndAfterChunk() {
    for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
      struct sigaction found {};
      if (sigaction(signal, nullptr, &found) == 0 && found.sa_handler == SIG_IGN) continue;  // as nohup does it
      struct sigaction action {};
      action.sa_handler = [](int number) {
        signal_that_came = number;
        if (at_work == 0) raise(number);  // SA_RESETHAND: this one is not handled here any more
      };
      action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
      sigaction(signal, &action, nullptr);
    }
    // Who watches it may go away; the work goes on.
    struct sigaction ignored {};
    ignored.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &ignored, nullptr);
  }
  void work_begins() const { at_work = 1; }
  int signal() const { return signal_that_came; }
};

std::string size_text(std::uint64_t bytes) {
  const double number = static_cast<double>(bytes);
  if (bytes >= 10'000'000'000) return fmt::format("{:.0f} GB", number / 1e9);
  if (bytes >= 1'000'000'000) return fmt::format("{:.1f} GB", number / 1e9);
  if (bytes >= 10'000'000) return fmt::format("{:.0f} MB", number / 1e6);
  if (bytes >= 1'000'000) return fmt::format("{:.1f} MB", number / 1e6);
  return fmt::format("{} kB", (bytes + 999) / 1000);
}

std::string rate_text(std::uint64_t rows, std::chrono::nanoseconds time) {
  const double seconds = std::max(std::chrono::duration<double>(time).count(), 0.001);
  return grouped(static_cast<std::uint64_t>(static_cast<double>(rows) / seconds));
}

unsigned percent(const Progress& progress) {
  return progress.of == 0 ? 100 : static_cast<unsigned>(progress.rows * 100 / progress.of);
}

std::string left_text(const Progress& progress) {
  return progress.left == 0ns && progress.rows < progress.of ? "" : ", " + brief_time(progress.left) + " left";
}

// One line that is drawn again and again on a terminal; a line now and then where there is none.
class Bar {
 public:
  void show(const Progress& progress) {
    const Clock::time_point now = Clock::now();
    rate_.look(progress, now);
    if (now < due_ && progress.rows < progress.of) return;
    if (terminal_) {
      due_ = now + 100ms;
      draw(progress);
    } else if (progress.rows < progress.of) {
      if (due_ != Clock::time_point{}) complain(words(progress));
      due_ = now + (due_ == Clock::time_point{} ? 1s : 10s);
    }
  }
  // What is printed next has a line of its own.
  void clear() const {
    if (terminal_) std::fputs("\r\x1b[K", stderr);
  }

 private:
  // Rows a second, of what was made in the last few seconds.
  class Rate {
   public:
    void look(const Progress& progress, Clock::time_point now) {
      if (since_ == Clock::time_point{}) begin(progress, now);
      if (now > since_) text_ = rate_text(progress.made - made_, now - since_);
      if (now >= since_ + 3s) begin(progress, now);
    }
    const std::string& text() const { return text_; }

   private:
    void begin(const Progress& progress, Clock::time_point now) {
      since_ = now;
      made_ = progress.made;
    }

    Clock::time_point since_{};
    std::uint64_t made_ = 0;
    std::string text_ = "0";
  };

  std::string words(const Progress& progress) const {
    return fmt::format("{} of {} rows ({}%), {} rows/s{}, {} in the end", grouped(progress.rows), grouped(progress.of),
                       percent(progress), rate_.text(), left_text(progress), size_text(progress.bytes));
  }

  void draw(const Progress& progress) const {
    winsize size{};
    const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    const std::size_t width = std::max<std::size_t>(known ? size.ws_col : line_width, 20) - 1;
    const std::string text =
        fmt::format("{:3}%  {} of {} rows, {}/s{}, {}", percent(progress), grouped(progress.rows), grouped(progress.of),
                    rate_.text(), left_text(progress), size_text(progress.bytes));
    // Of one length all the time; 10 leave room in 80 columns for a table of the usual size.
    const std::size_t room = width < 110 ? 10 : 30;
    const std::size_t full = room * percent(progress) / 100;
    const std::string line =
        fit_begin("[" + std::string(full, '#') + std::string(room - full, '.') + "] " + text, width);
    std::fputs(("\r\x1b[K" + line).c_str(), stderr);
    std::fflush(stderr);
  }

  const bool terminal_ = isatty(STDERR_FILENO) == 1;
  Clock::time_point due_{};
  Rate rate_;
};

int tell_the_end(const Progress& last) {
  if (last.made == 0) {
    return print(fmt::format("All {} rows were there already; the table takes about {}.\n", grouped(last.of),
                             size_text(last.bytes)));
  }
  return print(fmt::format("Made {} rows in {}; now all {} are there, and the table takes about {}.\n",
                           grouped(last.made), brief_time(last.spent), grouped(last.of), size_text(last.bytes)));
}

}  // namespace

int provision(const ProvisionCommand& command) {
  const EndAfterChunk end;
  Bar bar;
  Progress last;
  ProvisionOptions options = command.options;
  options.on_progress = [&](const Progress& progress) {
    end.work_begins();
    last = progress;
    bar.show(progress);
    return end.signal() == 0;
  };
  try {
    hierlock::provision(command.store.text, options);
  } catch (const Error& error) {
    bar.clear();
    if (error.kind() == ErrorKind::invalid_argument) throw UsageError(command.store.from + ": " + error.what());
    if (last.rows == 0) throw;
    throw Error(error.kind(), fmt::format("{} (at {} of {} rows; what is made stays, and the same command goes on)",
                                          error.what(), grouped(last.rows), grouped(last.of)));
  }
  bar.clear();
  if (last.rows == last.of) return tell_the_end(last);
  complain(fmt::format("ended at {} of {} rows; what is made stays, and the same command goes on", grouped(last.rows),
                       grouped(last.of)));
  return exit_by_signal + end.signal();
}

}  // namespace hierlock::cli
