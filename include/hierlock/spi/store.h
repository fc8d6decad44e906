// Registers a store that is not part of the core with hierlock::open(). A component calls add_store() in its enable().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <hierlock/operate.h>
#include <hierlock/options.h>
#include <hierlock/spi/backend.h>
#include <hierlock/spi/url.h>

namespace hierlock::spi {

struct Store {
  std::unique_ptr<Backend> (*open)(const Url& url, const OpenOptions& options) = nullptr;
  // The calls of operate.h; null if the store does not have the call.
  void (*provision)(const Url& url, const ProvisionOptions& options) = nullptr;
  std::vector<Finding> (*doctor)(const Url& url) = nullptr;
  std::string (*statements)(const Url& url, const Plan& plan) = nullptr;
};

// Thread-safe. A second call for the same scheme changes nothing.
void add_store(const std::string& scheme, const Store& store);
bool has_store(const std::string& scheme);

}  // namespace hierlock::spi
