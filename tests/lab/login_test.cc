// Whoever answers in place of a server does not get the password of a URL.
#include <gtest/gtest.h>

#include <hierlock/lab.h>

#include "impostor.h"

namespace hierlock::lab_tests {
namespace {

TEST(Login, by_a_way_that_shows_the_password_is_refused) {
  const lab::Scenario scenario = lab::parse("scenario x\nT1 a: select 1 => ok\n");
  for (const char* proof : {"mysql_clear_password", "dialog"}) {
    for (const char* how : {"tls=on", "tls=off"}) {
      const mysql_tests::Impostor impostor(proof);
      const lab::Result result = lab::run(scenario, impostor.url("app", "hunter2", how));
      EXPECT_NE(result.verdict, lab::Result::Verdict::passed) << proof;
      EXPECT_EQ(impostor.heard().find("hunter2"), std::string::npos) << proof << ", " << how;
    }
  }
}

}  // namespace
}  // namespace hierlock::lab_tests
