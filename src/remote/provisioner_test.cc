// Provisioning without a server: which rows are asked for, in which chunks, and what is told.
#include "remote/provisioner.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace hierlock::remote {
namespace {

using namespace std::chrono_literals;
using Progress = ProvisionOptions::Progress;

// A table in memory, and what was asked of it.
struct Table {
  std::set<std::pair<unsigned, std::uint32_t>> rows;
  struct Chunk {
    int maker;
    unsigned level;
    std::uint32_t first, rows;
    bool nothing_there;
    friend bool operator==(const Chunk&, const Chunk&) = default;
  };
  std::vector<Chunk> chunks;
  int counted = 0;
  std::uint64_t bytes = 0;
};

class Maker final : public RowMaker {
 public:
  Maker(Table& table, int number) : table_(table), number_(number) {}
  std::uint64_t count(const RowRange& range) override {
    ++table_.counted;
    std::uint64_t there = 0;
    for (std::uint32_t i = range.first; i <= range.last(); ++i) there += table_.rows.count({range.level, i});
    return there;
  }
  void begin(const RowRange& range, bool nothing_there) override {
    range_ = range;
    table_.chunks.push_back({number_, range.level, range.first, range.rows, nothing_there});
  }
  std::uint64_t end() override {
    std::uint64_t made = 0;
    for (std::uint32_t i = range_.first; i <= range_.last(); ++i) {
      made += table_.rows.insert({range_.level, i}).second ? 1 : 0;
    }
    return made;
  }
  std::uint64_t bytes() override { return table_.bytes; }

 private:
  Table& table_;
  const int number_;
  RowRange range_;
};

class Provisioning : public testing::Test {
 protected:
  Progress run(std::uint32_t buckets, unsigned levels, ProvisionOptions options) {
    Progress last;
    if (!options.on_progress) {
      options.on_progress = [&](const Progress& progress) {
        last = progress;
        return true;
      };
    }
    Maker first(table_, 1);
    provision({buckets, levels, 20, 25}, options, first, [this]() -> std::unique_ptr<RowMaker> {
      if (no_second_) throw Error(ErrorKind::exhausted, "no more connections");
      return std::make_unique<Maker>(table_, 2);
    });
    return last;
  }

  Table table_;
  bool no_second_ = false;
};

TEST_F(Provisioning, makes_every_row_once_in_chunks) {
  const Progress last = run(25, 2, {.chunk = 10});
  EXPECT_EQ(table_.rows.size(), 50u);
  const std::vector<Table::Chunk> expected{{1, 0, 0, 10, true}, {1, 0, 10, 10, true}, {1, 0, 20, 5, true},
                                           {1, 1, 0, 10, true}, {1, 1, 10, 10, true}, {1, 1, 20, 5, true}};
  EXPECT_EQ(table_.chunks, expected);
  EXPECT_EQ(last.rows, 50u);
  EXPECT_EQ(last.of, 50u);
  EXPECT_EQ(last.made, 50u);
  EXPECT_EQ(last.bytes, 50u * 25) << "estimated: too few rows to measure";
}

TEST_F(Provisioning, goes_on_where_another_run_ended) {
  for (std::uint32_t i = 0; i < 25; ++i) table_.rows.insert({0, i});
  table_.rows.insert({1, 3});
  const Progress last = run(25, 2, {.chunk = 10});
  EXPECT_EQ(table_.rows.size(), 50u);
  ASSERT_EQ(table_.chunks.size(), 3u) << "level 0 is there";
  for (const Table::Chunk& chunk : table_.chunks) EXPECT_FALSE(chunk.nothing_there);
  EXPECT_EQ(last.made, 24u);
  EXPECT_EQ(last.rows, 50u);
}

TEST_F(Provisioning, asks_nothing_twice_when_all_is_there) {
  run(25, 2, {.chunk = 10});
  table_.chunks.clear();
  table_.counted = 0;
  const Progress last = run(25, 2, {.chunk = 10});
  EXPECT_TRUE(table_.chunks.empty());
  EXPECT_EQ(table_.counted, 2) << "once a level";
  EXPECT_EQ(last.made, 0u);
  EXPECT_EQ(last.rows, 50u);
}

TEST_F(Provisioning, two_sessions_make_the_halves_of_a_large_level) {
  run(200'000, 1, {.chunk = 50'000});
  const std::vector<Table::Chunk> expected{{1, 0, 0, 50'000, true},
                                           {2, 0, 100'000, 50'000, true},
                                           {1, 0, 50'000, 50'000, true},
                                           {2, 0, 150'000, 50'000, true}};
  EXPECT_EQ(table_.chunks, expected);
  EXPECT_EQ(table_.rows.size(), 200'000u);
}

TEST_F(Provisioning, one_session_will_do_where_no_second_can_be_had) {
  no_second_ = true;
  run(200'000, 1, {.chunk = 50'000});
  EXPECT_EQ(table_.rows.size(), 200'000u);
  EXPECT_EQ(table_.chunks.size(), 4u);
}

TEST_F(Provisioning, the_size_is_measured_once_there_is_enough) {
  table_.bytes = 200'000 * 30;
  EXPECT_EQ(run(200'000, 1, {.chunk = 50'000}).bytes, 200'000u * 30);
  table_.bytes = 200'000 * 10;  // less than the rows themselves: the server's number lags behind
  EXPECT_EQ(run(200'000, 1, {.chunk = 50'000}).bytes, 200'000u * 25);
}

TEST_F(Provisioning, ends_after_a_chunk_when_it_is_told_to) {
  int told = 0;
  ProvisionOptions options{.chunk = 10};
  options.on_progress = [&](const Progress&) { return ++told < 3; };
  run(100, 1, options);
  EXPECT_EQ(table_.chunks.size(), 2u);
  run(100, 1, {.chunk = 10});
  EXPECT_EQ(table_.rows.size(), 100u) << "the next run goes on";
}

TEST_F(Provisioning, a_throttled_run_takes_its_time_in_small_chunks) {
  const auto begin = std::chrono::steady_clock::now();
  run(60, 1, {.chunk = 50, .throttle = 1'000});
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 60ms);
  EXPECT_EQ(chunk_rows({.chunk = 50, .throttle = 20}), 10u);
  EXPECT_EQ(chunk_rows({.chunk = 50, .throttle = 1}), 1u);
  EXPECT_EQ(chunk_rows({.chunk = 50}), 50u);
  EXPECT_THROW(chunk_rows({.chunk = 0}), Error);
  EXPECT_THROW(chunk_rows({.chunk = 1'000'001}), Error);
}

TEST_F(Provisioning, the_url_and_the_caller_must_agree) {
  std::optional<unsigned> in_url;
  agree(in_url, std::optional<unsigned>(), 8, "levels");
  EXPECT_FALSE(in_url.has_value());
  agree(in_url, std::optional<unsigned>(3), 8, "levels");
  EXPECT_EQ(in_url, 3u);
  agree(in_url, std::optional<unsigned>(3), 8, "levels");
  EXPECT_THROW(agree(in_url, std::optional<unsigned>(4), 8, "levels"), Error);
  EXPECT_THROW(agree(in_url, std::optional<unsigned>(9), 8, "levels"), Error);
  EXPECT_THROW(agree(in_url, std::optional<unsigned>(0), 8, "levels"), Error);
}

}  // namespace
}  // namespace hierlock::remote
