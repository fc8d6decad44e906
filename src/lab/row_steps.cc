#include "lab/row_steps.h"

#include <algorithm>
#include <charconv>

#include "lab/locks.h"

namespace hierlock::lab {

namespace {

[[noreturn]] void expected(const std::string& what) { throw Error(ErrorKind::invalid_argument, what + " expected"); }

// Words between blanks; commas stand alone; '…' is one word, a quote inside doubled.
struct Word {
  std::string text;
  bool quoted = false;
};
class Words {
 public:
  explicit Words(std::string_view text) {
    for (std::size_t i = 0; i < text.size();) {
      if (text[i] == ' ' || text[i] == '\t') {
        ++i;
      } else if (text[i] == ',') {
        words_.push_back({","});
        ++i;
      } else if (text[i] == '\'') {
        Word word{"", true};
        for (++i; i < text.size(); ++i) {
          if (text[i] == '\'' && (i + 1 >= text.size() || text[i + 1] != '\'')) break;
          if (text[i] == '\'') ++i;
          word.text += text[i];
        }
        ++i;
        words_.push_back(std::move(word));
      } else {
        const std::size_t end = std::min(text.find_first_of(" \t,'", i), text.size());
        words_.push_back({std::string(text.substr(i, end - i))});
        i = end;
      }
    }
  }
  bool ended() const { return at_ >= words_.size(); }
  bool next_is(std::string_view word) const { return !ended() && !words_[at_].quoted && words_[at_].text == word; }
  bool take(std::string_view word) {
    if (!next_is(word)) return false;
    ++at_;
    return true;
  }
  const Word& word(const std::string& what) {
    if (ended()) expected(what);
    return words_[at_++];
  }
  std::string name(const std::string& what) { return word(what).text; }
  // A number without quotes is one; `null` is NULL.
  rows::Value value(const std::string& what) {
    const Word& found = word(what);
    if (found.quoted) return found.text;
    if (found.text == "null") return {};
    std::int64_t number = 0;
    const char* const end = found.text.data() + found.text.size();
    const auto [stop, error] = std::from_chars(found.text.data(), end, number);
    if (error == std::errc() && stop == end) return number;
    return found.text;
  }
  std::int64_t number(const std::string& what) {
    const rows::Value found = value(what);
    if (const auto* number = std::get_if<std::int64_t>(&found.held())) return *number;
    expected(what);
  }
  void end() const {
    if (!ended()) expected("the end of the step instead of `" + words_[at_].text + "`");
  }

 private:
  std::vector<Word> words_;
  std::size_t at_ = 0;
};

const rows::Table& known(const RowTables& tables, const std::string& name) {
  const auto found = tables.find(name);
  if (found == tables.end()) expected("a table that `setup rows " + name + " key … columns …` has described");
  return found->second;
}

rows::Change change(Words& words) {
  std::string column = words.name("a column to change");
  const bool relative = words.take("+=");
  if (!relative && !words.take("=")) expected("`=` or `+=` after " + column);
  return {std::move(column), words.value("a value"), relative};
}

rows::Guard guard(Words& words) {
  using Test = rows::Guard::Test;
  static const std::map<std::string, Test, std::less<>> tests = {{"=", Test::equal},   {"<>", Test::not_equal},
                                                                 {"<", Test::less},    {"<=", Test::at_most},
                                                                 {">", Test::greater}, {">=", Test::at_least}};
  std::string column = words.name("a column to test");
  const auto test = tests.find(words.name("a comparison"));
  if (test == tests.end()) expected("= <> < <= > or >= after " + column);
  return {std::move(column), test->second, words.value("a value")};
}

std::chrono::nanoseconds time(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, text.data() + text.size());
  const double seconds = unit == "ms" ? 0.001 : unit == "s" ? 1 : 0;
  if (error != std::errc() || seconds == 0 || !(number >= 0) || number > 1'000'000)
    expected("a time such as 100ms or 2s");
  return std::chrono::nanoseconds(static_cast<std::int64_t>(number * seconds * 1e9));
}

// TABLE KEY… {, TABLE KEY…} [read | write | increment] [timeout TIME | nowait | skip]
void lock(Words& words, const RowTables& tables, RowStep& step) {
  const auto option = [&] {
    return words.next_is("read") || words.next_is("write") || words.next_is("increment") || words.next_is("timeout") ||
           words.next_is("nowait") || words.next_is("skip");
  };
  do {
    rows::RowsOf wanted{known(tables, words.name("a table")), {}};
    while (!words.ended() && !words.next_is(",") && !option()) wanted.keys.push_back({words.value("a key")});
    if (wanted.keys.empty()) expected("a key");
    step.of.push_back(std::move(wanted));
  } while (words.take(","));
  if (words.take("read")) step.lock.strength = rows::Strength::read;
  if (words.take("increment")) step.lock.strength = rows::Strength::force_increment;
  words.take("write");
  if (words.take("nowait")) step.lock.wait = rows::Wait::no_wait();
  if (words.take("skip")) step.lock.wait = rows::Wait::skip_locked();
  if (words.take("timeout")) step.lock.wait = rows::Wait::at_most(time(words.name("a time")));
}

std::string literal(const rows::Value& value) {
  if (value.is_null()) return "NULL";
  const auto* text = std::get_if<std::string>(&value.held());
  if (text == nullptr) return value.get<std::string>();
  if (text->find('\\') != text->npos || text->find('\0') != text->npos) {
    throw Error(ErrorKind::unsupported, "a value with a backslash or a NUL byte cannot be part of a row step");
  }
  std::string quoted = "'";
  for (const char c : *text) quoted.append(c == '\'' ? 2 : 1, c);
  return quoted + "'";
}

rows::Engine engine_called(std::string_view name) {
  for (const rows::Engine engine :
       {rows::Engine::mysql, rows::Engine::mariadb, rows::Engine::postgres, rows::Engine::sqlite}) {
    if (to_string(engine) == name) return engine;
  }
  throw Error(ErrorKind::unsupported, "row steps work on databases, not on " + std::string(name));
}

Answer changed(bool any) {
  Answer answer;
  answer.affected = any ? 1 : 0;
  return answer;
}

}  // namespace

bool is_row_step(std::string_view text) { return text.starts_with("rows ") || text.starts_with("rows\t"); }

rows::Table row_table(std::string_view text) {
  Words words(text);
  words.take("rows");
  const std::string name = words.name("a table");
  rows::TableColumns columns;
  const auto special = [&] {
    return words.ended() || words.next_is("columns") || words.next_is("version") || words.next_is("fence");
  };
  if (!words.take("key")) expected("`key` and the column of the primary key");
  columns.key = {words.name("the column of the primary key")};
  if (words.take("columns")) {
    do columns.columns.push_back(words.name("a column"));
    while (!special());
  }
  if (words.take("version")) columns.version = words.name("the version column");
  if (words.take("fence")) columns.fence = words.name("the fence column");
  words.end();
  return rows::Table(name, std::move(columns));
}

RowStep row_step(std::string_view text, const RowTables& tables) {
  using Kind = RowStep::Kind;
  static const std::map<std::string, Kind, std::less<>> verbs = {
      {"begin", Kind::begin}, {"commit", Kind::commit}, {"rollback", Kind::rollback}, {"fetch", Kind::fetch},
      {"check", Kind::check}, {"update", Kind::update}, {"remove", Kind::remove},     {"guarded", Kind::guarded},
      {"lock", Kind::lock},   {"fenced", Kind::fenced}};
  Words words(text);
  words.take("rows");
  const auto verb = verbs.find(words.name("what to do with rows"));
  if (verb == verbs.end()) expected("begin, commit, rollback, fetch, check, update, remove, guarded, lock or fenced");
  RowStep step;
  step.kind = verb->second;
  if (step.kind == Kind::begin && words.take("read")) step.how = rows::Begin::read;
  if (step.kind == Kind::lock) lock(words, tables, step);
  if (step.kind >= Kind::fetch && step.kind != Kind::lock) {
    rows::RowsOf one{known(tables, words.name("a table")), {}};
    one.keys.push_back({words.value("a key")});
    step.of.push_back(std::move(one));
  }
  if (step.kind == Kind::check) step.number = words.number("the version that was read");
  if (step.kind == Kind::fenced) step.number = words.number("a fence");
  if (step.kind == Kind::update || step.kind == Kind::guarded || step.kind == Kind::fenced) {
    do step.changes.push_back(change(words));
    while (words.take(","));
  }
  if (step.kind == Kind::guarded && words.take("if")) {
    do step.guards.push_back(guard(words));
    while (words.take("and"));
  }
  words.end();
  return step;
}

// --- the module -----------------------------------------------------------------------------------------------------

RowSession::LabAdapter::LabAdapter(Connection& connection, std::string_view engine)
    : connection_(connection), engine_(engine_called(engine)) {}

rows::Reply RowSession::LabAdapter::run(const std::string& sql, std::span<const rows::Value> values, std::size_t) {
  // The module writes no `?` but placeholders: its names have none, and it has no texts.
  std::string filled;
  auto value = values.begin();
  for (const char c : sql) c == '?' ? filled += literal(*value++) : filled += c;
  Answer answer = connection_.execute(filled);
  rows::Reply reply;
  if (!answer.well()) {
    reply.message = answer.message.empty() ? "refused" : std::move(answer.message);
    if (engine_ == rows::Engine::postgres) {
      reply.state = std::move(answer.code);
    } else {
      std::from_chars(answer.code.data(), answer.code.data() + answer.code.size(), reply.code);
    }
    return reply;
  }
  reply.affected = static_cast<std::int64_t>(answer.affected.value_or(0));
  for (Row& row : answer.rows) {
    std::vector<rows::Value>& cells = reply.rows.emplace_back();
    for (std::optional<std::string>& cell : row) cells.push_back(cell ? rows::Value(*std::move(cell)) : rows::Value());
  }
  return reply;
}

Answer RowSession::execute(const RowStep& step) {
  try {
    return perform(step);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::conflict) return changed(false);
    return answer_of(error);
  }
}

Answer RowSession::perform(const RowStep& step) {
  switch (step.kind) {
    case RowStep::Kind::begin:
      session_.begin(step.how);
      return {};
    case RowStep::Kind::commit:
      session_.commit();
      return {};
    case RowStep::Kind::rollback:
      session_.rollback();
      return {};
    case RowStep::Kind::fetch: {
      std::vector<rows::Row> found;
      if (std::optional<rows::Row> row = session_.fetch(step.table(), step.key())) found.push_back(*std::move(row));
      return shown(std::move(found));
    }
    case RowStep::Kind::check: {
      std::vector<rows::Row> found;
      found.push_back(session_.fetch_checked(step.table(), step.key(), step.number));
      return shown(std::move(found));
    }
    case RowStep::Kind::update: {
      rows::Row& row = fetched(step);
      for (const rows::Change& change : step.changes) {
        const std::int64_t before = change.relative ? row.get<std::int64_t>(change.column) : 0;
        row.set(change.column, change.relative ? rows::Value(before + change.value.get<std::int64_t>()) : change.value);
      }
      return changed(session_.try_update(row) == rows::Outcome::done);
    }
    case RowStep::Kind::remove:
      return changed(session_.try_remove(fetched(step)) == rows::Outcome::done);
    case RowStep::Kind::guarded:
      return changed(session_.guarded_update(step.table(), step.key(), step.changes, step.guards));
    case RowStep::Kind::lock:
      return shown(session_.lock_in_order(step.of, step.lock));
    case RowStep::Kind::fenced:
      session_.fenced_update(step.table(), step.key(), step.number, step.changes);
      return changed(true);
  }
  return {};
}

rows::Row& RowSession::fetched(const RowStep& step) {
  const auto found = fetched_.find({step.table().name(), step.key().front().get<std::string>()});
  if (found == fetched_.end()) {
    throw Error(ErrorKind::invalid_argument, "this session has not fetched that row of " + step.table().name());
  }
  return found->second;
}

// The columns of each row, and its version if there is one.
Answer RowSession::shown(std::vector<rows::Row> found) {
  Answer answer;
  answer.has_rows = true;
  for (rows::Row& row : found) {
    Row& cells = answer.rows.emplace_back();
    for (const std::string& column : row.table().columns().columns) {
      cells.push_back(row.get<std::optional<std::string>>(column));
    }
    if (!row.table().columns().version.empty()) cells.push_back(std::to_string(row.version()));
    fetched_.insert_or_assign({row.table().name(), row.key().front().get<std::string>()}, std::move(row));
  }
  return answer;
}

}  // namespace hierlock::lab
