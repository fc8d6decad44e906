// Version: what --version prints, and which stores there are.
#pragma once

#include <string>
#include <vector>

namespace hierlock::cli {

// The version, and on further lines which stores and whether the lab are built in. A program that a part needs and that
// is not installed is named.
std::string version_text();

// How the URLs of all stores begin that hierlock may have: `shm:`, `mysql://`.
std::vector<std::string> store_beginnings();

}  // namespace hierlock::cli
