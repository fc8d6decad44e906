// Answers that are lost on their way: the server has acted, and the client asks again by the same id (B3, B4).
#include <future>

#include "node.h"
#include "on_valkey.h"
#include "witness.h"

namespace hierlock::valkey_tests {
namespace {

class LostAnswers : public OnValkey {
 protected:
  // Cuts all connections. The server is busy before, so that questions pile up: it works through them, and the cut
  // comes before it sends the answers.
  void cut() {
    auto busy = std::async(std::launch::async, [&] { worker_.ask({"EVAL", "for i = 1, 300000 do end", "0"}); });
    std::this_thread::sleep_for(1ms);
    operator_.ask({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
    busy.get();
  }
  // Requests that were given back while a question of theirs might still be on its way.
  int given_up(const std::string& root) {
    int count = 0;
    for (const std::string& field : lines_of(operator_.ask({"HKEYS", place_of(url(), root)}))) {
      count += field.starts_with("t") ? 1 : 0;
    }
    return count;
  }

 private:
  const std::string as_operator_ = server_variable(GetParam() + "_OPERATOR").value_or("");
  Node operator_{"operator", as_operator_}, worker_{"worker", as_operator_};
};

TEST_P(LostAnswers, grant_no_lock_twice_and_leave_none_behind) {
  const std::string where = url("lease=20000&gate=off");
  Load load({where, where, where, where}, {"u1", "u2"});
  ASSERT_TRUE(load.goes_on());
  for (int i = 0; i < 60; ++i) {
    cut();
    ASSERT_TRUE(load.goes_on(2, 10s)) << "somebody waits for a lease to end";
  }
  ASSERT_TRUE(load.goes_on());
  EXPECT_GT(given_up("u1") + given_up("u2"), 0) << "no answer was lost";
  EXPECT_EQ(load.end(), std::set<std::string>{});
  EXPECT_EQ(load.witness().overlaps(), 0);
  EXPECT_EQ(load.witness().falls(), 0);
  Locker other = hierlock::open(url());
  EXPECT_TRUE(other.try_acquire("u1", 5s).has_value()) << "long before a lease ends";
  EXPECT_TRUE(other.try_acquire("u2", 5s).has_value());
}

HIERLOCK_ON_VALKEY_AND_REDIS(LostAnswers);

}  // namespace
}  // namespace hierlock::valkey_tests
