#include "lab/expectation.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>

namespace hierlock::lab {

namespace {

using Kind = Expected::Kind;

struct Word {
  std::string_view text;
  Kind kind;
};
constexpr Word outcomes[] = {{"ok", Kind::ok},
                             {"rows", Kind::rows},
                             {"affected", Kind::affected},
                             {"blocked", Kind::blocked},
                             {"deadlock", Kind::deadlock},
                             {"timeout", Kind::timeout},
                             {"busy", Kind::busy},
                             {"conflict", Kind::conflict},
                             {"serialization", Kind::serialization},
                             {"cancelled", Kind::cancelled},
                             {"error", Kind::error}};
constexpr std::string_view outcome_words =
    "ok, rows, affected, blocked, deadlock, timeout, busy, conflict, serialization, cancelled or error";

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
  return value.find_first_of(",;'\"`()#\\$") != std::string_view::npos || value.find("=>") != std::string_view::npos ||
         value.find("unblocks") != std::string_view::npos || value.find(" or ") != std::string_view::npos ||
         value.find(" and ") != std::string_view::npos || value.starts_with("in any order");
}

std::string quoted_text(std::string_view value) {
  std::string text = "'";
  for (std::string_view rest = value; !rest.empty();) {
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

std::string value_text(const std::optional<std::string>& value) {
  if (!value) return "null";
  return needs_quotes(*value) ? quoted_text(*value) : *value;
}

// --- reading -------------------------------------------------------------------------------------------------------

class ExpectationReader {
 public:
  ExpectationReader(Reader& reader, const SeeSession& see) : reader_(reader), see_(see) {}

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
        Expectation::Freed freed;
        freed.perhaps = takes_perhaps();
        const std::size_t at = reader_.at();
        session(freed_sessions);
        freed.session = freed_sessions.back();
        if (freed.session == of_session) reader_.fail(at, "another session expected: a step does not unblock itself");
        reader_.skip_blanks();
        if (reader_.take('(')) {
          const std::size_t inner = reader_.at();
          const std::size_t close = reader_.find_closing();
          freed.end = outcome(inner, close);
          const std::vector<Expected> ends = with_alternatives(freed.end);
          if (std::any_of(ends.begin(), ends.end(), [](const Expected& one) { return one.kind == Kind::blocked; }))
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

 private:
  void session(std::vector<std::string>& into) {
    const std::size_t at = reader_.at();
    std::string name(reader_.name());
    if (name.empty()) expected("the name of a session");
    if (contains(into, name)) reader_.fail(at, "another session expected: " + name + " is named twice");
    if (name != prepared_transaction) see_(name, at);
    into.push_back(std::move(name));
  }

  // The word, if the name of a session follows. Otherwise it is such a name.
  bool takes_perhaps() {
    const std::size_t at = reader_.at();
    if (reader_.name() == perhaps_word) {
      reader_.skip_blanks();
      const std::size_t after = reader_.at();
      if (!reader_.name().empty()) {
        reader_.move_to(after);
        return true;
      }
    }
    reader_.move_to(at);
    return false;
  }

  // OUTCOME [or OUTCOME]…, or `blocked …, then OUTCOME [or OUTCOME]…`
  Expected outcome(std::size_t begin, std::size_t end) {
    std::size_t head = end;
    std::size_t then = reader_.find_word("then", begin, end);
    if (then != end && word_at(begin, end) == "blocked") {
      head = begin + reader_.trimmed_size(begin, then);
      if (reader_.text()[head - 1] != ',') reader_.fail(then, "a comma expected before `then`");
      --head;
    } else {
      then = end;
    }
    Expected result = alternatives(begin, head);
    if (then == end) return result;
    if (!result.alternatives.empty()) reader_.fail(begin, "one outcome expected before `then`: `blocked`");
    result.then.push_back(alternatives(then + 4, end));
    for (const Expected& one : with_alternatives(result.then.front())) {
      if (one.kind == Kind::blocked || one.kind == Kind::deadlock)
        reader_.fail(then, "how the wait ends by itself expected after `then`");
    }
    return result;
  }
  static std::vector<Expected> with_alternatives(const Expected& expected) {
    std::vector<Expected> all{expected};
    all.insert(all.end(), expected.alternatives.begin(), expected.alternatives.end());
    return all;
  }

  Expected alternatives(std::size_t begin, std::size_t end) {
    std::vector<Expected> all;
    split(begin, end, "or", is_outcome,
          [&](std::size_t from, std::size_t to) { all.push_back(with_messages(from, to)); });
    Expected first = std::move(all.front());
    first.alternatives.assign(std::make_move_iterator(all.begin() + 1), std::make_move_iterator(all.end()));
    return first;
  }

  // [, notice 'TEXT']… [, notify CHANNEL 'PAYLOAD']…
  Expected with_messages(std::size_t begin, std::size_t end) {
    std::size_t tail = end;
    for (const std::string_view word : {"notice", "notify"}) {
      for (std::size_t at = begin; (at = reader_.find_word(word, at, end)) != end; at += word.size()) {
        const std::size_t before = begin + reader_.trimmed_size(begin, at);
        if (before > begin && reader_.text()[before - 1] == ',' &&
            is_message(at + word.size(), end, word == "notify")) {
          tail = std::min(tail, before - 1);
          break;
        }
      }
    }
    Expected result = result_sets(begin, tail);
    const Reader::Limit limit(reader_, tail, end);
    while (reader_.take(',')) {
      reader_.skip_blanks();
      const bool notify = reader_.word() == "notify";
      reader_.skip_blanks();
      const std::string channel(notify ? reader_.name() : "");
      reader_.skip_blanks();
      if (reader_.peek() != '\'') expected("a text in quotes");
      std::string text = reader_.quoted("a text");
      if (notify) {
        result.notifications.push_back({channel, std::move(text)});
      } else {
        result.notices.push_back(std::move(text));
      }
      reader_.skip_blanks();
    }
    if (!reader_.ended()) expected("a comma and another notice, or the end of the expectation");
    return result;
  }
  // `'TEXT'`, or `CHANNEL 'PAYLOAD'`, begins there.
  bool is_message(std::size_t at, std::size_t end, bool has_channel) {
    const Reader::Limit limit(reader_, at, end);
    reader_.skip_blanks();
    if (has_channel && reader_.name().empty()) return false;
    reader_.skip_blanks();
    return reader_.peek() == '\'';
  }

  // `rows …` or `affected …` of each statement, with `and` between them.
  Expected result_sets(std::size_t begin, std::size_t end) {
    std::vector<Expected> all;
    const auto is_set = [](std::string_view word) { return word == "rows" || word == "affected"; };
    split(begin, end, "and", is_set, [&](std::size_t from, std::size_t to) {
      if (!all.empty() && !is_set(word_at(begin, end)))
        reader_.fail(from, "`and` only after rows or affected expected");
      all.push_back(single(from, to));
    });
    Expected first = std::move(all.front());
    first.more.assign(std::make_move_iterator(all.begin() + 1), std::make_move_iterator(all.end()));
    return first;
  }

  // Calls `part` with the places between those words that one of the `next` words follows.
  void split(std::size_t begin, std::size_t end, std::string_view word, bool (*next)(std::string_view),
             const std::function<void(std::size_t, std::size_t)>& part) {
    for (std::size_t from = begin, at = begin;;) {
      at = reader_.find_word(word, at, end);
      if (at != end && !next(word_at(at + word.size(), end))) {
        at += word.size();
        continue;
      }
      part(from, at);
      if (at == end) return;
      from = at = at + word.size();
    }
  }
  std::string_view word_at(std::size_t begin, std::size_t end) {
    const Reader::Limit limit(reader_, begin, end);
    reader_.skip_blanks();
    return reader_.word();
  }

  Expected single(std::size_t begin, std::size_t end) {
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
        result.affected = reader_.number("how many rows");
        break;
      case Kind::blocked:
        blockers(result);
        break;
      case Kind::deadlock:
        if (!reader_.take(',')) break;
        one_of(result.sessions, "`or` and another session that may be the victim, or the end");
        break;
      case Kind::error:
        result.code = reader_.until(" \t,;()'\"`\\#");  // # would begin a comment where it is written again
        reader_.skip_blanks();
        if (reader_.peek() == '\'') result.message = reader_.quoted("a part of the message");
        break;
      case Kind::ok:
      case Kind::timeout:
      case Kind::busy:
      case Kind::conflict:
      case Kind::serialization:
      case Kind::cancelled:
        break;
    }
    reader_.skip_blanks();
    if (!reader_.ended()) expected("the end of the expectation, or `, unblocks`");
    return result;
  }

  // [by S[, S]…], [by S or S…]
  void blockers(Expected& result) {
    if (reader_.ended()) return;
    if (reader_.word() != "by") expected("`by` and the names of sessions, or the end");
    reader_.skip_blanks();
    session(result.sessions);
    reader_.skip_blanks();
    result.one_of = reader_.peek_word(" \t") == "or";
    if (result.one_of) {
      reader_.word();
      return one_of(result.sessions, "`or` and another session, or the end");
    }
    while (reader_.take(',')) {
      reader_.skip_blanks();
      session(result.sessions);
      reader_.skip_blanks();
    }
  }
  // S [or S]…
  void one_of(std::vector<std::string>& sessions, const std::string& otherwise) {
    for (;;) {
      reader_.skip_blanks();
      session(sessions);
      reader_.skip_blanks();
      if (reader_.ended()) return;
      if (reader_.peek_word(" \t") != "or") expected(otherwise);
      reader_.word();
    }
  }

  // V[,V][; V[,V]], or none
  void rows(Expected& result) {
    constexpr std::string_view any_order = "in any order:";
    if (std::string_view(reader_.text()).substr(reader_.at(), any_order.size()) == any_order) {
      result.any_order = true;
      reader_.move_to(reader_.at() + any_order.size());
      reader_.skip_blanks();
    }
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

  [[noreturn]] void expected(const std::string& what) const { reader_.fail(reader_.at(), what + " expected"); }

  Reader& reader_;
  const SeeSession& see_;
};

}  // namespace

bool is_outcome(std::string_view word) {
  return std::any_of(std::begin(outcomes), std::end(outcomes), [&](const Word& w) { return w.text == word; });
}

Expectation read_expectation(Reader& reader, const std::string& of_session, std::size_t begin, std::size_t end,
                             const SeeSession& see) {
  return ExpectationReader(reader, see).expectation(of_session, begin, end);
}

// --- back to text ---------------------------------------------------------------------------------------------------

std::string Expected::str() const {
  const auto found =
      std::find_if(std::begin(outcomes), std::end(outcomes), [&](const Word& w) { return w.kind == kind; });
  std::string text(found->text);
  switch (kind) {
    case Kind::rows:
      if (any_order) text += " in any order:";
      if (rows.empty()) text += " none";
      for (std::size_t i = 0; i < rows.size(); ++i) {
        text += i == 0 ? " " : "; ";
        for (std::size_t j = 0; j < rows[i].size(); ++j) text += (j == 0 ? "" : ",") + value_text(rows[i][j]);
      }
      break;
    case Kind::affected:
      text += " " + std::to_string(affected);
      break;
    case Kind::blocked:
      if (!sessions.empty()) text += " by " + joined(sessions, one_of ? " or " : ", ");
      break;
    case Kind::deadlock:
      if (!sessions.empty()) text += ", " + joined(sessions, " or ");
      break;
    case Kind::error:
      if (!code.empty()) text += " " + code;
      if (!message.empty()) text += " " + quoted_text(message);
      break;
    default:
      break;
  }
  for (const Expected& one : more) text += " and " + one.str();
  for (const std::string& notice : notices) text += ", notice " + quoted_text(notice);
  for (const Notified& one : notifications) text += ", notify " + one.channel + " " + quoted_text(one.payload);
  for (const Expected& one : then) text += ", then " + one.str();
  for (const Expected& one : alternatives) text += " or " + one.str();
  return text;
}

std::string Expectation::str() const {
  std::string text = step.str();
  for (std::size_t i = 0; i < unblocks.size(); ++i) {
    text += (i == 0 ? ", unblocks " : ", ");
    if (unblocks[i].perhaps) text += std::string(perhaps_word) + " ";
    text += unblocks[i].session;
    if (unblocks[i].end != Expected{}) text += " (" + unblocks[i].end.str() + ")";
  }
  return text;
}

}  // namespace hierlock::lab
