// How a store that is not part of the core becomes known to hierlock::open(). A component calls this in its enable().
#pragma once

#include <memory>
#include <string>

#include <hierlock/options.h>
#include <hierlock/spi/backend.h>
#include <hierlock/spi/url.h>

namespace hierlock::spi {

using OpenStore = std::unique_ptr<Backend> (*)(const Url& url, const OpenOptions& options);

// Thread-safe; a second call for the same scheme changes nothing.
void add_store(const std::string& scheme, OpenStore open);

}  // namespace hierlock::spi
