#include "lab/leftovers.h"

#include <signal.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>

namespace hierlock::lab {

void remove_leftovers(const std::filesystem::path& folder, std::string_view begin) noexcept {
  try {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with(begin)) continue;
      const long process = std::strtol(name.c_str() + begin.size(), nullptr, 10);
      std::error_code ignored;
      if (process > 0 && kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH) {
        std::filesystem::remove_all(entry.path(), ignored);
      }
    }
  } catch (const std::exception&) {  // it cannot be looked into, or changes meanwhile: the next run tries again
  }
}

}  // namespace hierlock::lab
