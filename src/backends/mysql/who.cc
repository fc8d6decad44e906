#include "mysql/who.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace hierlock::mysql {

namespace {

// In a form that needs no escape for quotes, whatever the session's sql_mode.
std::string literal(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string hex;
  for (const char c : text) {
    hex += digits[static_cast<unsigned char>(c) >> 4];
    hex += digits[static_cast<unsigned char>(c) & 15];
  }
  return hex.empty() ? "''" : "CONVERT(X'" + hex + "' USING utf8mb4)";
}

std::string cut(std::string_view text) { return std::string(text.substr(0, 255)); }

std::string quoted(std::string_view table) { return "`" + std::string(table) + "`"; }

std::string write_nodes(const std::vector<Node>& nodes) {
  std::string text;
  for (const Node& node : nodes) {
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

bool read_nodes(std::string_view text, std::vector<Node>& nodes) {
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
    nodes.push_back(std::move(node));
  }
  return !nodes.empty();
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
         ", NOW(6) - INTERVAL " + std::to_string(entry.age.count()) + " MICROSECOND, NOW(6), " +
         (entry.waits ? "1" : "0") + ", " + literal(write_nodes(entry.nodes)) + ")";
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
  return "UPDATE " + quoted(table) + " SET seen=NOW(6)" + among(ids);
}

std::string find_old(std::string_view table) {
  return "SELECT id FROM " + quoted(table) + " WHERE seen < NOW(6) - INTERVAL 60 SECOND";
}

std::string read_all(std::string_view table) {
  return "SELECT session, owner, owner_name, host, command, note, process, fence, TIMESTAMPDIFF(MICROSECOND, since, "
         "NOW(6)), waits, nodes FROM " +
         quoted(table) + " WHERE seen > NOW(6) - INTERVAL 10 SECOND ORDER BY id";
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
    if (!entry.owner.empty() && read_nodes(row[10].value_or(""), entry.nodes)) entries.push_back(std::move(entry));
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

// Whether one of the owner's waits leads back to `goal`; the waits on the way are left in `path`.
bool leads_to(const std::string& owner, const std::string& goal, std::span<const Entry> all,
              std::vector<const Entry*>& path, std::vector<std::string>& seen) {
  if (std::find(seen.begin(), seen.end(), owner) != seen.end()) return false;
  seen.push_back(owner);
  for (const Entry& wait : all) {
    if (!wait.waits || wait.owner != owner) continue;
    path.push_back(&wait);
    for (const Entry* next : in_the_way(wait, all)) {
      if (next->owner == goal || leads_to(next->owner, goal, all, path, seen)) return true;
    }
    path.pop_back();
  }
  return false;
}

}  // namespace

std::optional<Cycle> find_cycle(const Entry& waiter, std::span<const Entry> all) {
  for (const Entry* next : in_the_way(waiter, all)) {
    Cycle cycle;
    cycle.members.push_back(&waiter);
    std::vector<std::string> seen;
    const bool itself = next->owner == waiter.owner;
    if (!itself && !leads_to(next->owner, waiter.owner, all, cycle.members, seen)) continue;
    cycle.victim = *std::min_element(cycle.members.begin(), cycle.members.end(),
                                     [](const Entry* a, const Entry* b) { return younger(*a, *b); });
    return cycle;
  }
  return std::nullopt;
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
