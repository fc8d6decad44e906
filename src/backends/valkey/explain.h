// Explain: what a plan becomes, for `hierlock explain`.
#pragma once

#include <string>

#include <hierlock/spi/plan.h>
#include <hierlock/spi/url.h>

namespace hierlock::valkey {

std::string statements(const spi::Url& url, const spi::Plan& plan);

}  // namespace hierlock::valkey
