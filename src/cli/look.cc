#include "cli/look.h"

#include <hierlock/error.h>
#include <hierlock/spi/url.h>

#include "plan/text.h"

namespace hierlock::cli {

std::optional<Locker> open_to_look(const StoreUrl& url, std::string& why) {
  try {
    return open_store(url, {.create = false});
  } catch (const Error& error) {
    // Other stores must be set up by somebody; this one is made by whoever comes first.
    const bool makes_itself = spi::Url::parse(url.text).scheme == "shm";
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
