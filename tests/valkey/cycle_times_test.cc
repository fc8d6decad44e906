// How long a deadlock lasts that goes through the server, in the default configuration (B11). Every case prints its
// times.
#include <algorithm>
#include <iostream>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "node.h"
#include "on_valkey.h"
#include "support/party.h"
#include "support/process_party.h"

namespace hierlock::valkey_tests {
namespace {

using conformance::make_thread_party;
using conformance::Outcome;
using conformance::Party;
using conformance::Pending;
using conformance::ProcessParty;
using std::chrono::milliseconds;

constexpr int cycles = 12;
constexpr milliseconds bar = 250ms, most_ever = 2s;

class CycleTimes : public OnValkey {
 protected:
  // Holds a lock, and then asks for the next.
  struct Member {
    Party& party;
    Target has, wants;
  };
  // Holds nothing, and asks before the members close the cycle.
  struct Between {
    Party& party;
    std::vector<Target> wants;
  };

  std::unique_ptr<Party> another_process(const std::string& name) const {
    return std::make_unique<ProcessParty>(name, url());
  }

  // A machine that stalls makes one series late, so a series that takes too long is made once more.
  void measure(const std::string& what, const std::vector<Member>& members, const std::vector<Between>& between = {},
               int queued = 0) {
    for (int series = 0; series < 2; ++series) {
      std::vector<milliseconds> times;
      for (int i = 0; i < cycles; ++i) {
        times.push_back(one_cycle(members, between, i % 2 == 0 ? std::optional(queued) : std::nullopt));
        if (HasFailure()) return;
      }
      std::sort(times.begin(), times.end());
      const milliseconds median = times[times.size() / 2], longest = times.back();
      std::cout << what << ": median " << median.count() << " ms, longest " << longest.count() << " ms" << std::endl;
      if (median <= bar && longest <= most_ever) return;
    }
    ADD_FAILURE() << what << ": more than " << bar.count() << " ms, or once more than " << most_ever.count() << " ms";
  }

 private:
  // From the moment at which the last member asks until one of them is told. In every second one it asks when all
  // others are seen to wait, of whom `queued` wait in their process; in the others all ask at once.
  milliseconds one_cycle(const std::vector<Member>& members, const std::vector<Between>& between,
                         std::optional<int> queued) {
    std::vector<Outcome> held;
    for (const Member& member : members) {
      held.push_back(member.party.acquire(member.has).result.get());
      EXPECT_TRUE(held.back().granted()) << held.back();
    }
    std::vector<std::pair<std::size_t, Pending>> asked;  // by number of the member; beyond: of those between
    const auto ask = [&](std::size_t who, Party& party, const std::vector<Target>& wants) {
      asked.emplace_back(who, party.acquire_all(wants, {.timeout = 20s, .then_release = true}));
    };
    for (std::size_t i = 0; i < between.size(); ++i) ask(members.size() + i, between[i].party, between[i].wants);
    EXPECT_TRUE(eventually([&] { return how_many_wait(members) == static_cast<int>(between.size()); }))
        << "those between do not wait at the server";
    for (std::size_t i = 0; i + 1 < members.size(); ++i) ask(i, members[i].party, {members[i].wants});
    const int waiting = static_cast<int>(asked.size());
    EXPECT_TRUE(!queued || eventually([&] { return how_many_wait(members) == waiting - *queued; }))
        << "the others do not wait at the server";
    const auto begin = Clock::now();
    ask(members.size() - 1, members.back().party, {members.back().wants});
    milliseconds time{};
    int victims = 0;
    while (!asked.empty()) {
      const auto done = std::find_if(asked.begin(), asked.end(), [](const auto& one) { return one.second.ready(); });
      if (done == asked.end()) {
        std::this_thread::sleep_for(200us);
        continue;
      }
      const Outcome outcome = done->second.result.get();
      const std::size_t who = done->first;
      asked.erase(done);
      if (!outcome.granted()) {
        EXPECT_EQ(*outcome.error, ErrorKind::deadlock) << outcome;
        EXPECT_LT(who, members.size()) << "who holds nothing is nobody's victim";
        if (victims++ == 0) time = std::chrono::ceil<milliseconds>(Clock::now() - begin);
      }
      if (who < members.size()) members[who].party.release(held[who]);
    }
    EXPECT_EQ(victims, 1) << "one is enough";
    return time;
  }

  // At the server, for anything under the roots of what the members want.
  int how_many_wait(const std::vector<Member>& members) {
    std::set<std::string> queues;
    for (const Member& member : members) queues.insert(place_of(url(), member.wants) + ":q");
    int count = 0;
    for (const std::string& queue : queues) {
      const int size = std::stoi("0" + server_.ask({"ZCARD", queue}));
      count += size - (size > 0 ? 1 : 0);  // one member is no request
    }
    return count;
  }
  Node server_{"server", server_variable(GetParam() + "_OPERATOR").value_or("")};
};

TEST_P(CycleTimes, between_two_threads_of_a_locker) {  // B11
  Locker locker = hierlock::open(url());
  const auto a = make_thread_party("a", locker), b = make_thread_party("b", locker);
  measure("two threads of a Locker", {{*a, "p", "q"}, {*b, "q", "p"}}, {}, 1);
}

TEST_P(CycleTimes, between_two_lockers_of_a_process) {  // B11
  Locker one = hierlock::open(url()), two = hierlock::open(url());
  const auto a = make_thread_party("a", one), b = make_thread_party("b", two);
  measure("two Lockers of a process", {{*a, "p", "q"}, {*b, "q", "p"}});
}

TEST_P(CycleTimes, between_two_processes) {  // B11
  const auto a = another_process("a"), b = another_process("b");
  measure("two processes", {{*a, "p", "q"}, {*b, "q", "p"}});
  measure("two processes, through names", {{*a, named("p"), named("q")}, {*b, named("q"), named("p")}});
}

TEST_P(CycleTimes, between_two_processes_one_of_which_waits_in_its_queue) {  // B11
  const auto a = another_process("a");
  Locker locker = hierlock::open(url());
  const auto b = make_thread_party("b", locker), first = make_thread_party("first", locker);
  measure("two processes, one behind another in its queue", {{*b, "q", "p"}, {*a, "p", "q"}}, {{*first, {"p"}}}, 1);
}

TEST_P(CycleTimes, in_a_ring_of_three_processes) {  // B11
  const auto a = another_process("a"), b = another_process("b"), c = another_process("c");
  measure("three processes", {{*a, "p", "q"}, {*b, "q", "r"}, {*c, "r", "p"}});
}

// Nodes of a root are granted in the order of their names: the third process has "m/1" and waits for "m/2".
TEST_P(CycleTimes, through_a_third_process_that_waits_half_way) {  // B11
  const auto a = another_process("a"), b = another_process("b"), third = another_process("third");
  measure("through a third process, which holds no lock", {{*a, "p", "m/1"}, {*b, "m/2", "p"}},
          {{*third, {"m/1", "m/2"}}});
}

// The other process holds nothing. It waits for the whole of "p", and a request for anything below "p" stands behind
// it.
TEST_P(CycleTimes, behind_a_process_that_waits_for_the_whole) {  // B11
  const auto a = another_process("a"), whole = another_process("whole");
  measure("behind a process that waits for the whole", {{*a, "p/x", "p/y"}}, {{*whole, {"p"}}});
}

INSTANTIATE_TEST_SUITE_P(, CycleTimes, testing::Values("VALKEY"), [](const auto& server) { return server.param; });

}  // namespace
}  // namespace hierlock::valkey_tests
