// Lock rows: sends the locking statement of statements.h and reads its answer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mysql/statements.h"
#include "mysql_client/connection.h"

namespace hierlock::mysql {

struct LockReply {
  unsigned code = 0;  // of error_codes.h; 0: no error
  std::string message;
  bool all = false;           // every row exists, and is locked
  std::vector<bool> there;    // if not, which of them exist; empty: the statement does not tell
  std::uint64_t minted = 0;   // UUID_SHORT(), read when all rows were locked
  std::uint64_t session = 0;  // CONNECTION_ID(), as the server says it now

  bool well() const { return code == 0; }
};

// Locks the rows in one round trip. The first lock of each shape on a connection takes one more, to prepare the
// statement. So does a shape that 64 others have pushed out since. `table` is always the same for one connection.
LockReply lock_all(Connection& connection, const BucketTable& table, std::span<const plan::Row> rows, bool no_wait,
                   Form form, WaitLimit& limit);

}  // namespace hierlock::mysql
