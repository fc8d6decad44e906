#include "methods.h"

#include <algorithm>

namespace shop {

using namespace hierlock::rows;
using namespace std::chrono_literals;

std::optional<Method> method_called(std::string_view name) {
  const auto found = std::ranges::find(method_names, name);
  if (found == method_names.end()) return std::nullopt;
  return static_cast<Method>(found - method_names.begin());
}

bool Buyer::buy(const Order& order) {
  const hierlock::RetryPolicy policy{.tries = 10'000,
                                     .timeout = 300s,
                                     .initial_delay = 1ms,
                                     .max_delay = 50ms,
                                     .conflicts = true,  // each try reads the stock again
                                     .on_retry = [this](const hierlock::Retried& failed) {
                                       ++counters_.retries;
                                       const bool conflict = failed.error.kind() == hierlock::ErrorKind::conflict;
                                       counters_.conflicts += conflict ? 1 : 0;
                                     }};
  const bool accepted = hierlock::retry(policy, [&] { return attempt(order); });
  ++(accepted ? counters_.accepted : counters_.sold_out);
  ++counters_.done;
  return accepted;
}

bool Buyer::attempt(const Order& order) {
  switch (method_) {
    case Method::none:
      return without_control(order);
    case Method::guarded:
      return guarded(order);
    case Method::optimistic:
      return optimistic(order);
    case Method::pessimistic:
      return pessimistic(order);
    case Method::named: {
      // Lock, then BEGIN; COMMIT, then release (N7).
      const hierlock::Lock lock = locker_.acquire(hierlock::named("stock " + order.item));
      return without_control(order);
    }
    case Method::hierarchical: {
      // A stock-taking would lock "shop", and wait for all sales.
      const hierlock::Lock lock = locker_.acquire("shop/stock/" + order.item);
      return without_control(order);
    }
  }
  return false;
}

// What many programs do: read, decide, compute, write. Between the read and the write anything may happen.
bool Buyer::without_control(const Order& order) {
  const std::optional<Row> stock = session_.fetch(tables_.stock, {order.item});
  const int quantity = stock->get<int>("quantity");
  if (quantity < order.pieces) return false;
  Transaction transaction(session_);
  (void)session_.guarded_update(tables_.stock, {order.item}, {set("quantity", quantity - order.pieces)}, {});
  write_down(order);
  transaction.commit();
  return true;
}

// The check and the change are one statement (X3).
bool Buyer::guarded(const Order& order) {
  Transaction transaction(session_);
  const bool enough = session_.guarded_update(tables_.stock, {order.item}, {add("quantity", -order.pieces)},
                                              {at_least("quantity", order.pieces)});
  if (!enough) return false;
  write_down(order);
  transaction.commit();
  return true;
}

// Nothing is locked while the buyer looks at the stock. A change in between is a conflict (X4).
bool Buyer::optimistic(const Order& order) {
  std::optional<Row> stock = session_.fetch(tables_.stock, {order.item});
  const int quantity = stock->get<int>("quantity");
  if (quantity < order.pieces) return false;
  stock->set("quantity", quantity - order.pieces);
  Transaction transaction(session_);
  session_.update(*stock);
  write_down(order);
  transaction.commit();
  return true;
}

// The stock is locked before it is read (X7).
bool Buyer::pessimistic(const Order& order) {
  Transaction transaction(session_);
  std::optional<Row> stock = session_.fetch_for_update(tables_.stock, {order.item}, {.wait = Wait::at_most(60s)});
  const int quantity = stock->get<int>("quantity");
  if (quantity < order.pieces) return false;
  stock->set("quantity", quantity - order.pieces);
  session_.update(*stock);
  write_down(order);
  transaction.commit();
  return true;
}

void Buyer::write_down(const Order& order) { session_.insert(tables_.orders, {order.id}, {order.item, order.pieces}); }

}  // namespace shop
