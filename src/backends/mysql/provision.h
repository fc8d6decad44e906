// Provisioning: the tables, and every row of every level beforehand (H11).
#pragma once

#include <hierlock/operate.h>
#include <hierlock/spi/url.h>

namespace hierlock::mysql {

void provision(const spi::Url& url, const ProvisionOptions& options);

}  // namespace hierlock::mysql
