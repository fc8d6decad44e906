// storm: processes that lock and count are killed at random moments, and a witness outside the store looks whether
// anybody was ever where another was, whether anything that was counted is lost, and whether fences only rise (B5).
// See witness.h for how it knows.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <system_error>

#ifdef HIERLOCK_WITH_MYSQL
#include <hierlock/mysql.h>
#endif
#ifdef HIERLOCK_WITH_VALKEY
#include <hierlock/valkey.h>
#endif

#include "leftovers.h"
#include "quiet.h"
#include "store.h"
#include "supervisor.h"
#include "support/server.h"
#include "witness.h"

namespace storm {
namespace {

namespace fs = std::filesystem;

constexpr const char* usage = R"(usage: storm [OPTION...]

  --on STORE        shm: (the default) in a folder of its own; mysql, mariadb, valkey or redis, as the environment names it
                    (HIERLOCK_TEST_MYSQL, …); or the URL of a server. What the store cannot do is not asked of it
  --kills N         kill so many processes (default: 2000, at a server 250; fewer under sanitizers)
  --soak DURATION   go on for so long instead: 90s, 10m, 2h
  --processes N     so many at once (default: 16, at a server 8)
  --threads N       in each process, on one Locker (default: 1)
  --hot PERCENT     how much of the work is on one hot lock, which the threads of a process hand over to each other
                    (default: 0, with several threads 80). At a server hand-overs must then be a twentieth of all grants;
                    where locks are leases, only with a --pause of at least 400
  --seed S          what is chosen at random (default: HIERLOCK_SEED, or a new one); schedules differ all the same
  --stops PERCENT   how often somebody is stopped for a while, in relation to kills (default: 10)
  --own-stops N     a worker stops itself inside the engine once in about N stores (default: 20000; 0: never)
  --danger PERCENT  how much of the work is with locks that are broken, and breaking them (default: 13), if the store can
  --pause MS        between two kills, on average (default: 10, at a server 30)
  --quiet-kills N   kills of the second phase, which measures how long others wait for a dead holder (default: 1000); shm:
                    only
  --lease MS        how long a lock outlives its process, where locks are leases (default: 2000; 0: as the store has it)
  --max-locks N     room in the table (default: 4000, for more workers more)
  --keep            leave the files where they are
  --break WHAT      make a fault, to see it reported: unlocked-write, lost-write, unlocked-entry, extra-slot,
                    stale-fence, unsaid-break, hang, crash, leftover, leak, slow
  --self-test       each of these faults that the store can show, one after the other: all must be reported
  --help            this

Exit status: 0 if nothing was wrong, 1 if something was, 2 for a mistake in the arguments, 77 if the environment names no
such server.
)";

struct Fault {
  std::string_view name;
  Break fault;
  std::string_view reported_as;  // the beginning of the message
  std::string_view or_as = "";   // or this: it depends on who looks first
  std::string_view or_else = "";
  bool only_shm = false;  // it needs what only shm: has: slots, breaks, a file, a bound in time
};
constexpr std::array<Fault, 11> faults{{
    {"unlocked-write", Break::unlocked_write, "counter: ", "lost update: "},
    {"lost-write", Break::lost_write, "lost update: "},
    {"unlocked-entry", Break::unlocked_entry, "exclusion: "},
    {"extra-slot", Break::extra_slot, "slots: ", "", "", true},
    {"stale-fence", Break::stale_fence, "fence: "},
    {"unsaid-break", Break::unsaid_break, "lost: ", "error: lost", "exclusion: ", true},
    {"hang", Break::hang, "hang: "},
    {"crash", Break::crash, "died: "},
    {"leftover", Break::leftover, "left behind: locks of nobody"},
    {"leak", Break::leak, "left behind: there is room for", "", "", true},
    {"slow", Break::slow, "latency: ", "", "", true},
}};

// --- files -----------------------------------------------------------------------------------------------

constexpr std::string_view prefix = "hierlock-storm-";

// A folder in memory, which goes with all that is in it. One that was killed could not clean up: its number is in the
// name, so that the next can.
class Folder {
 public:
  explicit Folder(bool keep) : keep_(keep) {
    const fs::path root = access("/dev/shm", W_OK | X_OK) == 0 ? fs::path("/dev/shm") : fs::temp_directory_path();
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(root, ignored)) {
      const std::string name = entry.path().filename();
      if (!name.starts_with(prefix)) continue;
      pid_t pid = 0;
      std::from_chars(name.data() + prefix.size(), name.data() + name.size(), pid);
      if (pid > 0 && kill(pid, 0) != 0 && errno == ESRCH) fs::remove_all(entry.path(), ignored);
    }
    path_ = (root / (std::string(prefix) + std::to_string(getpid()) + "-XXXXXX")).string();
    if (mkdtemp(path_.data()) == nullptr) throw std::system_error(errno, std::generic_category(), path_);
  }
  ~Folder() {
    std::error_code ignored;
    if (!keep_) fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const bool keep_;
};

// --- runs ------------------------------------------------------------------------------------------------

// A table of the storm's own: in the folder, or at the server that `options.on` names.
Store store_for(const Options& options, const Folder& folder) {
  if (options.on.empty()) {
    const std::string file = folder.path() + "/table";
    return {.name = "shm:", .url = "shm://" + file + "?max_locks=" + std::to_string(options.max_locks), .file = file};
  }
  const char separator = options.on.find('?') == std::string::npos ? '?' : '&';
  // A lock of a process that was killed lasts as long as its lease.
  const std::string lease = options.lease_ms == 0 ? "" : "&lease=" + std::to_string(options.lease_ms);
  const std::string more = options.on.starts_with("mysql:") ? "&provision=lazy" : lease;
  return {.name = options.on_name,
          .url = options.on + separator + "table=storm_" + std::to_string(getpid()) + more,
          .file = ""};
}

int run(const Options& options) {
  const Folder folder(options.keep);
  const Witness witness(folder.path() + "/witness");
  Store store = store_for(options, folder);
  if (!ask(witness, store)) return 1;
  std::printf("storm: on %s, %zu processes, %zu threads each, seed %llu (HIERLOCK_SEED), in %s\n", store.name.c_str(),
              options.processes, options.threads, static_cast<unsigned long long>(options.seed), folder.path().c_str());
  const auto good = [&] { return witness.all().violations.load() == 0 && !interrupted(); };
  {
    Supervisor supervisor(witness, options, store);
    supervisor.run();
    supervisor.print();
  }
  if (good()) look_for_leftovers(witness, options, store);
  if (good() && options.quiet_kills > 0 && !store.at_a_server()) measure_deaths(witness, options, store.file);

  const std::uint32_t violations = witness.all().violations.load();
  for (std::size_t i = 0; i < std::min<std::size_t>(violations, std::size(witness.all().violation)); ++i) {
    std::printf("\nVIOLATION %s\n", witness.all().violation[i].text);
  }
  if (interrupted()) std::printf("\ninterrupted\n");
  if (violations > 0) {
    std::printf(
        "\n%u violations; again with: storm --on %s --processes %zu --threads %zu --hot %u --seed %llu --stops %u "
        "--danger %u --pause %g --lease %u --max-locks %u\n",
        violations, store.name.c_str(), options.processes, options.threads, options.hot,
        static_cast<unsigned long long>(options.seed), options.stops, options.danger, options.pause_ms,
        options.lease_ms, options.max_locks);
  } else {
    std::printf("\nno violation\n");
  }
  std::fflush(stdout);
  return violations > 0 || interrupted() ? 1 : 0;
}

// Runs itself with the fault, and reads what it says.
bool notices(const Fault& fault, const Options& options) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return false;
  Options broken = options;
  broken.fault = fault.fault;
  broken.kills = 60;
  broken.quiet_kills = fault.fault == Break::slow ? 5 : 0;
  // Threads beside it would die inside of something, and others would report them first.
  if (fault.fault == Break::crash) broken.threads = 1;
  // Those show only when all is over. Of the others it is chance when somebody meets them, and the first ends the run.
  const bool seen_at_the_end =
      fault.fault == Break::leftover || fault.fault == Break::leak || fault.fault == Break::slow;
  if (!seen_at_the_end) broken.soak = std::chrono::seconds(60 * slowness);
  const pid_t child = start([&] {
    dup2(ends[1], STDOUT_FILENO);
    const int status = run(broken);
    std::fflush(nullptr);
    std::_Exit(status);
  });
  close(ends[1]);
  std::string said;
  std::array<char, 4096> part{};
  for (ssize_t size = 0; (size = read(ends[0], part.data(), part.size())) > 0;) {
    said.append(part.data(), static_cast<std::size_t>(size));
  }
  close(ends[0]);
  const int status = reap(child);
  std::size_t where = std::string::npos;
  for (const std::string_view as : {fault.reported_as, fault.or_as, fault.or_else}) {
    if (where == std::string::npos && !as.empty()) where = said.find("VIOLATION " + std::string(as));
  }
  const bool noticed = WIFEXITED(status) && WEXITSTATUS(status) == 1 && where != std::string::npos;
  std::printf("%-16s %s\n", std::string(fault.name).c_str(), noticed ? "noticed:" : "NOT NOTICED:");
  std::printf("    %s\n", noticed ? said.substr(where, said.find('\n', where) - where).c_str() : said.c_str());
  std::fflush(stdout);
  return noticed;
}

// --- arguments -------------------------------------------------------------------------------------------

[[noreturn]] void mistake(const std::string& what) {
  std::fprintf(stderr, "storm: %s\n%s", what.c_str(), usage);
  std::exit(2);
}

std::uint64_t number(std::string_view text, std::uint64_t most = UINT64_MAX) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value > most) {
    mistake("not a number that can be: " + std::string(text));
  }
  return value;
}

std::chrono::seconds duration(std::string_view text) {
  const char unit = text.empty() ? 's' : text.back();
  const std::int64_t seconds = unit == 'm' ? 60 : unit == 'h' ? 3600 : 1;
  if (unit == 'm' || unit == 'h' || unit == 's') text.remove_suffix(text.empty() ? 0 : 1);
  return std::chrono::seconds(static_cast<std::int64_t>(number(text, 1'000'000)) * seconds);
}

// The URL behind what --on says. A server that the environment does not name leaves `on_name` empty.
void choose_store(Options& options, std::string_view said) {
  options.on.clear();
  options.on_name = said;
  if (said == "shm:") return;
#ifdef HIERLOCK_WITH_MYSQL
  hierlock::mysql::enable();
#endif
#ifdef HIERLOCK_WITH_VALKEY
  hierlock::valkey::enable();
#endif
  constexpr std::pair<std::string_view, const char*> servers[] = {
      {"mysql", "MYSQL"}, {"mariadb", "MARIADB"}, {"valkey", "VALKEY"}, {"redis", "REDIS"}};
  const auto server =
      std::find_if(std::begin(servers), std::end(servers), [&](auto& one) { return one.first == said; });
  if (server != std::end(servers)) {
    options.on = hierlock::tests::server_url(server->second);
    if (!options.on.empty()) return;
    std::fprintf(stderr, "storm: SKIPPED: the environment names no %s: eval \"$(tools/servers env)\"\n",
                 options.on_name.c_str());
    options.on_name.clear();
    return;
  }
  const std::size_t scheme = said.find("://");
  if (scheme == std::string_view::npos) mistake("not a store: " + std::string(said));
  options.on = said;
  options.on_name = said.substr(0, scheme + 1);  // the rest may have a password
}

int run_with(int argc, char** argv) {
  Options options;
  options.quiet_kills = slowness == 1 ? 1000 : 60;
  const char* const given = std::getenv("HIERLOCK_SEED");
  options.seed = given != nullptr ? number(given) : std::random_device()();
  bool self_test = false, hot_given = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    const auto value = [&]() -> std::string_view {
      if (i + 1 >= argc) mistake(std::string(option) + " needs a value");
      return argv[++i];
    };
    if (option == "--on") {
      choose_store(options, value());
      if (options.on_name.empty()) return 77;
    } else if (option == "--kills") {
      options.kills = number(value());
    } else if (option == "--soak") {
      options.soak = duration(value());
    } else if (option == "--processes") {
      options.processes = number(value(), most_workers);
      if (options.processes < 2) mistake("at least 2 processes");
    } else if (option == "--threads") {
      options.threads = number(value(), most_workers);
      if (options.threads < 1) mistake("at least 1 thread");
    } else if (option == "--hot") {
      options.hot = static_cast<unsigned>(number(value(), 100));
      hot_given = true;
    } else if (option == "--seed") {
      options.seed = number(value());
    } else if (option == "--stops") {
      options.stops = static_cast<unsigned>(number(value(), 100));
    } else if (option == "--own-stops") {
      options.own_stops = static_cast<std::uint32_t>(number(value(), 1'000'000'000));
    } else if (option == "--danger") {
      options.danger = static_cast<unsigned>(number(value(), 100));
    } else if (option == "--pause") {
      options.pause_ms = static_cast<double>(number(value(), 10'000));
    } else if (option == "--quiet-kills") {
      options.quiet_kills = number(value());
    } else if (option == "--lease") {
      options.lease_ms = static_cast<unsigned>(number(value(), 600'000));
    } else if (option == "--max-locks") {
      options.max_locks = static_cast<std::uint32_t>(number(value(), 1'000'000));
    } else if (option == "--keep") {
      options.keep = true;
    } else if (option == "--break") {
      const std::string_view name = value();
      for (const Fault& fault : faults) {
        if (fault.name == name) options.fault = fault.fault;
      }
      if (options.fault == Break::nothing) mistake("no such fault: " + std::string(name));
    } else if (option == "--self-test") {
      self_test = true;
    } else if (option == "--help" || option == "-h") {
      std::fputs(usage, stdout);
      return 0;
    } else {
      mistake("unknown option: " + std::string(option));
    }
  }
  const bool at_a_server = !options.on.empty();
  if (options.processes == 0) options.processes = at_a_server ? 8 : 16;
  if (options.threads == 0) options.threads = 1;
  if (options.processes * options.threads > most_workers) {
    mistake("at most " + std::to_string(most_workers) + " threads of all processes together");
  }
  if (!hot_given) options.hot = options.threads > 1 ? 80 : 0;
  if (options.kills == 0) options.kills = (at_a_server ? 250 : 2000) / (slowness == 1 ? 1 : 10);
  if (options.pause_ms < 0) options.pause_ms = at_a_server ? 30 : 10;
  if (options.max_locks == 0)
    options.max_locks =
        static_cast<std::uint32_t>(std::max<std::size_t>(4000, 400 * options.processes * options.threads));
  (void)interrupted();  // from here on signals are answered by ending in order
  if (!self_test) return run(options);
  bool all = true;
  for (const Fault& fault : faults) {
    if (!at_a_server || !fault.only_shm) all = notices(fault, options) && all;
  }
  return all ? 0 : 1;
}

}  // namespace
}  // namespace storm

int main(int argc, char** argv) {
  try {
    return storm::run_with(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "storm: %s\n", error.what());
    return 1;
  }
}
