#include "lab/import.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include <hierlock/lab.h>

#include "lab/scenario.h"
#include "lab/sql_text.h"
#include "lab/tester_output.h"

namespace hierlock::lab {

namespace {

constexpr std::size_t most_orders = 10'000;

// --- reading a spec -------------------------------------------------------------------------------------------------

struct Token {
  enum class Kind : std::uint8_t { name, quoted, sql, sign, end } kind = Kind::end;
  std::string text{};
  std::size_t line = 0;
  bool is(std::string_view word) const { return kind == Kind::name && text == word; }
  bool is_name() const { return kind == Kind::name || kind == Kind::quoted; }
};

std::string trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1));
}

class SpecReader {
 public:
  SpecReader(std::string_view text, const std::string& file) : text_(text), file_(file) { advance(); }

  Spec read() {
    Spec spec;
    while (next_.is("setup")) {
      advance();
      spec.setup.push_back(sql());
    }
    spec.teardown = block("teardown");
    while (next_.is("session")) {
      advance();
      Spec::Session& session = spec.sessions.emplace_back();
      session.name = name("the name of a session");
      session.setup = block("setup");
      while (next_.is("step")) {
        advance();
        std::string step = name("the name of a step");
        session.steps.push_back({std::move(step), sql()});
      }
      session.teardown = block("teardown");
    }
    while (next_.is("permutation")) {
      advance();
      Spec::Permutation& steps = spec.permutations.emplace_back();
      while (next_.is_name() && !next_.is("permutation")) {
        std::string step = name("the name of a step");
        steps.push_back({std::move(step), skip_markers()});
      }
    }
    if (next_.kind != Token::Kind::end) fail("setup, teardown, session, step or permutation");
    if (spec.sessions.empty()) fail("session");
    return spec;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::invalid_argument, file_ + ":" + std::to_string(next_.line) + ": " + what + " expected");
  }

  std::string block(std::string_view keyword) {
    if (!next_.is(keyword)) return {};
    advance();
    return sql();
  }
  std::string sql() {
    if (next_.kind != Token::Kind::sql) fail("SQL in braces");
    return taken();
  }
  std::string name(const std::string& what) {
    if (!next_.is_name()) fail(what);
    return taken();
  }
  std::string taken() {
    std::string text = std::move(next_.text);
    advance();
    return text;
  }
  // (*), (s1a), (s1a notices 2): how the tester is to wait. The lab asks the engine. True if there are any.
  bool skip_markers() {
    if (next_.kind != Token::Kind::sign || next_.text != "(") return false;
    while (next_.kind != Token::Kind::end && next_.text != ")") advance();
    if (next_.kind == Token::Kind::end) fail("`)`");
    advance();
    return true;
  }

  void advance() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') ++line_;
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
        ++at_;
      } else {
        break;
      }
    }
    next_ = {Token::Kind::end, {}, line_};
    if (at_ == text_.size()) return;
    const char c = text_[at_];
    const auto until = [&](char close, Token::Kind kind) {
      const std::size_t end = text_.find(close, at_ + 1);
      if (end == std::string_view::npos) fail(std::string("`") + close + "`");
      next_.kind = kind;
      next_.text = text_.substr(at_ + 1, end - at_ - 1);
      line_ += static_cast<std::size_t>(std::count(next_.text.begin(), next_.text.end(), '\n'));
      at_ = end + 1;
    };
    if (c == '{') {
      until('}', Token::Kind::sql);
      next_.text = trimmed(next_.text);
    } else if (c == '"') {
      until('"', Token::Kind::quoted);
    } else if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
      next_.kind = Token::Kind::name;
      while (at_ < text_.size() &&
             (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_' || text_[at_] == '-')) {
        next_.text += text_[at_++];
      }
    } else {
      next_.kind = Token::Kind::sign;
      next_.text = c;
      ++at_;
    }
  }

  const std::string_view text_;
  const std::string file_;
  std::size_t at_ = 0, line_ = 1;
  Token next_;
};

// --- writing a scenario ---------------------------------------------------------------------------------------------

// Names of a spec may be any text, and those of a scenario may not. No two become the same.
class Names {
 public:
  const std::string& of(const std::string& name) {
    const auto [found, is_new] = known_.try_emplace(name);
    if (!is_new) return found->second;
    std::string made;
    for (const char c : name) made += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
    static const std::set<std::string> reserved{"scenario", "about", "proves", "engines", "fact",     "setup",
                                                "teardown", "check", "order",  "else",    "unblocks", "prepared"};
    const bool odd = made.empty() || std::isdigit(static_cast<unsigned char>(made.front())) != 0;
    const auto& engines = known_engines();
    if (odd || reserved.contains(made) || is_outcome(made) ||
        std::find(engines.begin(), engines.end(), made) != engines.end()) {
      made.insert(0, "s_");
    }
    while (!taken_.insert(made).second) made += "_";
    return found->second = made;
  }

 private:
  std::map<std::string, std::string> known_;
  std::set<std::string> taken_;
};

// Without `--` comments: an apostrophe in one would be taken for a quote.
std::string without_comments(const std::string& sql) {
  std::string text;
  for (std::size_t i = 0; i < sql.size();) {
    const std::size_t after = std::min(quoted_end(sql, i), sql.size());
    if (after != i) {
      text += sql.substr(i, after - i);
      i = after;
    } else if (sql.compare(i, 2, "--") == 0) {
      i = std::min(sql.find('\n', i), sql.size());
    } else {
      text += sql[i++];
    }
  }
  return trimmed(text);
}

// On lines of its own, if it has several.
std::string continued(const std::string& sql) {
  std::string text;
  for (const char c : without_comments(sql)) {
    if (c == '\r') continue;
    text += c == '\n' ? "\n    | " : std::string(1, c);
  }
  return text;
}

// Every interleaving, as isolationtester plays them if none is named.
std::vector<Spec::Permutation> interleavings(const Spec& spec) {
  std::vector<Spec::Permutation> all;
  std::vector<std::size_t> done(spec.sessions.size());
  Spec::Permutation order;
  const std::function<void()> extend = [&] {
    bool any = false;
    for (std::size_t i = 0; i < spec.sessions.size() && all.size() < most_orders; ++i) {
      if (done[i] == spec.sessions[i].steps.size()) continue;
      any = true;
      order.push_back({spec.sessions[i].steps[done[i]++].name});
      extend();
      order.pop_back();
      --done[i];
    }
    if (!any) all.push_back(order);
  };
  extend();
  return all;
}

// With the sessions' names in the scenario.
void rename(Expected& expected, Names& sessions) {
  for (std::string& name : expected.sessions) name = sessions.of(name);
}
Expectation renamed(Expectation expectation, Names& sessions) {
  rename(expectation.step, sessions);
  for (Expectation::Freed& freed : expectation.unblocks) freed.session = sessions.of(freed.session);
  return expectation;
}

}  // namespace

Spec read_spec(std::string_view text, const std::string& file) { return SpecReader(text, file).read(); }

std::string import_spec(std::string_view text, const std::string& file, const TesterOutput& output) {
  const Spec spec = read_spec(text, file);
  std::string out = "scenario  " + std::filesystem::path(file).stem().string() + "\nengines   postgres\n\n";
  for (const std::string& sql : spec.setup) out += "setup     " + continued(sql) + "\n";
  Names sessions, steps;
  for (const Spec::Session& session : spec.sessions) {
    // isolationtester's sessions have such names when PostgreSQL's suite is run, and specs may ask for them.
    if (text.find("application_name") != std::string_view::npos) {
      out += "setup     " + sessions.of(session.name) + ": SET application_name = 'isolation/" +
             std::filesystem::path(file).stem().string() + "/" + session.name + "'\n";
    }
    if (!session.setup.empty())
      out += "setup     " + sessions.of(session.name) + ": " + continued(session.setup) + "\n";
  }
  if (!spec.teardown.empty()) out += "teardown  " + continued(spec.teardown) + "\n";
  out += "\n";
  std::map<std::string, bool> known;
  std::vector<std::string> last;  // steps that each order ends with
  for (const Spec::Session& session : spec.sessions) {
    for (const Spec::Step& step : session.steps) {
      if (!known.emplace(step.name, true).second) {
        throw Error(ErrorKind::invalid_argument, file + ": there are two steps " + step.name);
      }
      out += sessions.of(session.name) + " " + steps.of(step.name) + ": " + continued(step.sql) + "\n";
    }
    if (session.teardown.empty()) continue;
    last.push_back(steps.of("teardown of " + session.name));
    out += sessions.of(session.name) + " " + last.back() + ": " + continued(session.teardown) + "\n";
  }
  const std::vector<Spec::Permutation> orders = spec.permutations.empty() ? interleavings(spec) : spec.permutations;
  if (orders.size() >= most_orders) {
    throw Error(ErrorKind::invalid_argument,
                file + ": more than " + std::to_string(most_orders) + " orders: name permutations in the spec");
  }
  for (const Spec::Permutation& order : orders) {
    for (const Spec::Entry& entry : order) {
      if (!known.contains(entry.step)) {
        throw Error(ErrorKind::invalid_argument, file + ": there is no step " + entry.step);
      }
    }
  }
  std::vector<std::vector<Expectation>> expected;
  if (!output.file.empty()) expected = read_tester_output(output.text, output.file, spec, orders);
  for (std::size_t i = 0; i < orders.size(); ++i) {
    out += "\norder  permutation " + std::to_string(i + 1) + "\n";
    for (std::size_t j = 0; j < orders[i].size(); ++j) {
      out += steps.of(orders[i][j].step) + "  => " +
             (expected.empty() ? std::string(not_played) : renamed(expected[i][j], sessions).str()) + "\n";
    }
    for (const std::string& step : last) out += step + "\n";
  }
  return out;
}

namespace {

bool leaves_open(const Expectation& expectation) {
  const Expected& step = expectation.step;
  return !step.alternatives.empty() || (step.kind == Expected::Kind::blocked && step.sessions.empty()) ||
         std::any_of(expectation.unblocks.begin(), expectation.unblocks.end(),
                     [](const Expectation::Freed& freed) { return freed.perhaps || !freed.end.alternatives.empty(); });
}

// The expectation; where it leaves something open, the actual outcome fills it in. Messages come from the expectation
// only.
std::string closed(const Expectation& expected, const std::string& actual) {
  if (!leaves_open(expected)) return expected.str();
  std::vector<Expected> outcomes = expected.step.alternatives;
  outcomes.push_back(expected.step);
  outcomes.back().alternatives.clear();
  for (const Expected& outcome : outcomes) {
    Expected bare = outcome;
    bare.notices.clear();
    bare.notifications.clear();
    if (expected.unblocks.empty() && bare.str() == actual) return outcome.str();
  }
  return actual;
}

}  // namespace

std::string filled_in(const Scenario& file, std::span<const Played> orders) {
  std::map<std::size_t, std::string> said;
  for (const Played& played : orders) {
    std::map<std::size_t, const Event*> events;
    for (const Event& event : played.result.events) events[event.line] = &event;
    for (const Line& line : played.order.script().lines) {
      const auto event = events.find(line.number);
      if (line.kind != Event::Kind::step || event == events.end()) continue;
      const Expectation& expected = line.expected_of(played.result.engine);
      if (expected.said) said[line.number] = closed(expected, event->second->actual);
    }
  }
  Script all = file.script();
  if (!all.orders.empty()) all.lines.clear();
  for (Script::Order& order : all.orders) {
    for (Line& line : order.lines) all.lines.push_back(std::move(line));
  }
  return rewritten(all, said);
}

}  // namespace hierlock::lab
