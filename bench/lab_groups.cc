// The lab beside PostgreSQL's own isolationtester: the same specs, on the same server.
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>

#include "groups.h"
#include "process.h"
#include "programs.h"
#include "session.h"

namespace bench::groups {

namespace {

// A spec, and the scenario that the lab makes of it.
class Spec {
 public:
  Spec(const std::string& name, const std::string& tool, const std::string& tester, const std::string& url,
       const ScratchFolder& folder)
      : ours_(quietly({tool, "lab", "run", folder.file(name + ".scenario"), "--on", url})),
        peer_(quietly({tester, url}, specs_path() + "/" + name + ".spec")) {
    const std::string spec = specs_path() + "/" + name + ".spec", imported = folder.file(name + ".imported");
    if (Program({"/bin/sh", "-c", R"(exec "$0" lab import "$1" >"$2")", tool, spec, imported}).run() != 0) {
      throw std::runtime_error("hierlock lab import: cannot read " + spec);
    }
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
    std::vector<std::string> all{"/bin/sh", "-c", R"(exec "$@" <"$0" >/dev/null)", input};
    all.insert(all.end(), words.begin(), words.end());
    return Program(all);
  }

  const Program ours_, peer_;
  double orders_ = 0;
};

}  // namespace

void lab(Session& session) {
  const std::optional<std::string> tool = tool_path();
  const char* const url = std::getenv("HIERLOCK_TEST_POSTGRES");
  const char* const tester = std::getenv("HIERLOCK_TEST_POSTGRES_ISOLATIONTESTER");
  if (!tool) return session.skip("lab", "the tool is not built (HIERLOCK_BUILD_CLI is off)");
  if (url == nullptr || tester == nullptr) {
    return session.skip("lab",
                        "HIERLOCK_TEST_POSTGRES and HIERLOCK_TEST_POSTGRES_ISOLATIONTESTER name no server and no "
                        "isolationtester: eval \"$(tools/servers env)\"");
  }
  session.preparing("lab", "scenarios");
  const ScratchFolder folder;
  const Spec apart("apart", *tool, tester, url, folder), in_the_way("in-the-way", *tool, tester, url, folder);
  session.measure("lab",
                  {{"apart", [&] { return apart.ours(); }},
                   {"apart-peer", [&] { return apart.peer(); }},
                   {"in-the-way", [&] { return in_the_way.ours(); }},
                   {"in-the-way-peer", [&] { return in_the_way.peer(); }}},
                  session.quick() ? 5 : 15);
}

}  // namespace bench::groups
