#include "lab/scenario.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fstream>
#include <functional>
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

// In expectations: the engines that are not named; and the sessions that may go on.
constexpr std::string_view others = "else", unblocks_word = "unblocks";
// Each is a connection and a thread.
constexpr std::size_t most_sessions = 100;

bool is_engine(std::string_view word) { return contains(known_engines(), word); }
std::string of(const std::string& engine) { return " of " + (engine == others ? "the other engines" : engine); }

// --- values -------------------------------------------------------------------------------------------------------

// 0: it is a control character, or not UTF-8, and cannot stand in a file as it is.
std::size_t printable_size(std::string_view text) {
  return static_cast<unsigned char>(text.front()) < ' ' && text.front() != '\t' ? 0 : character_size(text);
}

bool needs_quotes(std::string_view value) {
  if (value.empty() || std::isspace(static_cast<unsigned char>(value.front())) != 0 ||
      std::isspace(static_cast<unsigned char>(value.back())) != 0) {
    return true;
  }
  if (same_word(value, "null") || same_word(value, "none")) return true;
  // After a `;` it might be taken for the name of an engine and a colon.
  if (value.find(':') != std::string_view::npos && (value.front() < '0' || value.front() > '9')) return true;
  for (std::string_view rest = value; !rest.empty();) {
    const std::size_t size = printable_size(rest);
    if (size == 0) return true;
    rest.remove_prefix(size);
  }
  return value.find_first_of(",;'\"`()#\\") != std::string_view::npos || value.find("=>") != std::string_view::npos ||
         value.find("unblocks") != std::string_view::npos;
}

std::string value_text(const std::optional<std::string>& value) {
  if (!value) return "null";
  if (!needs_quotes(*value)) return *value;
  std::string text = "'";
  for (std::string_view rest = *value; !rest.empty();) {
    const char c = rest.front();
    const std::size_t size = printable_size(rest);
    if (c == '\n') {
      text += "\\n";
    } else if (c == '\r') {
      text += "\\r";
    } else if (size == 0) {
      constexpr char digits[] = "0123456789abcdef";
      text +=
          {'\\', 'x', digits[(static_cast<unsigned char>(c) >> 4) & 15], digits[static_cast<unsigned char>(c) & 15]};
    } else {
      if (c == '\'' || c == '\\') text += c;  // doubled
      text += rest.substr(0, size);
    }
    rest.remove_prefix(std::max<std::size_t>(size, 1));
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
    const std::string_view first = reader_.peek_word(" \t");
    for (const auto& [keyword, read] : prose) {
      if (first != keyword) continue;
      reader_.prose_line();
      reader_.word();
      return (this->*read)(begin);
    }
    if (first == "setup" || first == "check") {
      reader_.sql_line();
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

  void name(std::size_t begin) {
    if (!script_.name.empty()) reader_.fail(begin, "one `scenario` in a file, and this is the second");
    script_.name = rest("the name of the scenario");
  }
  void about(std::size_t) { script_.about.push_back(rest("a sentence about the scenario")); }
  std::string rest(const std::string& what) {
    reader_.skip_blanks();
    std::string text(reader_.rest());
    if (text.empty()) expected(what);
    reader_.to_end();
    return text;
  }
  // Calls `see` with each word of the line and its place; commas between them are allowed.
  void words(const std::function<void(std::size_t, std::string_view)>& see) {
    do {
      reader_.skip_blanks();
      const std::size_t at = reader_.at();
      see(at, reader_.until(" \t,"));
      reader_.skip_blanks();
      reader_.take(',');
      reader_.skip_blanks();
    } while (!reader_.ended());
  }
  void proves(std::size_t) {
    words([this](std::size_t at, std::string_view word) {
      if (word.empty()) reader_.fail(at, "a requirement, such as H13 expected");
      script_.proves.emplace_back(word);
    });
  }
  void engines(std::size_t begin) {
    if (!script_.engines.empty()) reader_.fail(begin, "one `engines` in a file, and this is the second");
    words([this](std::size_t at, std::string_view word) {
      if (!is_engine(word)) reader_.fail(at, "an engine expected: " + joined(known_engines(), " "));
      if (contains(script_.engines, word)) reader_.fail(at, std::string(word) + " is named twice");
      script_.engines.emplace_back(word);
    });
  }
  // A fact may take several lines, each for other engines.
  void fact(std::size_t) {
    reader_.skip_blanks();
    Script::Fact fact;
    fact.name = reader_.name();
    if (fact.name.empty()) expected("the name of the fact");
    const bool apart = reader_.ended() || reader_.peek() == ' ' || reader_.peek() == '\t';
    reader_.skip_blanks();
    if (reader_.ended() || !apart) expected("a blank and what the fact is");
    for (const auto& [names, begin, end] : split_by_engine()) {
      const std::string value(reader_.between(begin, end));
      if (value.empty()) reader_.fail(begin, "what the fact is expected");
      for (const std::string& name : names) {
        if (!facts_.insert({fact.name, name}).second) {
          reader_.fail(begin, "what the fact " + fact.name + " is" + of(name) + " is said twice");
        }
        (name == others ? fact.everywhere : fact.by_engine[name]) = value;
      }
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
    if (is_engine(line.session) || line.session == others || line.session == unblocks_word) {
      reader_.fail(session_at,
                   "`" + line.session + "` has a meaning of its own in expectations: call the session otherwise");
    }
    if (sessions_.insert(line.session).second && sessions_.size() > most_sessions) {
      reader_.fail(session_at, "at most " + std::to_string(most_sessions) + " sessions expected");
    }
    any_step_ = true;
    reader_.sql_line();
    sql_line(std::move(line), true);
  }

  // [ENGINES:] TEXT [=> EXPECTATION]
  void sql_line(Line line, bool may_expect) {
    reader_.skip_blanks();
    const std::size_t names_at = reader_.at();
    if (std::vector<std::string> names = reader_.engine_names(is_engine); !names.empty()) {
      if (contains(names, others)) {
        reader_.fail(names_at, "the names of engines expected; `else:` is for expectations");
      }
      line.only = std::move(names);
      reader_.skip_blanks();
    }
    const std::size_t begin = reader_.at();
    const std::size_t arrow = reader_.find_arrow();
    if (arrow != reader_.end() && !may_expect) reader_.fail(arrow, "no `=>` expected: setup must succeed");
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
    std::vector<std::string> engines;  // `else` among them
    std::size_t begin, end;
  };
  // `mysql mariadb: A; postgres: B; else: C`, from here to the end of the line. What comes first may be without a name:
  // it is what `else:` is.
  std::vector<Part> split_by_engine() {
    std::vector<Part> parts;
    for (;;) {
      std::vector<std::string> names = reader_.engine_names(is_engine);
      if (names.empty()) names.emplace_back(others);
      reader_.skip_blanks();
      const std::size_t begin = reader_.at();
      const std::size_t end = reader_.find_next_engine(is_engine);
      parts.push_back({std::move(names), begin, end});
      if (end == reader_.end()) return parts;
      reader_.move_to(end + 1);  // the semicolon
    }
  }

  void expectations(Line& line, std::size_t arrow) {
    for (const Part& part : split_by_engine()) {
      const Expectation one = expectation(line.session, part.begin, part.end);
      for (const std::string& name : part.engines) {
        const bool twice = name == others ? line.everywhere.has_value() : line.by_engine.contains(name);
        if (twice) reader_.fail(part.begin, "what is expected" + of(name) + " is said twice");
        (name == others ? line.everywhere.emplace() : line.by_engine[name]) = one;
      }
    }
    arrows_.push_back({script_.lines.size(), arrow});
  }

  Expectation expectation(const std::string& of_session, std::size_t begin, std::size_t end) {
    Expectation result;
    result.said = true;
    const std::size_t unblocks = reader_.find_word(unblocks_word, begin, end);
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
      const Reader::Limit limit(reader_, unblocks + unblocks_word.size(), end);
      std::vector<std::string> freed_sessions;
      do {
        reader_.skip_blanks();
        const std::size_t at = reader_.at();
        session(freed_sessions);
        Expectation::Freed freed;
        freed.session = freed_sessions.back();
        if (freed.session == of_session) reader_.fail(at, "another session expected: a step does not unblock itself");
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

  void session(std::vector<std::string>& into) {
    const std::size_t at = reader_.at();
    std::string name(reader_.name());
    if (name.empty()) expected("the name of a session");
    if (contains(into, name)) reader_.fail(at, "another session expected: " + name + " is named twice");
    mentioned_.push_back({name, at});
    into.push_back(std::move(name));
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
          session(result.sessions);
          reader_.skip_blanks();
        } while (reader_.take(','));
        break;
      case Kind::deadlock:
        if (!reader_.take(',')) break;
        for (;;) {
          reader_.skip_blanks();
          session(result.sessions);
          reader_.skip_blanks();
          if (reader_.ended()) break;
          if (reader_.peek_word(" \t") != "or") {
            expected("`or` and another session that may be the victim, or the end");
          }
          reader_.word();
        }
        break;
      case Kind::error:
        result.code = reader_.until(" \t,;()'\"`\\#");  // # would begin a comment where it is written again
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
    const std::string_view verb = reader_.peek_word(" \t");
    if (verb == "extend") step.kind = LockStep::Kind::extend;
    if (verb == "release") step.kind = LockStep::Kind::release;
    if (verb != "named" && verb != "slots") reader_.word();
    reader_.skip_blanks();
    while (!reader_.ended()) {
      const std::string_view word = lock_word();
      if ((word == "timeout" || word == "nowait") && step.kind != LockStep::Kind::release) {
        reader_.word();
        step.timeout = std::chrono::nanoseconds(0);
        if (word == "timeout") {
          reader_.skip_blanks();
          const std::size_t at = reader_.at();
          step.timeout = duration(reader_, at, reader_.until(" \t"));
        }
        reader_.skip_blanks();
        if (!reader_.ended()) expected("the end of the step");
        break;
      }
      step.targets.push_back(target());
      reader_.skip_blanks();
      if (!reader_.take(',')) continue;
      reader_.skip_blanks();
      if (reader_.ended()) expected("another target");
    }
    if (step.targets.empty() && step.kind != LockStep::Kind::release) expected("a target, such as u1/a1/r1");
    return step;
  }

  // Of a word that is part of a path (`shared/a`, `timeout1`) this is empty.
  std::string_view lock_word() const { return reader_.peek_word(" \t,'\""); }

  // [shared] PATH, [shared] named NAME, slots NAME COUNT
  Target target() {
    const std::size_t at = reader_.at();
    const bool is_shared = lock_word() == "shared";
    if (is_shared) {
      reader_.word();
      reader_.skip_blanks();
    }
    const std::string_view word = lock_word();
    const bool is_named = word == "named", is_slots = word == "slots";
    if (is_named || is_slots) {
      reader_.word();
      reader_.skip_blanks();
    }
    const std::string text = quoted_or_word(is_named || is_slots ? "the name of the lock" : "a path, such as u1/a1/r1");
    std::uint32_t count = 0;
    if (is_slots) {
      reader_.skip_blanks();
      count = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(number("how many may hold it at once"), std::uint64_t{max_slots} + 1));
    }
    try {
      Target target = is_named ? named(text) : is_slots ? slots(text, count) : Target(text);
      return is_shared ? shared(std::move(target)) : target;
    } catch (const Error& error) {
      reader_.fail(at, error.what());
    }
  }
  std::string quoted_or_word(const std::string& what) {
    if (reader_.peek() == '"' || reader_.peek() == '\'') return reader_.quoted(what);
    const std::string_view word = reader_.until(" \t,");
    if (word.empty()) expected(what);
    return std::string(word);
  }

  // --- the whole ----------------------------------------------------------------------------------------------------

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

  struct Prose {
    std::string_view keyword;
    void (Parser::*read)(std::size_t begin);  // after the keyword; `begin` is where that is
  };
  static constexpr Prose prose[] = {{"scenario", &Parser::name},
                                    {"about", &Parser::about},
                                    {"proves", &Parser::proves},
                                    {"engines", &Parser::engines},
                                    {"fact", &Parser::fact}};

  Reader reader_;
  Script script_;
  bool any_step_ = false;
  std::set<std::string> steps_, sessions_;
  std::set<std::pair<std::string, std::string>> facts_;  // name and engine
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

std::string Line::expectation() const {
  std::vector<std::string> parts;
  for (const auto& [engine, expected] : by_engine) parts.push_back(engine + ": " + expected.str());
  if (everywhere) parts.push_back((by_engine.empty() ? "" : "else: ") + everywhere->str());
  return joined(parts, "; ");
}

std::string rewritten(const Script& script, const std::map<std::size_t, std::string>& expectations) {
  const std::string& old = script.text;
  std::string text;
  std::size_t done = 0;
  for (const Line& line : script.lines) {
    const auto found = expectations.find(line.number);
    if (found == expectations.end() || found->second == line.expectation()) continue;
    const std::size_t begin = line.expectation_begins;
    const std::size_t last = old.find_last_not_of(" \t\r", line.expectation_ends - 1);
    const std::size_t end = std::max(begin, last == std::string::npos ? begin : last + 1);
    // The arrow stays where it was, so that the arrows of a file stay in one column.
    const std::size_t arrow = std::min(old.find('=', begin), end);
    text += old.substr(done, begin - done);
    if (!found->second.empty()) {
      text += (arrow < end ? old.substr(begin, arrow - begin) : " ") + "=> " + found->second;
    }
    done = end;
  }
  return text + old.substr(done);
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

bool Script::has_sql(std::string_view engine) const {
  return std::any_of(lines.begin(), lines.end(), [&](const Line& line) { return !line.lock && line.is_for(engine); });
}
bool Script::has_locks(std::string_view engine) const {
  return std::any_of(lines.begin(), lines.end(), [&](const Line& line) { return line.lock && line.is_for(engine); });
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
