#include "remote/notice_rows.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <random>
#include <string_view>
#include <utility>

namespace hierlock::remote {

namespace {

// First, on a line of its own, what the notice is behind, if that is known.
constexpr std::string_view behind_word = "behind ";

template <class T>
bool take_number(std::string_view& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end == text.data() + text.size() || *end != ' ') return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  return true;
}

std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

bool read_nodes(std::string_view text, Notice& notice) {
  if (text.starts_with(behind_word)) {
    std::string_view line = take_line(text);
    line.remove_prefix(behind_word.size());
    for (std::uint64_t session = 0; take_number(line, session);) notice.behind.push_back(session);
  }
  while (!text.empty()) {
    std::string_view line = take_line(text);
    Node node;
    unsigned level = 0, asked = 0;
    if (!take_number(line, level) || !take_number(line, node.cell.key)) return false;
    std::string_view mode = line.substr(0, line.find(' '));
    const std::size_t mode_size = mode.size();
    if (const std::size_t slash = mode.find('/'); slash != mode.npos) {
      const std::string_view slots = mode.substr(slash + 1);
      if (std::from_chars(slots.data(), slots.data() + slots.size(), node.slots).ec != std::errc{}) return false;
      mode = mode.substr(0, slash);
    }
    const auto known = std::find_if(all_modes.begin(), all_modes.end(), [&](Mode m) { return to_string(m) == mode; });
    if (known == all_modes.end() || mode_size == line.size()) return false;
    node.cell.mode = *known;
    line.remove_prefix(mode_size + 1);
    if (!take_number(line, asked)) return false;
    node.cell.level = static_cast<std::uint8_t>(level);
    node.asked = asked == 1;
    node.leftover = asked == 2;
    node.text = line;
    notice.nodes.push_back(std::move(node));
  }
  return !notice.nodes.empty();
}

template <class T = std::uint64_t>
T number(const std::optional<std::string>& text) {
  T value = 0;
  if (text) std::from_chars(text->data(), text->data() + text->size(), value);
  return value;
}

bool waits_in(const SqlRow& row) { return row[9].value_or("0") != "0"; }

std::optional<Notice> read_notice(const SqlRow& row) {
  Notice notice;
  notice.session = number(row[0]);
  notice.owner = row[1].value_or("");
  notice.owner_name = row[2].value_or("");
  notice.host = row[3].value_or("");
  notice.program = row[4].value_or("");
  notice.note = row[5].value_or("");
  notice.process = number<std::int64_t>(row[6]);
  notice.fence = number<std::int64_t>(row[7]);
  notice.age = std::chrono::microseconds(std::max<std::int64_t>(0, number<std::int64_t>(row[8])));
  notice.waits = waits_in(row);
  notice.since = number<std::int64_t>(row[13]);
  if (notice.owner.empty() || !read_nodes(row[10].value_or(""), notice)) return std::nullopt;
  return notice;
}

}  // namespace

std::string write_nodes(const Notice& notice) {
  std::string text;
  if (!notice.behind.empty()) {
    text = behind_word;
    for (const std::uint64_t session : notice.behind) text += std::to_string(session) + " ";
    text += "\n";
  }
  for (const Node& node : notice.nodes) {
    text += std::to_string(node.cell.level) + " " + std::to_string(node.cell.key) + " " +
            std::string(to_string(node.cell.mode)) + (node.slots > 0 ? "/" + std::to_string(node.slots) : "") + " " +
            (node.asked      ? "1 "
             : node.leftover ? "2 "
                             : "0 ") +
            node.text + "\n";
  }
  return text;
}

std::uint64_t locker_of(const Notice& notice) {
  const std::string_view owner = notice.owner;       // begins with the Locker's name
  std::uint64_t hash = 14'695'981'039'346'656'037u;  // FNV-1a, 64 bits
  for (const char byte : owner.substr(0, owner.rfind(':'))) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 1'099'511'628'211u;
  }
  return hash;
}

std::uint64_t new_stamp() {
  thread_local std::mt19937_64 numbers{std::random_device{}()};
  return numbers();
}

Signature signature_in(const SqlRows& rows) {
  if (rows.empty() || rows[0].size() != 2) return {};
  return {number(rows[0][0]), number(rows[0][1])};
}

std::map<std::uint64_t, Signature> signatures_in(const SqlRows& rows) {
  std::map<std::uint64_t, Signature> signatures;
  for (const SqlRow& row : rows) {
    if (row.size() == 3) signatures[number(row[0])] = {number(row[1]), number(row[2])};
  }
  return signatures;
}

std::map<std::uint64_t, std::uint64_t> stamps_in(const SqlRows& rows) {
  std::map<std::uint64_t, std::uint64_t> stamps;
  for (const SqlRow& row : rows) {
    if (row.size() == 2) stamps[number(row[0])] = number(row[1]);
  }
  return stamps;
}

std::vector<NoticeRow> read_rows(const SqlRows& rows) {
  std::vector<NoticeRow> read;
  for (const SqlRow& row : rows) {
    if (row.size() != std::size(notice_columns)) continue;
    Notice key;
    key.session = number(row[0]);
    key.waits = waits_in(row);
    read.push_back({.id = key.id(), .locker = number(row[11]), .stamp = number(row[12]), .notice = read_notice(row)});
  }
  return read;
}

std::vector<Notice> read_notices(const SqlRows& rows) {
  std::vector<Notice> notices;
  for (NoticeRow& row : read_rows(rows)) {
    if (row.notice) notices.push_back(std::move(*row.notice));
  }
  return notices;
}

}  // namespace hierlock::remote
