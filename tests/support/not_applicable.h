// A case that says nothing about a store, because the store does not promise what the case is about, or about a server,
// because the server is not set up for it. It is skipped, counts neither as passed nor as failed, and ./test has a
// column for it: tools/lib.sh knows it by the words below. What lacks rights is in rights.h. What could not be run here
// for another reason (no server) is a plain GTEST_SKIP, and with CI=true a failure.
//
//     HIERLOCK_NOT_APPLICABLE() << "mysql promises no order";
#pragma once

#include <gtest/gtest.h>

#define HIERLOCK_NOT_APPLICABLE() GTEST_SKIP() << "not applicable: "
