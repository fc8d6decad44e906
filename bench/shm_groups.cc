// Processes of one machine, on shm:.
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "berkeley_turns.h"
#include "groups.h"
#include "keys.h"
#include "ours.h"
#include "peer_berkeley.h"
#include "peer_futex.h"
#include "process.h"
#include "programs.h"
#include "session.h"

namespace bench::groups {

namespace {

// A table of shm: and a region of Berkeley DB, in files in memory that processes share.
class SharedStores {
 public:
  std::string url() const { return "shm://" + folder_.file("table"); }
  Berkeley::Config berkeley() const { return {.folder = folder_.folder("berkeley"), .spins = 500}; }

 private:
  ScratchFolder folder_;
};

}  // namespace

void shm(Session& session) {
  const SharedStores stores;
  Team<Ours> ours("hierlock, shm:", {spread_keys()}, stores.url()), memory("hierlock", {spread_keys()});
  Team<Berkeley> berkeley("Berkeley DB", {spread_keys()}, stores.berkeley());
  const Window window = session.window();
  session.measure("shm", {{"ours", [&] { return pairs_per_second(ours.crew, window); }},
                          {"memory", [&] { return pairs_per_second(memory.crew, window); }},
                          {"berkeley", [&] { return pairs_per_second(berkeley.crew, window); }}});
}

namespace {

void process_pairs(Session& session, std::string_view group, const std::vector<std::vector<Path>>& keys) {
  const SharedStores stores;
  ProcessTeam<Ours> ours("hierlock, shm:", keys, stores.url());
  ProcessTeam<Berkeley> berkeley("Berkeley DB", keys, stores.berkeley());
  const Window window = session.window();
  session.measure(group, {{"ours", [&] { return ours.pairs_per_second(window); }},
                          {"berkeley", [&] { return berkeley.pairs_per_second(window); }}});
}

}  // namespace

void shm_disjoint2(Session& session) {
  const std::vector<Path> keys = spread_keys();
  process_pairs(session, "shm-disjoint2", {keys_by_user(keys, 0), keys_by_user(keys, 1)});
}

void shm_hot2(Session& session) {
  const std::vector<Path> keys = hot_keys();
  process_pairs(session, "shm-hot2", {keys_by_resource(keys, 0), keys_by_resource(keys, 1)});
}

void shm_handover(Session& session) {
  const SharedStores stores;
  Shared<FutexTurns> word(FutexTurns::Between::processes);
  ProcessTurns ours([&] { return std::make_unique<OurTurns>(stores.url()); });
  ProcessTurns berkeley([config = stores.berkeley()] { return std::make_unique<BerkeleyTurns>(config); });
  ProcessTurns futex([&] { return std::unique_ptr<FutexTurns, void (*)(FutexTurns*)>(&*word, [](FutexTurns*) {}); });
  const std::size_t hops = session.quick() ? 100 : 500;
  const auto p50 = [hops](ProcessTurns& turns) { return percentile(turns.hand_overs(hops), 50); };
  session.measure("shm-handover", {{"ours", [&] { return p50(ours); }},
                                   {"futex", [&] { return p50(futex); }},
                                   {"berkeley", [&] { return p50(berkeley); }}});
}

void exec(Session& session) {
  const std::optional<std::string> tool = tool_path(), flock_path = found_in_path("flock");
  if (!tool) return session.skip("exec", "the tool is not built (HIERLOCK_BUILD_CLI is off)");
  if (!flock_path) return session.skip("exec", "there is no flock in PATH (it is in util-linux)");
  const ScratchFolder folder;
  const std::string url = "shm://" + folder.file("table"), file = folder.file("flock");
  // While somebody else holds it, both must refuse.
  on_threads(1, [&](std::size_t) {
    hierlock::Locker locker = hierlock::open(url);
    const hierlock::Lock lock = locker.acquire("u1/a1/r1");
    const Program again({*tool, "exec", "--on", url, "--no-wait", "u1/a1/r1", "--", "true"});
    if (again.run_quietly() != 75) throw std::runtime_error("hierlock exec: self-check: a lock was given to two");
    const FileLock file_lock(file);
    const Program flock_again({*flock_path, "--nonblock", file, "true"});
    if (flock_again.run_quietly() != 1) throw std::runtime_error("flock: self-check: a lock was given to two");
  });
  const Program ours({*tool, "exec", "--on", url, "u1/a1/r1", "--", "true"}), flock({*flock_path, file, "true"});
  InTurns round(
      session.quick() ? 11 : 41, [&] { return ours.time(); }, [&] { return flock.time(); });
  session.measure("exec", {{"ours", [&] { return round.ours(); }}, {"flock", [&] { return round.peer(); }}});
}

}  // namespace bench::groups
