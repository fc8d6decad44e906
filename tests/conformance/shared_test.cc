// Shared targets: IS, IX, S, X (B10).
#include <algorithm>
#include <sstream>

#include "support/suite.h"

namespace hierlock::conformance {
namespace {

class Shared : public Conformance {
 protected:
  // A target that every store can hold shared: at the deepest level.
  std::string leaf() {
    std::string path = "u1";
    for (std::size_t level = 1; level < std::min<std::size_t>(table().levels(), 3); ++level) path += "/x";
    return path;
  }
};

TEST_P(Shared, readers_share_and_a_writer_waits_for_all_of_them) {
  Party &alice = party("alice"), &bob = party("bob"), &carol = party("carol");
  const Outcome first = granted(alice.acquire(shared(leaf())));
  const Outcome second = granted(bob.acquire(shared(leaf())));
  Pending writer = carol.acquire(leaf());
  blocked(writer, leaf());
  alice.release(first);
  blocked(writer, leaf());
  EXPECT_FALSE(writer.ready());
  bob.release(second);
  granted(writer);
}

TEST_P(Shared, readers_wait_for_a_writer_and_are_granted_together) {
  Party& writer = party("writer");
  const Outcome held = granted(writer.acquire(leaf()));
  std::vector<Pending> readers;
  for (const char* name : {"r1", "r2", "r3", "r4"}) {
    readers.push_back(party(name).acquire(shared(leaf())));
    blocked(readers.back(), leaf());
  }
  writer.release(held);
  for (Pending& reader : readers) granted(reader);  // nobody has released: all four hold it at this moment
  for (const char* name : {"r1", "r2", "r3", "r4"}) {
    const std::vector<Snapshot::Holder> held_now = held_by(party(name));
    EXPECT_TRUE(
        std::any_of(held_now.begin(), held_now.end(),
                    [&](const Snapshot::Holder& h) { return h.target == leaf() && h.mode == Mode::S && h.asked; }))
        << name << '\n'
        << state();
  }
}

TEST_P(Shared, every_pair_of_modes_on_a_chain_and_beside_it) {  // B10
  HIERLOCK_NEEDS(shared_inner);
  const std::vector<std::string> paths = {"u", "u/a", "u/a/r", "u/b"};
  const auto related = [](const std::string& a, const std::string& b) {
    return a == b || a.starts_with(b + "/") || b.starts_with(a + "/");
  };
  Party &alice = party("alice"), &bob = party("bob"), &carol = party("carol");
  std::ostringstream wrong;
  for (const bool plain : {false, true}) {
    for (const std::string& first : paths) {
      for (const bool first_shared : {false, true}) {
        for (const std::string& second : paths) {
          for (const bool second_shared : {false, true}) {
            const Target first_target = first_shared ? shared(first) : Target(first);
            const Target second_target = second_shared ? shared(second) : Target(second);
            const bool expected = related(first, second) && !(first_shared && second_shared);
            const Outcome held = granted(alice.acquire(first_target, {.plain = plain}));
            const Outcome tried = result(carol.try_acquire(second_target, 0ns, {.plain = plain}));
            if (tried.granted()) carol.release(tried);
            Pending asked = bob.acquire(second_target);
            const bool waited = waits(asked);
            if (!waited) bob.release(granted(asked));
            alice.release(held);
            if (waited) bob.release(granted(asked));
            if (waited != expected || tried.granted() == expected) {
              wrong << "  " << first_target.str() << " is held" << (plain ? " plainly, " : ", ") << second_target.str()
                    << (waited ? " waits, and tried it" : " is granted, and tried it")
                    << (tried.granted() ? " is granted\n" : " is not\n");
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(wrong.str(), "") << "wrong cells";
}

TEST_P(Shared, a_shared_inner_node_excludes_writers_anywhere_below) {  // B10
  HIERLOCK_NEEDS(shared_inner);
  Party &reader = party("reader"), &writer = party("writer");
  const Outcome held = granted(reader.acquire(shared("u1")));
  for (const char* below : {"u1/a1", "u1/a1/r1", "u1/a1/r1/x/y"}) refused(writer.try_acquire(below), ErrorKind::busy);
  granted(writer.try_acquire(shared("u1/a1/r1")));
  granted(writer.try_acquire("u2/a1/r1"));
  reader.release(held);
  granted(writer.try_acquire("u1/a2/r1"));
}

TEST_P(Shared, a_shared_leaf_lets_writers_work_beside_it) {  // B10: IS and IX get along
  Party &reader = party("reader"), &writer = party("writer");
  granted(reader.acquire(shared("u1/a1/r1")));
  writer.release(granted(writer.try_acquire("u1/a1/r2")));
  writer.release(granted(writer.try_acquire("u1/a2/r1")));
  refused(writer.try_acquire("u1/a1/r1"), ErrorKind::busy);
  refused(writer.try_acquire("u1/a1"), ErrorKind::busy);
}

TEST_P(Shared, modes_are_shown_as_they_are_held) {  // B10
  HIERLOCK_NEEDS(shared_inner);
  Party &reader = party("reader"), &writer = party("writer");
  granted(reader.acquire(shared("u1/a1")));
  granted(writer.acquire("u1/a2"));
  const std::vector<Snapshot::Holder> of_reader = held_by(reader), of_writer = held_by(writer);
  ASSERT_EQ(of_reader.size(), 2u) << state();
  EXPECT_EQ(of_reader[0].mode, Mode::IS);
  EXPECT_EQ(of_reader[1].mode, Mode::S);
  ASSERT_EQ(of_writer.size(), 2u) << state();
  EXPECT_EQ(of_writer[0].mode, Mode::IX);
  EXPECT_EQ(of_writer[1].mode, Mode::X);
}

TEST_P(Shared, one_acquire_of_a_shared_node_and_a_writer_below_it_excludes_everybody_else) {  // IX with S is X
  HIERLOCK_NEEDS(shared_inner);
  Party &alice = party("alice"), &bob = party("bob");
  granted(alice.acquire_all({shared("u1"), "u1/a1/r1"}));
  refused(bob.try_acquire(shared("u1/a2")), ErrorKind::busy);
  refused(bob.try_acquire("u1/a2"), ErrorKind::busy);
}

TEST_P(Shared, names_can_be_shared_where_the_store_says_so) {
  HIERLOCK_NEEDS(shared_names);
  Party &alice = party("alice"), &bob = party("bob");
  granted(alice.acquire(shared(named("n"))));
  bob.release(granted(bob.try_acquire(shared(named("n")))));
  refused(bob.try_acquire(named("n")), ErrorKind::busy);
}

HIERLOCK_ON_EVERY_BACKEND(Shared);

}  // namespace
}  // namespace hierlock::conformance
