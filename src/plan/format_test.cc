// docs/format.md is the format: its vectors are read from there (H3).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <hierlock/target.h>

#include "plan/buckets.h"

namespace hierlock::plan {
namespace {

// The cells of every table row in the section `title`, without their backquotes; the head of the table is left out.
std::vector<std::vector<std::string>> table_in_section(const std::string& title) {
  const std::filesystem::path page = HIERLOCK_DOCS "/format.md";
  std::ifstream file(page);
  EXPECT_TRUE(file) << "cannot read " << page;
  std::vector<std::vector<std::string>> rows;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) inside = line == "## " + title;
    if (!inside || !line.starts_with("| `")) continue;
    std::vector<std::string> cells;
    std::istringstream row(line.substr(1));
    for (std::string cell; std::getline(row, cell, '|');) {
      cell = cell.substr(1, cell.size() - 2);
      if (cell.starts_with('`')) cell = cell.substr(1, cell.size() - 2);
      cells.push_back(cell);
    }
    rows.push_back(cells);
  }
  return rows;
}

std::string hex(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) {
    out += "0123456789abcdef"[static_cast<unsigned char>(byte) >> 4];
    out += "0123456789abcdef"[static_cast<unsigned char>(byte) & 15];
  }
  return out;
}

std::string hex(std::uint64_t value, int digits) {
  std::string out = "0x";
  for (int i = digits - 1; i >= 0; --i) out += "0123456789abcdef"[value >> (4 * i) & 15];
  return out;
}

TEST(Format, fnv1a_is_the_published_function) {  // H3
  // From the authors' own test vectors.
  EXPECT_EQ(fnv1a(""), 0x811c9dc5u);
  EXPECT_EQ(fnv1a("a"), 0xe40c292cu);
  EXPECT_EQ(fnv1a("foobar"), 0xbf9cf968u);
}

TEST(Format, keys_and_buckets_are_those_of_the_document) {  // H3
  const auto rows = table_in_section("Buckets");
  ASSERT_EQ(rows.size(), 12u);
  for (const auto& row : rows) {
    ASSERT_EQ(row.size(), 5u);
    const Target target = Target::parse(row[0]);
    const std::size_t level = target.depth() - 1;
    EXPECT_EQ(std::to_string(level), row[1]) << row[0];
    EXPECT_EQ(hex(target.key(level)), row[2]) << row[0];
    EXPECT_EQ(hex(fnv1a(target.key(level)), 8), row[3]) << row[0];
    EXPECT_EQ(std::to_string(bucket_of(target.key(level), default_buckets)), row[4]) << row[0];
  }
}

TEST(Format, hashes_are_those_of_the_document) {
  const auto rows = table_in_section("Node hash");
  ASSERT_EQ(rows.size(), 16u);
  for (const auto& row : rows) {
    ASSERT_EQ(row.size(), 2u);
    const Target target = Target::parse(row[0]);
    EXPECT_EQ(hex(target.hash(target.depth() - 1), 16), row[1]) << row[0];
  }
  EXPECT_EQ(named(std::string(300, 'x')).hash(0), 0x159589d5eda5d584u) << "longer than one byte can tell";
  EXPECT_EQ(named(std::string(44, 'x')).hash(0), 0x2814778e1dd149a9u);
}

}  // namespace
}  // namespace hierlock::plan
