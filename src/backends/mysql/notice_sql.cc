#include "mysql/notice_sql.h"

#include <algorithm>
#include <charconv>
#include <random>
#include <utility>

#include "plan/text.h"

namespace hierlock::mysql {

namespace {

// A note may be any bytes. The server takes characters only, and refuses the whole notice otherwise.
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

std::string write_nodes(const Notice& notice) {
  std::string text;
  if (!notice.behind.empty()) {
    text = behind_word;
    for (const std::uint64_t session : notice.behind) text += std::to_string(session) + " ";
    text += "\n";
  }
  for (const Node& node : notice.nodes) {
    text += std::to_string(node.cell.level) + " " + std::to_string(node.cell.key) + " " +
            (node.cell.mode == Mode::X ? "X" : "S") + " " +
            (node.asked      ? "1"
             : node.leftover ? "2"
                             : "0") +
            " " + node.text + "\n";
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

bool read_nodes(std::string_view text, Notice& notice) {
  if (text.starts_with(behind_word)) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    line.remove_prefix(behind_word.size());
    for (std::uint64_t session = 0; take_number(line, session);) notice.behind.push_back(session);
  }
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    Node node;
    unsigned level = 0, asked = 0;
    if (!take_number(line, level) || !take_number(line, node.cell.key)) return false;
    if (!line.starts_with("X ") && !line.starts_with("S ")) return false;
    node.cell.mode = line.front() == 'X' ? Mode::X : Mode::S;
    line.remove_prefix(2);
    if (!take_number(line, asked)) return false;
    node.cell.level = static_cast<std::uint8_t>(level);
    node.asked = asked == 1;
    node.leftover = asked == 2;
    node.text = line;
    notice.nodes.push_back(std::move(node));
  }
  return !notice.nodes.empty();
}

template <class T>
T number(const std::optional<std::string>& text) {
  T value = 0;
  if (text) std::from_chars(text->data(), text->data() + text->size(), value);
  return value;
}

}  // namespace

std::string make_notices_table(std::string_view table) {
  return "CREATE TABLE IF NOT EXISTS " + quoted(table) +
         " (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, session BIGINT UNSIGNED NOT NULL, owner VARCHAR(255) NOT NULL,"
         " owner_name VARCHAR(255) NOT NULL, host VARCHAR(255) NOT NULL, program VARCHAR(255) NOT NULL, note"
         " VARCHAR(255) NOT NULL, process BIGINT NOT NULL, fence BIGINT NOT NULL, since DATETIME(6) NOT NULL, seen"
         " DATETIME(6) NOT NULL, waits TINYINT NOT NULL, nodes MEDIUMTEXT NOT NULL, locker BIGINT UNSIGNED NOT NULL,"
         " stamp BIGINT UNSIGNED NOT NULL) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4";
}

namespace {

std::uint64_t new_stamp() {
  thread_local std::mt19937_64 numbers{std::random_device{}()};
  return numbers();
}

// Of the Locker: what the names of its owners begin with.
std::uint64_t locker_of(const Notice& notice) {
  const std::string_view owner = notice.owner;
  std::uint64_t hash = 14'695'981'039'346'656'037u;  // FNV-1a, 64 bits: the same in every program
  for (const char byte : owner.substr(0, owner.rfind(':'))) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 1'099'511'628'211u;
  }
  return hash;
}

std::string values(const Notice& notice) {
  return "(" + std::to_string(notice.id()) + ", " + std::to_string(notice.session) + ", " + literal(cut(notice.owner)) +
         ", " + literal(cut(notice.owner_name)) + ", " + literal(cut(notice.host)) + ", " +
         literal(cut(notice.program)) + ", " + literal(cut(notice.note)) + ", " + std::to_string(notice.process) +
         ", " + std::to_string(notice.fence) + ", UTC_TIMESTAMP(6) - INTERVAL " + std::to_string(notice.age.count()) +
         " MICROSECOND, UTC_TIMESTAMP(6), " + (notice.waits ? "1" : "0") + ", " + literal(write_nodes(notice)) + ", " +
         std::to_string(locker_of(notice)) + ", " + std::to_string(new_stamp()) + ")";
}

}  // namespace

std::string publish(std::string_view table, std::span<const Notice> notices) {
  std::string rows;
  for (const Notice& notice : notices) rows += (rows.empty() ? "" : ", ") + values(notice);
  return "REPLACE INTO " + quoted(table) +
         " (id, session, owner, owner_name, host, program, note, process, fence, since, seen, waits, nodes, locker, "
         "stamp) VALUES " +
         rows;
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

namespace {

constexpr std::string_view alive = " WHERE seen > UTC_TIMESTAMP(6) - INTERVAL 10 SECOND";
constexpr std::string_view sums = "COUNT(*), COALESCE(BIT_XOR(stamp), 0)";
constexpr std::size_t columns = 13;

std::string select_rows(std::string_view table) {
  return "SELECT session, owner, owner_name, host, program, note, process, fence, TIMESTAMPDIFF(MICROSECOND, since, "
         "UTC_TIMESTAMP(6)), waits, nodes, locker, stamp FROM " +
         quoted(table) + std::string(alive);
}

std::optional<Notice> read_notice(const std::vector<std::optional<std::string>>& row) {
  Notice notice;
  notice.session = number<std::uint64_t>(row[0]);
  notice.owner = row[1].value_or("");
  notice.owner_name = row[2].value_or("");
  notice.host = row[3].value_or("");
  notice.program = row[4].value_or("");
  notice.note = row[5].value_or("");
  notice.process = number<std::int64_t>(row[6]);
  notice.fence = number<std::int64_t>(row[7]);
  notice.age = std::chrono::microseconds(std::max<std::int64_t>(0, number<std::int64_t>(row[8])));
  notice.waits = row[9].value_or("0") != "0";
  if (notice.owner.empty() || !read_nodes(row[10].value_or(""), notice)) return std::nullopt;
  return notice;
}

}  // namespace

std::string read_signature(std::string_view table) {
  return "SELECT " + std::string(sums) + " FROM " + quoted(table) + std::string(alive);
}

std::string read_signatures(std::string_view table) {
  return "SELECT locker, " + std::string(sums) + " FROM " + quoted(table) + std::string(alive) + " GROUP BY locker";
}

std::string read_all(std::string_view table) { return select_rows(table) + " ORDER BY id"; }

std::string read_of(std::string_view table, std::span<const std::uint64_t> lockers) {
  std::string list;
  for (const std::uint64_t locker : lockers) list += (list.empty() ? "" : ", ") + std::to_string(locker);
  return select_rows(table) + " AND locker IN (" + list + ") ORDER BY id";
}

Signature signature_in(const Reply& reply) {
  if (reply.rows.empty() || reply.rows[0].size() != 2) return {};
  return {number<std::uint64_t>(reply.rows[0][0]), number<std::uint64_t>(reply.rows[0][1])};
}

std::map<std::uint64_t, Signature> signatures_in(const Reply& reply) {
  std::map<std::uint64_t, Signature> signatures;
  for (const auto& row : reply.rows) {
    if (row.size() != 3) continue;
    signatures[number<std::uint64_t>(row[0])] = {number<std::uint64_t>(row[1]), number<std::uint64_t>(row[2])};
  }
  return signatures;
}

std::vector<Notice> read_notices(const Reply& reply) {
  std::vector<Notice> notices;
  for (const auto& row : reply.rows) {
    if (row.size() != columns) continue;
    if (std::optional<Notice> notice = read_notice(row)) notices.push_back(std::move(*notice));
  }
  return notices;
}

std::map<std::uint64_t, OfLocker> read_by_locker(const Reply& reply) {
  std::map<std::uint64_t, OfLocker> lockers;
  for (const auto& row : reply.rows) {
    if (row.size() != columns) continue;
    OfLocker& of = lockers[number<std::uint64_t>(row[11])];
    ++of.signature.rows;
    of.signature.stamps ^= number<std::uint64_t>(row[12]);
    if (std::optional<Notice> notice = read_notice(row)) of.notices.push_back(std::move(*notice));
  }
  return lockers;
}

}  // namespace hierlock::mysql
