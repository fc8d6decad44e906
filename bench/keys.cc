#include "keys.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace bench {

namespace {

constexpr std::uint32_t held_tree_first_user = 1'000'000;
constexpr std::uint32_t held_alone_first_user = 2'000'000;

// std::shuffle draws differently from library to library; this does not.
void shuffle(std::vector<std::uint32_t>& values) {
  std::mt19937_64 random(20240229);
  for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random() % i]);
}

std::vector<std::uint32_t> drawn(std::uint32_t from, std::size_t count) {
  std::vector<std::uint32_t> values(from);
  std::iota(values.begin(), values.end(), 0u);
  shuffle(values);
  values.resize(count);
  return values;
}

template <class Keep>
std::vector<Path> kept(const std::vector<Path>& keys, Keep keep) {
  std::vector<Path> result;
  std::copy_if(keys.begin(), keys.end(), std::back_inserter(result), keep);
  return result;
}

}  // namespace

Path::Path(std::uint32_t u, std::uint32_t a, std::uint32_t r) : user(u), account(a), resource(r) {
  nodes[0] = "u" + std::to_string(u);
  nodes[1] = nodes[0] + "/a" + std::to_string(a);
  nodes[2] = nodes[1] + "/r" + std::to_string(r);
}

std::vector<Path> spread_keys() {
  std::vector<Path> keys;
  for (const std::uint32_t i : drawn(users * accounts * resources, key_count)) {
    keys.emplace_back(i / (accounts * resources), i / resources % accounts, i % resources);
  }
  return keys;
}

std::vector<Path> long_keys() {
  const auto uuid = [](char kind, std::uint32_t number) {
    const std::string digits = std::to_string(number);
    return std::string(8, kind) + "-89ab-4cde-8f01-" + std::string(12 - digits.size(), '0') + digits;
  };
  std::vector<Path> keys = spread_keys();
  for (Path& path : keys) {
    path.nodes[0] = uuid('a', path.user);
    path.nodes[1] = path.nodes[0] + "/" + uuid('b', path.account);
    path.nodes[2] = path.nodes[1] + "/" + uuid('c', path.resource);
  }
  return keys;
}

std::vector<Path> hot_keys() {
  std::vector<Path> keys;
  for (const std::uint32_t i : drawn(key_count, key_count)) keys.emplace_back(0, i % accounts, i / accounts);
  return keys;
}

std::vector<Path> keys_by_user(const std::vector<Path>& keys, std::size_t thread) {
  return kept(keys, [=](const Path& path) { return path.user % 2 == thread; });
}

std::vector<Path> keys_by_resource(const std::vector<Path>& keys, std::size_t thread) {
  return kept(keys, [=](const Path& path) { return path.resource % 2 == thread; });
}

Path held_tree_key(std::size_t i) {
  const auto n = static_cast<std::uint32_t>(i);
  return {held_tree_first_user + n / (accounts * resources), n / resources % accounts, n % resources};
}

Path held_alone_key(std::size_t i) { return {held_alone_first_user + static_cast<std::uint32_t>(i), 0, 0}; }

}  // namespace bench
