// hierlock-pages FOLDER: writes the man pages and the completions, each where its reader looks below a share folder.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>

#include "completion.h"
#include "man.h"

namespace {

void write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) throw std::runtime_error(path.string() + " cannot be written");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: hierlock-pages FOLDER\n", stderr);
    return 64;
  }
  try {
    const std::filesystem::path share = argv[1];
    write(share / "man/man1/hierlock.1", hierlock::cli::man_page_of_tool());
    for (const auto& command : hierlock::cli::all_commands()) {
      if (command.name == "help") continue;  // prints what the others say
      write(share / "man/man1" / ("hierlock-" + command.name + ".1"), hierlock::cli::man_page_of(command));
    }
    write(share / "bash-completion/completions/hierlock", hierlock::cli::bash_completion());
    write(share / "zsh/site-functions/_hierlock", hierlock::cli::zsh_completion());
    write(share / "fish/vendor_completions.d/hierlock.fish", hierlock::cli::fish_completion());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hierlock-pages: %s\n", error.what());
    return 70;
  }
}
