// The names that GET_LOCK gets, and what its answers mean.
#include "mysql/names.h"

#include <gtest/gtest.h>

#include <set>

#include <hierlock/hierlock.h>

namespace hierlock::mysql {
namespace {

using remote::LockName;
using remote::NameOp;
using Kind = remote::NameResult::Kind;

const NameRoom shop{"shop", "hier_lock_buckets"};

LockName name_of(const Target& target) { return {target.space(), std::string(target.key(0)), target.slot_count()}; }

TEST(LockTexts, are_those_of_the_document) {  // docs/format.md
  EXPECT_EQ(LockTexts(shop, name_of(named("token-refresh"))).lock(),
            "'hlbf2cddef1ca72c686c9eb36cb9e07000c08f0eb98494bf9958c106cb526a6'");
  const LockTexts import(shop, name_of(slots("import", 3)));
  EXPECT_EQ(import.slot(1), "'hls6f370e2864233e710a42288a23371a11aefe281200001'");
  EXPECT_EQ(import.marker(1, 3), "'hln6f370e2864233e710a42288a23371a11aefe28120000100003'");
}

TEST(LockTexts, differ_where_names_differ_and_fit) {  // N4, N6
  std::set<std::string> all;
  std::size_t count = 0;
  const auto add = [&](const std::string& text) {
    all.insert(text);
    ++count;
    EXPECT_LE(text.size(), 64u + 2) << "with its quotes";
  };
  const std::string long_name(max_name_bytes, 'x');
  for (const NameRoom& room : {shop, NameRoom{"shop", "other"}, NameRoom{"sho", "phier_lock_buckets"}}) {
    for (const Target& target : {named("n"), named("N"), named(long_name), named(long_name.substr(1)), slots("n", 2)}) {
      const LockTexts texts(room, name_of(target));
      add(texts.turnstile());
      add(texts.lock());
      for (const std::uint32_t i : {1u, 2u, max_slots}) {
        add(texts.slot(i));
        add(texts.marker(i, 2));
        add(texts.marker(i, max_slots));
      }
    }
  }
  EXPECT_EQ(all.size(), count);
}

TEST(NameAnswers, are_told_apart) {  // N1
  const LockName name = name_of(named("n")), three = name_of(slots("s", 3));
  const auto kind = [](NameOp::Kind op, const LockName& of, std::uint64_t answer) {
    return read_result({op, of, 1}, answer, 7).kind;
  };
  EXPECT_EQ(kind(NameOp::Kind::take, name, 3), Kind::granted);
  EXPECT_EQ(kind(NameOp::Kind::take, name, 2), Kind::taken);
  EXPECT_EQ(kind(NameOp::Kind::take, name, 0), Kind::queued);
  EXPECT_EQ(kind(NameOp::Kind::take, name, 9), Kind::unknown) << "NULL, as MariaDB says of a killed statement";
  EXPECT_EQ(kind(NameOp::Kind::give, name, 1), Kind::given);
  EXPECT_EQ(kind(NameOp::Kind::give, name, 0), Kind::not_held) << "of another session";
  EXPECT_EQ(kind(NameOp::Kind::give, name, 9), Kind::not_held) << "there is no such lock";
  EXPECT_EQ(kind(NameOp::Kind::undo, name, 1), Kind::given);
  EXPECT_EQ(kind(NameOp::Kind::undo, name, 0), Kind::unknown);
  EXPECT_EQ(kind(NameOp::Kind::take, three, 0), Kind::queued);
  EXPECT_EQ(kind(NameOp::Kind::take, three, 11'500'000), Kind::taken);
  EXPECT_EQ(kind(NameOp::Kind::take, three, 9), Kind::unknown);
  const remote::NameResult granted = read_result({NameOp::Kind::take, three}, 10'000'002, 7);
  EXPECT_EQ(granted.kind, Kind::granted);
  EXPECT_EQ(granted.slot, 2u);
  EXPECT_EQ(granted.minted, 7u);
  const remote::NameResult other = read_result({NameOp::Kind::take, three}, 12'000'004, 7);
  EXPECT_EQ(other.kind, Kind::disagrees);
  EXPECT_EQ(other.slot, 4u);
}

}  // namespace
}  // namespace hierlock::mysql
