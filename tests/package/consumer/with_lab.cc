// A program that has the component, and plays a scenario where no server is needed.
#include <hierlock/lab.h>

#include <iostream>

int main() {
  const auto scenario = hierlock::lab::parse(
      "scenario  an account and its resource\n"
      "T1 a:  acquire u1/a1/r1  => ok\n"
      "T2 b:  acquire u1/a1     => blocked by T1\n"
      "T1 c:  release           => ok, unblocks T2\n");
  const hierlock::lab::Result result = hierlock::lab::run(scenario, "memory:");
  std::cout << result.str() << '\n';
  return result.passed() && hierlock::lab::knows("sqlite:") ? 0 : 1;
}
