// A program that has the component rows, and an adapter of its own for a database that refuses everything.
#include <hierlock/retry.h>
#include <hierlock/rows.h>

#include <iostream>

namespace rows = hierlock::rows;

class Refusing final : public rows::Adapter {
 public:
  rows::Engine engine() const override { return rows::Engine::postgres; }
  rows::Placeholder placeholder() const override { return rows::Placeholder::dollar; }
  rows::Reply run(const std::string& sql, std::span<const rows::Value>, std::size_t) override {
    std::cout << sql << '\n';
    rows::Reply reply;
    reply.state = "40P01";
    reply.message = "deadlock detected";
    return reply;
  }
};

int main() {
  Refusing adapter;
  rows::Session session(adapter);
  const rows::Table stock("stock", {.key = {"item"}, .columns = {"quantity"}, .version = "version"});
  try {
    hierlock::retry({.tries = 2}, [&] { session.fetch_for_update(stock, {"tea"}); });
    return 1;
  } catch (const hierlock::Error& error) {
    std::cout << error.what() << '\n';
    return error.kind() == hierlock::ErrorKind::deadlock ? 0 : 1;
  }
}
