// Users and their rows, for tests that lock several in one order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hierlock::mysql_tests {

struct UserRow {
  std::string path;
  std::uint32_t bucket;
};

// The row of a user, as docs/format.md has it.
inline std::uint32_t bucket_of(const std::string& user, std::uint32_t buckets) {
  std::uint32_t hash = 2166136261u;
  const std::string key = std::string(3, '\0') + static_cast<char>(user.size()) + user;
  for (const char byte : key) hash = (hash ^ static_cast<unsigned char>(byte)) * 16777619u;
  return hash % buckets;
}

// Users whose order is the same in the queue of a process, by name, and at the server, by row.
inline std::vector<UserRow> users_in_one_order(std::size_t wanted, std::uint32_t buckets) {
  std::vector<UserRow> users;
  for (int i = 100; users.size() < wanted; ++i) {
    const std::string path = "u" + std::to_string(i);
    const std::uint32_t bucket = bucket_of(path, buckets);
    if (std::uint64_t{bucket} * wanted / buckets == users.size()) users.push_back({path, bucket});
  }
  return users;
}

}  // namespace hierlock::mysql_tests
