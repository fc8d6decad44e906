// Store: the entry points of the MySQL and MariaDB store. It locks rows, striped over buckets, in one statement.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <hierlock/operate.h>
#include <hierlock/options.h>
#include <hierlock/spi/backend.h>
#include <hierlock/spi/plan.h>
#include <hierlock/spi/url.h>

namespace hierlock::mysql {

std::unique_ptr<spi::Backend> open(const spi::Url& url, const OpenOptions& options);

// Makes the tables, and every row of every level beforehand (H11).
void provision(const spi::Url& url, const ProvisionOptions& options);

// Finds what is unsafe or slow (H17). Throws only if the server cannot be asked at all.
std::vector<Finding> doctor(const spi::Url& url);

// The SQL that acquires and releases a plan, for people, with the buckets filled in. It also says which nodes share a
// row, and so wait for each other without need (H15). It uses the numbers that the database has recorded. If the
// database cannot be asked, it uses those of the URL or the defaults, and says so. Throws as an acquire would.
std::string statements(const spi::Url& url, const spi::Plan& plan);

}  // namespace hierlock::mysql
