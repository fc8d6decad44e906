#include "mysql/notices.h"

#include <algorithm>

#include "mysql/session.h"

namespace hierlock::mysql {

namespace {
constexpr std::size_t rows_a_statement = 100, ids_a_statement = 500;
}

std::optional<Notices::Changed> Notices::change(const std::string& sql, Deadline& limit) {
  Changed changed;
  const bool used = pool_.on_the_side(
      [&](remote::Session& side) {
        Connection& connection = connection_of(side);
        const std::string statements[] = {sql, "COMMIT"};
        const std::vector<Reply> replies = connection.query_all(statements, limit);
        changed = {replies.size() == 2 && replies.back().well(), replies.front().changed};
        if (!changed.well && !connection.broken()) connection.query("ROLLBACK", limit);
        return !connection.broken();
      },
      limit);
  return used ? std::optional(changed) : std::nullopt;
}

remote::NoticeStore::Published Notices::publish(std::span<const remote::Notice> notices, Deadline& limit) {
  Published done{.written = std::vector<bool>(notices.size())};
  for (std::size_t i = 0; i < notices.size() && !done.failed; i += rows_a_statement) {
    const auto chunk = notices.subspan(i, std::min(rows_a_statement, notices.size() - i));
    done.failed = !publish_some(chunk, i, done.written, limit);
  }
  return done;
}

// If the server refuses the statement, each half is tried alone: one row that cannot be written spoils only itself.
bool Notices::publish_some(std::span<const remote::Notice> notices, std::size_t first, std::vector<bool>& written,
                           Deadline& limit) {
  const std::optional<Changed> changed = change(mysql::publish(layout_.notices_table(), notices), limit);
  if (!changed) return false;
  if (changed->well) std::fill_n(written.begin() + static_cast<std::ptrdiff_t>(first), notices.size(), true);
  if (changed->well || notices.size() == 1) return true;
  const std::size_t half = notices.size() / 2;
  return publish_some(notices.first(half), first, written, limit) &&
         publish_some(notices.subspan(half), first + half, written, limit);
}

bool Notices::remove(std::span<const std::uint64_t> ids, Deadline& limit) {
  for (std::size_t i = 0; i < ids.size(); i += ids_a_statement) {
    const auto chunk = ids.subspan(i, std::min(ids_a_statement, ids.size() - i));
    const std::optional<Changed> changed = change(forget(layout_.notices_table(), chunk), limit);
    if (!changed || !changed->well) return false;
  }
  return true;
}

std::optional<std::size_t> Notices::keep_alive(std::span<const std::uint64_t> ids, Deadline& limit) {
  std::size_t there = 0;
  for (std::size_t i = 0; i < ids.size(); i += ids_a_statement) {
    const auto chunk = ids.subspan(i, std::min(ids_a_statement, ids.size() - i));
    const std::optional<Changed> changed = change(still_alive(layout_.notices_table(), chunk), limit);
    if (!changed) return std::nullopt;
    there += changed->rows;
  }
  return there;
}

// Asks for one row that tells whether anything has changed. Only then for a row a Locker, and for the notices of those
// that have changed. The kept sums come from the rows that were read, so a change between two questions is found
// the next time. False: the notices cannot be read.
bool Notices::refresh(Connection& connection, Deadline& limit) {
  const std::string table = layout_.notices_table();
  Reply reply = connection.query(read_signature(table), limit);
  if (!reply.well()) return false;
  Signature kept;
  for (const auto& [locker, known] : known_) {
    kept.rows += known.of.signature.rows;
    kept.stamps ^= known.of.signature.stamps;
  }
  if (signature_in(reply) == kept) return true;
  reply = connection.query(read_signatures(table), limit);
  if (!reply.well()) return false;
  const std::map<std::uint64_t, Signature> now = signatures_in(reply);
  std::erase_if(known_, [&](const auto& one) { return !now.contains(one.first); });
  std::vector<std::uint64_t> changed;
  for (const auto& [locker, signature] : now) {
    const auto known = known_.find(locker);
    if (known == known_.end() || known->second.of.signature != signature) changed.push_back(locker);
  }
  if (changed.empty()) return true;
  reply = connection.query(read_of(table, changed), limit);
  if (!reply.well()) return false;
  const Clock::time_point read = Clock::now();
  for (const std::uint64_t locker : changed) known_.erase(locker);
  for (auto& [locker, of] : read_by_locker(reply)) known_[locker] = {std::move(of), read};
  return true;
}

std::optional<std::vector<remote::Notice>> Notices::read(Deadline& limit) {
  std::optional<std::vector<remote::Notice>> notices;
  pool_.on_the_side(
      [&](remote::Session& side) {
        Connection& connection = connection_of(side);
        if (!refresh(connection, limit)) known_.clear();
        connection.query("COMMIT", limit);
        if (connection.broken()) return false;
        notices.emplace();  // without the right to read them, there are none
        for (const auto& [locker, known] : known_) {
          const auto since = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - known.read);
          for (const remote::Notice& notice : known.of.notices) notices->emplace_back(notice).age += since;
        }
        return true;
      },
      limit);
  return notices;
}

void Notices::remove_old(Deadline& limit) {
  std::vector<std::uint64_t> ids;
  pool_.on_the_side(
      [&](remote::Session& side) {
        Connection& connection = connection_of(side);
        const Reply old = connection.query(find_old(layout_.notices_table()), limit);
        for (const auto& row : old.rows) ids.push_back(endpoint::number(row.at(0)));
        connection.query("COMMIT", limit);
        return !connection.broken();
      },
      limit);
  if (!ids.empty()) remove(ids, limit);
}

}  // namespace hierlock::mysql
