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
  void add(std::uint64_t stamp) noexcept {
    ++rows;
    stamps ^= stamp;
  }
  friend bool operator==(const Signature&, const Signature&) = default;
};
Signature signature_in(const SqlRows& rows);                            // of rows, stamps
std::map<std::uint64_t, Signature> signatures_in(const SqlRows& rows);  // of locker, rows, stamps
std::map<std::uint64_t, std::uint64_t> stamps_in(const SqlRows& rows);  // of id, stamp

// The columns of a notice, in this order. `age` and `since` are in microseconds.
inline constexpr const char* notice_columns[] = {"session", "owner",   "owner_name", "host", "program",
                                                 "note",    "process", "fence",      "age",  "waits",
                                                 "nodes",   "locker",  "stamp",      "since"};
// Rows that cannot be read are left out.
std::vector<Notice> read_notices(const SqlRows& rows);
// The same with what signatures are made of. Rows that cannot be read count there: otherwise they would be read for
// ever.
struct NoticeRow {
  std::uint64_t id = 0, locker = 0, stamp = 0;
  std::optional<Notice> notice;
};
std::vector<NoticeRow> read_rows(const SqlRows& rows);

}  // namespace hierlock::remote
