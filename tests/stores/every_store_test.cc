// Death and stops at every shared store: each scene is played again and again, with the victim killed (or stopped)
// before its first store, its second, its third, …, until it gets through. After each death the table must be sound (a
// full walk), the dead must be collected, and another process must be able to do its work (B5).
#include <gtest/gtest.h>

#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <hierlock/error.h>

#include "asking.h"
#include "hook.h"
#include "stage.h"

namespace hierlock::stores {
namespace {

using engine::Engine;

// Under sanitizers, which are slow, not every store, beginning anywhere. That for threads sees one process at a time,
// and what is tried here is what another one leaves behind.
#if defined(__SANITIZE_THREAD__)
constexpr long stride = 29;
#elif defined(__SANITIZE_ADDRESS__)
constexpr long stride = 7;
#else
constexpr long stride = 1;
#endif

struct Scene {
  std::string name;
  // The victim, in its own process. It arms the hook when its preparations are done.
  Act act;
  // This process, before the victim exists, and while it acts.
  std::function<void(Stage&, std::vector<spi::Grant>&)> before{};
  std::function<void(Stage&, Victim&, std::vector<spi::Grant>&)> meanwhile{};
  engine::Capacity capacity = engine::Capacity::for_locks(2000, 16);
  bool fresh = true;     // a new table for every death
  bool reopens = false;  // what the victim left behind ends with this process's own part in the table
  long stop_stride = 1;  // where each stop keeps the others waiting: stop at every n-th store only, a random one first
};
std::ostream& operator<<(std::ostream& out, const Scene& scene) { return out << scene.name; }

std::string long_name(char c) { return std::string(200, c); }

// Somebody waits in the table, as this process sees it.
bool anybody_waits(Stage& stage) { return !stage.engine().table().look().copy().waiters.empty(); }

void wait_for_waiter(Stage& stage, Victim& victim) {
  const Clock::time_point deadline = Clock::now() + patience;
  while (!anybody_waits(stage) && !victim.at_rest()) {
    ASSERT_LT(Clock::now(), deadline) << "the victim neither waits nor ends";
    std::this_thread::yield();
  }
}

void expect_deadlock(Engine& engine, const std::vector<Target>& targets) {
  try {
    if (!ask(engine, targets, 10s)) throw std::runtime_error("no deadlock, a timeout");
    throw std::runtime_error("no deadlock, granted");
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::deadlock) throw;
  }
}

// Its holder may be stopped in the middle of an extend: then it is not free yet, and the breaker says so.
void break_what_may_be_in_motion(Engine& engine, const Target& target) {
  try {
    engine.break_locks(spi::Plan(target), "a test");
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unavailable) throw;
  }
}

std::vector<Scene> scenes() {
  std::vector<Scene> all;
  all.push_back({.name = "acquire_of_new_nodes", .act = [](Stage& stage, const Cue& cue) {
                   Engine* const engine = stage.open_for_good();
                   cue.arm();
                   if (!ask(*engine, {Target("u1/a1/r1")}, 1s)) throw std::runtime_error("not granted");
                 }});
  all.push_back({.name = "acquire_and_release_of_known_nodes",
                 .act =
                     [](Stage& stage, const Cue& cue) {
                       Engine* const engine = stage.open_for_good();
                       engine->release(*ask(*engine, {Target("u1/a1/r1")}, 1s));
                       cue.arm();
                       const Target target("u1/a1/r1");
                       const spi::Grant grant = engine->at_once(spi::Chain::of(target));
                       if (grant.id == 0) throw std::runtime_error("not at once");
                       engine->release(grant);
                     },
                 .fresh = false});
  all.push_back({.name = "shared_locks_names_and_slots",
                 .act =
                     [](Stage& stage, const Cue& cue) {
                       Engine* const engine = stage.open_for_good();
                       cue.arm();
                       const auto a = ask(*engine, {hierlock::shared("u1/a1")}, 1s);
                       const auto b = ask(*engine, {hierlock::slots("s", 2)}, 1s);
                       const auto c = ask(*engine, {named("n")}, 1s);
                       engine->release(*a);
                       engine->release(*b);
                       engine->release(*c);
                       engine->release(*ask(*engine, {Target("u1")}, 1s));
                       engine->release(*ask(*engine, {Target("u1/a1/r1")}, 1s));
                     },
                 .fresh = false});
  all.push_back({.name = "acquire_and_release_of_many",
                 .act =
                     [](Stage& stage, const Cue& cue) {
                       Engine* const engine = stage.open_for_good();
                       cue.arm();
                       const auto lock = ask(*engine,
                                             {Target("u1/a1/r1"), Target("u1/a2"), hierlock::shared("u2/a1"),
                                              named("n"), Target("u3/" + long_name('x'))},
                                             1s);
                       engine->release(*lock);
                     },
                 .fresh = false});
  all.push_back({.name = "extend_and_upgrade",
                 .act =
                     [](Stage& stage, const Cue& cue) {
                       Engine* const engine = stage.open_for_good();
                       const auto lock = ask(*engine, {hierlock::shared("u1/a1")}, 1s);
                       cue.arm();
                       const Target more_target("u2/a1/r1");
                       const spi::Plan more(more_target);
                       const auto two = engine->extend(*lock, {.plan = more, .no_wait = true});
                       const Target stronger_target("u1/a1");
                       const spi::Plan stronger(stronger_target);
                       const auto three = engine->extend(*two, {.plan = stronger, .no_wait = true});
                       // In the way: what was added is taken back.
                       const Target busy_target("u3");
                       const spi::Plan busy(busy_target);
                       if (engine->extend(*three, {.plan = busy, .no_wait = true})) throw std::runtime_error("granted");
                       engine->release(*three);
                     },
                 .before = [](Stage& stage, auto& held) { held.push_back(*ask(stage.engine(), {Target("u3")}, 1s)); }});
  all.push_back(
      {.name = "wait_that_times_out",
       .act =
           [](Stage& stage, const Cue& cue) {
             Engine* const engine = stage.open_for_good();
             cue.arm();
             if (ask(*engine, {Target("u1/a1/r1")}, 30ms)) throw std::runtime_error("granted");
           },
       .before = [](Stage& stage, auto& held) { held.push_back(*ask(stage.engine(), {Target("u1/a1")}, 1s)); }});
  all.push_back(
      {.name = "wait_that_is_granted",
       .act =
           [](Stage& stage, const Cue& cue) {
             Engine* const engine = stage.open_for_good();
             cue.arm();
             if (!ask(*engine, {Target("u1/a1/r1")}, 10s)) throw std::runtime_error("timeout");
           },
       .before = [](Stage& stage, auto& held) { held.push_back(*ask(stage.engine(), {Target("u1/a1")}, 1s)); },
       .meanwhile =
           [](Stage& stage, Victim& victim, auto& held) {
             wait_for_waiter(stage, victim);
             stage.engine().release(held.back());
             held.pop_back();
           }});
  all.push_back({.name = "wait_among_others",
                 .act =
                     [](Stage& stage, const Cue& cue) {
                       Engine* const engine = stage.open_for_good();
                       cue.ready();
                       cue.arm();
                       if (ask(*engine, {Target("u1/a1")}, 30ms)) throw std::runtime_error("granted");
                     },
                 .before = [](Stage& stage, auto& held) { held.push_back(*ask(stage.engine(), {Target("u1")}, 1s)); },
                 .meanwhile =
                     [](Stage& stage, Victim& victim, auto& held) {
                       engine::Table& table = stage.engine().table();
                       const Clock::time_point deadline = Clock::now() + patience;
                       auto first = std::make_unique<Asking>(table, Target("u1/a1"));
                       EXPECT_FALSE(first->granted());
                       victim.wait_until_ready();
                       victim.go();
                       while (table.look().copy().waiters.size() < 2 && !victim.at_rest()) {
                         ASSERT_LT(Clock::now(), deadline) << "the victim neither waits nor ends";
                       }
                       auto last = std::make_unique<Asking>(table, Target("u1/a1"));
                       EXPECT_FALSE(last->granted());
                       if (victim.wait() == Victim::State::stopped) victim.resume();
                       victim.wait();
                       stage.engine().release(held.back());
                       held.pop_back();
                       for (auto* waiter : {&first, &last}) {
                         while (!(*waiter)->granted()) {
                           ASSERT_LT(Clock::now(), deadline) << "those who waited with it were forgotten";
                           table.recovery().recover();
                         }
                         waiter->reset();
                       }
                     }});
  const auto release_to_waiter = [](const char* name, const Target& has, const Target& wants) {
    return Scene{.name = name,
                 .act =
                     [has](Stage& stage, const Cue& cue) {
                       Engine* const engine = stage.open_for_good();
                       const auto lock = ask(*engine, {has}, 1s);
                       cue.ready();
                       cue.arm();
                       engine->release(*lock);
                     },
                 .meanwhile =
                     [wants](Stage& stage, Victim& victim, auto& held) {
                       victim.wait_until_ready();
                       auto granted =
                           std::async(std::launch::async, [&] { return ask(stage.engine(), {wants}, patience); });
                       wait_for_waiter(stage, victim);
                       victim.go();
                       victim.wait();
                       // Killed, stopped or through: in each case it lets go, or is let go of.
                       if (granted.wait_for(20ms) != std::future_status::ready) victim.resume();
                       const auto grant = granted.get();
                       ASSERT_TRUE(grant) << "the waiter was forgotten";
                       held.push_back(*grant);
                     }};
  };
  all.push_back(release_to_waiter("release_of_X_to_a_waiter", Target("u1/a1/r1"), Target("u1/a1/r1")));
  all.push_back(release_to_waiter("release_of_a_descendant_to_a_waiter", Target("u1/a1/r1"), Target("u1")));
  all.push_back(release_to_waiter("release_of_S_to_a_waiter", hierlock::shared("u1/a1"), Target("u1/a1/r1")));
  all.push_back(release_to_waiter("release_of_a_slot_to_a_waiter", hierlock::slots("s", 1), hierlock::slots("s", 1)));
  all.push_back({.name = "deadlock_detection",
                 .act =
                     [](Stage& stage, const Cue& cue) {
                       Engine* const engine = stage.open_for_good();
                       if (!ask(*engine, {Target("b")}, 1s)) throw std::runtime_error("not granted");
                       cue.ready();
                       cue.arm();
                       expect_deadlock(*engine, {Target("a")});
                     },
                 .meanwhile =
                     [](Stage& stage, Victim& victim, auto& held) {
                       victim.wait_until_ready();
                       auto both = std::async(std::launch::async, [&] {
                         std::vector<spi::Grant> grants{*ask(stage.engine(), {Target("a")}, 1s)};
                         grants.push_back(*ask(stage.engine(), {Target("b")}, patience));
                         return grants;
                       });
                       wait_for_waiter(stage, victim);
                       victim.go();
                       victim.wait();
                       if (both.wait_for(20ms) != std::future_status::ready) victim.resume();
                       for (const spi::Grant& grant : both.get()) held.push_back(grant);
                     }});
  all.push_back({.name = "handing_over", .act = [](Stage& stage, const Cue& cue) {
                   Engine* const engine = stage.open_for_good();
                   const spi::OwnerId first = engine->make_owner("first");
                   const spi::OwnerId second = engine->make_owner("second");
                   auto lock = ask(*engine, {Target("u1/a1/r1"), Target("u2")}, 1s, first);
                   auto one = ask(*engine, {Target("u3/a1")}, 1s, first);
                   cue.arm();
                   *lock = engine->give(*lock, second);
                   *one = engine->give(*one, second);
                   engine->release(*lock);
                   engine->release(*one);
                   engine->drop_owner(first);
                   engine->drop_owner(second);
                 }});
  // More free records than a thread, and than an owner, keeps: the rest leaves their lists, and its chunks the process.
  all.push_back({.name = "records_given_back", .act = [](Stage& stage, const Cue& cue) {
                   Engine* const engine = stage.open_for_good();
                   std::vector<spi::Grant> locks;
                   for (int i = 0; i < 200; ++i)
                     locks.push_back(*ask(*engine, {Target("u1/a1/r" + std::to_string(i))}, 1s));
                   // How many releases there are from one time that records are given back to the next.
                   const auto release_until_given_back = [&] {
                     const auto before = engine->table().look().use().records;
                     int count = 0;
                     for (; engine->table().look().use().records == before; ++count, locks.pop_back()) {
                       if (locks.empty()) throw std::runtime_error("nothing was given back");
                       engine->release(locks.back());
                     }
                     return count;
                   };
                   release_until_given_back();
                   const int count = release_until_given_back();
                   const spi::OwnerId owner = engine->make_owner("an owner");
                   const auto one = ask(*engine, {Target("u2/a1"), Target("u2/a2")}, 1s, owner);
                   const auto two = ask(*engine, {Target("u2/a3")}, 1s, owner);
                   const auto three = ask(*engine, {Target("u2/a4")}, 1s, owner);
                   for (int i = 1; i < count; ++i, locks.pop_back()) engine->release(locks.back());
                   const auto before = engine->table().look().use().records;
                   cue.arm();
                   engine->release(locks.back());
                   if (engine->table().look().use().records == before)
                     throw std::runtime_error("nothing was given back");
                   for (const auto& lock : {one, two, three}) engine->release(*lock);
                   engine->drop_owner(owner);
                 }});
  all.push_back({.name = "growth_of_the_index",
                 .act =
                     [](Stage& stage, const Cue& cue) {
                       Engine* const engine = stage.open_for_good();
                       cue.arm();
                       for (int i = 0; i < 3; ++i) {
                         engine->release(*ask(*engine, {named(long_name('g') + std::to_string(i))}, 1s));
                       }
                     },
                 .before =
                     [](Stage& stage, auto&) {
                       for (int i = 0; i < 511; ++i)
                         stage.engine().release(*ask(stage.engine(), {named("n" + std::to_string(i))}, 1s));
                     }});
  Scene reuse{.name = "reuse_of_nodes",
              .act =
                  [](Stage& stage, const Cue& cue) {
                    Engine* const engine = stage.open_for_good();
                    cue.arm();
                    for (int i = 0; i < 3; ++i) {
                      const auto lock =
                          ask(*engine, {Target(long_name('x') + std::to_string(i) + "/" + long_name('y'))}, 1s);
                      engine->release(*lock);
                    }
                  },
              .before =
                  [](Stage& stage, auto&) {
                    for (int i = 0; i < 12; ++i) {
                      const std::string name = long_name('o') + std::to_string(i) + "/a";
                      const auto lock = ask(stage.engine(), {Target(name)}, 1s);
                      stage.fences[name] = lock->fence;
                      stage.engine().release(*lock);
                    }
                  }};
  reuse.capacity.idle_nodes = 4;
  all.push_back(reuse);
  // Nodes that nobody shares lose their numbers, and the nodes of new names get them.
  Scene numbers{.name = "numbers_that_are_taken_back",
                .act =
                    [](Stage& stage, const Cue& cue) {
                      Engine* const engine = stage.open_for_good();
                      const auto held = ask(*engine, {hierlock::shared("w0")}, 1s);
                      cue.arm();
                      engine->release(*ask(*engine, {hierlock::shared("x")}, 1s));
                      engine->release(*ask(*engine, {hierlock::slots("s", 2)}, 1s));
                      engine->release(*ask(*engine, {Target("w1/a")}, 1s));
                      engine->release(*held);
                    },
                .before =
                    [](Stage& stage, auto& held) {
                      for (int i = 0; i < 3; ++i) {
                        const std::string name = "w" + std::to_string(i);
                        const auto lock = ask(stage.engine(), {Target(name + "/a")}, 1s);
                        stage.fences[name] = lock->fence;
                        stage.engine().release(*lock);
                      }
                      held.push_back(*ask(stage.engine(), {hierlock::shared("w2")}, 1s));
                      // All numbers of the arena are given; the next name needs one of these.
                      for (int i = 0; stage.engine().table().look().use().numbers + 1 < engine::arena_size; ++i)
                        stage.engine().release(*ask(stage.engine(), {hierlock::shared("i" + std::to_string(i))}, 1s));
                    }};
  numbers.capacity.idle_pages = 0;
  all.push_back(numbers);
  all.push_back({.name = "many_locks_that_take_new_chunks", .act = [](Stage& stage, const Cue& cue) {
                   Engine* const engine = stage.open_for_good();
                   std::vector<spi::Grant> held;
                   for (int i = 0; i < 63; ++i) held.push_back(*ask(*engine, {Target("u" + std::to_string(i))}, 1s));
                   cue.arm();
                   for (int i = 63; i < 66; ++i) held.push_back(*ask(*engine, {Target("u" + std::to_string(i))}, 1s));
                   while (!held.empty()) {
                     engine->release(held.back());
                     held.pop_back();
                     if (held.size() < 60) break;
                   }
                 }});
  all.push_back({.name = "opening",
                 .act =
                     [](Stage& stage, const Cue& cue) {
                       cue.arm();
                       Engine* const engine = stage.open_for_good();
                       static_cast<void>(ask(*engine, {hierlock::shared("u1/a1")}, 1s));
                     },
                 .fresh = false});
  all.push_back({.name = "leaving",
                 .act =
                     [](Stage& stage, const Cue& cue) {
                       auto engine = stage.open();
                       // Lanes that mean something only together: counted in one thread's, given back in another's.
                       const auto lock = ask(*engine, {hierlock::shared("u1/a1")}, 1s);
                       std::thread([&] { engine->release(*lock); }).join();
                       cue.arm();
                       engine.reset();
                     },
                 .fresh = false});
  all.push_back({.name = "creating_a_table",
                 .act =
                     [](Stage& stage, const Cue& cue) {
                       engine::FileOptions other = stage.options();
                       other.path += ".other";
                       cue.arm();
                       Engine engine(other, Owners::per_thread);
                     },
                 .meanwhile =
                     [](Stage& stage, Victim& victim, auto&) {
                       if (victim.wait() == Victim::State::stopped) victim.resume();
                       victim.wait();
                       engine::FileOptions other = stage.options();
                       other.path += ".other";
                       {
                         Engine engine(other, Owners::per_thread);
                         ASSERT_TRUE(ask(engine, {Target("u1/a1/r1")}, 1s));
                         EXPECT_EQ(engine.table().look().check(), "");
                       }
                       unlink(other.path.c_str());
                     }});
  // Somebody died first: holding, waiting, in the middle of making a node. Who collects dies as well.
  for (const long earlier : {0L, 6L, 11L, 14L, 17L, 20L, 23L, 26L}) {
    all.push_back(
        {.name = "recovery_from_a_death_" + (earlier == 0 ? "while_holding" : "at_store_" + std::to_string(earlier)),
         .act =
             [](Stage& stage, const Cue& cue) {
               Engine* const engine = stage.open_for_good();
               cue.arm();
               const Clock::time_point deadline = Clock::now() + patience;
               while (engine->table().mapping().processes() > 2 && Clock::now() < deadline)
                 engine->table().recovery().recover();
               if (!ask(*engine, {Target("u1")}, 10s)) throw std::runtime_error("not collected");
               if (!ask(*engine, {Target("v1/" + long_name('w'))}, 10s)) throw std::runtime_error("not made");
             },
         .before =
             [earlier](Stage& stage, auto& held) {
               held.push_back(*ask(stage.engine(), {Target("u2/a1")}, 1s));
               Victim first(
                   stage,
                   [earlier](Stage& s, const Cue& cue) {
                     Engine* const engine = s.open_for_good();
                     static_cast<void>(ask(*engine, {Target("u1/a1/r1"), hierlock::shared("u1/a2")}, 1s));
                     static_cast<void>(ask(*engine, {hierlock::slots("s", 1)}, 1s));
                     std::thread waiter([&] { static_cast<void>(ask(*engine, {Target("u2/a1")}, patience)); });
                     const Clock::time_point deadline = Clock::now() + patience;
                     while (engine->table().look().copy().waiters.empty() && Clock::now() < deadline) {
                     }
                     cue.ready();
                     if (earlier > 0) {
                       arm(earlier, SIGKILL);
                       static_cast<void>(ask(*engine, {Target("v1/" + long_name('v'))}, 1s));
                     }
                     ::kill(getpid(), SIGKILL);
                     waiter.join();
                   },
                   0, SIGKILL);
               first.wait_until_ready();
               first.go();
               ASSERT_EQ(first.wait(), Victim::State::killed);
             }});
  }
  all.push_back({.name = "breaking_a_lock",
                 .act =
                     [](Stage& stage, const Cue& cue) {
                       Engine* const engine = stage.open_for_good();
                       cue.arm();
                       for (const Target& target : {Target("u1/a1/r1"), hierlock::shared("u2/a1"), Target("u3/a1")}) {
                         engine->break_locks(spi::Plan(target), "a test");
                       }
                     },
                 .before =
                     [](Stage& stage, auto& held) {
                       held.push_back(*ask(stage.engine(), {Target("u1/a1/r1")}, 1s));
                       held.push_back(*ask(stage.engine(), {hierlock::shared("u2/a1")}, 1s));
                       held.push_back(*ask(stage.engine(), {Target("u3/a1"), hierlock::shared("u4/a1")}, 1s));
                     },
                 .reopens = true});
  all.push_back({.name = "breaking_a_lock_that_is_extended",
                 .act =
                     [](Stage& stage, const Cue& cue) {
                       Engine* const engine = stage.open_for_good();
                       cue.ready();
                       cue.arm();
                       break_what_may_be_in_motion(*engine, Target("u1/a1/r1"));
                     },
                 .meanwhile =
                     [](Stage& stage, Victim& victim, auto& held) {
                       victim.wait_until_ready();
                       Engine& engine = stage.engine();
                       const spi::OwnerId somebody = engine.make_owner("in the way");
                       const auto in_the_way = ask(engine, {Target("u2/a1")}, 1s, somebody);
                       held.push_back(*ask(engine, {Target("u1/a1/r1")}, 1s));
                       const Target more = hierlock::shared("u2/a1");
                       const spi::Plan plan(more);
                       bool lost = false;
                       std::thread extends([&] {
                         try {
                           held.back() = *engine.extend(held.back(), {.plan = plan});
                         } catch (const Error& error) {
                           EXPECT_EQ(error.kind(), ErrorKind::lost) << error.what();
                           lost = true;
                         }
                       });
                       wait_for_waiter(stage, victim);
                       victim.go();
                       if (victim.wait() == Victim::State::stopped) victim.resume();
                       const bool through = victim.wait() == Victim::State::finished;
                       engine.release(*in_the_way);
                       extends.join();
                       engine.drop_owner(somebody);
                       EXPECT_NE(engine.held(held.back()), lost);
                       EXPECT_TRUE(lost || !through) << "it was not broken";
                     },
                 .reopens = true});
  all.push_back(
      {.name = "extending_a_lock_that_is_broken",
       .act =
           [](Stage& stage, const Cue& cue) {
             Engine* const engine = stage.open_for_good();
             const auto lock = ask(*engine, {Target("u1/a1/r1")}, 1s);
             cue.arm();
             const std::vector<Target> targets{hierlock::shared("u1/a1"), Target("u2/a1")};
             const spi::Plan more{std::span<const Target>(targets)};
             try {
               if (engine->extend(*lock, {.plan = more, .deadline = Clock::now() + 200ms}))
                 throw std::runtime_error("granted");
             } catch (const Error& error) {
               if (error.kind() != ErrorKind::lost) throw;
             }
             engine->release(*lock);
           },
       .before = [](Stage& stage, auto& held) { held.push_back(*ask(stage.engine(), {Target("u2/a1")}, 1s)); },
       .meanwhile =
           [](Stage& stage, Victim& victim, auto&) {
             wait_for_waiter(stage, victim);
             break_what_may_be_in_motion(stage.engine(), Target("u1/a1/r1"));
           },
       .stop_stride = 4});
  return all;
}

class EveryStore : public testing::TestWithParam<Scene> {
 protected:
  // True when the victim got through.
  bool play(std::unique_ptr<Stage>& stage, long n, int signal) {
    const Scene& scene = GetParam();
    if (!stage || scene.fresh) stage = std::make_unique<Stage>(scene.capacity);
    std::vector<spi::Grant> held;
    if (scene.before) scene.before(*stage, held);
    Victim victim(*stage, scene.act, n, signal);
    if (scene.meanwhile) scene.meanwhile(*stage, victim, held);
    if (victim.wait() == Victim::State::stopped) {
      keep_deadlines(*stage);
      victim.resume();
    }
    const Victim::State state = victim.wait();
    EXPECT_NE(state, Victim::State::failed) << "the victim met an error";
    if (!scene.reopens) {
      EXPECT_EQ(stage->verify(), "") << "with what this process holds";
    }
    if (HasFailure()) return false;  // the rest would wait for what does not happen
    for (const spi::Grant& grant : held) stage->engine().release(grant);
    if (scene.reopens) stage->reopen();
    work(*stage);
    EXPECT_EQ(stage->verify(), "");
    return state == Victim::State::finished && !victim.was_stopped();
  }

  // While somebody is stopped: an answer of some kind, on time.
  void keep_deadlines(Stage& stage) {
    constexpr auto timeout = 5ms;
    const spi::OwnerId somebody = stage.engine().make_owner("somebody else");
    for (const Target& target : {Target("u1/a1/r1"), Target("fresh/node")}) {
      const Clock::time_point begin = Clock::now();
      const auto grant = ask(stage.engine(), {target}, timeout, somebody);
      if (grant) stage.engine().release(*grant);
      EXPECT_LT(Clock::now() - begin, timeout + 5s) << "a deadline was missed because somebody is stopped";
    }
    stage.engine().drop_owner(somebody);
  }

  // What a second process wants to do.
  void work(Stage& stage) {
    const Clock::time_point begin = Clock::now();
    for (const char* root : {"u1", "u2", "u3", "a", "b", "v1"}) {
      const auto lock = ask(stage.engine(), {Target(root)}, patience);
      ASSERT_TRUE(lock) << root << " stays locked";
      stage.engine().release(*lock);
    }
    for (const auto& [target, fence] : stage.fences) {
      const auto lock = ask(stage.engine(), {Target(target)}, patience);
      ASSERT_TRUE(lock) << target;
      EXPECT_GT(lock->fence, fence) << target << ": the fence fell";  // B3
      stage.engine().release(*lock);
    }
    for (const Target& target : {Target("u1/a1/r1"), hierlock::shared("u1/a1"), Target("u1/a2/" + long_name('n'))}) {
      const auto lock = ask(stage.engine(), {target}, patience);
      ASSERT_TRUE(lock);
      stage.engine().release(*lock);
    }
    for (const Target& target : {named("n"), hierlock::slots("s", 1)}) {
      // A name held for two slots is free for one when nobody holds it.
      const auto lock = ask(stage.engine(), {target}, patience);
      ASSERT_TRUE(lock);
      stage.engine().release(*lock);
    }
    slowest_ = std::max(slowest_, Clock::now() - begin);
  }

  void play_all(int signal) {
    std::unique_ptr<Stage> stage;
    const char* const only = std::getenv("HIERLOCK_STORE");
    const long step = std::max(stride, signal == SIGSTOP ? GetParam().stop_stride : 1);
    long n = only != nullptr ? std::atol(only)
                             : 1 + static_cast<long>(std::random_device{}() % static_cast<unsigned long>(step));
    for (;; n += step) {
      SCOPED_TRACE("at store " + std::to_string(n) + " (HIERLOCK_STORE=" + std::to_string(n) + " to play it alone)");
      const bool through = play(stage, n, signal);
      if (HasFailure() || only != nullptr) return;
      if (through) break;
      ASSERT_LT(n, 100'000);
    }
    std::printf("%-45s %5ld stores, work done %3lld ms after a death at most\n", GetParam().name.c_str(), n - 1,
                static_cast<long long>(slowest_ / 1ms));
  }

 private:
  Clock::duration slowest_{};
};

TEST_P(EveryStore, may_be_the_last_of_a_process) { play_all(SIGKILL); }  // B5

TEST_P(EveryStore, may_be_where_a_process_is_stopped) { play_all(SIGSTOP); }  // B5

INSTANTIATE_TEST_SUITE_P(, EveryStore, testing::ValuesIn(scenes()),
                         [](const testing::TestParamInfo<Scene>& scene) { return scene.param.name; });

}  // namespace
}  // namespace hierlock::stores
