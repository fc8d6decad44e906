#include "on_valkey.h"

#include <array>
#include <cstdio>

#include <hierlock/operate.h>

namespace hierlock::valkey_tests {

std::string servers(const std::string& arguments) {
  std::FILE* const pipe = popen(("CI=false '" HIERLOCK_SERVERS "' " + arguments + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return "";
  std::string out;
  std::array<char, 4096> buffer{};
  for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) out.append(buffer.data(), n);
  pclose(pipe);
  return out;
}

std::string with(const std::string& url, const std::string& options) {
  return url + (url.find('?') == url.npos ? "?" : "&") + options;
}

std::string place_of(const std::string& url, const Target& target) {
  const std::string text = statements(url, std::vector<Target>{target});
  const std::size_t at = text.find("hl:");
  return text.substr(at, text.find('}', at) + 1 - at);
}

}  // namespace hierlock::valkey_tests
