// A server of the test's own, to be set up badly: started when it is first asked for, removed when the program ends.
#pragma once

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace hierlock::tests {

class OwnServer {
 public:
  // `engine` is one that tools/servers knows; `option` one of tools/servers up. None if it cannot be had.
  static const OwnServer* get(const std::string& engine, const std::string& option = "") {
    static std::map<std::string, OwnServer> all;
    const auto [found, made] = all.try_emplace(engine + option, engine, option);
    return found->second.url_.empty() ? nullptr : &found->second;
  }

  // `called` tells apart several of one engine.
  OwnServer(const std::string& engine, const std::string& option, const std::string& called = "own") {
    const std::string suffix = called + (option.empty() ? "" : option.substr(2, 1)) + std::to_string(getpid());
    name_ = engine + ":" + suffix;
    run("up " + option + " " + name_);
    for (const std::string& line : lines_of(run("env " + name_))) {
      if (line.find("_OPERATOR='") != line.npos) operator_url_ = quoted(line);
      if (line.find("://app:") != line.npos && line.find("_TLS='") == line.npos) url_ = quoted(line);
      if (line.find("_PID='") != line.npos) pid_ = std::stoi(quoted(line));
    }
  }
  ~OwnServer() {
    if (getpid() == made_by_) run("down " + name_);  // not a forked child's to remove
  }
  OwnServer(const OwnServer&) = delete;
  OwnServer& operator=(const OwnServer&) = delete;

  const std::string& name() const { return name_; }                  // as tools/servers knows it
  const std::string& url() const { return url_; }                    // as the application's user
  const std::string& operator_url() const { return operator_url_; }  // who may do anything
  pid_t pid() const { return pid_; }
  // tools/servers start, stop, kill or restart: returns when that is done. False if it cannot be.
  bool control(const std::string& verb) const {
    return std::system(("'" HIERLOCK_SERVERS "' " + verb + " " + name_ + " >/dev/null 2>&1").c_str()) == 0;
  }

 private:
  static std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != text.npos; at = end + 1) {
      lines.push_back(text.substr(at, end - at));
    }
    return lines;
  }
  static std::string quoted(const std::string& line) {
    const std::size_t begin = line.find('\'') + 1;
    return line.substr(begin, line.rfind('\'') - begin);
  }
  static std::string run(const std::string& arguments) {
    std::FILE* const pipe = popen(("CI=false '" HIERLOCK_SERVERS "' " + arguments + " 2>&1").c_str(), "r");
    if (pipe == nullptr) return "";
    std::string out;
    std::array<char, 4096> buffer{};
    for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) out.append(buffer.data(), n);
    pclose(pipe);
    return out;
  }

  const pid_t made_by_ = getpid();
  std::string name_, url_, operator_url_;
  pid_t pid_ = -1;
};

}  // namespace hierlock::tests
