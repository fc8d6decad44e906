// Explain: the statements that a plan becomes, as text for people.
#pragma once

#include <string>

#include <hierlock/spi/plan.h>
#include <hierlock/spi/url.h>

namespace hierlock::mysql {

// As SQL with comments: what acquires the plan, with the buckets in the places where they are bound, and what releases
// it; and which nodes share a row, and so wait for each other without need (H15). With the numbers that the database
// has recorded, if it can be asked; otherwise those of the URL or the defaults, and the text says so. Throws as an
// acquire would for what cannot be said in rows.
std::string statements(const spi::Url& url, const spi::Plan& plan);

}  // namespace hierlock::mysql
