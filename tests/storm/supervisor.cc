#include "supervisor.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include <hierlock/hierlock.h>

namespace storm {

namespace {

constexpr std::int64_t second = 1'000'000'000;
constexpr unsigned longest_stop_ms = 300;
constexpr double shortest_pause_for_leases_ms = 400;
// At a server nobody is promised to be next, and a deadlock between processes may take seconds to be found.
std::int64_t hang_limit(const Store& store) { return (store.at_a_server() ? 40 : 20) * second * slowness; }

volatile std::sig_atomic_t signalled = 0;

}  // namespace

bool interrupted() {
  static const bool installed = [] {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, [](int) { signalled = 1; });
    return true;
  }();
  return installed && signalled != 0;
}

void sleep_us(std::int64_t us) {
  const timespec time{us / 1'000'000, us % 1'000'000 * 1000};
  nanosleep(&time, nullptr);
}

pid_t start(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) std::_Exit(0);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
  int status = 0;
  try {
    body();
  } catch (...) {
    status = 3;
  }
  std::_Exit(status);
}

int reap(pid_t child, std::int64_t until_ns) {
  int status = 0;
  for (;;) {
    const pid_t reaped = waitpid(child, &status, until_ns == INT64_MAX ? 0 : WNOHANG);
    if (reaped == child || (reaped < 0 && errno != EINTR)) return status;
    if (until_ns == INT64_MAX) continue;
    if (now_ns() > until_ns) {
      kill(child, SIGKILL);
      until_ns = INT64_MAX;
    } else {
      sleep_us(1000);
    }
  }
}

std::string describe_table(const std::string& url) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return "(no pipe)";
  const pid_t child = start([&] {
    alarm(20);
    hierlock::Locker locker = hierlock::open(url);
    const hierlock::Snapshot snapshot = locker.snapshot();
    std::string text;
    for (const auto& h : snapshot.holders) {
      text += "  " + h.target + " " + std::string(to_string(h.mode)) + (h.asked ? "" : " (above)") +
              " held by process " + std::to_string(h.who.process) + ", fence " + std::to_string(h.fence) + ", owner " +
              std::to_string(h.who.owner) + "\n";
    }
    for (const auto& w : snapshot.waiters) {
      text += "  " + w.target + " " + std::string(to_string(w.mode)) + " awaited by process " +
              std::to_string(w.who.process) + " for " + std::to_string(w.age.count() / 1'000'000) + " ms, owner " +
              std::to_string(w.who.owner) + ", blocked by";
      for (const std::uint64_t owner : w.blocked_by) text += " " + std::to_string(owner);
      text += "\n";
    }
    for (std::size_t i = snapshot.log.size() - std::min<std::size_t>(snapshot.log.size(), 5); i < snapshot.log.size();
         ++i) {
      text += "  log: " + snapshot.log[i].text + "\n";
    }
    for (std::size_t written = 0; written < text.size();) {
      const ssize_t size = write(ends[1], text.data() + written, text.size() - written);
      if (size <= 0) break;
      written += static_cast<std::size_t>(size);
    }
  });
  close(ends[1]);
  std::string text;
  std::array<char, 4096> part{};
  for (ssize_t size = 0; (size = read(ends[0], part.data(), part.size())) > 0;) {
    text.append(part.data(), static_cast<std::size_t>(size));
  }
  close(ends[0]);
  reap(child);
  return text.empty() ? "  (nothing, or it could not be looked at)\n" : text;
}

// --- life and death --------------------------------------------------------------------------------------

Supervisor::Supervisor(const Witness& witness, const Options& options, const Store& store)
    : witness_(witness),
      options_(options),
      setting_{.store = store,
               .seed = options.seed,
               .processes = options.processes,
               .threads = options.threads,
               // Rows of a server are made for good, so there they are few.
               .scratch = store.at_a_server() ? 50 : options.max_locks * 3 / 4,
               .fault = options.fault,
               .own_stops = options.own_stops,
               .danger = store.breaks ? options.danger : 0,
               .hot = options.hot},
      random_(options.seed),
      processes_(options.processes) {}

Supervisor::~Supervisor() {
  for (const Process& process : processes_) {
    if (process.pid <= 0) continue;
    kill(process.pid, SIGKILL);
    reap(process.pid);
  }
}

void Supervisor::for_each_worker_of(std::size_t process, const std::function<void(std::size_t, Row&)>& what) const {
  for (std::size_t i = 0; i < setting_.threads; ++i) {
    const std::size_t worker = setting_.first_worker(process) + i;
    what(worker, witness_.row(worker));
  }
}

void Supervisor::launch(std::size_t process) {
  for_each_worker_of(process, [](std::size_t, Row& row) {
    row.state.store(State::opening);
    row.state_since.store(now_ns());
    row.stopped_itself.store(0);
    row.incarnation.fetch_add(1);
  });
  const auto has = [&](pid_t pid) {
    for_each_worker_of(process, [pid](std::size_t, Row& row) { row.pid.store(pid); });
  };
  const pid_t child = start([&] {
    has(getpid());
    work(witness_, setting_, process);
  });
  if (child < 0) {
    witness_.violation("fork failed");
    return;
  }
  has(child);
  processes_[process] = {child, 0};
}

bool Supervisor::over() const {
  if (interrupted() || witness_.all().violations.load() != 0) return true;
  if (options_.soak.count() != 0) return now_ns() - began_ >= options_.soak.count() * second;
  return kills_ >= options_.kills;
}

// What a worker is doing. At a server a wait is told of late: whoever has been in a call for longer than an answer
// takes is waiting.
State Supervisor::doing(const Row& row, std::int64_t at) const {
  const State state = row.state.load();
  if (!setting_.store.at_a_server() || at - row.state_since.load() < 5'000'000 * slowness) return state;
  return state == State::acquiring ? State::waiting : state == State::extending ? State::extending_waiting : state;
}

// Wishes: 0 anybody, 1 holding, 2 waiting, 3 in the middle of a call, 4 just begun.
bool Supervisor::wished(State state, unsigned wish) const {
  switch (wish) {
    case 1:
      return state == State::holding || state == State::extending || state == State::extending_waiting;
    case 2:
      return state == State::waiting;
    case 3:
      return state == State::acquiring || state == State::releasing || state == State::extending;
    case 4:
      return state == State::opening || state == State::idle;
    default:
      return true;
  }
}

std::size_t Supervisor::pick_victim() {
  const unsigned dice = below(100);
  const unsigned wish = dice < 45 ? 1 : dice < 72 ? 2 : dice < 86 ? 3 : dice < 94 ? 4 : 0;
  const std::size_t first = options_.fault == Break::hang ? setting_.first_worker(1) : 0;
  // Somebody in the wished state is looked for again and again for a while, then anybody will do.
  const int most_tries = setting_.store.at_a_server() ? 800 : 40;
  for (int tries = 0;; ++tries) {
    const std::size_t begin = below(static_cast<unsigned>(setting_.workers()));
    for (std::size_t i = 0; i < setting_.workers(); ++i) {
      const std::size_t worker = (begin + i) % setting_.workers();
      if (worker >= first && (wished(doing(witness_.row(worker), now_ns()), wish) || tries >= most_tries))
        return worker;
    }
    sleep_us(100);
  }
}

void Supervisor::kill_process_of(std::size_t worker) {
  const Process& process = processes_[process_of(worker)];
  for_each_worker_of(process_of(worker), [](std::size_t, Row& row) {
    const std::uint32_t incarnation = row.incarnation.load();
    row.doomed_at[incarnation % 4].store(now_ns());
    row.doomed.store(incarnation);
  });
  kill(process.pid, SIGKILL);
  ++kills_;
  if (process.go_on_at != 0) ++killed_stopped_;
}

// After the kill: what they were doing when they died is what their rows say now.
void Supervisor::bury_process_of(std::size_t worker) {
  Process& process = processes_[process_of(worker)];
  const int status = reap(process.pid);
  process.pid = -1;
  if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
    // It had not ended before it was killed, unless something is wrong: nobody ends before the stop.
    witness_.violation("died: " + witness_.about(worker) + " ended by itself before it was killed, status " +
                       std::to_string(status));
  }
  const Row& row = witness_.row(worker);
  const std::int64_t killed_at = row.doomed_at[row.incarnation.load() % 4].load();
  ++by_state_[static_cast<std::size_t>(doing(row, killed_at)) % state_count];
  for_each_worker_of(process_of(worker), [this](std::size_t each, Row&) { bury(each); });
}

void Supervisor::bury(std::size_t worker) {
  Row& row = witness_.row(worker);
  if (const std::uint32_t place = row.about_to.load(); place != 0) {
    const int p = static_cast<int>(place - 1);
    if (row.counted[p].load() < row.ordinal.load()) {
      const std::uint64_t from = row.from.load();
      const std::uint64_t maker =
          (from & 0xFFFFFFFF) << 32 | (worker & 0x3FF) << 22 | (row.incarnation.load() & 0x3FFFFF);
      unresolved_[{p, from}].push_back({maker});
      ++casualties_;
    }
    row.about_to.store(0);
  }
  if (row.extend.load() % 2 != 0) {
    row.extend_lost.store(row.extend.load());
    row.extend.fetch_add(1);
  }
  for (Word<std::uint64_t>& mark : row.inside) mark.store(0);
  for (Word<std::uint64_t>& seen : row.breaks_seen) seen.store(0);
  witness_.end_break(row);
}

void Supervisor::replace_process_of(std::size_t worker) {
  bury_process_of(worker);
  launch(process_of(worker));
}

// The step from v to v+1 was made at most once: by the one that died if `made` names it, or names nobody (the next who
// came found the value without a maker); by somebody else, if it names them, and then the dead had not written.
void Supervisor::resolve(bool at_end) {
  for (auto it = unresolved_.begin(); it != unresolved_.end();) {
    const auto& [place, from] = it->first;
    const Counter& counter = witness_.all().counters[static_cast<std::size_t>(place)];
    const std::uint64_t step = counter.made[from % ring].load();
    const bool known = step != 0 && step >> 32 == (from & 0xFFFFFFFF);
    const std::uint64_t value = counter.value;
    bool decided = true, happened = false;
    if (known) {
      happened = (step >> 22 & 0x3FF) == 0x3FF ||
                 std::any_of(it->second.begin(), it->second.end(), [&](const Casualty& c) { return c.maker == step; });
    } else if (value > from + ring) {
      ++forgotten_;  // too late to know: not counted, and the sums must allow for it
    } else if (at_end) {
      happened = value == from + 1;
      if (value > from + 1) {
        witness_.violation("counter: " + places()[static_cast<std::size_t>(place)].text + " is " +
                           std::to_string(value) + ", but nobody made the step from " + std::to_string(from));
      }
    } else {
      decided = false;
    }
    if (happened) ++happened_[place];
    it = decided ? unresolved_.erase(it) : std::next(it);
  }
}

void Supervisor::stop_some() {
  if (below(100) >= options_.stops) return;
  Process& process = processes_[below(static_cast<unsigned>(processes_.size()))];
  if (process.go_on_at != 0 || process.pid <= 0) return;
  kill(process.pid, SIGSTOP);
  process.go_on_at = now_ns() + (1 + below(below(10) == 0 ? longest_stop_ms : 40)) * 1'000'000;
  ++stops_;
}

void Supervisor::continue_some() {
  const std::int64_t now = now_ns();
  for (Process& process : processes_) {
    if (process.go_on_at == 0 || process.go_on_at > now || process.pid <= 0) continue;
    kill(process.pid, SIGCONT);
    process.go_on_at = 0;
  }
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    const std::int64_t since = witness_.row(setting_.first_worker(i)).stopped_itself.load();
    if (since == 0 || processes_[i].pid <= 0) continue;
    // For a while, which differs from stop to stop. Again and again: the first may come before it has stopped.
    const std::int64_t ms = 1 + since / 1000 % (since / 7 % 10 == 0 ? longest_stop_ms : 40);
    if (now > since + ms * 1'000'000) kill(processes_[i].pid, SIGCONT);
  }
}

void Supervisor::look_for_deaths() {
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    int status = 0;
    if (processes_[i].pid <= 0 || waitpid(processes_[i].pid, &status, WNOHANG) <= 0) continue;
    processes_[i].pid = -1;
    witness_.violation("died: nobody killed " + witness_.about(setting_.first_worker(i)) +
                       (WIFSIGNALED(status) ? ", signal " + std::to_string(WTERMSIG(status))
                                            : ", exit status " + std::to_string(WEXITSTATUS(status))));
  }
}

void Supervisor::look_for_hangs() {
  const std::int64_t limit = options_.fault == Break::hang ? 3 * second * slowness : hang_limit(setting_.store);
  const std::int64_t now = now_ns();
  for (std::size_t worker = 0; worker < setting_.workers(); ++worker) {
    const Row& row = witness_.row(worker);
    if (processes_[process_of(worker)].pid <= 0 || now - row.state_since.load() < limit) continue;
    witness_.violation("hang: " + witness_.about(worker) + " has been so for " +
                       std::to_string((now - row.state_since.load()) / 1'000'000) + " ms");
    return;
  }
}

void Supervisor::run() {
  began_ = told_ = now_ns();
  for (std::size_t process = 0; process < processes_.size(); ++process) launch(process);
  std::exponential_distribution<double> pause(1 / std::max(options_.pause_ms, 0.01));
  while (!over()) {
    const std::int64_t next = now_ns() + static_cast<std::int64_t>(std::min(pause(random_), 200.0) * 1e6);
    do {
      continue_some();
      look_for_deaths();
      sleep_us(std::clamp<std::int64_t>((next - now_ns()) / 1000, 50, 2000));
    } while (now_ns() < next);
    resolve(false);
    look_for_hangs();
    stop_some();
    if (over()) break;
    // Now and then several at once, so that whoever clears up after one is killed doing it.
    std::vector<std::size_t> victims;
    for (unsigned count = below(20) == 0 ? 2 + below(3) : 1; count > 0; --count) {
      const std::size_t victim = pick_victim();
      const auto same = [&](std::size_t other) { return process_of(other) == process_of(victim); };
      if (std::none_of(victims.begin(), victims.end(), same)) victims.push_back(victim);
    }
    if (victims.size() > 1) ++bursts_;
    for (const std::size_t victim : victims) kill_process_of(victim);
    for (const std::size_t victim : victims) replace_process_of(victim);
    if (below(12) == 0) {  // and the new one, while it opens the table
      sleep_us(below(1000));
      kill_process_of(victims.back());
      replace_process_of(victims.back());
    }
    progress(false);
  }
  ended_ = now_ns();
  finish();
}

// Everybody comes to an end by itself.
void Supervisor::finish() {
  if (witness_.all().violations.load() != 0) {
    sleep_us(20'000);  // what else is seen now belongs to it
    for (const Process& process : processes_) {
      if (process.pid > 0) kill(process.pid, SIGSTOP);  // as they were, or nearly, when it was seen
    }
  } else {
    for (Process& process : processes_) {
      if (process.go_on_at != 0 && process.pid > 0) kill(process.pid, SIGCONT);
      process.go_on_at = 0;
    }
    witness_.all().stop.store(1);
    const std::int64_t until = now_ns() + hang_limit(setting_.store);
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      int status = 0;
      while (waitpid(processes_[i].pid, &status, WNOHANG) == 0 && now_ns() < until) {
        continue_some();
        sleep_us(1000);
      }
      const std::string about = witness_.about(setting_.first_worker(i));
      if (now_ns() >= until) {
        witness_.violation("hang: the process of " + about + " does not end");
        break;
      }
      processes_[i].pid = -1;
      if (status != 0)
        witness_.violation("died: at its end, the process of " + about + ", status " + std::to_string(status));
    }
    if (witness_.all().violations.load() == 0) add_up();
  }
  progress(true);
  if (witness_.all().violations.load() == 0) return;
  std::printf("the table:\n%s", describe_table(setting_.store.url).c_str());
  for (std::size_t worker = 0; worker < setting_.workers(); ++worker)
    std::printf("  %s\n", witness_.about(worker).c_str());
}

void Supervisor::add_up() {
  resolve(true);
  for (std::size_t place = 0; place < places().size(); ++place) {
    std::uint64_t counted = 0;
    for (std::size_t worker = 0; worker < setting_.workers(); ++worker)
      counted += witness_.row(worker).counted[place].load();
    const std::uint64_t made = counted + happened_[static_cast<int>(place)];
    const std::uint64_t value = witness_.all().counters[place].value;
    if (value < made || value > made + forgotten_) {
      witness_.violation("lost update: " + places()[place].text + " is " + std::to_string(value) + ", but " +
                         std::to_string(counted) + " steps were finished and " +
                         std::to_string(happened_[static_cast<int>(place)]) + " made by those who died in them");
    }
  }
  const auto share = [&](std::initializer_list<State> states) {
    std::uint64_t sum = 0;
    for (const State state : states) sum += by_state_[static_cast<std::size_t>(state)];
    return 100.0 * static_cast<double>(sum) / static_cast<double>(std::max<std::uint64_t>(kills_, 1));
  };
  if (kills_ >= 100) {
    const double holding = share({State::holding, State::extending, State::extending_waiting});
    const double waiting = share({State::waiting});
    const double part = kills_ >= 1000 ? 1 : 0.5;  // chance has more room among few
    if (holding < 30 * part)
      witness_.violation("kills: only " + std::to_string(holding) + " % of the victims were holding");
    if (setting_.store.breaks && kills_ >= 1000 && (total(&Row::breaks) == 0 || total(&Row::losses) == 0))
      witness_.violation("breaks: no lock was broken, or no holder noticed");
    if (waiting < 20 * part)
      witness_.violation("kills: only " + std::to_string(waiting) + " % of the victims were waiting");
    // Where a lock is a lease, a killed process keeps the hot lock until its lease ends. If the next kill comes before
    // that, hardly any process lives long enough to hand the lock over.
    const bool lives = !setting_.store.can.leases || options_.pause_ms >= shortest_pause_for_leases_ms;
    if (setting_.store.at_a_server() && setting_.hot > 0 && setting_.threads > 1 && lives &&
        total(&Row::handed_over) < total(&Row::grants) / 20) {
      witness_.violation("hand-over: only " + std::to_string(total(&Row::handed_over)) + " of " +
                         std::to_string(total(&Row::grants)) + " grants were handed over inside a process");
    }
  }
  // It grows to what was needed at once (for the dead, too, until they are cleared away), and then no more.
  const auto at_three_quarters =
      std::find_if(sizes_.begin(), sizes_.end(), [&](const auto& size) { return size.first >= kills_ / 4 * 3; });
  if (!setting_.store.at_a_server() && kills_ >= 1000 && at_three_quarters != sizes_.end()) {
    const std::uint64_t before = at_three_quarters->second, now = table_bytes();
    // While somebody is stopped in the middle of clearing away, the dead of that time keep their places.
    constexpr double bytes_of_one = 160.0 * 1024;
    const double meanwhile = options_.stops == 0 ? 0 : 2 * longest_stop_ms / std::max(options_.pause_ms, 1.0);
    if (now > before + before / 8 + 512 * 1024 + static_cast<std::uint64_t>(meanwhile * bytes_of_one)) {
      witness_.violation("growth: the table had " + std::to_string(before) + " bytes after " +
                         std::to_string(at_three_quarters->first) + " kills and has " + std::to_string(now) +
                         " after " + std::to_string(kills_));
    }
  }
}

// --- telling ---------------------------------------------------------------------------------------------

std::uint64_t Supervisor::total(Word<std::uint64_t> Row::*what) const {
  std::uint64_t sum = 0;
  for (std::size_t worker = 0; worker < setting_.workers(); ++worker) sum += (witness_.row(worker).*what).load();
  return sum;
}

std::uint64_t Supervisor::table_bytes() const {
  struct stat status {};
  return stat(setting_.store.file.c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_blocks) * 512 : 0;
}

void Supervisor::progress(bool force) {
  const std::int64_t now = now_ns();
  if (sizes_.empty() || kills_ >= sizes_.back().first + std::max<std::uint64_t>(kills_ / 16, 50)) {
    sizes_.emplace_back(kills_, table_bytes());
  }
  if (!force && now - told_ < 10 * second) return;
  const double seconds = std::max(static_cast<double>(now - told_) / 1e9, 1e-3);
  const std::uint64_t grants = total(&Row::grants);
  std::printf("[%5lld s] %llu kills (%.0f/s), %llu grants (%.0f/s), %u violations",
              static_cast<long long>((now - began_) / second), static_cast<unsigned long long>(kills_),
              static_cast<double>(kills_ - told_kills_) / seconds, static_cast<unsigned long long>(grants),
              static_cast<double>(grants - told_grants_) / seconds, witness_.all().violations.load());
  if (!setting_.store.at_a_server()) std::printf(", table %.1f MiB", static_cast<double>(table_bytes()) / 1048576);
  std::printf("\n");
  std::fflush(stdout);
  told_ = now;
  told_kills_ = kills_;
  told_grants_ = grants;
}

void Supervisor::print() const {
  const auto number = [](std::uint64_t n) { return static_cast<unsigned long long>(n); };
  std::printf("\n%llu kills of %zu processes with %zu %s each in %.1f s\n\n  %-20s %8s %7s\n", number(kills_),
              setting_.processes, setting_.threads, setting_.threads == 1 ? "thread" : "threads",
              static_cast<double>(ended_ - began_) / 1e9, "the victim was", "kills", "share");
  for (std::size_t state = 1; state < state_count; ++state) {
    std::printf(
        "  %-20s %8llu %5.1f %%\n", to_string(static_cast<State>(state)), number(by_state_[state]),
        100.0 * static_cast<double>(by_state_[state]) / static_cast<double>(std::max<std::uint64_t>(kills_, 1)));
  }
  std::uint64_t steps = 0;
  for (std::size_t place = 0; place < places().size(); ++place) steps += witness_.all().counters[place].value;
  std::uint64_t happened = 0;
  for (const auto& [place, count] : happened_) happened += count;
  std::printf(
      "\n  %llu times several at once; %llu stopped for a while, %llu of them killed\n"
      "  %llu stopped themselves inside the engine\n"
      "  %llu grants (%llu handed over inside a process), %llu timeouts, %llu deadlocks, %llu looks\n"
      "  %llu locks broken, %llu of them found lost by their holders; %llu times somebody was stopped in the middle\n"
      "  %llu counted; %llu died while counting, %llu of them after they had written%s\n",
      number(bursts_), number(stops_), number(killed_stopped_), number(total(&Row::own_stops)),
      number(total(&Row::grants)), number(total(&Row::handed_over)), number(total(&Row::timeouts)),
      number(total(&Row::deadlocks)), number(total(&Row::looks)), number(total(&Row::breaks)),
      number(total(&Row::losses)), number(total(&Row::late_breaks)), number(steps), number(casualties_),
      number(happened), forgotten_ != 0 ? " (some forgotten)" : "");
  if (setting_.store.at_a_server()) return;
  std::printf("  table:");
  for (std::size_t i = 0; i < sizes_.size(); i += std::max<std::size_t>(sizes_.size() / 6, 1)) {
    std::printf(" %.2f MiB after %llu,", static_cast<double>(sizes_[i].second) / 1048576, number(sizes_[i].first));
  }
  std::printf(" %.2f MiB at the end\n", static_cast<double>(table_bytes()) / 1048576);
}

}  // namespace storm
