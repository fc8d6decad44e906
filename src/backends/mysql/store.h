// The MySQL and MariaDB store: striped rows in one statement, behind a local queue.
#pragma once

#include <memory>

#include <hierlock/options.h>
#include <hierlock/spi/backend.h>
#include <hierlock/spi/url.h>

namespace hierlock::mysql {

std::unique_ptr<spi::Backend> open(const spi::Url& url, const OpenOptions& options);

}  // namespace hierlock::mysql
