#include "remote/notice_table.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace hierlock::remote {

namespace {

constexpr std::size_t rows_a_statement = 100, ids_a_statement = 500;
// If a Locker has no more notices than that, to read them costs less than to ask first which of them are new.
constexpr std::uint64_t few_rows = 4;

template <class T>
std::span<const T> chunk(std::span<const T> all, std::size_t first, std::size_t most) {
  return all.subspan(first, std::min(most, all.size() - first));
}

}  // namespace

std::optional<SqlAnswer> NoticeTable::change(const std::string& sql, Deadline& limit) {
  SqlAnswer answer;
  const bool used = pool_.on_the_side(
      [&](Session& side) {
        answer = channel_.change(side, sql, limit);
        return !side.broken();
      },
      limit);
  return used ? std::optional(std::move(answer)) : std::nullopt;
}

NoticeStore::Published NoticeTable::publish(std::span<const Notice> notices, Deadline& limit) {
  Published done{.written = std::vector<bool>(notices.size())};
  for (std::size_t i = 0; i < notices.size() && !done.failed; i += rows_a_statement) {
    done.failed = !publish_some(chunk(notices, i, rows_a_statement), i, done.written, limit);
  }
  return done;
}

// If the server refuses the statement, each half is tried alone: one row that cannot be written spoils only itself.
bool NoticeTable::publish_some(std::span<const Notice> notices, std::size_t first, std::vector<bool>& written,
                               Deadline& limit) {
  const std::optional<SqlAnswer> answer = change(sql_.publish(notices), limit);
  if (!answer) return false;
  if (answer->well) std::fill_n(written.begin() + static_cast<std::ptrdiff_t>(first), notices.size(), true);
  if (answer->well || notices.size() == 1) return true;
  const std::size_t half = notices.size() / 2;
  return publish_some(notices.first(half), first, written, limit) &&
         publish_some(notices.subspan(half), first + half, written, limit);
}

bool NoticeTable::remove(std::span<const std::uint64_t> ids, Deadline& limit) {
  for (std::size_t i = 0; i < ids.size(); i += ids_a_statement) {
    const std::optional<SqlAnswer> answer = change(sql_.remove(chunk(ids, i, ids_a_statement)), limit);
    if (!answer || !answer->well) return false;
  }
  return true;
}

std::optional<std::size_t> NoticeTable::keep_alive(std::span<const std::uint64_t> ids, Deadline& limit) {
  std::size_t there = 0;
  for (std::size_t i = 0; i < ids.size(); i += ids_a_statement) {
    const std::optional<SqlAnswer> answer = change(sql_.keep_alive(chunk(ids, i, ids_a_statement)), limit);
    if (!answer) return std::nullopt;
    there += answer->changed;
  }
  return there;
}

// The copy may be older or newer than the sums that the server has just told: each statement sees the table at its own
// time. But the sums that are compared come from the rows that were read. So the copy is used as it is only if it has
// exactly the rows of the table; any difference is found the next time. False: the notices cannot be read.
bool NoticeTable::refresh(Session& side, Deadline& limit) {
  SqlAnswer answer = channel_.query(side, sql_.read_signature(), limit);
  if (!answer.well) return false;
  Signature all;
  std::map<std::uint64_t, Signature> before;  // by Locker
  for (const auto& [id, known] : known_) {
    all.add(known.row.stamp);
    before[known.row.locker].add(known.row.stamp);
  }
  if (signature_in(answer.rows) == all) return true;
  answer = channel_.query(side, sql_.read_signatures(), limit);
  if (!answer.well) return false;
  const std::map<std::uint64_t, Signature> now = signatures_in(answer.rows);
  std::vector<std::uint64_t> whole, in_part;
  for (const auto& [locker, signature] : now) {
    const auto known = before.find(locker);
    if (known != before.end() && known->second == signature) continue;
    (known == before.end() || signature.rows <= few_rows ? whole : in_part).push_back(locker);
  }
  const auto is_among = [](const std::vector<std::uint64_t>& lockers, const Known& known) {
    return std::binary_search(lockers.begin(), lockers.end(), known.row.locker);
  };
  std::erase_if(known_,
                [&](const auto& one) { return !now.contains(one.second.row.locker) || is_among(whole, one.second); });
  std::vector<std::uint64_t> ids;
  if (!in_part.empty()) {
    answer = channel_.query(side, sql_.read_stamps(in_part), limit);
    if (!answer.well) return false;
    const std::map<std::uint64_t, std::uint64_t> stamps = stamps_in(answer.rows);
    std::erase_if(known_,
                  [&](const auto& one) { return is_among(in_part, one.second) && !stamps.contains(one.first); });
    for (const auto& [id, stamp] : stamps) {
      const auto known = known_.find(id);
      if (known != known_.end() && known->second.row.stamp == stamp) continue;
      if (known != known_.end()) known_.erase(known);
      ids.push_back(id);
    }
  }
  if (whole.empty() && ids.empty()) return true;
  answer = channel_.query(side, sql_.read_some(whole, ids), limit);
  if (!answer.well) return false;
  const Clock::time_point read = Clock::now();
  for (NoticeRow& row : read_rows(answer.rows)) known_[row.id] = {std::move(row), read};
  return true;
}

std::optional<std::vector<Notice>> NoticeTable::read(Deadline& limit) {
  std::optional<std::vector<Notice>> notices;
  pool_.on_the_side(
      [&](Session& side) {
        if (!refresh(side, limit)) known_.clear();
        channel_.end_reading(side, limit);
        if (side.broken()) return false;
        notices.emplace();  // without the right to read them, there are none
        for (const auto& [id, known] : known_) {
          if (!known.row.notice) continue;
          const auto since = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - known.read);
          notices->emplace_back(*known.row.notice).age += since;
        }
        return true;
      },
      limit);
  return notices;
}

void NoticeTable::remove_old(Deadline& limit) {
  std::vector<std::uint64_t> ids;
  pool_.on_the_side(
      [&](Session& side) {
        for (const SqlRow& row : channel_.query(side, sql_.find_old(), limit).rows) {
          const std::string id = row.at(0).value_or("");
          std::from_chars(id.data(), id.data() + id.size(), ids.emplace_back());
        }
        channel_.end_reading(side, limit);
        return !side.broken();
      },
      limit);
  if (!ids.empty()) remove(ids, limit);
}

}  // namespace hierlock::remote
