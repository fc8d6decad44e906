#include "plan/sha256.h"

#include <gtest/gtest.h>

namespace hierlock::plan {
namespace {

// The examples of FIPS 180-4 and its test vectors.
TEST(Sha256, gives_the_published_digests) {
  EXPECT_EQ(hex(sha256(""), 64), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc"), 64), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"), 64),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(std::string(1'000'000, 'a')), 64),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, gives_as_many_digits_as_are_asked_for) {
  EXPECT_EQ(hex(sha256("abc"), 7), "ba7816b");
  EXPECT_EQ(hex(sha256("abc"), 0), "");
}

}  // namespace
}  // namespace hierlock::plan
