// The scenarios that hierlock ships, and where they can be played here.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <hierlock/lab.h>

namespace hierlock::lab_tests {

// All files of scenarios/, by name; of a file with several orders, each of them.
const std::vector<lab::Scenario>& shipped();
std::string text_of(const std::string& file);
const lab::Scenario& shipped(const std::string& name);  // `hierarchy/ordered-call`

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

// All that scenarios are played on here, those that answer fastest first; under sanitizers only what needs no server,
// since servers would be waited for most of the time.
std::vector<std::string> engines();
std::vector<std::string> sql_engines();

// `memory`, `mysql`, …: no value where there is no server of the kind (H10).
std::optional<std::string> url_of(const std::string& engine);
bool is_for(const lab::Scenario& scenario, const std::string& engine);
std::string variable_of(const std::string& engine);  // what follows HIERLOCK_TEST_

// What came of all scenarios that are for the engine, in the order of shipped(). Played once.
const std::vector<lab::Result>& results_of(const std::string& engine);

// Says how long it took.
void timed(const std::string& what, const std::function<void()>& work);

}  // namespace hierlock::lab_tests
