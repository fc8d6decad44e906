#include "lab/scenario.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <utility>

#include "lab/dialect.h"
#include "lab/reader.h"

namespace hierlock::lab {

namespace {

using Kind = Expected::Kind;

struct Word {
  std::string_view text;
  Kind kind;
};
constexpr Word outcomes[] = {
    {"ok", Kind::ok},           {"rows", Kind::rows},         {"affected", Kind::affected},
    {"blocked", Kind::blocked}, {"deadlock", Kind::deadlock}, {"timeout", Kind::timeout},
    {"busy", Kind::busy},       {"conflict", Kind::conflict}, {"serialization", Kind::serialization},
    {"error", Kind::error}};
constexpr std::string_view outcome_words =
    "ok, rows, affected, blocked by, deadlock, timeout, busy, conflict, serialization or error";

bool is_engine(std::string_view word) {
  return std::find(known_engines().begin(), known_engines().end(), word) != known_engines().end();
}

// --- values -------------------------------------------------------------------------------------------------------

bool needs_quotes(std::string_view value) {
  if (value.empty() || std::isspace(static_cast<unsigned char>(value.front())) != 0 ||
      std::isspace(static_cast<unsigned char>(value.back())) != 0) {
    return true;
  }
  if (same_word(value, "null") || same_word(value, "none")) return true;
  return value.find_first_of(",;'\"`()#\\\n\r") != std::string_view::npos ||
         value.find("=>") != std::string_view::npos || value.find("unblocks") != std::string_view::npos;
}

std::string value_text(const std::optional<std::string>& value) {
  if (!value) return "null";
  if (!needs_quotes(*value)) return *value;
  std::string text = "'";
  for (const char c : *value) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (c == '\r') {
      text += "\\r";
      continue;
    }
    if (c == '\'') text += '\'';
    if (c == '\\') text += '\\';
    text += c;
  }
  return text + "'";
}

// --- one line -----------------------------------------------------------------------------------------------------

// Reads the lines of one file. Names of sessions are collected as they come, since a line may speak of one whose first
// step is further down.
class Parser {
 public:
  Parser(std::string_view text, std::string_view file) : reader_(text, file) {
    script_.file = file;
    script_.text = text;
  }

  Script parse() {
    while (reader_.next_line()) line();
    finish();
    return std::move(script_);
  }

 private:
  [[noreturn]] void expected(const std::string& what) const { reader_.fail(reader_.at(), what + " expected"); }

  void line() {
    const std::size_t begin = reader_.at();
    const std::string_view first = reader_.peek_word();
    if (first == "scenario") return header(script_.name, "the name of the scenario");
    if (first == "about") {
      reader_.word();
      return script_.about.push_back(rest("a sentence about the scenario"));
    }
    if (first == "proves") return words(script_.proves, "a requirement, such as H13");
    if (first == "engines") return engines();
    if (first == "fact") return fact();
    reader_.sql_line();  // from here on, quotes count
    if (first == "setup" || first == "check") {
      reader_.word();
      Line line;
      line.kind = first == "setup" ? Event::Kind::setup : Event::Kind::check;
      line.number = reader_.line();
      if (first == "setup" && any_step_) reader_.fail(begin, "setup comes before the first step");
      if (first == "check") any_step_ = true;
      return sql_line(std::move(line), first == "check");
    }
    step();
  }

  void header(std::string& into, const std::string& what) {
    const std::size_t begin = reader_.at();
    reader_.word();
    if (!into.empty()) reader_.fail(begin, "one `scenario` in a file, and this is the second");
    into = rest(what);
  }
  std::string rest(const std::string& what) {
    reader_.skip_blanks();
    std::string text(reader_.rest());
    if (text.empty()) expected(what);
    reader_.to_end();
    return text;
  }
  void words(std::vector<std::string>& into, const std::string& what) {
    reader_.word();
    do {
      reader_.skip_blanks();
      const std::string_view word = reader_.until(" \t,");
      if (word.empty()) expected(what);
      into.emplace_back(word);
      reader_.skip_blanks();
      reader_.take(',');
      reader_.skip_blanks();
    } while (!reader_.ended());
  }
  void engines() {
    const std::size_t begin = reader_.at();
    if (!script_.engines.empty()) reader_.fail(begin, "one `engines` in a file, and this is the second");
    std::size_t at = begin;
    reader_.word();
    do {
      reader_.skip_blanks();
      at = reader_.at();
      const std::string_view word = reader_.until(" \t,");
      if (!is_engine(word)) reader_.fail(at, "an engine expected: " + joined(known_engines(), " "));
      script_.engines.emplace_back(word);
      reader_.skip_blanks();
      reader_.take(',');
      reader_.skip_blanks();
    } while (!reader_.ended());
  }
  void fact() {
    reader_.word();
    reader_.skip_blanks();
    Script::Fact fact;
    fact.name = reader_.word();
    if (fact.name.empty()) expected("the name of the fact");
    reader_.skip_blanks();
    if (reader_.ended()) expected("what the fact is");
    for (const auto& [names, begin, end] : split_by_engine()) {
      const std::string value(reader_.between(begin, end));
      if (names.empty()) fact.everywhere = value;
      for (const std::string& name : names) (name == "else" ? fact.everywhere : fact.by_engine[name]) = value;
    }
    reader_.to_end();
    script_.facts.push_back(std::move(fact));
  }

  void step() {
    Line line;
    line.number = reader_.line();
    const std::size_t session_at = reader_.at();
    line.session = reader_.name();
    if (line.session.empty())
      expected("scenario, proves, engines, about, fact, setup, check, or a step such as `T1 a: begin`");
    reader_.skip_blanks();
    const std::size_t name_at = reader_.at();
    line.name = reader_.name();
    if (line.name.empty()) {
      reader_.fail(name_at, "the step's name and a colon expected after the session: `" + line.session + " a: …`");
    }
    reader_.skip_blanks();
    if (!reader_.take(':')) expected("a colon after the step's name");
    if (!steps_.insert(line.name).second) reader_.fail(name_at, "there is a step `" + line.name + "` already");
    if (is_engine(line.session) || line.session == "else") {
      reader_.fail(session_at, "`" + line.session + "` is the name of an engine: call the session otherwise");
    }
    sessions_.insert(line.session);
    any_step_ = true;
    sql_line(std::move(line), true);
  }

  // [ENGINES:] TEXT [=> EXPECTATION]
  void sql_line(Line line, bool may_expect) {
    reader_.skip_blanks();
    if (std::vector<std::string> names = reader_.engine_names(is_engine); !names.empty()) {
      if (std::find(names.begin(), names.end(), "else") != names.end()) {
        reader_.fail(reader_.at(), "the names of engines expected; `else:` is for expectations");
      }
      line.only = std::move(names);
      reader_.skip_blanks();
    }
    const std::size_t begin = reader_.at();
    const std::size_t arrow = may_expect ? reader_.find_arrow() : reader_.end();
    line.text = reader_.between(begin, arrow);
    if (line.text.empty()) reader_.fail(begin, "a statement expected");
    line.expectation_begins = begin + reader_.trimmed_size(begin, arrow);
    line.expectation_ends = reader_.end();
    if (line.kind == Event::Kind::step && is_lock_step(line.text)) {
      line.lock = lock_step(begin, begin + line.text.size());
    } else {
      check_words(reader_, begin, line.text);
    }
    if (arrow != reader_.end()) {
      reader_.move_to(arrow + 2);
      expectations(line, arrow);
    }
    reader_.to_end();
    script_.lines.push_back(std::move(line));
  }

  // --- expectations -------------------------------------------------------------------------------------------------

  struct Part {
    std::vector<std::string> engines;  // empty: nobody is named
    std::size_t begin, end;
  };
  // `mysql mariadb: A; postgres: B`, from here to the end of the line; or all of it for everybody.
  std::vector<Part> split_by_engine() {
    reader_.skip_blanks();
    std::vector<Part> parts;
    for (;;) {
      reader_.skip_blanks();
      std::vector<std::string> names = reader_.engine_names(is_engine);
      reader_.skip_blanks();
      const std::size_t begin = reader_.at();
      if (names.empty() && !parts.empty()) expected("the name of an engine and a colon");
      const std::size_t end = names.empty() ? reader_.end() : reader_.find_next_engine(is_engine);
      parts.push_back({std::move(names), begin, end});
      if (end == reader_.end()) return parts;
      reader_.move_to(end + 1);  // the semicolon
    }
  }

  void expectations(Line& line, std::size_t arrow) {
    for (const Part& part : split_by_engine()) {
      const Expectation one = expectation(part.begin, part.end);
      if (part.engines.empty()) line.everywhere = one;
      for (const std::string& name : part.engines) {
        if (name == "else") {
          line.everywhere = one;
        } else if (!line.by_engine.emplace(name, one).second) {
          reader_.fail(part.begin, "what " + name + " is expected to do is said twice");
        }
      }
    }
    arrows_.push_back({script_.lines.size(), arrow});
  }

  Expectation expectation(std::size_t begin, std::size_t end) {
    Expectation result;
    result.said = true;
    const std::size_t unblocks = reader_.find_word("unblocks", begin, end);
    std::size_t head = unblocks;
    if (unblocks != end) {
      head = begin + reader_.trimmed_size(begin, unblocks);
      if (head != begin) {
        if (reader_.text()[head - 1] != ',') reader_.fail(unblocks, "a comma expected before `unblocks`");
        --head;
      }
    }
    if (head != begin || unblocks == end) result.step = outcome(begin, head);
    if (unblocks != end) {
      const Reader::Limit limit(reader_, unblocks + std::string_view("unblocks").size(), end);
      do {
        reader_.skip_blanks();
        Expectation::Freed freed;
        freed.session = session();
        reader_.skip_blanks();
        if (reader_.take('(')) {
          const std::size_t inner = reader_.at();
          const std::size_t close = reader_.find_closing();
          freed.end = outcome(inner, close);
          if (freed.end.kind == Kind::blocked)
            reader_.fail(inner, "how the step ended expected; whoever is blocked again was not unblocked");
          reader_.move_to(close + 1);
          reader_.skip_blanks();
        }
        result.unblocks.push_back(std::move(freed));
      } while (reader_.take(','));
      if (!reader_.ended()) expected("a comma and another session, or the end");
    }
    return result;
  }

  std::string session() {
    const std::size_t at = reader_.at();
    std::string name(reader_.name());
    if (name.empty()) expected("the name of a session");
    mentioned_.push_back({name, at});
    return name;
  }

  Expected outcome(std::size_t begin, std::size_t end) {
    const Reader::Limit limit(reader_, begin, end);
    reader_.skip_blanks();
    const std::size_t at = reader_.at();
    const std::string_view word = reader_.word();
    const auto found =
        std::find_if(std::begin(outcomes), std::end(outcomes), [&](const Word& w) { return w.text == word; });
    if (found == std::end(outcomes)) reader_.fail(at, std::string(outcome_words) + " expected");
    Expected result;
    result.kind = found->kind;
    reader_.skip_blanks();
    switch (result.kind) {
      case Kind::rows:
        rows(result);
        break;
      case Kind::affected:
        result.affected = number("how many rows");
        break;
      case Kind::blocked:
        if (reader_.word() != "by") reader_.fail(at, "`blocked by` and the names of sessions expected");
        do {
          reader_.skip_blanks();
          result.sessions.push_back(session());
          reader_.skip_blanks();
        } while (reader_.take(','));
        break;
      case Kind::deadlock:
        if (!reader_.take(',')) break;
        for (;;) {
          reader_.skip_blanks();
          result.sessions.push_back(session());
          reader_.skip_blanks();
          if (reader_.ended()) break;
          if (reader_.word() != "or") expected("`or` and another session that may be the victim, or the end");
        }
        break;
      case Kind::error:
        result.code = reader_.until(" \t");
        if (result.code.empty()) expected("the engine's code of the error");
        break;
      case Kind::ok:
      case Kind::timeout:
      case Kind::busy:
      case Kind::conflict:
      case Kind::serialization:
        break;
    }
    reader_.skip_blanks();
    if (!reader_.ended()) expected("the end of the expectation, or `, unblocks`");
    return result;
  }

  // V[,V][; V[,V]], or none
  void rows(Expected& result) {
    if (reader_.rest() == "none") return reader_.to_end();
    Row row;
    for (;;) {
      reader_.skip_blanks();
      row.push_back(value());
      reader_.skip_blanks();
      if (reader_.take(',')) continue;
      result.rows.push_back(std::exchange(row, {}));
      if (!reader_.take(';')) return;
    }
  }
  std::optional<std::string> value() {
    if (reader_.peek() == '\'') return reader_.quoted("a value");
    const std::size_t at = reader_.at();
    std::string_view text = reader_.until(",;");
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
    if (text.empty()) reader_.fail(at, "a value expected ('' is the empty one, none is no row at all)");
    if (same_word(text, "null")) return std::nullopt;
    return std::string(text);
  }
  std::uint64_t number(const std::string& what) {
    const std::size_t at = reader_.at();
    const std::string_view digits = reader_.until(" \t,;()");
    std::uint64_t value = 0;
    for (const char c : digits) {
      if (c < '0' || c > '9' || value > 1'000'000'000'000) reader_.fail(at, what + " expected, a number");
      value = value * 10 + static_cast<std::uint64_t>(c - '0');
    }
    if (digits.empty()) reader_.fail(at, what + " expected, a number");
    return value;
  }

  // --- lock steps ---------------------------------------------------------------------------------------------------

  static bool is_lock_step(std::string_view text) {
    const std::string_view first = text.substr(0, text.find_first_of(" \t"));
    if (first == "acquire" || first == "extend" || first == "named" || first == "slots") return true;
    if (first != "release") return false;
    std::string_view second = text.substr(first.size());
    second.remove_prefix(std::min(second.find_first_not_of(" \t"), second.size()));
    return !same_word(second.substr(0, second.find_first_of(" \t")), "savepoint");  // that is SQL
  }

  LockStep lock_step(std::size_t begin, std::size_t end) {
    const Reader::Limit limit(reader_, begin, end);
    LockStep step;
    const std::string_view verb = reader_.peek_word();
    if (verb == "extend") step.kind = LockStep::Kind::extend;
    if (verb == "release") step.kind = LockStep::Kind::release;
    if (verb != "named" && verb != "slots") reader_.word();
    for (;;) {
      reader_.skip_blanks();
      reader_.take(',');
      reader_.skip_blanks();
      if (reader_.ended()) break;
      const std::size_t at = reader_.at();
      const std::string_view word = reader_.peek_word();
      if ((word == "timeout" || word == "nowait") && step.kind != LockStep::Kind::release) {
        reader_.word();
        step.timeout = std::chrono::nanoseconds(0);
        if (word == "timeout") {
          reader_.skip_blanks();
          step.timeout = duration(reader_, reader_.at(), reader_.until(" \t"));
        }
        reader_.skip_blanks();
        if (!reader_.ended()) expected("the end of the step");
        break;
      }
      step.targets.push_back(target(at));
    }
    if (step.targets.empty() && step.kind != LockStep::Kind::release) expected("a target, such as u1/a1/r1");
    return step;
  }

  Target target(std::size_t at) {
    try {
      std::string_view word = reader_.peek_word();
      const bool is_shared = word == "shared";
      if (is_shared) {
        reader_.word();
        reader_.skip_blanks();
        word = reader_.peek_word();
      }
      if (word == "named" || word == "slots") {
        reader_.word();
        reader_.skip_blanks();
        const std::string name = quoted_or_word("the name of the lock");
        if (word == "named") return is_shared ? shared(named(name)) : named(name);
        reader_.skip_blanks();
        const std::uint64_t count = number("how many may hold it at once");
        const Target result = slots(name, static_cast<std::uint32_t>(std::min<std::uint64_t>(count, max_slots + 1u)));
        return is_shared ? shared(result) : result;
      }
      const std::string path = quoted_or_word("a path, such as u1/a1/r1");
      return is_shared ? shared(path) : Target(path);
    } catch (const Error& error) {
      if (std::string_view(error.what()).starts_with(script_.file + ":")) throw;
      reader_.fail(at, error.what());
    }
  }
  std::string quoted_or_word(const std::string& what) {
    if (reader_.peek() == '"' || reader_.peek() == '\'') return reader_.quoted(what);
    std::string_view word = reader_.until(" \t");
    if (word.size() > 1 && word.back() == ',') word.remove_suffix(1);
    if (word.empty()) expected(what);
    return std::string(word);
  }

  // --- the whole
  // ------------------------------------------------------------------------------------------------------

  void finish() {
    if (script_.name.empty()) reader_.fail(0, "`scenario` and its name expected");
    if (!any_step_) reader_.fail(reader_.text().size(), "a step expected, such as `T1 a: begin`");
    for (const auto& [name, at] : mentioned_) {
      if (!sessions_.contains(name)) reader_.fail(at, "there is no session " + name);
    }
    for (const auto& [index, at] : arrows_) {
      const Line& line = script_.lines[index];
      if (line.everywhere) continue;
      const std::vector<std::string>& engines = !line.only.empty() ? line.only : script_.engines;
      if (engines.empty()) reader_.fail(at, "`else:` expected: without `engines` the scenario runs anywhere");
      for (const std::string& engine : engines) {
        if (!line.by_engine.contains(engine)) reader_.fail(at, "`" + engine + ": …` or `else: …` expected");
      }
    }
  }

  Reader reader_;
  Script script_;
  bool any_step_ = false;
  std::set<std::string> steps_, sessions_;
  struct Mention {
    std::string session;
    std::size_t at;
  };
  std::vector<Mention> mentioned_;
  struct Arrow {
    std::size_t line, at;
  };
  std::vector<Arrow> arrows_;
};

}  // namespace

const std::vector<std::string>& known_engines() {
  static const std::vector<std::string> all{"memory",   "shm",    "mysql",  "mariadb",
                                            "postgres", "sqlite", "valkey", "etcd"};
  return all;
}

// --- back to text ---------------------------------------------------------------------------------------------------

std::string Expected::str() const {
  const auto found =
      std::find_if(std::begin(outcomes), std::end(outcomes), [&](const Word& w) { return w.kind == kind; });
  std::string text(found->text);
  switch (kind) {
    case Kind::rows: {
      if (rows.empty()) return text + " none";
      for (std::size_t i = 0; i < rows.size(); ++i) {
        text += i == 0 ? " " : "; ";
        for (std::size_t j = 0; j < rows[i].size(); ++j) text += (j == 0 ? "" : ",") + value_text(rows[i][j]);
      }
      return text;
    }
    case Kind::affected:
      return text + " " + std::to_string(affected);
    case Kind::blocked:
      return text + " by " + joined(sessions, ", ");
    case Kind::deadlock:
      return sessions.empty() ? text : text + ", " + joined(sessions, " or ");
    case Kind::error:
      return text + " " + code;
    default:
      return text;
  }
}

std::string Expectation::str() const {
  std::string text = step.str();
  for (std::size_t i = 0; i < unblocks.size(); ++i) {
    text += (i == 0 ? ", unblocks " : ", ") + unblocks[i].session;
    if (unblocks[i].end.kind != Kind::ok) text += " (" + unblocks[i].end.str() + ")";
  }
  return text;
}

std::string rewritten(const Script& script, const std::map<std::size_t, std::string>& expectations) {
  std::string text = script.text;
  for (auto line = script.lines.rbegin(); line != script.lines.rend(); ++line) {
    const auto found = expectations.find(line->number);
    if (found == expectations.end()) continue;
    const std::size_t begin = line->expectation_begins;
    std::size_t end = line->expectation_ends;
    while (end > begin && (text[end - 1] == ' ' || text[end - 1] == '\t')) --end;
    // The arrow stays where it was, so that the arrows of a file stay in one column.
    std::size_t gap = begin;
    while (gap < end && text[gap] != '=') ++gap;
    const std::string blanks = gap < end ? text.substr(begin, gap - begin) : " ";
    text.replace(begin, end - begin, found->second.empty() ? "" : blanks + "=> " + found->second);
  }
  return text;
}

// --- asking a script ------------------------------------------------------------------------------------------------

bool Line::is_for(std::string_view engine) const {
  return only.empty() || std::find(only.begin(), only.end(), engine) != only.end();
}

const Expectation& Line::expected_of(const std::string& engine) const {
  static const Expectation success;
  if (const auto found = by_engine.find(engine); found != by_engine.end()) return found->second;
  return everywhere ? *everywhere : success;
}

std::vector<std::string> Script::sessions() const {
  std::vector<std::string> names;
  for (const Line& line : lines) {
    if (line.kind == Event::Kind::step && std::find(names.begin(), names.end(), line.session) == names.end()) {
      names.push_back(line.session);
    }
  }
  return names;
}

bool Script::has_sql() const {
  return std::any_of(lines.begin(), lines.end(), [](const Line& line) { return !line.lock; });
}
bool Script::has_locks() const {
  return std::any_of(lines.begin(), lines.end(), [](const Line& line) { return line.lock.has_value(); });
}

const std::string& Scenario::name() const noexcept { return script_->name; }
const std::string& Scenario::file() const noexcept { return script_->file; }
const std::vector<std::string>& Scenario::proves() const noexcept { return script_->proves; }
const std::vector<std::string>& Scenario::engines() const noexcept { return script_->engines; }

const std::string& Scenario::text() const noexcept { return script_->text; }

Scenario parse(std::string_view text, std::string_view file) {
  return Scenario(std::make_shared<const Script>(Parser(text, file).parse()));
}

Scenario load(const std::string& path) {
  constexpr std::size_t most = 1'000'000;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  char block[4096];
  while (file.read(block, sizeof block) || file.gcount() > 0) {
    text.append(block, static_cast<std::size_t>(file.gcount()));
    if (text.size() > most) throw Error(ErrorKind::invalid_argument, path + ": too large for a scenario");
  }
  if (!file.eof()) throw Error(ErrorKind::unavailable, path + ": cannot be read");
  return parse(text, path);
}

}  // namespace hierlock::lab
