// pairs N FORM: N acquire-release pairs on memory:, for whoever counts instructions (bench/compare instructions).
//
// FORM: target (prepared outside the loop), shared, string. One path of three levels, nobody in the way.
#include <hierlock/hierlock.h>

#include <charconv>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace {

template <class What>
void pairs(hierlock::Locker& locker, const What& what, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) const hierlock::Lock lock = locker.acquire(what);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view number = argc == 3 ? argv[1] : "", form = argc == 3 ? argv[2] : "";
  std::size_t count = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), count);
  if (error != std::errc() || end != number.data() + number.size()) {
    std::fputs("usage: pairs N target|shared|string\n", stderr);
    return 64;
  }
  const std::string path = "u123/a4/r56";
  const hierlock::Target target = path;
  hierlock::Locker locker = hierlock::open("memory:");
  if (form == "target") {
    pairs(locker, target, count);
  } else if (form == "shared") {
    pairs(locker, hierlock::shared(target), count);
  } else if (form == "string") {
    pairs(locker, path, count);
  } else {
    std::fputs("pairs: the form is target, shared or string\n", stderr);
    return 64;
  }
}
