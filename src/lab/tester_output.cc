#include "lab/tester_output.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <utility>

#include <hierlock/error.h>

#include "lab/engines.h"

namespace hierlock::lab {

namespace {

using Kind = Expected::Kind;

constexpr std::string_view title = "starting permutation:";
constexpr std::string_view waits = "<waiting ...>";
constexpr std::string_view completed = "<... completed>";

bool is_blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// The spec is played in the lab's schema, which takes the place of `public`.
std::string in_the_labs_schema(std::string_view text) {
  constexpr std::string_view schema = "public.";
  std::string changed;
  for (std::size_t at = 0; at < text.size();) {
    const bool inside = at > 0 && (std::isalnum(static_cast<unsigned char>(text[at - 1])) != 0 || text[at - 1] == '_');
    if (!inside && text.substr(at).starts_with(schema)) {
      changed += room + ".";
      at += schema.size();
    } else {
      changed += text[at++];
    }
  }
  return changed;
}

// Whether a script's last statement returns rows: PQexec() returns the last result only.
bool ends_with_rows(std::string_view sql) {
  sql = trimmed(sql);
  while (!sql.empty() && (sql.back() == ';' || is_blank(sql.back()))) sql.remove_suffix(1);
  const std::size_t last = sql.rfind(';');
  if (last != std::string_view::npos) sql = trimmed(sql.substr(last + 1));
  for (const std::string_view word : {"SELECT", "SHOW", "WITH", "TABLE", "VALUES", "FETCH"}) {
    if (same_word(sql.substr(0, word.size()), word)) return true;
  }
  return false;
}

class OutputReader {
 public:
  OutputReader(std::string_view text, const std::string& file, const Spec& spec)
      : text_(text), file_(file), spec_(spec) {
    for (const Spec::Session& session : spec.sessions) {
      for (const Spec::Step& step : session.steps) steps_[step.name] = {&session, &step};
      if (ends_with_rows(session.teardown)) ++last_tables_;
    }
    if (ends_with_rows(spec.teardown)) ++last_tables_;
  }

  std::vector<std::vector<Expectation>> read(const std::vector<Spec::Permutation>& orders) {
    std::vector<std::vector<Expectation>> all;
    while (!ended() && !line().starts_with(title)) next();
    for (const Spec::Permutation& order : orders) {
      std::string names(title);
      for (const Spec::Entry& entry : order) names += " " + entry.step;
      if (ended() || trimmed(line()) != names) fail("`" + names + "`");
      next();
      all.push_back(read(order));
    }
    if (!ended()) fail("the end: the spec has no more permutations");
    return all;
  }

 private:
  // A step of an order that was begun, and how it ended.
  struct Begun {
    const Spec::Session* session = nullptr;
    bool marked = false;  // when it is told to wait or to end is the tester's choice
    bool waited = false;
    std::optional<std::size_t> ended{};  // while this step of the order was the last that was begun
    Expected end{};
    std::vector<Expected> tables{};
  };

  // --- lines --------------------------------------------------------------------------------------------------------

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::invalid_argument,
                file_ + ":" + std::to_string(1 + std::count(text_.begin(), text_.begin() + at_, '\n')) + ": " + what +
                    " expected");
  }
  bool ended() const { return static_cast<std::size_t>(at_) >= text_.size(); }
  std::string_view rest() const { return text_.substr(static_cast<std::size_t>(at_)); }
  std::string_view line() const {
    std::string_view text = rest();
    text = text.substr(0, text.find('\n'));
    if (text.ends_with('\r')) text.remove_suffix(1);
    return text;
  }
  void next() { skip(std::min(rest().find('\n'), rest().size() - 1) + 1); }
  void skip(std::size_t size) { at_ += static_cast<std::ptrdiff_t>(size); }

  // Takes this text, whatever blanks either has: PostgreSQL compares such outputs without them.
  bool take(std::string_view text) {
    const std::ptrdiff_t before = at_;
    for (const char c : text) {
      if (is_blank(c)) continue;
      while (!ended() && is_blank(rest().front())) skip(1);
      if (ended() || rest().front() != c) {
        at_ = before;
        return false;
      }
      skip(1);
    }
    return true;
  }

  // --- an order -----------------------------------------------------------------------------------------------------

  std::vector<Expectation> read(const Spec::Permutation& order) {
    std::vector<Begun> begun;
    std::map<const Spec::Session*, Expected> early;  // messages of steps that are told only when they end
    Begun* told = nullptr;                           // the step of which the lines below speak
    while (!ended() && !line().starts_with(title)) {
      if (line().starts_with("step ")) {
        told = &step_line(order, begun, early);
      } else if (message(begun, early)) {
        continue;
      } else if (std::optional<Expected> table = read_table()) {
        if (told != nullptr) told->tables.push_back(std::move(*table));
      } else if (const std::string_view text = line(); told != nullptr && is_error(text)) {
        told->end.kind = Kind::error;
        told->end.message = in_the_labs_schema(trimmed(text.substr(text.find(':') + 1)));
        next();
      } else {
        next();  // a blank line, or more about a message
      }
    }
    if (begun.size() != order.size()) fail("step " + order[begun.size()].step);
    for (const Begun& one : begun) {
      if (!one.ended) fail("the end of a step of session " + one.session->name);
    }
    // What the teardown scripts return comes behind the last step.
    if (told != nullptr) told->tables.resize(told->tables.size() - std::min(told->tables.size(), last_tables_));
    for (Begun& one : begun) finish(one);
    return expectations(begun);
  }

  static bool is_error(std::string_view text) { return text.starts_with("ERROR:") || text.starts_with("FATAL:"); }

  // `step NAME: SQL`, `step NAME: SQL <waiting ...>` or `step NAME: <... completed>`
  Begun& step_line(const Spec::Permutation& order, std::vector<Begun>& begun,
                   std::map<const Spec::Session*, Expected>& early) {
    for (std::size_t i = 0; i < begun.size(); ++i) {
      if (begun[i].ended || line() != "step " + order[i].step + ": " + std::string(completed)) continue;
      next();
      begun[i].ended = begun.size() - 1;
      return begun[i];
    }
    if (begun.size() == order.size()) fail("the end of a step that waits, or of the permutation");
    const Spec::Entry& entry = order[begun.size()];
    const auto& [session, step] = steps_.at(entry.step);
    if (!take("step " + entry.step + ":" + step->sql)) fail("step " + entry.step + ", as it is in the spec");
    Begun& made = begun.emplace_back();
    made.session = session;
    made.marked = entry.marked;
    made.waited = take(waits);
    if (!made.waited) made.ended = begun.size() - 1;
    if (const auto found = early.find(session); found != early.end()) {
      made.end = std::move(found->second);
      early.erase(found);
    }
    next();
    return made;
  }

  // `SESSION: NOTICE:  TEXT`, or `SESSION: NOTIFY "CHANNEL" with payload "TEXT" from SESSION`
  bool message(std::vector<Begun>& begun, std::map<const Spec::Session*, Expected>& early) {
    for (const Spec::Session& session : spec_.sessions) {
      std::string_view text = line();
      if (!text.starts_with(session.name + ": ")) continue;
      text.remove_prefix(session.name.size() + 2);
      const auto last =
          std::find_if(begun.rbegin(), begun.rend(), [&](const Begun& b) { return b.session == &session; });
      if (text.starts_with("NOTIFY \"")) {
        const std::size_t channel = std::string_view("NOTIFY \"").size(), middle = text.find("\" with payload \"");
        const std::size_t end = text.rfind("\" from ");
        if (last == begun.rend() || middle == std::string_view::npos || end == std::string_view::npos) continue;
        const std::size_t payload = middle + std::string_view("\" with payload \"").size();
        last->end.notifications.push_back(
            {std::string(text.substr(channel, middle - channel)), std::string(text.substr(payload, end - payload))});
        next();
        return true;
      }
      for (const std::string_view severity : {"NOTICE:  ", "WARNING:  ", "INFO:  ", "LOG:  ", "DEBUG:  "}) {
        if (!text.starts_with(severity)) continue;
        Expected& end = last != begun.rend() && !last->ended ? last->end : early[&session];
        end.notices.push_back(in_the_labs_schema(trimmed(text.substr(severity.size()))));
        next();
        return true;
      }
    }
    return false;
  }

  // Names, a line of dashes as wide as the columns, rows, and how many they are. Blanks fill a column: before numbers,
  // if it has nothing else, and behind everything else.
  std::optional<Expected> read_table() {
    const std::ptrdiff_t before = at_;
    next();
    const std::string_view dashes = ended() ? std::string_view() : line();
    if (dashes.empty() || dashes.find_first_not_of("-+") != std::string_view::npos) {
      at_ = before;
      return std::nullopt;
    }
    std::vector<std::size_t> widths{0};
    for (const char c : dashes) c == '+' ? widths.push_back(0) : static_cast<void>(++widths.back());
    next();
    Expected table;
    table.kind = Kind::rows;
    while (!ended()) {
      const std::string_view text = line();
      if (text.starts_with('(') && (text.ends_with(" rows)") || text == "(1 row)")) {
        next();
        for (std::size_t i = 0; i < widths.size(); ++i) trim_column(table.rows, i);
        return table;
      }
      table.rows.push_back(row(widths, dashes.size()));
    }
    fail("how many rows there are");
  }
  Row row(const std::vector<std::size_t>& widths, std::size_t whole) {
    // A value may have line ends in it.
    std::string_view text = rest();
    const bool exact = text.size() > whole && text[whole] == '\n';
    text = exact ? text.substr(0, whole) : line();
    Row values;
    std::size_t begin = 0;
    for (const std::size_t width : widths) {
      values.emplace_back(text.substr(std::min(begin, text.size()), width));
      begin += width + 1;
    }
    if (exact) skip(whole);
    next();
    return values;
  }

  static void trim_column(std::vector<Row>& rows, std::size_t index) {
    const bool numbers = std::all_of(rows.begin(), rows.end(), [&](const Row& row) {
      return row[index]->find_first_not_of("0123456789.eE- ") == std::string::npos;
    });
    for (Row& row : rows) {
      std::optional<std::string>& value = row[index];
      if (numbers) value->erase(0, value->find_first_not_of(' '));
      value->erase(value->find_last_not_of(" \t") + 1);
      value = value->empty() ? std::nullopt : std::optional(in_the_labs_schema(*value));
    }
  }

  // --- what it means ------------------------------------------------------------------------------------------------

  static void finish(Begun& step) {
    Expected& end = step.end;
    if (end.kind == Kind::error || step.tables.empty()) return;
    end.kind = Kind::rows;
    end.any_order = false;
    end.rows = std::move(step.tables.front().rows);
    end.more.assign(step.tables.begin() + 1, step.tables.end());
    Expected other = end;
    if (!fill_blanks(other)) return;
    end.alternatives.push_back(std::move(other));
  }
  // NULL and the empty text are printed alike: all of them are one or the other.
  static bool fill_blanks(Expected& table) {
    bool any = false;
    for (Row& row : table.rows) {
      for (std::optional<std::string>& value : row) {
        if (value) continue;
        value.emplace();
        any = true;
      }
    }
    for (Expected& one : table.more) any = fill_blanks(one) || any;
    return any;
  }

  static bool is_deadlock(const Begun& step) {
    return step.end.kind == Kind::error && step.end.message == "deadlock detected";
  }

  static std::vector<Expectation> expectations(const std::vector<Begun>& steps) {
    std::vector<Expectation> all(steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      all[i].said = true;
      own_outcome(steps, i, all[i].step);
    }
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const Begun& step = steps[i];
      if (*step.ended == i) continue;
      for (std::size_t at = step.marked ? i + 1 : *step.ended; at <= *step.ended; ++at) {
        Expected& here = all[at].step;
        if (at != *step.ended || !is_deadlock(step)) {
          all[at].unblocks.push_back({step.session->name, step.end, step.marked});
        } else if (here.kind == Kind::deadlock) {
          here.sessions.push_back(step.session->name);
        } else {
          here = {};
          here.kind = Kind::deadlock;
          here.sessions = {step.session->name};
        }
      }
    }
    return all;
  }

  static void own_outcome(const std::vector<Begun>& steps, std::size_t index, Expected& outcome) {
    const Begun& step = steps[index];
    const bool others_end = std::any_of(steps.begin(), steps.end(), [&](const Begun& other) {
      return &other != &step && other.ended == index && other.waited;
    });
    if (*step.ended != index) {
      outcome.kind = Kind::blocked;
      if (!step.marked) return;
      // It may have ended, and the tester did not tell so yet.
      Expected blocked = std::exchange(outcome, step.end);
      outcome.alternatives.push_back(std::move(blocked));
    } else if (is_deadlock(step)) {
      outcome.kind = Kind::deadlock;
      outcome.sessions = {step.session->name};
    } else if (step.waited && !step.marked && !others_end && step.end.kind == Kind::error) {
      outcome.kind = Kind::blocked;
      outcome.then = {step.end};
    } else {
      outcome = step.end;
    }
  }

  const std::string_view text_;
  const std::string file_;
  const Spec& spec_;
  std::map<std::string, std::pair<const Spec::Session*, const Spec::Step*>> steps_;
  std::size_t last_tables_ = 0;  // how many tables the teardown scripts print
  std::ptrdiff_t at_ = 0;
};

}  // namespace

std::vector<std::vector<Expectation>> read_tester_output(std::string_view text, const std::string& file,
                                                         const Spec& spec,
                                                         const std::vector<Spec::Permutation>& orders) {
  return OutputReader(text, file, spec).read(orders);
}

}  // namespace hierlock::lab
