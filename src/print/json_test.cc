#include "print/json.h"

#include <gtest/gtest.h>

#include <limits>

namespace hierlock::print {
namespace {

TEST(PrintJson, escapes_what_json_must) {
  Json json;
  json.open_object().text("a\"\\\n", "x\x7F").open_array("empty").close().null("n").close();
  EXPECT_EQ(json.str(), "{\n  \"a\\\"\\\\\\u000a\": \"x\\u007f\",\n  \"empty\": [],\n  \"n\": null\n}\n");
}

TEST(PrintJson, numbers_have_six_digits_and_what_is_no_number_is_null) {
  Json json;
  json.open_array().number("", 0.1 + 0.2).number("", 9.99995e-06).number("", 1234567.0);
  json.number("", std::numeric_limits<double>::infinity()).number("", std::uint64_t{18446744073709551615u}).close();
  EXPECT_EQ(json.str(), "[\n  0.3,\n  9.99995e-06,\n  1.23457e+06,\n  null,\n  18446744073709551615\n]\n");
}

}  // namespace
}  // namespace hierlock::print
