#include "places.h"

namespace storm {

namespace {

std::vector<Place> make() {
  constexpr int users = 3, accounts_of_each = 2, resources_of_each = 3;
  std::vector<Place> all;
  const auto add = [&](const hierlock::Target& target, int parent, std::uint32_t slots = 0) {
    const int me = static_cast<int>(all.size());
    all.push_back({.target = target, .text = target.str(), .parent = parent, .slots = slots});
    for (int at = parent; at >= 0; at = all[static_cast<std::size_t>(at)].parent) {
      all.back().above.push_back(at);
      all[static_cast<std::size_t>(at)].below.push_back(me);
    }
    return me;
  };
  for (int u = 0; u < users; ++u) {
    const std::string user = "u" + std::to_string(u);
    const int user_place = add(user, -1);
    for (int a = 0; a < accounts_of_each; ++a) {
      const std::string account = user + "/a" + std::to_string(a);
      const int account_place = add(account, user_place);
      for (int r = 0; r < resources_of_each; ++r) {
        // One of them is too long for the node itself.
        add(account + (r == 2 ? "/a resource with a name of some length" : "/r" + std::to_string(r)), account_place);
      }
    }
  }
  const auto add_breakable = [&](const hierlock::Target& target, int parent, std::uint32_t slots = 0) {
    all[static_cast<std::size_t>(add(target, parent, slots))].breakable = true;
  };
  const auto place_of = [&](const std::string& text) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].text == text) return static_cast<int>(i);
    }
    return -1;
  };
  add_breakable("u0/a0/k0", place_of("u0/a0"));
  add_breakable("u0/a0/k1", place_of("u0/a0"));
  add_breakable("u1/a1/k2", place_of("u1/a1"));
  add_breakable(hierlock::named("k3"), -1);
  add_breakable(hierlock::slots("k4", 2), -1, 2);
  add(hierlock::named("n0"), -1);
  add(hierlock::named("n1"), -1);
  add(hierlock::named("a name that is also longer than most"), -1);
  for (const std::uint32_t slots : {1u, 2u, 3u}) add(hierlock::slots("s" + std::to_string(slots), slots), -1, slots);
  return all;
}

}  // namespace

const std::vector<Place>& places() {
  static const std::vector<Place> all = make();
  return all;
}

std::vector<int> accounts() {
  std::vector<int> found;
  for (std::size_t i = 0; i < places().size(); ++i) {
    if (places()[i].above.size() == 1) found.push_back(static_cast<int>(i));
  }
  return found;
}

int hot_place() {
  for (std::size_t i = 0; i < places().size(); ++i) {
    if (places()[i].above.size() == 2 && !places()[i].breakable) return static_cast<int>(i);
  }
  return -1;
}

std::vector<int> breakable_places() {
  std::vector<int> found;
  for (std::size_t i = 0; i < places().size(); ++i) {
    if (places()[i].breakable) found.push_back(static_cast<int>(i));
  }
  return found;
}

}  // namespace storm
