#include "valkey/notices.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "endpoint/sql.h"
#include "remote/notice_rows.h"
#include "valkey/places.h"

namespace hierlock::valkey {

namespace {

// NoticeBoard says every 3 s that it lives. The notices of a dead process go when its locks do, not later: status would
// show two holders.
constexpr std::chrono::milliseconds shortest_life{10'000};
constexpr std::size_t columns = 11;

}  // namespace

std::string random_name() {
  std::random_device device;
  std::string name;
  for (int i = 0; i < 32; ++i) name += "0123456789abcdef"[device() % 16];
  return name;
}

Notices::Notices(Connections& connections, const Options& options)
    : connections_(connections),
      table_(options.table),
      key_("hl:" + options.table + ":{notices}"),
      locker_(random_name()),
      alive_ms_(std::to_string(std::max(shortest_life, options.lease).count())) {}

std::optional<Reply> Notices::run(Command arguments, WaitLimit& limit) {
  try {
    std::vector<std::string> keys{key_};
    if (arguments.front() != "read") keys.push_back(key_ + ":" + locker_);
    Connections::Call call{std::move(keys), std::move(arguments)};
    return connections_.run(notices_lua, call, limit);
  } catch (const Error&) {
    return std::nullopt;
  }
}

remote::NoticeStore::Published Notices::publish(std::span<const remote::Notice> notices, Deadline& limit) {
  Command command{"publish", locker_, alive_ms_};
  for (const remote::Notice& notice : notices) {
    for (std::string word : {std::to_string(notice.id()), std::to_string(notice.age.count()),
                             std::to_string(notice.session), notice.owner, notice.owner_name, notice.host,
                             notice.program, notice.note, std::to_string(notice.process), std::to_string(notice.fence),
                             std::string(notice.waits ? "1" : "0"), remote::write_nodes(notice), std::string("0")}) {
      command.push_back(std::move(word));
    }
  }
  const bool done = run(std::move(command), limit).has_value();
  return {.written = std::vector<bool>(notices.size(), done), .failed = !done};
}

bool Notices::remove(std::span<const std::uint64_t> ids, Deadline& limit) {
  Command command{"remove", locker_, alive_ms_};
  for (const std::uint64_t id : ids) command.push_back(std::to_string(id));
  return run(std::move(command), limit).has_value();
}

std::optional<std::size_t> Notices::keep_alive(std::span<const std::uint64_t> ids, Deadline& limit) {
  const std::optional<Reply> reply = run({"alive", locker_, alive_ms_}, limit);
  if (!reply) return std::nullopt;
  return std::min(ids.size(), static_cast<std::size_t>(reply->number));
}

std::optional<std::vector<remote::Notice>> Notices::read(Deadline& limit) {
  const std::lock_guard guard(mutex_);
  Command command{"read"};
  for (const auto& [locker, known] : known_) {
    command.push_back(locker);
    command.push_back(known.version);
  }
  const std::optional<Reply> reply = run(std::move(command), limit);
  if (!reply) return std::nullopt;
  std::map<std::string, Known> now;
  for (std::size_t i = 1; i < reply->items.size(); ++i) {
    const Reply& one = reply->items[i];
    const std::string &locker = one.items.at(0).text, &version = one.items.at(1).text;
    const auto before = known_.find(locker);
    if (before != known_.end() && before->second.version == version) {
      now.emplace(locker, std::move(before->second));
      continue;
    }
    remote::SqlRows rows;
    for (const Reply& item : one.items.at(2).items) {
      remote::SqlRow row(14);
      for (std::size_t column = 0; column < columns && column + 1 < item.items.size(); ++column) {
        row[column < 8 ? column : column + 1] = item.items[column + 1].text;  // `age` is not among them
      }
      row[13] = item.items.at(0).text;
      rows.push_back(std::move(row));
    }
    now.emplace(locker, Known{version, remote::read_notices(rows)});
  }
  known_ = std::move(now);
  const auto time = endpoint::number<std::int64_t>(std::string_view(reply->items.at(0).text));
  std::vector<remote::Notice> all;
  for (const auto& [locker, known] : known_) {
    for (const remote::Notice& notice : known.notices) {
      all.push_back(notice);
      all.back().age = std::chrono::microseconds(std::max<std::int64_t>(0, time - notice.since));
    }
  }
  // The oldest first: snapshots show waiters in the order of their queues.
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.since < b.since; });
  return all;
}

std::optional<remote::View> Notices::view(WaitLimit& limit) {
  struct Place {
    std::set<std::uint64_t> sessions{};  // that hold or wait there
    bool waits = false;
  };
  std::map<std::string, Place> places;
  std::set<std::uint64_t> over;  // waits that were told, and that the server does not have any more
  {
    const std::lock_guard guard(mutex_);
    for (const auto& [locker, known] : known_) {
      for (const remote::Notice& notice : known.notices) {
        const bool waits = notice.waits && !notice.queued();
        if (waits) over.insert(notice.session);
        for (const remote::Node& node : notice.nodes) {
          Place& place = places[place_of(node.cell, table_)];
          place.sessions.insert(notice.session & ~remote::in_queue);
          place.waits = place.waits || waits;
        }
      }
    }
  }
  remote::View view{.seen = true};
  std::vector<Connections::Call> calls;
  for (const auto& [name, place] : places) {
    if (!place.waits) continue;
    Command& command = calls.emplace_back(Connections::Call{keys_at(name), {"view"}}).arguments;
    for (const std::uint64_t session : place.sessions) command.push_back(std::to_string(session));
  }
  try {
    std::map<std::uint64_t, std::size_t> entries;  // by session
    const auto entry = [&](std::string_view text) {
      const auto session = endpoint::number<std::uint64_t>(text);
      const auto [found, is_new] = entries.emplace(session, view.locks.size());
      if (is_new) view.locks.push_back({.session = session});
      return found->second;
    };
    connections_.run_all(locks_lua, calls, limit);
    for (const Connections::Call& call : calls) {
      if (!call.well()) {  // a silent node must not keep deadlocks at the others from being found
        view.note = "a node could not be asked who waits for whom";
        continue;
      }
      for (const Reply& pair : call.reply.items) {
        const std::string_view text = pair.text;
        if (text == "too many") {
          view.note = "too many requests wait for each other to tell for whom";
          continue;
        }
        if (text.ends_with(" 0")) {
          over.erase(endpoint::number<std::uint64_t>(text));
          continue;
        }
        const std::size_t waiter = entry(text.substr(0, text.find(' '))),
                          other = entry(text.substr(text.find(' ') + 1));
        view.locks[waiter].waits = true;
        view.locks[waiter].blocked_by.push_back(other);
      }
    }
  } catch (const Error&) {
    return std::nullopt;
  }
  if (view.note.empty()) view.ended = std::move(over);
  return view;
}

}  // namespace hierlock::valkey
