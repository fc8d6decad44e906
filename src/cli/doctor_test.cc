#include "cli/doctor.h"

#include <gtest/gtest.h>

namespace hierlock::cli {
namespace {

using Verdict = Finding::Verdict;

const std::vector<Finding> findings{{"isolation", Verdict::good, "READ-COMMITTED", ""},
                                    {"rows", Verdict::unknown, "cannot be counted", "see lock_rows"},
                                    {"galera", Verdict::unsafe, "a \"cluster\"\x1b[2J", "use another"},
                                    {"connections", Verdict::slow, "few", "raise max_connections"}};

TEST(Doctor, tells_the_worst_first_and_counts) {
  EXPECT_EQ(doctor_of("mysql://app@db/shop", findings, false),
            "mysql://app@db/shop\n"
            "\n"
            "unsafe    galera: a \"cluster\"\\x1B[2J\n"
            "          fix: use another\n"
            "slow      connections: few\n"
            "          fix: raise max_connections\n"
            "unknown   rows: cannot be counted\n"
            "          fix: see lock_rows\n"
            "good      isolation: READ-COMMITTED\n"
            "\n"
            "1 unsafe, 1 slow, 1 unknown, 1 good\n");
}

TEST(Doctor, keeps_the_order_of_the_checks_in_json) {
  const std::string json = doctor_of("mysql://app@db/shop", findings, true);
  EXPECT_TRUE(
      json.starts_with("{\n  \"version\": 1,\n  \"store\": \"mysql://app@db/shop\",\n  \"safe\": false,\n"
                       "  \"findings\": [\n    {\n      \"check\": \"isolation\",\n"))
      << json;
  EXPECT_EQ(json.find('\x1b'), std::string::npos);
  EXPECT_NE(doctor_of("x", {}, true).find("\"safe\": true"), std::string::npos);
}

}  // namespace
}  // namespace hierlock::cli
