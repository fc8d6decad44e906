#include "mysql/who.h"

#include <algorithm>
#include <charconv>
#include <compare>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "mysql/views.h"
#include "plan/text.h"

namespace hierlock::mysql {

namespace {

// A note may be any bytes. The server takes characters only, and refuses the whole entry otherwise.
std::string valid(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t size = plan::utf8_character(text);
    size == 0 ? result += '?' : result += text.substr(0, size);
    text.remove_prefix(std::max<std::size_t>(1, size));
  }
  return result;
}

// In a form that needs no escape for quotes, whatever the session's sql_mode.
std::string literal(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string hex;
  for (const char c : valid(text)) {
    hex += digits[static_cast<unsigned char>(c) >> 4];
    hex += digits[static_cast<unsigned char>(c) & 15];
  }
  return hex.empty() ? "''" : "CONVERT(X'" + hex + "' USING utf8mb4)";
}

std::string_view cut(std::string_view text) { return plan::cut_short(text, 255); }

std::string quoted(std::string_view table) { return "`" + std::string(table) + "`"; }

// First, on a line of its own, what it is behind, if that is known.
constexpr std::string_view behind_word = "behind ";

std::string write_nodes(const Entry& entry) {
  std::string text;
  if (!entry.behind.empty()) {
    text = behind_word;
    for (const std::uint64_t session : entry.behind) text += std::to_string(session) + " ";
    text += "\n";
  }
  for (const Node& node : entry.nodes) {
    text += std::to_string(node.row.level) + " " + std::to_string(node.row.bucket) + " " +
            (node.row.mode == Mode::X ? "X" : "S") + " " + (node.asked ? "1" : "0") + " " + node.text + "\n";
  }
  return text;
}

template <class T>
bool take_number(std::string_view& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end == text.data() + text.size() || *end != ' ') return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  return true;
}

bool read_nodes(std::string_view text, Entry& entry) {
  if (text.starts_with(behind_word)) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    line.remove_prefix(behind_word.size());
    for (std::uint64_t session = 0; take_number(line, session);) entry.behind.push_back(session);
  }
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    Node node;
    unsigned level = 0, asked = 0;
    if (!take_number(line, level) || !take_number(line, node.row.bucket)) return false;
    if (!line.starts_with("X ") && !line.starts_with("S ")) return false;
    node.row.mode = line.front() == 'X' ? Mode::X : Mode::S;
    line.remove_prefix(2);
    if (!take_number(line, asked)) return false;
    node.row.level = static_cast<std::uint8_t>(level);
    node.asked = asked != 0;
    node.text = line;
    entry.nodes.push_back(std::move(node));
  }
  return !entry.nodes.empty();
}

template <class T>
T number(const std::optional<std::string>& text) {
  T value = 0;
  if (text) std::from_chars(text->data(), text->data() + text->size(), value);
  return value;
}

}  // namespace

void HeldNodes::keep(const spi::Plan& plan, std::uint32_t buckets) {
  buckets_ = buckets;
  std::size_t size = 0;
  for (const spi::Step& step : plan.steps()) size += step.key.size();
  keys_.reserve(size);
  kept_.reserve(plan.steps().size());
  for (const spi::Step& step : plan.steps()) {
    keys_ += step.key;
    kept_.push_back({keys_.size(), step.level, step.space, step.mode, step.asked});
  }
}

std::vector<Node>& HeldNodes::read() {
  std::size_t begin = 0;
  for (const Kept& kept : std::exchange(kept_, {})) {
    const std::string_view key = std::string_view(keys_).substr(begin, kept.end - begin);
    begin = kept.end;
    nodes_.push_back({{kept.level, plan::bucket_of(key, buckets_), plan::row_mode(kept.mode)},
                      kept.asked,
                      spi::describe_key(kept.space, key)});
  }
  return nodes_;
}

std::string make_who_table(std::string_view table) {
  return "CREATE TABLE IF NOT EXISTS " + quoted(table) +
         " (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, session BIGINT UNSIGNED NOT NULL, owner VARCHAR(255) NOT NULL,"
         " owner_name VARCHAR(255) NOT NULL, host VARCHAR(255) NOT NULL, command VARCHAR(255) NOT NULL, note "
         "VARCHAR(255) NOT NULL, process BIGINT NOT"
         " NULL, fence BIGINT NOT NULL, since DATETIME(6) NOT NULL, seen DATETIME(6) NOT NULL, waits TINYINT NOT NULL,"
         " nodes MEDIUMTEXT NOT NULL) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4";
}

std::string publish(std::string_view table, const Entry& entry) {
  return "REPLACE INTO " + quoted(table) +
         " (id, session, owner, owner_name, host, command, note, process, fence, since, seen, waits, nodes) VALUES (" +
         std::to_string(entry.id()) + ", " + std::to_string(entry.session) + ", " + literal(cut(entry.owner)) + ", " +
         literal(cut(entry.owner_name)) + ", " + literal(cut(entry.host)) + ", " + literal(cut(entry.command)) + ", " +
         literal(cut(entry.note)) + ", " + std::to_string(entry.process) + ", " + std::to_string(entry.fence) +
         ", UTC_TIMESTAMP(6) - INTERVAL " + std::to_string(entry.age.count()) + " MICROSECOND, UTC_TIMESTAMP(6), " +
         (entry.waits ? "1" : "0") + ", " + literal(write_nodes(entry)) + ")";
}

namespace {
// By primary key: a scan would wait for rows that others are writing.
std::string among(std::span<const std::uint64_t> ids) {
  std::string list;
  for (const std::uint64_t id : ids) list += (list.empty() ? "" : ", ") + std::to_string(id);
  return " WHERE id IN (" + list + ")";
}
}  // namespace

std::string forget(std::string_view table, std::span<const std::uint64_t> ids) {
  return "DELETE FROM " + quoted(table) + among(ids);
}

std::string still_alive(std::string_view table, std::span<const std::uint64_t> ids) {
  return "UPDATE " + quoted(table) + " SET seen=UTC_TIMESTAMP(6)" + among(ids);
}

std::string find_old(std::string_view table) {
  return "SELECT id FROM " + quoted(table) + " WHERE seen < UTC_TIMESTAMP(6) - INTERVAL 60 SECOND";
}

std::string read_all(std::string_view table) {
  return "SELECT session, owner, owner_name, host, command, note, process, fence, TIMESTAMPDIFF(MICROSECOND, since, "
         "UTC_TIMESTAMP(6)), waits, nodes FROM " +
         quoted(table) + " WHERE seen > UTC_TIMESTAMP(6) - INTERVAL 10 SECOND ORDER BY id";
}

std::vector<Entry> read_entries(const Reply& reply) {
  std::vector<Entry> entries;
  for (const auto& row : reply.rows) {
    if (row.size() != 11) continue;
    Entry entry;
    entry.session = number<std::uint64_t>(row[0]);
    entry.owner = row[1].value_or("");
    entry.owner_name = row[2].value_or("");
    entry.host = row[3].value_or("");
    entry.command = row[4].value_or("");
    entry.note = row[5].value_or("");
    entry.process = number<std::int64_t>(row[6]);
    entry.fence = number<std::int64_t>(row[7]);
    entry.age = std::chrono::microseconds(std::max<std::int64_t>(0, number<std::int64_t>(row[8])));
    entry.waits = row[9].value_or("0") != "0";
    if (!entry.owner.empty() && read_nodes(row[10].value_or(""), entry)) entries.push_back(std::move(entry));
  }
  return entries;
}

// --- who waits for whom ----------------------------------------------------------------------------------

const Node* conflict(const Entry& waiter, const Entry& other) noexcept {
  for (const Node& wanted : waiter.nodes) {
    for (const Node& held : other.nodes) {
      if (wanted.row.level == held.row.level && wanted.row.bucket == held.row.bucket &&
          (wanted.row.mode == Mode::X || held.row.mode == Mode::X)) {
        return &wanted;
      }
    }
  }
  return nullptr;
}

namespace {

bool stands_before(const Entry& other, const Entry& waiter) {
  if (!waiter.queued()) return !other.queued() && other.age > waiter.age;
  return !other.queued() || (other.same_process(waiter) && other.age > waiter.age);
}

}  // namespace

std::vector<const Entry*> in_the_way(const Entry& waiter, std::span<const Entry> all) {
  std::vector<const Entry*> holders, waiters;
  for (const Entry& other : all) {
    if (conflict(waiter, other) == nullptr) continue;
    if (!other.waits) {
      if (!other.same_session(waiter)) holders.push_back(&other);
    } else if (other.owner != waiter.owner && stands_before(other, waiter)) {
      waiters.push_back(&other);
    }
  }
  return holders.empty() ? waiters : holders;
}

namespace {

bool younger(const Entry& a, const Entry& b) { return a.age != b.age ? a.age < b.age : a.session > b.session; }

using Place = std::pair<unsigned, std::uint32_t>;  // of a row in the order in which rows are locked
Place place(const plan::Row& row) { return {row.level, row.bucket}; }

bool clash(const Node& a, const Node& b) {
  return place(a.row) == place(b.row) && (a.row.mode == Mode::X || b.row.mode == Mode::X);
}

enum class Shown : std::uint8_t { yes, no, unknown };
// Whether the server shows that the one waits for the other now. A view with a note is old, or not all of it.
Shown shown(const View* view, const Entry& waiter, const Entry& other) {
  if (view == nullptr || !view->seen || !view->note.empty() || waiter.queued()) return Shown::unknown;
  Shown answer = Shown::no;
  for (const Locked& lock : view->locks) {
    if (!lock.waits || lock.session != waiter.session) continue;
    for (const std::size_t i : lock.blocked_by) {
      if (view->locks[i].session == other.session) return Shown::yes;
      if (view->locks[i].session == 0) answer = Shown::unknown;
    }
  }
  return answer;
}

class Graph {
 public:
  Graph(std::span<const Entry> all, const View* view) : all_(all), view_(view) {}

  std::vector<InTheWay> around(const Entry& waiter) {
    std::vector<InTheWay> result;
    for (const Entry& other : all_) {
      if (&other == &waiter) continue;
      if (waiter.queued() && other.waits && other.same_process(waiter)) {
        const bool behind = std::find(waiter.behind.begin(), waiter.behind.end(), other.session) != waiter.behind.end();
        if (behind) result.push_back({&other, true});
        continue;
      }
      if (conflict(waiter, other) == nullptr) continue;
      if (!other.waits) {
        if (other.same_session(waiter)) continue;
        const Shown at_server = shown(view_, waiter, other);
        if (at_server != Shown::no) result.push_back({&other, at_server == Shown::yes || surely_has(other, waiter)});
      } else if (other.owner != waiter.owner) {
        waits_before(waiter, other, result);
      }
    }
    return result;
  }

  std::optional<Cycle> find(const Entry& waiter, bool surely) {
    start_ = &waiter;
    surely_ = surely;
    seen_.clear();
    cycle_ = {};
    cycle_.surely = surely;
    if (!leads_back(waiter, std::nullopt, false)) return std::nullopt;
    for (const Entry* member : cycle_.members) {
      if (holds(*member) && (cycle_.victim == nullptr || younger(*member, *cycle_.victim))) cycle_.victim = member;
    }
    return cycle_;
  }

 private:
  // What is left of an extend may be held, or not.
  static bool surely_has(const Entry& holder, const Node& wanted) {
    return std::any_of(holder.nodes.begin(), holder.nodes.end(),
                       [&](const Node& n) { return clash(n, wanted) && !n.text.starts_with(left_of_extend); });
  }
  static bool surely_has(const Entry& holder, const Entry& waiter) {
    return std::any_of(waiter.nodes.begin(), waiter.nodes.end(), [&](const Node& n) { return surely_has(holder, n); });
  }
  struct Limit {
    Place at;
    bool held = false;  // by somebody it is in conflict with; otherwise it is its last row
  };
  const Limit& limit(const Entry& waiter) {
    const auto [found, is_new] = limits_.try_emplace(&waiter);
    Limit& limit = found->second;
    if (!is_new) return limit;
    for (const Node& node : waiter.nodes) limit.at = std::max(limit.at, place(node.row));
    for (const Entry& other : all_) {
      if (other.waits || other.same_session(waiter)) continue;
      for (const Node& wanted : waiter.nodes) {
        if (place(wanted.row) <= limit.at && surely_has(other, wanted)) limit = {place(wanted.row), true};
      }
    }
    return limit;
  }

  void waits_before(const Entry& waiter, const Entry& other, std::vector<InTheWay>& result) {
    if (waiter.queued() || other.queued()) return;  // see Entry::behind
    const Shown at_server = shown(view_, waiter, other);
    if (at_server == Shown::no) return;
    const Limit mine = limit(waiter), others = limit(other);
    Place first = mine.at;
    for (const Node& wanted : waiter.nodes) first = std::min(first, place(wanted.row));
    for (const Node& wanted : waiter.nodes) {
      for (const Node& asked : other.nodes) {
        if (!clash(wanted, asked)) continue;
        const Place at = place(wanted.row);
        if (at > mine.at || at > others.at) continue;
        const bool may_have_passed = at < others.at,
                   may_stand_there = !(mine.held && at == mine.at) && (at != first || stands_before(other, waiter));
        if (at_server == Shown::yes || may_have_passed || may_stand_there) {
          result.push_back({&other, at_server == Shown::yes, wanted.row});
        }
      }
    }
  }

  bool holds(const Entry& wait) const {
    return std::any_of(all_.begin(), all_.end(), [&](const Entry& e) { return !e.waits && e.owner == wait.owner; });
  }

  // Whether the wait, which has got to `reached` at least, leads back to where it began. `through_holder`: somebody was
  // on the way who holds a lock.
  bool leads_back(const Entry& wait, const std::optional<Place>& reached, bool through_holder) {
    if (!seen_.emplace(&wait, reached, through_holder).second) return false;
    cycle_.members.push_back(&wait);
    for (const InTheWay& next : around_once(wait)) {
      if (surely_ && !next.surely) continue;
      const std::optional<Place> at = next.row ? std::optional(place(*next.row)) : std::nullopt;
      if (at && reached && *at < *reached) continue;
      cycle_.between.push_back(next.entry);
      if (next.entry->waits) {
        const bool back = next.entry == start_;
        if (back ? through_holder : leads_back(*next.entry, at, through_holder)) return true;
      } else if (next.entry->owner == start_->owner) {
        return true;
      } else {
        for (const Entry& more : all_) {
          if (more.waits && more.owner == next.entry->owner && leads_back(more, std::nullopt, true)) return true;
        }
      }
      cycle_.between.pop_back();
    }
    cycle_.members.pop_back();
    return false;
  }
  const std::vector<InTheWay>& around_once(const Entry& wait) {
    const auto [found, is_new] = around_.try_emplace(&wait);
    if (is_new) found->second = around(wait);
    return found->second;
  }

  const std::span<const Entry> all_;
  const View* const view_;
  std::map<const Entry*, Limit> limits_;
  std::map<const Entry*, std::vector<InTheWay>> around_;
  const Entry* start_ = nullptr;
  bool surely_ = false;
  std::set<std::tuple<const Entry*, std::optional<Place>, bool>> seen_;
  Cycle cycle_;
};

}  // namespace

std::vector<InTheWay> may_be_in_the_way(const Entry& waiter, std::span<const Entry> all, const View* view) {
  return Graph(all, view).around(waiter);
}

std::optional<Cycle> find_cycle(const Entry& waiter, std::span<const Entry> all, const View* view) {
  Graph graph(all, view);
  std::optional<Cycle> cycle = graph.find(waiter, true);
  return cycle ? cycle : graph.find(waiter, false);
}

std::string Cycle::key() const {
  std::string key;
  for (const auto* const entries : {&members, &between}) {
    for (const Entry* entry : *entries) key += std::to_string(entry->id()) + " " + entry->owner + "\n";
  }
  return key;
}

std::chrono::microseconds Cycle::age() const {
  std::chrono::microseconds age = members.front()->age;
  for (const auto* const entries : {&members, &between}) {
    for (const Entry* entry : *entries) age = std::min(age, entry->age);
  }
  return age;
}

std::string Cycle::text() const {
  const auto name = [](const Entry& e) {
    return e.owner_name + " of process " + std::to_string(e.process) + " on " + e.host;
  };
  std::string words;
  if (members.size() == 1) {
    return name(*members[0]) + " waits for " + members[0]->nodes.back().text +
           ", a row of which it holds already, in another lock";
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Entry& wait = *members[i];
    words += (i == 0 ? "" : ", ") + name(wait) + " waits for " + wait.nodes.back().text;
  }
  return words + ", and all of them for each other";
}

}  // namespace hierlock::mysql
