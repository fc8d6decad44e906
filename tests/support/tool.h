// Tool: the command line tool beside a test, with what it prints and its exit code.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace hierlock::tests {

class Tool {
 public:
  // `arguments` as a shell reads them. What it prints to stderr comes with what it prints to stdout.
  explicit Tool(const std::string& arguments)
      : pipe_(popen(("exec '" HIERLOCK_BIN "' " + arguments + " 2>&1 </dev/null").c_str(), "re")) {}
  ~Tool() {
    if (pipe_ != nullptr) pclose(pipe_);
  }
  Tool(const Tool&) = delete;
  Tool& operator=(const Tool&) = delete;

  // Reads until it has said this. False if it ends before.
  bool says(const std::string& text) {
    while (said_.find(text) == said_.npos) {
      const int c = pipe_ == nullptr ? EOF : std::fgetc(pipe_);
      if (c == EOF) return false;
      said_ += static_cast<char>(c);
    }
    return true;
  }
  // Reads to its end. Its exit code, or 128 and the signal that ended it.
  int ends() {
    says(std::string(1, '\0'));
    const int status = pipe_ == nullptr ? -1 : pclose(pipe_);
    pipe_ = nullptr;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  const std::string& said() const { return said_; }

 private:
  std::FILE* pipe_;
  std::string said_;
};

}  // namespace hierlock::tests
