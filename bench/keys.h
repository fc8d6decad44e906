// Keys: which nodes the cases lock. The same for hierlock and for every peer, made from a fixed seed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace bench {

inline constexpr std::size_t key_count = 4096;
inline constexpr std::size_t held_count = 1'000'000;

inline constexpr std::uint32_t users = 1000;
inline constexpr std::uint32_t accounts = 10;
inline constexpr std::uint32_t resources = 100;

// A resource as its three nodes, each by its full path: "u7", "u7/a3", "u7/a3/r42".
struct Path {
  Path(std::uint32_t user, std::uint32_t account, std::uint32_t resource);

  std::uint32_t user, account, resource;
  std::array<std::string, 3> nodes;
};

// 4,096 different resources, drawn from users x accounts x resources.
std::vector<Path> spread_keys();
// The same with segments of 36 bytes, as UUIDs are.
std::vector<Path> long_keys();
// 4,096 different resources of one user, in ten accounts.
std::vector<Path> hot_keys();

// The keys of one of two threads. They never meet on a user (spread) or on a resource (hot).
std::vector<Path> keys_by_user(const std::vector<Path>& keys, std::size_t thread);
std::vector<Path> keys_by_resource(const std::vector<Path>& keys, std::size_t thread);

// The locks held elsewhere: users x accounts x resources under users of their own, or each under a user and an account
// of its own.
Path held_tree_key(std::size_t i);
Path held_alone_key(std::size_t i);

}  // namespace bench
