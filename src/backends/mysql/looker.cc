#include "mysql/looker.h"

#include <map>
#include <utility>

#include "mysql/schema.h"

namespace hierlock::mysql {

namespace {
constexpr std::chrono::seconds longest_look{2}, denied_for{5};
}

// First what was written down, then the server's views: what has ended in between is then not confirmed, and what has
// begun is shown by its row.
void Looker::look_at_server(Looked& looked) {
  const Clock::time_point end = Clock::now() + longest_look;
  std::unique_lock looking(looking_, std::defer_lock);
  if (!looking.try_lock_until(end)) {
    looked.view.note = "the server was not asked: another thread is still waiting for its answers";
    return;
  }
  Deadline soon(end);
  try {
    const bool ask_again = denied_.denied && Clock::now() >= ask_again_;
    if (connection_ == nullptr || connection_->broken() || connection_->hung_up() || ask_again) {
      denied_ = {};
      connection_.reset();
      connection_ = connect(options_, soon);
    }
    const Reply told = connection_->query(read_all(options_.layout.who_table()), soon);
    if (told.well()) {
      looked.told = read_entries(told);
    } else {
      looked.notes.push_back("what other processes have written down about themselves cannot be read: " + told.message +
                             " (" + std::to_string(told.code) + ")");
    }
    // A transaction, in which MariaDB then finds this session.
    if (!told.well()) connection_->query("SELECT 1 FROM `" + options_.layout.settings_table() + "`", soon);
    if (options_.views) {
      looked.view = denied_.denied ? denied_ : look(*connection_, options_, soon);
    } else {
      looked.view.note = "the server's own views were not asked (views=off)";
    }
    if (looked.view.denied && !denied_.denied) {
      denied_ = looked.view;
      ask_again_ = Clock::now() + denied_for;
    }
    connection_->query("COMMIT", soon);
    if (connection_->broken()) connection_.reset();
  } catch (const Error& error) {
    connection_.reset();
    looked.view = {};
    looked.view.note = std::string("the server could not be asked who holds and waits: ") + error.what();
  }
  std::erase_if(looked.told, [this](const Entry& entry) { return entry.owner.starts_with(watch_.process()); });
}

void Looker::close(Clock::time_point by) noexcept {
  std::unique_lock looking(looking_, std::defer_lock);
  if (looking.try_lock_until(by)) connection_.reset();
}

Snapshot Looker::snapshot(std::uint32_t buckets) {
  Looked looked;
  looked.buckets = buckets;
  looked.is_own = [this](std::uint64_t session) { return roll_.has(session); };
  look_at_server(looked);

  // What the local queue knows, with the fences of the server.
  Snapshot result = queue_.snapshot();
  result.store = options_.url;
  result.table = options_.layout.table;
  struct Known {
    std::uint64_t session, owner;
    std::int64_t fence;
  };
  std::map<std::uint64_t, Known> held;  // by lock of the local queue
  const auto all_held = sessions_.all_held();
  {
    const std::lock_guard guard(sessions_.mutex);
    for (const auto& one : all_held) held.emplace(one->local.id, Known{one->session, one->owner, one->fence});
  }
  std::map<std::uint64_t, std::uint64_t> owners;  // the numbers that the local queue has, by lock
  std::map<std::uint64_t, Snapshot::Party> parties;
  for (Snapshot::Waiter& waiter : result.waiters) waiter.who.host = watch_.host();
  std::erase_if(result.holders, [&](Snapshot::Holder& holder) {
    owners.emplace(holder.lock, holder.who.owner);
    const auto found = held.find(holder.lock);
    if (found == held.end()) return true;  // in the local queue only: it waits at the server, or has just been released
    holder.fence = found->second.fence;
    holder.who.host = watch_.host();
    holder.who.session = found->second.session;
    parties.emplace(holder.lock, holder.who);
    if (holder.mode == Mode::IS || holder.mode == Mode::IX) holder.mode = Mode::S;  // rows have no intentions
    return false;
  });

  // Rows that a given-up extend had reached are locked at the server, although nothing in the local queue says so.
  for (const auto& one : all_held) {
    const std::lock_guard guard(sessions_.mutex);
    const auto party = parties.find(one->local.id);
    for (const Node& node : one->nodes.read()) {
      if (party == parties.end() || !node.text.starts_with(left_of_extend)) continue;
      result.holders.push_back(
          {party->second, node.text, node.row.mode, false, one->local.id, one->fence, Clock::now() - one->since});
    }
  }

  looked.own = watch_.own();
  const auto know = [&](std::uint64_t owner, std::uint64_t lock) {
    const auto found = owners.find(lock);
    if (found != owners.end()) looked.numbers[watch_.process() + std::to_string(owner)] = found->second;
  };
  for (const auto& [lock, known] : held) know(known.owner, lock);
  for (const auto& pending : sessions_.all_pending()) know(pending->owner, pending->local.id);
  draw(looked, result);
  return result;
}

}  // namespace hierlock::mysql
