// The lab in a program: shows that one ordered call cannot deadlock, by playing every order there is.
#include <hierlock/lab.h>

#include <iostream>
#include <string_view>

bool cannot_deadlock(std::string_view text) {
  const auto scenario = hierlock::lab::parse(text);  // or load(path)
  const auto result = hierlock::lab::run(scenario, "memory:");
  if (!result.passed()) std::cerr << result.str();
  const auto all = hierlock::lab::permute(scenario, "memory:");
  return result.passed() && all.complete && !all.deadlocks();
}

int main() {
  return cannot_deadlock(R"(
    scenario  two resources in one ordered call
    proves    H13
    T1 a:  acquire u1/a1/r1 u1/a1/r2     => ok
    T2 b:  acquire u1/a1/r2 u1/a1/r1     => blocked by T1
    T1 c:  release                       => ok, unblocks T2
    T2 d:  release
  )")
             ? 0
             : 1;
}
