// The tool as a real program: run to its end, or running beside the test with its streams in the test's hands.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tooltest {

// Facts are waited for no longer than this. Far more than any takes on a busy machine.
inline constexpr std::chrono::seconds patience{60};

// Waits until it is true. False if it is not within `patience`.
bool eventually(const std::function<bool()>& fact);

// The path of the program: HIERLOCK_BIN, or the one that was built with these tests.
std::string tool();

struct Result {
  int code = -1;  // 128+n if signal n ended it
  std::string out;
  std::string err;
};

// Runs a program to its end. `url` is its HIERLOCK_URL; `stdout_path` takes the place of a captured stdout ("-":
// closed).
Result run_program(const std::vector<std::string>& arguments, const char* url = nullptr,
                   const char* stdout_path = nullptr);
// The same for the tool; `arguments` without its name.
Result run(std::vector<std::string> arguments, const char* url = nullptr, const char* stdout_path = nullptr);

// A lock table in a folder of its own, gone with it.
class Store {
 public:
  Store();
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  const char* url() const { return url_.c_str(); }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
  std::string url_;
};

// A program that runs beside the test, in a process group of its own. Killed at the end, with its group.
class Running {
 public:
  struct Options {
    const char* url = nullptr;
    bool terminal = false;          // a pseudo terminal of 80 x 24 instead of files; it is a session of its own then
    std::vector<int> ignored = {};  // signals
    std::vector<int> blocked = {};
    std::string input = {};      // stdin; empty: /dev/null. Not for a terminal
    bool broken_stderr = false;  // a pipe that nobody reads
  };
  Running(std::vector<std::string> arguments, const Options& options);
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int signal) const { kill(pid_, signal); }

  // What it has printed so far. Of a terminal: everything, with the control sequences.
  std::string out();
  std::string err();
  // Waits until it has printed this. False if it does not within `patience`, or ends before.
  bool prints(std::string_view text);
  bool complains(std::string_view text);

  // A terminal's other end.
  void type(std::string_view keys) const;
  void resize(int columns, int rows) const;
  int terminal() const { return terminal_; }

  // True while it has neither ended nor been stopped.
  bool goes_on();
  bool stops();   // waits until it is stopped
  Result ends();  // waits until it has ended

 private:
  bool waits_for(const std::function<bool()>& fact);
  void look();  // reads what a terminal has to say, and whether it has ended

  pid_t pid_ = -1;
  int terminal_ = -1;
  int keep_open_ = -1;  // the terminal's own end: without it nothing could be asked of it once the program has ended
  std::FILE* out_ = nullptr;
  std::FILE* err_ = nullptr;
  std::string shown_;
  bool stopped_ = false;
  bool ended_ = false;
  int code_ = -1;
};

// Whether `text` is one JSON value and nothing else (RFC 8259).
bool is_json(std::string_view text);

// The columns that each line takes, of ASCII and of characters that take one column; without control sequences.
std::size_t widest_line(std::string_view text);

}  // namespace tooltest
