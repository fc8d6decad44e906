#include "support/suite.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace hierlock::conformance {

namespace {

constexpr std::chrono::seconds test_limit{300};  // one that hangs; a busy machine takes a minute for the longest

std::vector<Backend>& registry() {
  static std::vector<Backend> all;
  return all;
}

struct Capability {
  bool Capabilities::*what;
  const char* name;
  const char* words;
};
constexpr Capability capabilities[] = {
    {&Capabilities::names, "names", "names"},
    {&Capabilities::shared_inner, "shared_inner", "shared locks above the deepest level"},
    {&Capabilities::shared_names, "shared_names", "shared names"},
    {&Capabilities::slots, "slots", "slots"},
    {&Capabilities::sliced_names, "sliced_names", "waits for many names that are sliced"},
    {&Capabilities::fifo, "fifo", "first come, first served"},
    {&Capabilities::passes_own_queue, "passes_own_queue", "a way past those who wait for one's own locks"},
    {&Capabilities::wakes_waiters, "wakes_waiters", "waiters that are woken"},
    {&Capabilities::frees_at_once, "frees_at_once", "locks that are free when release() returns"},
    {&Capabilities::extends, "extends", "extend"},
    {&Capabilities::deadlock_at_once, "deadlock_at_once", "deadlocks found when the cycle closes"},
    {&Capabilities::exact_keys, "exact_keys", "a lock of its own for each target"},
    {&Capabilities::across_processes, "across_processes", "exclusion of other processes"},
    {&Capabilities::across_machines, "across_machines", "exclusion of other machines"},
    {&Capabilities::leases, "leases", "leases"},
};
static_assert(std::size(capabilities) == sizeof(Capabilities), "a capability is missing here");

// What stores were found to have, and how many tests were left out for want of each; printed at the end.
class CapabilitiesTable : public testing::Environment {
 public:
  struct Store {
    Capabilities can;
    std::map<std::string, int> left_out{};  // by the capability's name
  };
  std::map<std::string, Store> stores;

  void TearDown() override {
    if (stores.empty()) return;
    const auto width = [](const std::string& store) {
      return static_cast<int>(std::max<std::size_t>(store.size(), 5));
    };
    std::printf("what stores can do; where they cannot, how many cases were left out for it\n%-18s", "");
    for (const auto& [name, store] : stores) std::printf("  %*s", width(name), name.c_str());
    for (const Capability& one : capabilities) {
      std::printf("\n%-18s", one.name);
      for (const auto& [name, store] : stores) {
        const auto found = store.left_out.find(one.name);
        const int left_out = found == store.left_out.end() ? 0 : found->second;
        const std::string text = store.can.*one.what ? "yes" : "no " + std::to_string(left_out);
        std::printf("  %*s", width(name), text.c_str());
      }
    }
    std::printf("\n");
  }
};
CapabilitiesTable& capabilities_table() {
  static CapabilitiesTable* const table = [] {
    auto* const made = new CapabilitiesTable;
    testing::AddGlobalTestEnvironment(made);  // gtest's from now on
    return made;
  }();
  return *table;
}

}  // namespace

bool add_backend(Backend backend) {
  (void)capabilities_table();  // before gtest sets up what it knows of
  registry().push_back(std::move(backend));
  return true;
}

const std::vector<Backend>& backends() { return registry(); }

std::string describe(const Snapshot& snapshot) {
  std::ostringstream out;
  out << "store " << snapshot.store << '\n';
  for (const Snapshot::Holder& h : snapshot.holders) {
    out << "  held    " << h.target << ' ' << to_string(h.mode) << (h.asked ? "" : " (ancestor)") << " by owner "
        << h.who.owner << " '" << h.who.owner_name << "' note '" << h.who.note << "' fence " << h.fence << '\n';
  }
  for (const Snapshot::Waiter& w : snapshot.waiters) {
    out << "  waiting " << w.target << ' ' << to_string(w.mode) << " for " << w.wanted << " by owner " << w.who.owner
        << " '" << w.who.owner_name << "' note '" << w.who.note << "' blocked by";
    for (const std::uint64_t owner : w.blocked_by) out << ' ' << owner;
    out << (w.blocked_by.empty() ? " nobody\n" : "\n");
  }
  if (snapshot.holders.empty() && snapshot.waiters.empty()) out << "  nobody holds or waits\n";
  return out.str();
}

std::string describe(const Capabilities& can) {
  std::string text;
  for (const Capability& one : capabilities) text += (can.*one.what ? " +" : " -") + std::string(one.name);
  return text;
}

bool eventually(const std::function<bool()>& happened) {
  const auto deadline = Clock::now() + patience;
  for (int round = 0; !happened(); ++round) {
    if (Clock::now() > deadline) return happened();
    if (round < 100) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(200us);
    }
  }
  return true;
}

OnOneProcessor::OnOneProcessor() : policy_before_(::sched_getscheduler(0)) {
  CPU_ZERO(&processors_before_);
  if (::sched_getaffinity(0, sizeof processors_before_, &processors_before_) != 0) {
    throw std::runtime_error(std::string("sched_getaffinity: ") + std::strerror(errno));
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &processors_before_)) CPU_SET(cpu, &one);
  }
  // A batch thread does not push its waker aside (sched(7)). Where either is not allowed, the test is only weaker.
  const sched_param none{};
  (void)::sched_setscheduler(0, SCHED_BATCH, &none);
  (void)::sched_setaffinity(0, sizeof one, &one);
}

OnOneProcessor::~OnOneProcessor() {
  const sched_param none{};
  (void)::sched_setscheduler(0, policy_before_, &none);
  (void)::sched_setaffinity(0, sizeof processors_before_, &processors_before_);
}

void Complaints::unless(bool fine, const std::string& otherwise) {
  if (!fine) text_ += otherwise + "\n";
}

std::string in_forked_child(const std::function<void(Complaints&)>& work) {
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error(std::string("pipe: ") + std::strerror(errno));
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error(std::string("fork: ") + std::strerror(errno));
  if (child == 0) {
    ::alarm(static_cast<unsigned>(patience.count()));
    Complaints complaints;
    try {
      work(complaints);
    } catch (const std::exception& error) {
      complaints.unless(false, std::string("threw ") + error.what());
    }
    const std::string& text = complaints.text();
    const bool written = ::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    ::_exit(written ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) text += "the child died of signal " + std::to_string(WTERMSIG(status)) + "\n";
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
    text += "the child exited with " + std::to_string(WEXITSTATUS(status)) + "\n";
  }
  return text;
}

Conformance::Conformance() {
  if (!GetParam().missing().empty()) return;
  table_ = GetParam().make_table();
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  watchdog_.emplace(std::string(test.test_suite_name()) + "." + test.name(), test_limit, [this] {
    const Locker* opened = opened_;
    return opened ? describe(opened->snapshot()) : std::string("nothing was opened");
  });
}

void Conformance::SetUp() {
  if (table_ == nullptr) GTEST_SKIP() << GetParam().missing();
}

void Conformance::TearDown() {
  for (auto& [name, party] : parties_) party->abandon();
  parties_.clear();
  // The Locker goes under the watchdog still: it must not hang either.
  opened_ = nullptr;
  locker_.reset();
}

Locker& Conformance::locker() {
  const std::scoped_lock guard(opening_);
  return locker_ ? *locker_ : open_now({});
}

Locker& Conformance::open_with(OpenOptions options) {
  const std::scoped_lock guard(opening_);
  if (locker_) throw std::logic_error("the test's Locker is open already");
  return open_now(std::move(options));
}

Locker& Conformance::open_now(OpenOptions options) {
  locker_.emplace(table_->open(std::move(options)));
  opened_ = &*locker_;
  return *locker_;
}

const Capabilities& Conformance::can() {
  std::map<std::string, CapabilitiesTable::Store>& stores = capabilities_table().stores;
  auto found = stores.find(GetParam().name);
  if (found == stores.end()) found = stores.try_emplace(GetParam().name, table_->open().capabilities()).first;
  return found->second.can;
}

std::string Conformance::left_out_for(bool Capabilities::*what) {
  (void)can();
  for (const Capability& one : capabilities) {
    if (one.what != what) continue;
    ++capabilities_table().stores.at(GetParam().name).left_out[one.name];
    return GetParam().name + " does not have " + one.name + ": " + one.words;
  }
  throw std::logic_error("no such capability");
}

Party& Conformance::party(const std::string& name) {
  const auto found = parties_.find(name);
  return found != parties_.end() ? *found->second : add_party(name, table_->make_party(name, locker()));
}

Party& Conformance::thread(const std::string& name) {
  const auto found = parties_.find(name);
  return found != parties_.end() ? *found->second : add_party(name, make_thread_party(name, locker()));
}

Party& Conformance::add_party(const std::string& name, std::unique_ptr<Party> party) {
  return *(parties_[name] = std::move(party));
}

void Conformance::fail(const std::string& what) { throw std::runtime_error(what + "\n" + state()); }

Outcome Conformance::result(Pending& pending) {
  if (!eventually([&] { return pending.ready(); })) fail(pending.by->name() + " has no answer for " + pending.asked);
  return pending.result.get();
}

Outcome Conformance::granted(Pending& pending) {
  Outcome outcome = result(pending);
  // Another process may have released it just now, and that release may still be on its way.
  if (!can().frees_at_once && pending.command.what == Command::What::try_acquire) {
    eventually([&] {
      if (outcome.error != ErrorKind::busy) return true;
      pending.result = pending.by->run(pending.command);
      outcome = result(pending);
      return outcome.error != ErrorKind::busy;
    });
  }
  if (!outcome.granted()) {
    std::ostringstream text;
    text << pending.by->name() << " should have been granted " << pending.asked << ", but: " << outcome;
    fail(text.str());
  }
  return outcome;
}

Outcome Conformance::refused(Pending& pending, ErrorKind kind) {
  const Outcome outcome = result(pending);
  if (outcome.error != kind) {
    std::ostringstream text;
    text << pending.by->name() << " should have been refused " << pending.asked << " with " << to_string(kind)
         << ", but: " << outcome;
    fail(text.str());
  }
  return outcome;
}

Snapshot::Waiter Conformance::blocked(const Pending& pending, std::string_view at) {
  std::optional<Snapshot::Waiter> seen;
  eventually([&] {
    for (const Snapshot::Waiter& waiter : waits_of(*pending.by)) {
      if (!waiter.blocked_by.empty() && (at.empty() || waiter.target == at)) seen = waiter;
    }
    return seen || pending.ready();
  });
  if (!seen) {
    fail(pending.by->name() + " should wait for " + pending.asked + (at.empty() ? "" : " at ") + std::string(at) +
         (pending.ready() ? ", but has its answer" : ", but no snapshot shows it"));
  }
  return *seen;
}

bool Conformance::waits(Pending& pending) {
  bool waiting = false;
  const bool decided = eventually([&] {
    if (pending.ready()) return true;
    for (const Snapshot::Waiter& waiter : waits_of(*pending.by)) waiting = waiting || !waiter.blocked_by.empty();
    return waiting;
  });
  if (!decided) fail(pending.by->name() + " neither waits for nor gets " + pending.asked);
  return waiting;
}

void Conformance::expect_unsupported(const Target& target) {
  EXPECT_EQ(kind_thrown_by([&] { return locker().acquire(target, {.timeout = 0ns}); }), ErrorKind::unsupported)
      << target.str() << " on " << locker().url();
  EXPECT_TRUE(nothing_left()) << state();
}

std::vector<Snapshot::Holder> Conformance::held_by(const Party& party) {
  std::vector<Snapshot::Holder> found = locker().snapshot().holders;
  std::erase_if(found, [&](const Snapshot::Holder& h) { return h.who.note != party.name(); });
  return found;
}

std::vector<Snapshot::Waiter> Conformance::waits_of(const Party& party) {
  std::vector<Snapshot::Waiter> found = locker().snapshot().waiters;
  std::erase_if(found, [&](const Snapshot::Waiter& w) { return w.who.note != party.name(); });
  return found;
}

std::string Conformance::owner_name(const Party& party) {
  for (const Snapshot::Holder& h : held_by(party)) return h.who.owner_name;
  for (const Snapshot::Waiter& w : waits_of(party)) return w.who.owner_name;
  fail(party.name() + " neither holds nor waits");
}

std::uint64_t Conformance::owner_number(const Party& party) {
  for (const Snapshot::Holder& h : held_by(party)) return h.who.owner;
  for (const Snapshot::Waiter& w : waits_of(party)) return w.who.owner;
  fail(party.name() + " neither holds nor waits");
}

bool Conformance::nothing_left(const Party& party) {
  const auto nothing = [&] { return held_by(party).empty() && waits_of(party).empty(); };
  return table_->forgets_at_once() ? nothing() : eventually(nothing);
}

bool Conformance::nothing_left() {
  const auto nothing = [&] {
    const Snapshot now = locker().snapshot();
    return now.holders.empty() && now.waiters.empty();
  };
  return table_->forgets_at_once() ? nothing() : eventually(nothing);
}

std::string Conformance::state() { return describe(locker().snapshot()); }

}  // namespace hierlock::conformance
