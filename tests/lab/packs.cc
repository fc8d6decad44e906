#include "packs.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <map>
#include <sstream>

#include <hierlock/mysql.h>
#ifdef HIERLOCK_WITH_VALKEY
#include <hierlock/valkey.h>
#endif

#include "support/server.h"

namespace hierlock::lab_tests {

const std::vector<lab::Scenario>& shipped() {
  static const std::vector<lab::Scenario> all = [] {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(HIERLOCK_SCENARIOS)) {
      if (entry.path().extension() == ".scenario") files.push_back(entry.path().string());
    }
    std::sort(files.begin(), files.end());
    std::vector<lab::Scenario> scenarios;
    for (const std::string& file : files) {
      for (lab::Scenario& order : lab::load(file).orders()) scenarios.push_back(std::move(order));
    }
    return scenarios;
  }();
  return all;
}

std::string text_of(const std::string& file) {
  std::ifstream stream(file);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

const lab::Scenario& shipped(const std::string& name) {
  const std::string file = HIERLOCK_SCENARIOS "/" + name + ".scenario";
  const auto found =
      std::find_if(shipped().begin(), shipped().end(), [&](const lab::Scenario& one) { return one.file() == file; });
  if (found == shipped().end()) throw Error(ErrorKind::invalid_argument, "there is no " + file);
  return *found;
}

std::vector<std::string> engines() {
  if (sanitized) return {"memory", "shm", "sqlite"};
#ifdef HIERLOCK_WITH_VALKEY
  return {"memory", "shm", "sqlite", "valkey", "redis", "postgres", "mysql", "mariadb"};
#else
  return {"memory", "shm", "sqlite", "postgres", "mysql", "mariadb"};
#endif
}
std::vector<std::string> sql_engines() {
  std::vector<std::string> names = engines();
  for (const char* const other : {"memory", "shm", "valkey", "redis"}) std::erase(names, other);
  return names;
}

std::optional<std::string> url_of(const std::string& engine) {
  if (engine == "memory" || engine == "shm" || engine == "sqlite") return engine + ":";
  mysql::enable();
#ifdef HIERLOCK_WITH_VALKEY
  valkey::enable();
#endif
  return tests::server_variable(variable_of(engine));
}

std::string variable_of(const std::string& engine) {
  std::string name;
  for (const char c : engine) name += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

bool is_for(const lab::Scenario& scenario, const std::string& engine) {
  return std::find(scenario.engines().begin(), scenario.engines().end(), engine) != scenario.engines().end();
}

const std::vector<lab::Result>& results_of(const std::string& engine) {
  static std::map<std::string, std::vector<lab::Result>> known;
  const auto [place, is_new] = known.try_emplace(engine);
  if (!is_new) return place->second;
  timed("the scenarios on " + engine, [&, &results = place->second] {
    std::vector<lab::Scenario> its;
    for (const lab::Scenario& scenario : shipped()) {
      if (is_for(scenario, engine)) its.push_back(scenario);
    }
    results = lab::Runner(*url_of(engine)).run_all(its);
  });
  return place->second;
}

void timed(const std::string& what, const std::function<void()>& work) {
  const auto began = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  std::cout << what << ": " << std::fixed << std::setprecision(1) << took.count() << " s" << std::endl;
}

}  // namespace hierlock::lab_tests
