// Files that nobody wrote on purpose: scenarios, made and shipped, with bytes, words and lines changed at random.
// Whatever comes, reading it ends soon, either with a script or with a complaint at a place of the file; and what was
// read can be written and read again.
//
// HIERLOCK_STEPS: how many files; HIERLOCK_SEED: which. A failure prints the seed and the file.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "lab/scenario.h"

namespace hierlock::lab {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int default_steps = 5'000;
#else
constexpr int default_steps = 25'000;
#endif

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

constexpr std::string_view example = R"(
    scenario  two rows in opposite order
    proves    X8
    engines   mysql mariadb postgres
    setup     create table t(id int primary key, v int)
    setup     insert into t values (1,0),(2,0)
    T1 a:  begin
    T2 b:  begin
    T1 c:  update t set v=1 where id=1          => ok
    T2 d:  update t set v=2 where id=2          => ok
    T1 e:  update t set v=1 where id=2          => blocked by T2
    T2 f:  update t set v=2 where id=1          => deadlock, T1 or T2
    check  select count(*) from t               => rows 2
)";

// What scenarios are made of, and what only looks like it.
constexpr std::string_view words[] = {"scenario",
                                      "proves",
                                      "engines",
                                      "about",
                                      "fact",
                                      "setup",
                                      "check",
                                      "T1",
                                      "T2",
                                      "T3",
                                      "T1 q:",
                                      "a:",
                                      "else:",
                                      ":",
                                      "mysql",
                                      "mariadb",
                                      "postgres",
                                      "sqlite",
                                      "memory",
                                      "mysql:",
                                      "; mysql:",
                                      "; else:",
                                      "mysql, sqlite:",
                                      "begin",
                                      "begin read committed",
                                      "commit",
                                      "select 1",
                                      "update t set v=1",
                                      "release",
                                      "release savepoint s",
                                      "acquire",
                                      "extend",
                                      "shared",
                                      "named",
                                      "slots",
                                      "nowait",
                                      "timeout",
                                      "timeout 100ms",
                                      "u1/a1/r1",
                                      "u1//a",
                                      "\"x\"",
                                      "3",
                                      "=>",
                                      " => ",
                                      "=> ok",
                                      "=> rows 1,2; 3",
                                      "rows",
                                      "none",
                                      "null",
                                      "ok",
                                      "affected 1",
                                      "blocked by",
                                      "blocked by T2",
                                      "deadlock",
                                      ", T1 or T2",
                                      "busy",
                                      "conflict",
                                      "serialization",
                                      "error 40P01",
                                      ", unblocks T2",
                                      "unblocks",
                                      "(rows 1)",
                                      "(serialization)",
                                      ",",
                                      ";",
                                      "(",
                                      ")",
                                      "{share}",
                                      "{update}",
                                      "{level read committed}",
                                      "{timeout 2s}",
                                      "{",
                                      "}",
                                      "'",
                                      "''",
                                      "'a; mysql: b'",
                                      "\"",
                                      "`",
                                      "#",
                                      " # ",
                                      "\n  | ",
                                      "teardown",
                                      "\norder x\n",
                                      "setup T1:",
                                      "blocked",
                                      ", then timeout",
                                      " or ok",
                                      " or T2",
                                      " and rows 1",
                                      "in any order:",
                                      ", notice 'x'",
                                      ", notify c 'x'",
                                      "prepared",
                                      "cancelled",
                                      "error 'x'",
                                      "|",
                                      "$$",
                                      "$q$",
                                      "E'\\'",
                                      "\\",
                                      "\\\n",
                                      "\\x00",
                                      "\n",
                                      "\r\n",
                                      "\t",
                                      " ",
                                      "é",
                                      "\xC3",
                                      "\xEF\xBB\xBF",
                                      "f(a => 1)",
                                      "-1",
                                      "99999999999999999999",
                                      "mysql: x",
                                      "'it''s'"};

class Fuzzer {
 public:
  Fuzzer(std::uint64_t seed, std::vector<std::string> texts) : random_(seed), texts_(std::move(texts)) {}

  std::string next() {
    std::string text = one_in(4) ? made() : texts_[below(texts_.size())];
    for (std::size_t left = below(one_in(10) ? 30 : 4); left > 0; --left) change(text);
    return text;
  }

 private:
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
  bool one_in(std::size_t n) { return below(n) == 0; }
  template <std::size_t size>
  std::string any(const std::string_view (&of)[size]) {
    return std::string(of[below(size)]);
  }
  std::string word() { return any(words); }
  std::string session() { return "T" + std::to_string(1 + below(3)); }

  // A scenario that is likely to be well-formed.
  std::string made() {
    std::string text = "scenario made\n";
    if (one_in(2)) text += "engines mysql mariadb postgres\n";
    if (one_in(4)) text += "fact seen mysql: it's so; else: no\n";
    if (one_in(2)) text += "setup create table t(id int)\n";
    for (int i = 1; i <= 3; ++i) text += "T" + std::to_string(i) + " z" + std::to_string(i) + ": begin\n";
    for (std::size_t i = below(6); i > 0; --i) {
      text += session() + " s" + std::to_string(i) + ": " + statement();
      if (!one_in(3)) text += "  => " + expectation();
      text += one_in(5) ? "  # why\n" : "\n";
    }
    if (one_in(2)) text += "check select 1 => " + expectation() + "\n";
    return text;
  }
  std::string statement() {
    switch (below(4)) {
      case 0:
        return "select f(a => 1), 'x # y' {share}";
      case 1:
        return "acquire " + target() + (one_in(2) ? ", " + target() : "") + (one_in(3) ? " timeout 1.5s" : "");
      case 2:
        return "release" + (one_in(2) ? " " + target() : "");
      default:
        return "update t set v=1 where id=2";
    }
  }
  std::string target() {
    static constexpr std::string_view some[] = {"u1/a1/r1",    "\"u 1/a,1\"", "shared u1",
                                                "named \"x\"", "slots x 3",   "shared named 'it''s'"};
    return any(some);
  }
  std::string expectation() {
    if (one_in(4)) return "mysql mariadb: " + outcome() + "; else: " + outcome();
    return outcome() + (one_in(4) ? ", unblocks " + session() + " (" + outcome() + ")" : "");
  }
  std::string outcome() {
    if (one_in(2)) return "rows " + value() + "," + value() + "; " + value();
    static constexpr std::string_view some[] = {"ok",
                                                "affected 2",
                                                "blocked by T1",
                                                "deadlock, T1 or T2",
                                                "busy",
                                                "timeout",
                                                "conflict",
                                                "rows none",
                                                "blocked by T1 or T2, then timeout or ok",
                                                "ok or error 'x'",
                                                "rows 1 and affected 2, notice 'x'",
                                                "rows in any order: 2; 1",
                                                "error 40001",
                                                "serialization",
                                                "deadlock"};
    return any(some);
  }
  // As an engine may return it, written as the lab writes it.
  std::string value() {
    std::string bytes;
    for (std::size_t left = below(4); left > 0; --left) {
      bytes += one_in(3) ? word() : std::string(1, static_cast<char>(below(256)));
    }
    return Expected{.kind = Expected::Kind::rows, .rows = {{bytes}}}.str().substr(5);
  }

  void change(std::string& text) {
    const std::size_t at = below(text.size() + 1);
    const std::size_t size = std::min(1 + below(4), text.size() - at);
    switch (below(9)) {
      case 0:
        text.insert(at, 1, static_cast<char>(below(256)));
        break;
      case 1:
        text.erase(at, size);
        break;
      case 2:
        if (size > 0) text[at] = static_cast<char>(one_in(2) ? below(256) : ' ' + below(95));
        break;
      case 3:
        text.insert(at, text.substr(at, size));
        break;
      case 4:
        if (size > 0) std::swap(text[at], text[below(text.size())]);
        break;
      case 5:
        text.insert(at, word());
        break;
      case 6: {  // a word for another
        const std::size_t begin = std::min(text.find_first_not_of(" \t\n", at), text.size());
        const std::size_t end = std::min(text.find_first_of(" \t\n,;:()", begin), text.size());
        text.replace(begin, end - begin, one_in(4) ? "" : word());
        break;
      }
      case 7:
        lines(text);
        break;
      default:
        text.insert(at, " " + word() + " ");
    }
  }
  void lines(std::string& text) {
    std::vector<std::string> all{""};
    for (const char c : text) {
      all.back() += c;
      if (c == '\n') all.emplace_back();
    }
    const std::size_t a = below(all.size()), b = below(all.size());
    switch (below(3)) {
      case 0:
        std::swap(all[a], all[b]);
        break;
      case 1:
        all.insert(all.begin() + static_cast<std::ptrdiff_t>(a), all[b]);
        break;
      default:
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(a));
    }
    text.clear();
    for (const std::string& line : all) text += line;
  }

  std::mt19937_64 random_;
  const std::vector<std::string> texts_;
};

// --- what must hold -----------------------------------------------------------------------------------------------

// `f:LINE:COLUMN: WHAT`, both of the file.
bool is_complaint(std::string_view message, const std::string& text) {
  std::size_t numbers[2] = {};
  if (!message.starts_with("f:")) return false;
  message.remove_prefix(2);
  for (std::size_t& number : numbers) {
    const std::size_t digits = message.find(':');
    if (digits == std::string_view::npos || digits == 0 || digits > 9) return false;
    for (const char c : message.substr(0, digits)) {
      if (c < '0' || c > '9') return false;
      number = number * 10 + static_cast<std::size_t>(c - '0');
    }
    message.remove_prefix(digits + 1);
  }
  if (message.size() < 2 || message.front() != ' ') return false;
  const auto [line, column] = numbers;
  std::size_t begin = 0;
  for (std::size_t i = 1; i < line; ++i) {
    begin = text.find('\n', begin);
    if (begin++ == std::string::npos) return false;
  }
  const std::size_t length = std::min(text.find('\n', begin), text.size()) - begin;
  return line >= 1 && column >= 1 && column <= length + 1;
}

// The same but for where it stands in the file.
bool same(const Line& a, const Line& b) {
  return a.kind == b.kind && a.session == b.session && a.name == b.name && a.text == b.text && a.only == b.only &&
         a.lock == b.lock && a.everywhere == b.everywhere && a.by_engine == b.by_engine;
}
bool same(const Script& a, const Script& b) {
  return a.name == b.name && a.proves == b.proves && a.engines == b.engines && a.about == b.about &&
         std::equal(a.facts.begin(), a.facts.end(), b.facts.begin(), b.facts.end(),
                    [](const Script::Fact& x, const Script::Fact& y) {
                      return x.name == y.name && x.everywhere == y.everywhere && x.by_engine == y.by_engine;
                    }) &&
         std::equal(a.lines.begin(), a.lines.end(), b.lines.begin(), b.lines.end(),
                    [](const Line& x, const Line& y) { return same(x, y); });
}

// What `expectation` is read as, in a scenario with these sessions.
Expectation read_again(const Script& script, const Line& line, const Expectation& expectation) {
  std::string text =
      "scenario s\n" + (line.session.empty() ? "check" : line.session + " x:") + " y => " + expectation.str() + "\n";
  int count = 0;
  for (const std::string& session : script.sessions()) text += session + " n" + std::to_string(++count) + ": y\n";
  return parse(text).script().lines.at(0).everywhere.value();
}

// If its expectation went, an arrow of the statement itself would be taken for one, and a backslash at its end would
// continue the line.
bool stands_alone(const Line& line) { return line.text.find("=>") == std::string::npos && !line.text.ends_with('\\'); }

void check(const Script& script) {
  for (const Line& line : script.lines) {
    if (line.everywhere) {
      EXPECT_EQ(read_again(script, line, *line.everywhere), *line.everywhere) << line.everywhere->str();
    }
    for (const auto& [engine, expectation] : line.by_engine) {
      EXPECT_EQ(read_again(script, line, expectation), expectation) << expectation.str();
    }
    if (line.lock) continue;
    for (const std::string_view engine : {"mysql", "mariadb", "postgres", "sqlite"}) {
      try {
        EXPECT_EQ(in_dialect(engine, line.text).empty(), line.text.empty());
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::unsupported) << error.what();
      }
    }
  }
  // Each line's own expectation changes nothing; all expectations written anew, in the lab's words, say the same.
  std::map<std::size_t, std::string> own, anew, none;
  for (const Line& line : script.lines) {
    own[line.number] = line.expectation();
    if (stands_alone(line)) none[line.number] = "";
    if (!own[line.number].empty()) anew[line.number] = line.expectation() + " ";  // not as it was: it is replaced
  }
  EXPECT_EQ(rewritten(script, own), *script.text);
  const std::string text = rewritten(script, anew);
  EXPECT_TRUE(same(parse(text).script(), script)) << text;
  const Script bare = parse(rewritten(script, none)).script();
  EXPECT_EQ(bare.lines.size(), script.lines.size());
  for (const Line& line : bare.lines) {
    EXPECT_TRUE(line.expectation().empty() || !stands_alone(line)) << line.expectation();
  }
}

std::vector<std::string> shipped() {
  std::vector<std::string> texts{std::string(example)};
  const auto folder = std::filesystem::path(HIERLOCK_SOURCE) / "scenarios";
  if (std::filesystem::is_directory(folder)) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (entry.path().extension() != ".scenario") continue;
      std::ifstream file(entry.path(), std::ios::binary);
      texts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    std::sort(texts.begin(), texts.end());  // so that a seed means the same everywhere
  }
  return texts;
}

TEST(Fuzz, whatever_is_read_ends_with_a_script_or_a_complaint_and_can_be_written_again) {
  const std::uint64_t seed = number_from("HIERLOCK_SEED", std::random_device{}());
  const auto steps = static_cast<int>(number_from("HIERLOCK_STEPS", default_steps));
  SCOPED_TRACE("HIERLOCK_SEED=" + std::to_string(seed));
  const std::vector<std::string> texts = shipped();
  for (const std::string& text : texts) {
    SCOPED_TRACE(text);
    ASSERT_NO_THROW(check(parse(text, "f").script()));
  }
  Fuzzer fuzzer(seed, texts);
  int read = 0;
  std::chrono::nanoseconds longest{};
  for (int step = 0; step < steps && !::testing::Test::HasFailure(); ++step) {
    const std::string text = fuzzer.next();
    SCOPED_TRACE("file " + std::to_string(step) + ":\n" + text);
    const auto began = std::chrono::steady_clock::now();
    try {
      const Script script = parse(text, "f").script();
      longest = std::max<std::chrono::nanoseconds>(longest, std::chrono::steady_clock::now() - began);
      ++read;
      EXPECT_NO_THROW(check(script));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
      EXPECT_TRUE(is_complaint(error.what(), text)) << error.what();
    } catch (const std::exception& error) {
      ADD_FAILURE() << "not an Error: " << error.what();
    }
  }
  std::printf("seed %llu: %d files, %d of them scenarios, the slowest read in %lld us\n",
              static_cast<unsigned long long>(seed), steps, read,
              static_cast<long long>(std::chrono::duration_cast<std::chrono::microseconds>(longest).count()));
  // Otherwise the fuzzer tests complaints only.
  EXPECT_TRUE(::testing::Test::HasFailure() || steps < 1000 || read > steps / 10);
}

}  // namespace
}  // namespace hierlock::lab
