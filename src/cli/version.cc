#include "cli/version.h"

#include <hierlock/version.h>

#include "cli/programs.h"

namespace hierlock::cli {
namespace {

struct Store {
  const char* url;
  const char* program;  // that has it; empty: every one has it
  bool built;
};

constexpr Store stores[] = {{"memory:", "", true},
                            {"shm:", "", true},
                            {"mysql://", "mysql", built_with_mysql},
                            {"valkey://", "valkey", built_with_valkey},
                            {"redis://", "valkey", built_with_valkey}};

std::string scheme(const Store& store) {
  const std::string url = store.url;
  return url.substr(0, url.find(':') + 1);
}

}  // namespace

std::vector<std::string> store_beginnings() {
  std::vector<std::string> all;
  for (const Store& store : stores) all.emplace_back(store.url);
  return all;
}

std::string version_text() {
  std::string have, lack;
  const auto add = [](std::string& list, const std::string& one) { list += " " + one; };
  const auto add_part = [&](const std::string& name, const std::string& program, bool built) {
    if (!built) {
      add(lack, name + " (not built in)");
    } else if (!program.empty() && find_program(program).empty()) {
      add(lack, name + " (hierlock-" + program + " is not installed)");
    } else {
      return true;
    }
    return false;
  };
  for (const Store& store : stores) {
    if (add_part(scheme(store), store.program, store.built)) add(have, scheme(store));
  }
  const bool lab = add_part("lab", "lab", built_with_lab);
  return "hierlock " HIERLOCK_VERSION "\nstores:" + have + "\n" + (lab ? "lab: built in\n" : "") +
         (lack.empty() ? "" : "without:" + lack + "\n");
}

}  // namespace hierlock::cli
