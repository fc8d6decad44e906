// Writes the report of the results that were made by hand; `hostile`: of those that would like to be more than text.
#include <cstdio>
#include <string>
#include <string_view>

#include "lab/example_results.h"

int main(int argc, char** argv) {
  auto results = hierlock::lab::example::all();
  if (argc > 1 && std::string_view(argv[1]) == "hostile") results = {hierlock::lab::example::hostility()};
  const std::string text = hierlock::lab::html(results);
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0 ? 0 : 1;
}
