// The lab beside PostgreSQL's own isolationtester: the same specs, on the same server.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "groups.h"
#include "process.h"
#include "programs.h"
#include "session.h"

namespace bench::groups {

namespace {

Program redirected(std::vector<std::string> words, const std::string& input, const std::string& output) {
  std::vector<std::string> all{"/bin/sh", "-c", R"(input=$0 output=$1; shift; exec "$@" <"$input" >"$output")", input,
                               output};
  all.insert(all.end(), words.begin(), words.end());
  return Program(std::move(all));
}

// Makes a scenario of a spec.
void import(const std::string& tool, const std::string& spec, const std::vector<std::string>& options,
            const std::string& scenario) {
  std::vector<std::string> words{tool, "lab", "import", spec};
  words.insert(words.end(), options.begin(), options.end());
  if (redirected(std::move(words), "/dev/null", scenario).run() != 0) {
    throw std::runtime_error("hierlock lab import: cannot read " + spec);
  }
}

// What both contenders need.
struct Venue {
  std::string tool, tester, url;
};

// A spec, and the scenario that the lab makes of it.
class Spec {
 public:
  Spec(const std::string& name, const Venue& venue, const ScratchFolder& folder)
      : ours_(quietly({venue.tool, "lab", "run", folder.file(name + ".scenario"), "--on", venue.url})),
        peer_(quietly({venue.tester, venue.url}, specs_path() + "/" + name + ".spec")) {
    const std::string spec = specs_path() + "/" + name + ".spec", imported = folder.file(name + ".imported");
    import(venue.tool, spec, {}, imported);
    std::ifstream lines(imported);
    std::ofstream scenario(folder.file(name + ".scenario"));
    for (std::string line; std::getline(lines, line);) {
      orders_ += line.starts_with("order ") ? 1 : 0;
      // Every step must succeed; one that writes may wait before.
      const std::size_t expectation = line.find(" => error not_played");
      const bool writes = line.starts_with("s1w ") || line.starts_with("s2w ");
      scenario << line.substr(0, expectation) << (expectation != line.npos && writes ? " => affected 1 or blocked" : "")
               << '\n';
    }
    if (orders_ == 0) throw std::runtime_error("hierlock lab import: no order in " + spec);
  }

  // Of one order, in nanoseconds.
  double ours() const { return ours_.time() / orders_; }
  double peer() const { return peer_.time() / orders_; }

 private:
  static Program quietly(std::vector<std::string> words, const std::string& input = "/dev/null") {
    return redirected(std::move(words), input, "/dev/null");
  }

  const Program ours_, peer_;
  double orders_ = 0;
};

// A database of its own on the server, as PostgreSQL's specs expect it: its name, and the settings of pg_regress.
class SuiteDatabase {
 public:
  SuiteDatabase(std::string psql, const std::string& server) : psql_(std::move(psql)), server_(server) {
    drop();
    for (const char* sql :
         {"CREATE DATABASE isolation_regression", "ALTER DATABASE isolation_regression SET timezone = 'PST8PDT'",
          "ALTER DATABASE isolation_regression SET datestyle = 'Postgres, MDY'",
          "ALTER DATABASE isolation_regression SET intervalstyle = 'postgres_verbose'"}) {
      if (run(sql) != 0) throw std::runtime_error(std::string("psql: it failed: ") + sql);
    }
  }
  ~SuiteDatabase() {
    try {
      drop();
    } catch (const std::exception&) {
    }
  }
  SuiteDatabase(const SuiteDatabase&) = delete;
  SuiteDatabase& operator=(const SuiteDatabase&) = delete;

  std::string url() const {
    const std::size_t options = std::min(server_.find('?'), server_.size());
    return server_.substr(0, server_.rfind('/', options) + 1) + "isolation_regression" + server_.substr(options);
  }

 private:
  int run(const std::string& sql) const { return Program({psql_, "-qX", server_, "-c", sql}).run_quietly(); }
  void drop() const { run("DROP DATABASE IF EXISTS isolation_regression WITH (FORCE)"); }

  const std::string psql_, server_;
};

// PostgreSQL's own isolation suite. Each spec is played by both, one after the other.
class Suite {
 public:
  explicit Suite(Venue venue) : venue_(std::move(venue)) {
    const std::filesystem::path folder = suite_path();
    for (const auto& file : std::filesystem::directory_iterator(folder / "specs")) {
      if (file.path().extension() == ".spec") names_.push_back(file.path().stem());
    }
    std::sort(names_.begin(), names_.end());
    for (const std::string& name : names_) {
      const std::string expected = folder / "expected" / (name + ".out");
      import(venue_.tool, spec(name), {"--expected", expected}, folder_.file(name));
    }
  }

  std::size_t size() const noexcept { return names_.size(); }

  // The nanoseconds that all specs take, ours first. Those that not both play are left out.
  template <class Progress>
  std::array<double, 2> play(const Progress& progress) const {
    std::array<double, 2> sums{};
    std::vector<std::string> left_out;
    std::size_t permutations = 0, passed = 0;
    for (const std::string& name : names_) {
      progress(name);
      const Run ours = run({venue_.tool, "lab", "run", folder_.file(name), "--on", venue_.url}, "/dev/null"),
                peer = run({venue_.tester, venue_.url}, spec(name));
      const Played played = summary(ours.output);
      // An order that goes otherwise than expected (exit code 1) was played, too.
      if (ours.exit_code > 1 || peer.exit_code != 0 || played.permutations != permutations_of_tester(peer.output)) {
        left_out.push_back(name);
        continue;
      }
      sums[0] += ours.time;
      sums[1] += peer.time;
      permutations += played.permutations;
      passed += played.passed;
    }
    if (left_out.size() > most_left_out || passed * 100 < permutations * 95) {
      std::string text = "of " + std::to_string(permutations) + " permutations, " + std::to_string(passed) +
                         " went as expected; not played by both:";
      for (const std::string& name : left_out) text += " " + name;
      throw std::runtime_error(text);
    }
    return sums;
  }

 private:
  static constexpr std::size_t most_left_out = 3;
  struct Run {
    double time = 0;
    int exit_code = 0;
    std::string output;
  };
  Run run(std::vector<std::string> words, const std::string& input) const {
    const std::string output = folder_.file("output");
    const Program program = redirected(std::move(words), input, output);
    const Clock::time_point begin = Clock::now();
    Run run{.exit_code = program.run_quietly()};
    run.time = nanoseconds(Clock::now() - begin);
    std::ifstream file(output);
    run.output.assign(std::istreambuf_iterator<char>(file), {});
    return run;
  }
  struct Played {
    std::size_t permutations = 0, passed = 0;
  };
  // The last line of the lab: "40 passed, 0 failed, 0 could not be played, ...".
  static Played summary(const std::string& output) {
    const std::size_t begin = output.size() < 2 ? 0 : output.rfind('\n', output.size() - 2) + 1;
    std::size_t passed = 0, failed = 0;
    if (std::sscanf(output.c_str() + begin, "%zu passed, %zu failed", &passed, &failed) != 2) return {};
    return {passed + failed, passed};
  }
  static std::size_t permutations_of_tester(const std::string& output) {
    std::size_t count = 0;
    constexpr std::string_view word = "starting permutation: ";
    for (std::size_t at = output.find(word); at != output.npos; at = output.find(word, at + 1)) ++count;
    return count;
  }
  static std::string spec(const std::string& name) { return std::string(suite_path()) + "/specs/" + name + ".spec"; }

  const Venue venue_;
  const ScratchFolder folder_;
  std::vector<std::string> names_;
};

// Otherwise the group is skipped.
std::optional<Venue> venue_for(Session& session, std::string_view group, const std::string& variable) {
  const std::optional<std::string> tool = tool_path();
  const char* const url = std::getenv(variable.c_str());
  const char* const tester = std::getenv("HIERLOCK_TEST_POSTGRES_ISOLATIONTESTER");
  if (tool && url != nullptr && tester != nullptr) return Venue{*tool, tester, url};
  session.skip(group, !tool ? "the tool is not built (HIERLOCK_BUILD_CLI is off)"
                            : variable +
                                  " and HIERLOCK_TEST_POSTGRES_ISOLATIONTESTER name no server and no "
                                  "isolationtester: eval \"$(tools/servers env)\"");
  return std::nullopt;
}

}  // namespace

void lab(Session& session) {
  const std::optional<Venue> venue = venue_for(session, "lab", "HIERLOCK_TEST_POSTGRES");
  if (!venue) return;
  session.preparing("lab", "scenarios");
  const ScratchFolder folder;
  const Spec apart("apart", *venue, folder), in_the_way("in-the-way", *venue, folder);
  session.measure("lab",
                  {{"apart", [&] { return apart.ours(); }},
                   {"apart-peer", [&] { return apart.peer(); }},
                   {"in-the-way", [&] { return in_the_way.ours(); }},
                   {"in-the-way-peer", [&] { return in_the_way.peer(); }}},
                  session.quick() ? 5 : 15);
}

void lab_suite(Session& session) {
  constexpr std::string_view group = "lab-suite";
  if (session.quick()) return session.leave_out(group);  // it takes minutes
  std::optional<Venue> venue = venue_for(session, group, "HIERLOCK_TEST_POSTGRES_OPERATOR");
  if (!venue) return;
  if (!std::filesystem::is_directory(suite_path())) {
    return session.skip(group, "PostgreSQL's specs are not there: tools/postgres-isolation --fetch");
  }
  const std::optional<std::string> psql = found_in_path("psql");
  if (!psql) return session.skip(group, "there is no psql");
  session.preparing(group, "scenarios");
  const SuiteDatabase database(*psql, venue->url);
  venue->url = database.url();
  const Suite suite(*venue);
  Figures<2> sums([&] {
    std::size_t count = 0;
    return suite.play([&](const std::string& name) {
      session.preparing(group, name + ", " + std::to_string(++count) + " of " + std::to_string(suite.size()));
    });
  });
  session.measure(group, {{"suite", [&] { return sums[0]; }}, {"suite-peer", [&] { return sums[1]; }}}, 1);
}

}  // namespace bench::groups
