#include "cli/programs.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <filesystem>

namespace hierlock::cli {

std::string own_folder() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) return self.parent_path().string();
  // Without /proc, as in a bare chroot: as it was started, with the path that the shell has found.
  const auto* const started = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  if (started == nullptr) return {};
  return std::filesystem::canonical(started, error).parent_path().string();
}

std::vector<std::string> places_of_program(const std::string& name) {
  const std::string program = "hierlock-" + name, here = own_folder();
  return {here + "/" + program, here + "/../libexec/hierlock/" + program};
}

std::string find_program(const std::string& name) {
  for (const std::string& place : places_of_program(name)) {
    if (access(place.c_str(), X_OK) == 0) return place;
  }
  return {};
}

}  // namespace hierlock::cli
