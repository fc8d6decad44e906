#include "mysql/looker.h"

#include <cstdint>
#include <set>
#include <utility>

#include "mysql/notice_sql.h"
#include "mysql/schema.h"

namespace hierlock::mysql {

namespace {

constexpr std::chrono::seconds denied_for{5};

// Sessions that have published a wait of which the view shows nothing.
std::set<std::uint64_t> unseen_waits(const remote::Look& looked) {
  std::set<std::uint64_t> sessions;
  for (const remote::Notice& notice : looked.notices) {
    if (notice.waits && !notice.queued()) sessions.insert(notice.session);
  }
  for (const Locked& lock : looked.view.locks) {
    if (lock.waits) sessions.erase(lock.session);
  }
  return sessions;
}

}  // namespace

remote::Look Looker::look(Clock::time_point by) {
  remote::Look looked;
  std::unique_lock looking(looking_, std::defer_lock);
  if (!looking.try_lock_until(by)) {
    looked.view.note = "the server was not asked: another thread is still waiting for its answers";
    return looked;
  }
  Deadline soon(by);
  try {
    const bool ask_again = denied_.denied && Clock::now() >= ask_again_;
    if (connection_ == nullptr || connection_->broken() || connection_->hung_up() || ask_again) {
      denied_ = {};
      connection_.reset();
      connection_ = connect(options_, soon);
    }
    const Reply told = connection_->query(read_all(options_.layout.notices_table()), soon);
    if (told.well()) {
      looked.notices = read_notices(told);
    } else {
      looked.notes.push_back("what other processes have written down about themselves cannot be read: " + told.message +
                             " (" + std::to_string(told.code) + ")");
      // A transaction, in which MariaDB then finds this session.
      connection_->query("SELECT 1 FROM `" + options_.layout.settings_table() + "`", soon);
    }
    if (options_.views) {
      looked.view = denied_.denied ? denied_ : mysql::look(*connection_, options_, soon);
    } else {
      looked.view.note = "the server's own views were not asked (views=off)";
    }
    if (looked.view.denied && !denied_.denied) {
      denied_ = looked.view;
      ask_again_ = Clock::now() + denied_for;
    }
    // With the right to read the views, the server tells of all sessions.
    if (looked.view.seen) looked.view.ended = ended_sessions(*connection_, unseen_waits(looked), soon);
    connection_->query("COMMIT", soon);
    if (connection_->broken()) connection_.reset();
  } catch (const Error& error) {
    connection_.reset();
    looked.view = {};
    looked.view.note = std::string("the server could not be asked who holds and waits: ") + error.what();
  }
  return looked;
}

void Looker::close(Clock::time_point by) noexcept {
  std::unique_lock looking(looking_, std::defer_lock);
  if (looking.try_lock_until(by)) connection_.reset();
}

}  // namespace hierlock::mysql
