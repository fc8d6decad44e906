// NoticeSql: the table in which processes that lock in one database keep their notices (remote/notice.h). Text only.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mysql_client/connection.h"
#include "remote/notice.h"

namespace hierlock::mysql {

using remote::Node;
using remote::Notice;

// Rows are named by Notice::id(). Each has a stamp, a random number that is new each time the row is written, so that
// count and sum of the stamps tell whether anything has changed.
std::string make_notices_table(std::string_view table);
std::string publish(std::string_view table, std::span<const Notice> notices);
std::string forget(std::string_view table, std::span<const std::uint64_t> ids);
std::string still_alive(std::string_view table, std::span<const std::uint64_t> ids);
std::string find_old(std::string_view table);  // rows of processes that have been silent for a minute

// Rows of processes that were alive within the last 10 s.
struct Signature {
  std::uint64_t rows = 0, stamps = 0;  // how many, and all stamps together, by exclusive or
  friend bool operator==(const Signature&, const Signature&) = default;
};
std::string read_signature(std::string_view table);   // of all rows
std::string read_signatures(std::string_view table);  // by Locker
std::string read_all(std::string_view table);
std::string read_of(std::string_view table, std::span<const std::uint64_t> lockers);

Signature signature_in(const Reply& reply);                            // to read_signature()
std::map<std::uint64_t, Signature> signatures_in(const Reply& reply);  // to read_signatures()
// To read_all() and read_of(). Rows that cannot be read are left out of the notices, but not of the signatures.
std::vector<Notice> read_notices(const Reply& reply);
struct OfLocker {
  Signature signature;
  std::vector<Notice> notices;
};
std::map<std::uint64_t, OfLocker> read_by_locker(const Reply& reply);

}  // namespace hierlock::mysql
