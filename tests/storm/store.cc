#include "store.h"

#include <array>
#include <cstdio>
#include <cstring>

#include <hierlock/hierlock.h>

#include "supervisor.h"

namespace storm {

namespace {

constexpr std::size_t deepest = 2;  // how many places are above a resource

// The holder of a lease learns of a break by a message. One that is stopped at that moment may hand the lock over
// before it does, and the witness cannot know.
bool can_break(hierlock::Locker& locker) {
  if (locker.capabilities().leases) return false;
  try {
    (void)locker.break_locks("nobody", "the storm");
    return true;
  } catch (const hierlock::Error& error) {
    if (error.kind() != hierlock::ErrorKind::unsupported) throw;
    return false;
  }
}

}  // namespace

bool Store::has(const Place& place) const {
  if (place.slots != 0) return can.slots;
  return place.target.space() != hierlock::Space::name || can.names;
}

bool Store::shares(const Place& place) const {
  if (place.slots != 0) return false;
  if (place.target.space() == hierlock::Space::name) return can.shared_names;
  return can.shared_inner || place.above.size() == deepest;
}

bool ask(const Witness& witness, Store& store) {
  static_assert(sizeof(hierlock::Capabilities) <= 2 * sizeof(std::int64_t));
  std::array<std::int64_t, 2> words{};
  const int status = reap(start([&] {
    try {
      hierlock::Locker locker = hierlock::open(store.url);
      const hierlock::Capabilities can = locker.capabilities();
      std::memcpy(words.data(), &can, sizeof can);
      witness.all().answers[0].store(words[0]);
      witness.all().answers[1].store(words[1]);
      witness.all().answers[2].store(can_break(locker) ? 1 : 0);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "storm: %s\n", error.what());
      throw;
    }
  }));
  if (status != 0) return false;
  words = {witness.all().answers[0].load(), witness.all().answers[1].load()};
  std::memcpy(static_cast<void*>(&store.can), words.data(), sizeof store.can);
  store.breaks = witness.all().answers[2].load() != 0;
  return true;
}

}  // namespace storm
