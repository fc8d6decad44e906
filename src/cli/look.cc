#include "cli/look.h"

#include <algorithm>
#include <utility>

#include <hierlock/error.h>
#include <hierlock/spi/url.h>

#include "plan/text.h"

namespace hierlock::cli {

std::optional<Locker> open_to_look(const StoreUrl& url, std::string& why, std::stop_token cancel) {
  try {
    return open_store(url, {.create = false, .cancel = std::move(cancel)});
  } catch (const Error& error) {
    // Other stores must be set up by somebody; these are made by whoever locks first.
    const spi::Url parsed = spi::Url::parse(url.text);
    const std::pair<std::string, std::string> lazy{"provision", "lazy"};
    const bool makes_itself =
        parsed.scheme == "shm" || std::find(parsed.options.begin(), parsed.options.end(), lazy) != parsed.options.end();
    if (error.kind() != ErrorKind::not_provisioned || !makes_itself) throw;
    why = error.what();
    return std::nullopt;
  }
}

std::string status_command(const StoreUrl& url) {
  if (url.from != "--on") return "hierlock status";
  return "hierlock --on " + plan::shell_word(spi::Url::parse(url.text).safe_text()) + " status";
}

}  // namespace hierlock::cli
