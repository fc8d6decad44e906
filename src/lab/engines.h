// Engines: how to open each of them, and what they share.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <hierlock/spi/url.h>

#include "lab/database.h"

namespace hierlock::lab {

// One per client library; which of them there are, src/CMakeLists.txt decides.
std::unique_ptr<Database> open_mysql(const spi::Url& url);
std::unique_ptr<Database> open_postgres(const std::string& url);
std::unique_ptr<Database> open_sqlite(const spi::Url& url);

// The lab's schema, and the table in it that tells it from somebody else's of the same name.
inline const std::string room = "hierlock_lab";
inline const std::string marker = "made_by_hierlock_lab";

// The words and numbers of a statement, in lower case, without what is in quotes or comments.
std::vector<std::string> words_of(std::string_view sql);
// It may change rows, and then tells how many: INSERT, UPDATE, DELETE, also behind a WITH.
bool changes_rows(const std::vector<std::string>& words);
// Puts an edge into the view; more edges of a session are one wait for several.
void add_wait(View& view, const std::string& session, const std::string& blocker, const std::string& object);

}  // namespace hierlock::lab
