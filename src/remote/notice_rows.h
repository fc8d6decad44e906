// NoticeRows: notices as rows of a SQL table. No I/O.
//
// Notice::id() is the key of a row. Each row has a stamp, a random number that changes with each write. So the number
// of rows and the exclusive or of their stamps show whether anything has changed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "remote/notice.h"

namespace hierlock::remote {

using SqlRow = std::vector<std::optional<std::string>>;
using SqlRows = std::vector<SqlRow>;

// All nodes of a notice in one text, for a column.
std::string write_nodes(const Notice& notice);
// The Locker that a notice is from, as a number: the same in every program.
std::uint64_t locker_of(const Notice& notice);
std::uint64_t new_stamp();

// Sums up rows.
struct Signature {
  std::uint64_t rows = 0, stamps = 0;  // how many, and all stamps together, by exclusive or
  friend bool operator==(const Signature&, const Signature&) = default;
};
Signature signature_in(const SqlRows& rows);                            // of rows, stamps
std::map<std::uint64_t, Signature> signatures_in(const SqlRows& rows);  // of locker, rows, stamps

// The columns of a notice, in this order. `age` and `since` are in microseconds.
inline constexpr const char* notice_columns[] = {"session", "owner",   "owner_name", "host", "program",
                                                 "note",    "process", "fence",      "age",  "waits",
                                                 "nodes",   "locker",  "stamp",      "since"};
// Rows that cannot be read are left out of the notices, but not of the signatures.
std::vector<Notice> read_notices(const SqlRows& rows);
struct OfLocker {
  Signature signature;
  std::vector<Notice> notices;
};
std::map<std::uint64_t, OfLocker> read_by_locker(const SqlRows& rows);

}  // namespace hierlock::remote
