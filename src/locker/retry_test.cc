#include <gtest/gtest.h>

#include <vector>

#include <hierlock/retry.h>

namespace hierlock {
namespace {

using namespace std::chrono_literals;
using Seconds = std::chrono::duration<double>;

// A clock that only pauses move.
class Retry : public testing::Test {
 protected:
  RetryEnvironment environment() {
    return {.now = [this] { return now_; },
            .sleep =
                [this](Seconds pause) {
                  pauses_.push_back(pause.count());
                  now_ += pause;
                },
            .uniform = [](double low, double high) { return (low + high) / 2; }};
  }
  Seconds now_{0};
  std::vector<double> pauses_;
};

TEST_F(Retry, returns_what_the_work_returns) {  // X9
  EXPECT_EQ(retry(
                {}, [] { return 7; }, environment()),
            7);
  int done = 0;
  retry(
      {}, [&] { ++done; }, environment());
  EXPECT_EQ(done, 1);
  EXPECT_TRUE(pauses_.empty());
}

TEST_F(Retry, pauses_grow_as_those_of_the_lock_manager) {  // X9, M4
  int tries = 0;
  std::vector<unsigned> told;
  const RetryPolicy policy{.tries = 10, .initial_delay = 1s, .max_delay = 3s, .on_retry = [&](const Retried& failed) {
                             told.push_back(failed.attempt);
                             EXPECT_EQ(failed.error.kind(), ErrorKind::busy);
                           }};
  retry(
      policy,
      [&] {
        if (++tries < 6) throw Error(ErrorKind::busy, "held");
      },
      environment());
  EXPECT_EQ(pauses_, (std::vector<double>{1, 1.5, 2.25, 3, 3}));
  EXPECT_EQ(told, (std::vector<unsigned>{1, 2, 3, 4, 5}));
}

TEST_F(Retry, tries_again_only_what_may_succeed) {  // X9
  for (int kind = 0; kind < error_kind_count; ++kind) {
    for (const bool conflicts : {false, true}) {
      const Error error(static_cast<ErrorKind>(kind), "words", 42);
      int tries = 0;
      try {
        retry(
            {.tries = 3, .conflicts = conflicts},
            [&] {
              ++tries;
              throw error;
            },
            environment());
        FAIL();
      } catch (const Error& thrown) {
        EXPECT_EQ(thrown.kind(), error.kind());
        EXPECT_EQ(thrown.native_code(), 42);
      }
      const bool again = error.retryable() || (conflicts && error.kind() == ErrorKind::conflict);
      EXPECT_EQ(tries, again ? 3 : 1) << to_string(error.kind());
    }
  }
  int tries = 0;
  EXPECT_THROW(retry(
                   {},
                   [&] {
                     ++tries;
                     throw std::runtime_error("not ours");
                   },
                   environment()),
               std::runtime_error);
  EXPECT_EQ(tries, 1);
}

TEST_F(Retry, ends_when_the_time_is_up) {  // X9
  int tries = 0;
  try {
    retry(
        {.tries = 1000, .timeout = 10s, .initial_delay = 1s, .max_delay = 4s},
        [&] {
          ++tries;
          throw Error(ErrorKind::timeout, "late");
        },
        environment());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::timeout);
    EXPECT_NE(std::string(error.what()).find("tried 5 times in 8.12 s"), std::string::npos) << error.what();
  }
  EXPECT_LE(now_, Seconds(10s));
}

TEST_F(Retry, is_cancelled_in_a_pause) {  // X9
  std::stop_source stop;
  std::jthread canceller;
  const auto began = std::chrono::steady_clock::now();
  try {
    retry({.timeout = std::nullopt,
           .initial_delay = 1h,
           .max_delay = 1h,
           .cancel = stop.get_token(),
           .on_retry = [&](const Retried&) { canceller = std::jthread([&] { stop.request_stop(); }); }},
          [] { throw Error(ErrorKind::deadlock, "a cycle"); });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::cancelled);
    EXPECT_NE(std::string(error.what()).find("a cycle"), std::string::npos) << error.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, 60s);
  int tries = 0;
  EXPECT_THROW(retry({.cancel = stop.get_token()}, [&] { ++tries; }), Error);
  EXPECT_EQ(tries, 0);
}

TEST_F(Retry, refuses_a_policy_that_makes_no_sense) {
  for (const RetryPolicy& policy :
       {RetryPolicy{.tries = 0}, RetryPolicy{.timeout = -1s}, RetryPolicy{.initial_delay = -1s},
        RetryPolicy{.max_delay = Seconds(std::numeric_limits<double>::quiet_NaN())}}) {
    try {
      retry(policy, [] {});
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    }
  }
}

}  // namespace
}  // namespace hierlock
