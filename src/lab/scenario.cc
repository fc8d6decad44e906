#include "lab/scenario.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <utility>

#include "lab/dialect.h"
#include "lab/reader.h"

namespace hierlock::lab {

namespace {

// In expectations: the engines that are not named.
constexpr std::string_view others = "else";
// Each is a connection and a thread.
constexpr std::size_t most_sessions = 100;
// Bytes of steps that orders repeat.
constexpr std::size_t most_copied = 256 << 20;

bool is_engine(std::string_view word) { return contains(known_engines(), word); }
std::string of(const std::string& engine) { return " of " + (engine == others ? "the other engines" : engine); }

// --- one line -----------------------------------------------------------------------------------------------------

// Reads the lines of one file. Names of sessions are collected as they come, since a line may speak of one whose first
// step is further down.
class Parser {
 public:
  Parser(std::string_view text, std::string_view file) : reader_(text, file) {
    script_.file = file;
    script_.text = std::make_shared<const std::string>(text);
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
    if (first == "order" && !is_step_line()) return order();
    if (first == "setup" || first == "check" || first == "teardown") {
      reader_.word();
      Line line;
      line.kind = first == "setup" ? Event::Kind::setup : first == "check" ? Event::Kind::check : Event::Kind::teardown;
      line.number = reader_.line();
      if (first == "setup") {
        if (any_step_) reader_.fail(begin, "setup comes before the first step");
        session_of_setup(line);
      }
      if (first == "check") any_step_ = true;
      return statement(std::move(line), first == "check");
    }
    if (!script_.orders.empty()) return step_of_order();
    step();
  }

  // `NAME NAME:` and whatever
  bool is_step_line() {
    const Reader::Limit limit(reader_, reader_.at(), reader_.end());
    reader_.name();
    reader_.skip_blanks();
    const bool named = !reader_.name().empty();
    reader_.skip_blanks();
    return named && reader_.peek() == ':';
  }

  // [SESSION:]
  void session_of_setup(Line& line) {
    reader_.skip_blanks();
    const std::size_t at = reader_.at();
    std::string name(reader_.name());
    if (name.empty() || reader_.peek() != ':' || is_engine(name) || name == others) return reader_.move_to(at);
    reader_.take(':');
    mentioned_.push_back({name, at});
    line.session = std::move(name);
  }

  // --- orders -------------------------------------------------------------------------------------------------------

  void order() {
    reader_.prose_line();
    reader_.word();
    if (script_.orders.empty()) {
      if (!arrows_.empty()) {
        reader_.fail(arrows_.front().at, "no `=>` expected: what is expected of a step stands below `order`");
      }
      for (const Line& line : script_.lines) {
        if (line.kind == Event::Kind::check) {
          reader_.fail(line.expectation_begins, "no check expected here: it stands below `order`");
        }
      }
    }
    Script::Order& made = script_.orders.emplace_back();
    made.name = rest("the name of the order");
    any_step_ = true;
  }

  // STEP [=> EXPECTATION]
  void step_of_order() {
    const std::size_t at = reader_.at();
    const std::string name(reader_.name());
    const auto known = steps_.find(name);
    if (known == steps_.end()) {
      reader_.fail(at, "the name of a step from above the first `order`, or `check`, `order` or `teardown` expected");
    }
    Line line = script_.lines[known->second];
    line.number = reader_.line();
    copied_ += line.text.size() + sizeof line;
    if (copied_ > most_copied) reader_.fail(at, "fewer or shorter orders expected: split the file");
    line.expectation_begins = reader_.at();
    reader_.statement_line(Reader::Statement::other);
    line.expectation_ends = reader_.end();
    reader_.blank_line_ends(at);
    const std::size_t arrow = reader_.find_arrow();
    reader_.skip_blanks();
    if (reader_.at() != arrow) expected("`=>`, or the end of the line");
    if (arrow != reader_.end()) {
      reader_.move_to(arrow + 2);
      expectations(line, arrow);
    }
    reader_.to_end();
    script_.orders.back().lines.push_back(std::move(line));
  }

  void name(std::size_t begin) {
    if (!script_.name.empty()) reader_.fail(begin, "one `scenario` in a file, and this is the second");
    script_.name = rest("the name of the scenario");
  }
  void about(std::size_t) { script_.about.push_back(rest("a sentence about the scenario")); }
  std::string rest(const std::string& what) {
    reader_.skip_blanks();
    std::string text = reader_.rest();
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
      expected(
          "scenario, proves, engines, about, fact, setup, check, teardown, order, or a step such as `T1 a: begin`");
    reader_.skip_blanks();
    const std::size_t name_at = reader_.at();
    line.name = reader_.name();
    if (line.name.empty()) {
      reader_.fail(name_at, "the step's name and a colon expected after the session: `" + line.session + " a: …`");
    }
    reader_.skip_blanks();
    if (!reader_.take(':')) expected("a colon after the step's name");
    if (!steps_.emplace(line.name, script_.lines.size()).second)
      reader_.fail(name_at, "there is a step `" + line.name + "` already");
    if (is_engine(line.session) || line.session == others || line.session == unblocks_word ||
        line.session == prepared_transaction) {
      reader_.fail(session_at,
                   "`" + line.session + "` has a meaning of its own in expectations: call the session otherwise");
    }
    if (sessions_.insert(line.session).second && sessions_.size() > most_sessions) {
      reader_.fail(session_at, "at most " + std::to_string(most_sessions) + " sessions expected");
    }
    any_step_ = true;
    statement(std::move(line), true);
  }

  // [ENGINES:] TEXT [=> EXPECTATION]
  void statement(Line line, bool may_expect) {
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
    const bool is_step = line.kind == Event::Kind::step || !line.session.empty();
    const bool is_lock = is_step && is_lock_step(reader_.rest(), line.session);
    const bool is_row = !is_lock && is_row_step(reader_.rest());
    reader_.statement_line(is_lock || is_row ? Reader::Statement::other : Reader::Statement::sql);
    const std::size_t arrow = reader_.find_arrow();
    if (arrow != reader_.end() && !may_expect) reader_.fail(arrow, "no `=>` expected: it must succeed");
    reader_.blank_line_ends(is_lock || is_row ? begin : arrow);
    line.text = reader_.between(begin, arrow);
    if (line.text.empty() && line.kind != Event::Kind::step) reader_.fail(begin, "a statement expected");
    line.expectation_begins = begin + reader_.trimmed_size(begin, arrow);
    line.expectation_ends = reader_.end();
    if (is_lock) {
      line.lock = read_lock_step(reader_, begin, begin + line.text.size());
    } else if (is_row) {
      row_line(line, begin);
    } else {
      check_words(reader_, begin, line.text);
      note_savepoint(line);
    }
    if (arrow != reader_.end()) {
      reader_.move_to(arrow + 2);
      expectations(line, arrow);
    }
    reader_.to_end();
    const bool of_order = line.kind == Event::Kind::check && !script_.orders.empty();
    (of_order ? script_.orders.back().lines : script_.lines).push_back(std::move(line));
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
      const Expectation one = read_expectation(reader_, line.session, part.begin, part.end,
                                               [this](const std::string& name, std::size_t at) {
                                                 mentioned_.push_back({name, at});
                                               });
      for (const std::string& name : part.engines) {
        const bool twice = name == others ? line.everywhere.has_value() : line.by_engine.contains(name);
        if (twice) reader_.fail(part.begin, "what is expected" + of(name) + " is said twice");
        (name == others ? line.everywhere.emplace() : line.by_engine[name]) = one;
      }
    }
    std::vector<std::string> named;
    for (const auto& [engine, expectation] : line.by_engine) named.push_back(engine);
    arrows_.push_back({line.only, std::move(named), line.everywhere.has_value(), arrow});
  }

  // What only looks like one is SQL: `release savepoint s`, and `release s` of a savepoint that the session has set.
  bool is_lock_step(std::string_view text, const std::string& session) const {
    text = text.substr(0, std::min(text.find("=>"), text.find(" #")));
    const std::vector<std::string> words = split_words(text);
    if (words.empty()) return false;
    const std::string& first = words.front();
    if (first == "acquire" || first == "extend" || first == "named" || first == "slots") return true;
    if (first != "release") return false;
    if (words.size() < 2) return true;
    const std::string name = words[1].substr(0, words[1].find(';'));
    return !same_word(words[1], "savepoint") && !(words.size() == 2 && savepoints_.contains({session, name}));
  }
  void note_savepoint(const Line& line) {
    const std::vector<std::string> words = split_words(line.text);
    if (words.size() == 2 && same_word(words[0], "savepoint")) {
      savepoints_.insert({line.session, words[1].substr(0, words[1].find(';'))});
    }
  }
  static std::vector<std::string> split_words(std::string_view text) {
    std::vector<std::string> words;
    for (std::size_t at = text.find_first_not_of(" \t\n"); at < text.size();) {
      const std::size_t end = std::min(text.find_first_of(" \t\n", at), text.size());
      words.emplace_back(text.substr(at, end - at));
      at = text.find_first_not_of(" \t\n", end);
    }
    return words;
  }

  void row_line(Line& line, std::size_t begin) {
    try {
      if (line.kind == Event::Kind::check)
        throw Error(ErrorKind::invalid_argument, "SQL expected: a check asks the database");
      line.describes_rows = line.kind == Event::Kind::setup;
      if (line.describes_rows) {
        const rows::Table table = row_table(line.text);
        script_.row_tables.insert_or_assign(table.name(), table);
      } else {
        line.rows = row_step(line.text, script_.row_tables);
      }
    } catch (const Error& error) {
      reader_.fail(begin, error.what());
    }
  }

  // --- the whole ----------------------------------------------------------------------------------------------------

  void finish() {
    if (script_.name.empty()) reader_.fail(0, "`scenario` and its name expected");
    if (!any_step_) reader_.fail(reader_.text().size(), "a step expected, such as `T1 a: begin`");
    for (const auto& [name, at] : mentioned_) {
      if (!sessions_.contains(name)) reader_.fail(at, "there is no session " + name);
    }
    for (const Arrow& arrow : arrows_) {
      if (arrow.everywhere) continue;
      const std::vector<std::string>& engines = !arrow.only.empty() ? arrow.only : script_.engines;
      if (engines.empty()) reader_.fail(arrow.at, "`else:` expected: without `engines` the scenario runs anywhere");
      for (const std::string& engine : engines) {
        if (!contains(arrow.named, engine)) reader_.fail(arrow.at, "`" + engine + ": …` or `else: …` expected");
      }
    }
    for (const Script::Order& order : script_.orders) {
      if (order.lines.empty()) reader_.fail(reader_.text().size(), "a step expected in the order " + order.name);
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
  std::map<std::string, std::size_t> steps_;  // where they are in script_.lines
  std::set<std::string> sessions_;
  std::set<std::pair<std::string, std::string>> facts_;       // name and engine
  std::set<std::pair<std::string, std::string>> savepoints_;  // session and name
  struct Mention {
    std::string session;
    std::size_t at;
  };
  std::vector<Mention> mentioned_;
  struct Arrow {
    std::vector<std::string> only, named;  // engines that the line is for, and of which it expects something
    bool everywhere;
    std::size_t at;
  };
  std::vector<Arrow> arrows_;
  std::size_t copied_ = 0;  // bytes, into orders
};

}  // namespace

const std::vector<std::string>& known_engines() {
  static const std::vector<std::string> all{"memory", "shm",    "mysql", "mariadb", "postgres",
                                            "sqlite", "valkey", "redis", "etcd"};
  return all;
}

// --- back to text ---------------------------------------------------------------------------------------------------

std::string Line::expectation() const {
  std::vector<std::string> parts;
  for (const auto& [engine, expected] : by_engine) parts.push_back(engine + ": " + expected.str());
  if (everywhere) parts.push_back((by_engine.empty() ? "" : "else: ") + everywhere->str());
  return joined(parts, "; ");
}

std::string rewritten(const Script& script, const std::map<std::size_t, std::string>& expectations) {
  const std::string& old = *script.text;
  std::string text;
  std::size_t done = 0;
  for (const Line& line : script.lines) {
    const auto found = expectations.find(line.number);
    if (found == expectations.end() || found->second == line.expectation()) continue;
    const std::size_t begin = line.expectation_begins;
    const std::size_t last = old.find_last_not_of(" \t\r\n", line.expectation_ends - 1);
    const std::size_t end = std::max(begin, last == std::string::npos ? begin : last + 1);
    // The arrow stays where it was, so that the arrows of a file stay in one column.
    const std::size_t arrow = std::min(old.find('=', begin), end);
    text += old.substr(done, begin - done);
    if (!found->second.empty()) {
      text += (arrow < end ? old.substr(begin, arrow - begin) : " ") + "=> " + found->second;
    }
    done = end;
    // Behind SQL without an expectation a comment would be read as SQL: it gets a line of its own.
    const std::size_t next = old.find_first_not_of(" \t", end);
    if (found->second.empty() && next != std::string::npos && old[next] == '#') {
      text += '\n';
      done = next;
    }
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
    if (!line.session.empty() && std::find(names.begin(), names.end(), line.session) == names.end()) {
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

const std::string& Scenario::text() const noexcept { return *script_->text; }

std::vector<Scenario> Scenario::orders() const {
  if (script_->orders.empty()) return {*this};
  std::vector<Scenario> all;
  for (const Script::Order& order : script_->orders) {
    Script one;
    one.name = script_->name + ": " + order.name;
    one.file = script_->file;
    one.text = script_->text;
    one.proves = script_->proves;
    one.engines = script_->engines;
    one.about = script_->about;
    one.facts = script_->facts;
    one.row_tables = script_->row_tables;
    const auto copy = [&](Event::Kind kind) {
      std::copy_if(script_->lines.begin(), script_->lines.end(), std::back_inserter(one.lines),
                   [&](const Line& line) { return line.kind == kind; });
    };
    copy(Event::Kind::setup);
    one.lines.insert(one.lines.end(), order.lines.begin(), order.lines.end());
    copy(Event::Kind::teardown);
    all.emplace_back(std::make_shared<const Script>(std::move(one)));
  }
  return all;
}

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
