// The kind of an engine's error (X9).
#pragma once

#include <hierlock/rows.h>

namespace hierlock::rows {

// Of a Reply that failed. Where an engine has one number for several kinds, this is the one that it means when a
// statement waited as long as it may: the caller knows what was asked.
ErrorKind kind_of(Engine engine, const Reply& reply) noexcept;

bool is_sqlite_busy(const Reply& reply) noexcept;

}  // namespace hierlock::rows
