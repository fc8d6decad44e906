// Buying: one order, under each way of exclusion control.
#pragma once

#include <array>
#include <atomic>
#include <optional>
#include <string>
#include <string_view>

#include <hierlock/hierlock.h>
#include <hierlock/retry.h>
#include <hierlock/rows.h>

namespace shop {

enum class Method { none, guarded, optimistic, pessimistic, named, hierarchical };

inline constexpr std::array<std::string_view, 6> method_names = {"none",        "guarded", "optimistic",
                                                                 "pessimistic", "named",   "hierarchical"};
std::optional<Method> method_called(std::string_view name);

struct Tables {
  hierlock::rows::Table stock, orders;
};

struct Order {
  long long id;
  std::string item;
  int pieces;
};

// What happened so far; shared by all buyers.
struct Counters {
  std::atomic<long long> done = 0, accepted = 0, sold_out = 0, conflicts = 0, retries = 0;
};

// One buyer: a session of its own, and the Locker that all buyers share.
class Buyer {
 public:
  Buyer(Method method, hierlock::rows::Session& session, const Tables& tables, hierlock::Locker& locker,
        Counters& counters)
      : method_(method), session_(session), tables_(tables), locker_(locker), counters_(counters) {}

  // True: the order is in the books. False: sold out. Tries again what may be tried again.
  bool buy(const Order& order);

 private:
  bool attempt(const Order& order);
  bool without_control(const Order& order);
  bool guarded(const Order& order);
  bool optimistic(const Order& order);
  bool pessimistic(const Order& order);
  void write_down(const Order& order);

  const Method method_;
  hierlock::rows::Session& session_;
  const Tables& tables_;
  hierlock::Locker& locker_;
  Counters& counters_;
};

}  // namespace shop
