// How long a deadlock that no server sees lasts, in the default configuration (B11). Every case prints its times. The
// bounds are those of docs/mysql.md. A machine that stalls may miss them, so a case that does is measured once more.
#include <algorithm>
#include <iostream>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "on_server.h"
#include "support/party.h"
#include "support/process_party.h"

namespace hierlock::mysql_tests {
namespace {

using conformance::make_thread_party;
using conformance::Outcome;
using conformance::Party;
using conformance::Pending;
using conformance::ProcessParty;
using std::chrono::milliseconds;

constexpr int cycles = 24;
constexpr milliseconds longest_ever = 2s;

class CycleTimes : public OnServer {
 protected:
  // Somebody who holds a lock and then asks for the next.
  struct Member {
    Party& party;
    Target has;
    std::vector<Target> wants;
  };
  // Somebody who holds nothing, and is asked before the members close the cycle.
  struct Between {
    Party& party;
    std::vector<Target> wants;
  };

  std::unique_ptr<Party> another_process(const std::string& name) const {
    return std::make_unique<ProcessParty>(name, url());
  }

  // Makes the same cycle many times. In every second one the last member asks when all others are seen to wait, of whom
  // `queued` wait in their process; in the others all ask at once.
  void measure(const std::string& what, const std::vector<Member>& members, const std::vector<Between>& between = {},
               int queued = 0) {
    for (const Member& member : members) make_rows(member.party, member);
    const auto in_time = [&] {
      std::vector<milliseconds> times;
      for (int cycle = 0; cycle < cycles; ++cycle) {
        times.push_back(one_cycle(members, between, cycle % 2 == 0 ? std::optional(queued) : std::nullopt));
      }
      return keeps_bounds(what, std::move(times));
    };
    EXPECT_TRUE(in_time() || in_time()) << what << ": too slow both times";
    EXPECT_TRUE(all_free());
  }

 private:
  static void make_rows(Party& party, const Member& member) {
    std::vector<Target> all = member.wants;
    all.push_back(member.has);
    party.acquire_all(std::move(all), {.then_release = true}).result.get();
  }

  // From the moment at which the last member asks until one of them is told.
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
    const auto asks = [&](std::size_t i) { ask(i, members[i].party, members[i].wants); };
    for (std::size_t i = 0; i < between.size(); ++i) ask(members.size() + i, between[i].party, between[i].wants);
    if (!between.empty()) {
      Locker looker = open();
      const auto has_its_first = [&](const auto& one) { return !looker.try_acquire(one.wants.front()); };
      EXPECT_TRUE(eventually([&] {
        return how_many_wait() == static_cast<int>(between.size()) &&
               std::all_of(between.begin(), between.end(), has_its_first);
      })) << "those between do not wait at the server for their last row";
    }
    for (std::size_t i = 0; i + 1 < members.size(); ++i) asks(i);
    const int waiting = static_cast<int>(asked.size());
    if (queued && !eventually([&] { return how_many_wait() == waiting - *queued; })) {
      ADD_FAILURE() << "the others do not wait at the server";
    }
    const auto begin = Clock::now();
    asks(members.size() - 1);
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

  // Prints the times as well.
  bool keeps_bounds(const std::string& what, std::vector<milliseconds> times) const {
    std::sort(times.begin(), times.end());
    const milliseconds median = times[times.size() / 2], longest = times.back();
    const bool kept = median <= longest_median_ && longest <= longest_ever;
    std::ostringstream all;
    for (const milliseconds time : times) all << " " << time.count();
    std::cout << GetParam() << ", " << what << ": median " << median.count() << " ms, longest " << longest.count()
              << " ms; all:" << all.str() << std::endl;
    if (!kept) {
      std::cout << "  the bounds are " << longest_median_.count() << " ms and " << longest_ever.count() << " ms"
                << std::endl;
    }
    return kept;
  }

 protected:
  milliseconds longest_median_ = 250ms;
};

TEST_P(CycleTimes, between_two_threads_of_a_locker) {  // B11
  Locker locker = open();
  const auto a = make_thread_party("a", locker), b = make_thread_party("b", locker);
  measure("two threads of a Locker", {{*a, "p", {"q"}}, {*b, "q", {"p"}}}, {}, 1);
}

TEST_P(CycleTimes, between_two_lockers_of_a_process) {  // B11
  Locker one = open(), two = open();
  const auto a = make_thread_party("a", one), b = make_thread_party("b", two);
  measure("two Lockers of a process", {{*a, "p", {"q"}}, {*b, "q", {"p"}}});
}

TEST_P(CycleTimes, between_two_processes) {  // B11
  const auto a = another_process("a"), b = another_process("b");
  measure("two processes", {{*a, "p", {"q"}}, {*b, "q", {"p"}}});
}

TEST_P(CycleTimes, between_two_processes_one_of_which_waits_in_its_queue) {  // B11
  const auto a = another_process("a");
  Locker locker = open();
  const auto b = make_thread_party("b", locker), first = make_thread_party("first", locker);
  // The youngest is the victim: the one in the queue, and the one at the server.
  measure("two processes, last the one behind another in its queue", {{*a, "p", {"q"}}, {*b, "q", {"p"}}},
          {{*first, {"p"}}});
  measure("two processes, first the one behind another in its queue", {{*b, "q", {"p"}}, {*a, "p", {"q"}}},
          {{*first, {"p"}}}, 1);
}

// No process knows all of the queues, and no server any of them.
TEST_P(CycleTimes, between_two_lockers_each_with_a_wait_in_its_queue) {  // B11
  Locker one = open(), two = open();
  const auto a = make_thread_party("a", one), b = make_thread_party("b", two);
  const auto before_a = make_thread_party("before a", one), before_b = make_thread_party("before b", two);
  measure("through the queues of two Lockers", {{*a, "p", {"q"}}, {*b, "q", {"p"}}},
          {{*before_a, {"q"}}, {*before_b, {"p"}}}, 1);
}

TEST_P(CycleTimes, in_a_ring_of_three_processes) {  // B11
  const auto a = another_process("a"), b = another_process("b"), c = another_process("c");
  measure("three processes", {{*a, "p", {"q"}}, {*b, "q", {"r"}}, {*c, "r", {"p"}}});
}

// Rows are locked in one order, by level first: the third process has "m/a" and waits for "m2/b/c".
TEST_P(CycleTimes, through_a_third_process_that_has_got_a_row_on_its_way) {  // B11
  const auto a = another_process("a"), b = another_process("b"), third = another_process("third");
  measure("through a third process, which holds no lock", {{*a, "p", {"m/a"}}, {*b, "m2/b/c", {"p"}}},
          {{*third, {"m/a", "m2/b/c"}}});
}

// The other process holds nothing. It waits for the whole of "p".
// A request for anything below "p" stands behind it.
TEST_P(CycleTimes, behind_a_process_that_waits_for_the_whole) {  // B11
  const auto a = another_process("a"), whole = another_process("whole");
  measure("behind a process that waits for the whole", {{*a, "p/x", {"p/y"}}}, {{*whole, {"p"}}});
}

// No server sees who waits for a name in another process. Waits for names are not counted by how_many_wait().
TEST_P(CycleTimes, between_two_processes_through_names) {  // B11
  const auto a = another_process("a"), b = another_process("b");
  measure("two processes, through names", {{*a, named("p"), {named("q")}}, {*b, named("q"), {named("p")}}}, {}, 1);
}

TEST_P(CycleTimes, in_a_ring_of_three_processes_through_names) {  // B11
  const auto a = another_process("a"), b = another_process("b"), c = another_process("c");
  measure("three processes, through names",
          {{*a, named("p"), {named("q")}}, {*b, named("q"), {named("r")}}, {*c, named("r"), {named("p")}}}, {}, 2);
}

TEST_P(CycleTimes, between_two_processes_through_a_name_and_a_path) {  // B11
  const auto a = another_process("a"), b = another_process("b");
  measure("two processes, through a name and a path", {{*a, named("p"), {"q"}}, {*b, "q", {named("p")}}});
  measure("two processes, through a path and a name", {{*b, "q", {named("p")}}, {*a, named("p"), {"q"}}}, {}, 1);
}

// Both slots have holders that wait for the third process, which waits for one of the slots.
TEST_P(CycleTimes, between_three_processes_through_slots) {  // B11
  const auto a = another_process("a"), b = another_process("b"), c = another_process("c");
  measure("three processes, through one of two slots",
          {{*a, slots("s", 2), {named("q")}}, {*b, slots("s", 2), {named("q")}}, {*c, named("q"), {slots("s", 2)}}}, {},
          2);
  measure("three processes, through one of two slots and a path",
          {{*c, "q", {slots("s", 2)}}, {*a, slots("s", 2), {"q"}}, {*b, slots("s", 2), {"q"}}}, {}, 1);
}

// Where the account may not read the server's views, a cycle must last longer (docs/mysql.md).
TEST_P(CycleTimes, between_two_processes_that_cannot_read_the_servers_views) {  // B11
  ProcessParty a("a", url("views=off")), b("b", url("views=off"));
  longest_median_ = 500ms;
  measure("two processes without the server's views", {{a, "p", {"q"}}, {b, "q", {"p"}}});
}

HIERLOCK_ON_BOTH_SERVERS(CycleTimes);

}  // namespace
}  // namespace hierlock::mysql_tests
