// NoticeSql: the table in which processes that lock in one database keep their notices (remote/notice.h). Text only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mysql_client/connection.h"
#include "remote/notice.h"

namespace hierlock::mysql {

using remote::Node;
using remote::Notice;

// Rows are named by Notice::id().
std::string make_who_table(std::string_view table);
std::string publish(std::string_view table, std::span<const Notice> notices);
std::string forget(std::string_view table, std::span<const std::uint64_t> ids);
std::string still_alive(std::string_view table, std::span<const std::uint64_t> ids);
std::string find_old(std::string_view table);  // those whose process has not said for long that it lives
std::string read_all(std::string_view table);
// The answer to read_all(). Rows that cannot be read are left out.
std::vector<Notice> read_notices(const Reply& reply);

}  // namespace hierlock::mysql
