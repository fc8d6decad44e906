#include "remote/looker.h"

#include <mutex>
#include <utility>

#include <hierlock/error.h>

namespace hierlock::remote {

namespace {

constexpr std::chrono::seconds denied_for{5};

// Sessions that have published a wait of which the view shows nothing.
std::set<std::uint64_t> unseen_waits(const Look& looked) {
  std::set<std::uint64_t> sessions;
  for (const Notice& notice : looked.notices) {
    if (notice.waits && !notice.queued() && !is_of_names(notice.session)) sessions.insert(notice.session);
  }
  for (const Locked& lock : looked.view.locks) {
    if (lock.waits) sessions.erase(lock.session);
  }
  return sessions;
}

}  // namespace

Look Looker::look(Clock::time_point by) {
  Look looked;
  std::unique_lock looking(looking_, std::defer_lock);
  if (!looking.try_lock_until(by)) {
    looked.view.note = "the server was not asked: another thread is still waiting for its answers";
    return looked;
  }
  Deadline soon(by);
  try {
    const bool ask_again = denied_.denied && Clock::now() >= ask_again_;
    if (session_ == nullptr || !session_->usable() || ask_again) {
      denied_ = {};
      session_.reset();
      session_ = connect_(soon);
    }
    std::string why;
    if (auto notices = session_->notices(why, soon)) {
      looked.notices = std::move(*notices);
    } else {
      looked.notes.push_back("what other processes have written down about themselves cannot be read: " + why);
    }
    if (views_ == Views::on) {
      looked.view = denied_.denied ? denied_ : session_->view(soon);
    } else {
      looked.view.note = "the server's own views were not asked (views=off)";
    }
    if (looked.view.denied && !denied_.denied) {
      denied_ = looked.view;
      ask_again_ = Clock::now() + denied_for;
    }
    // With the right to read the views, the server tells of all sessions.
    if (looked.view.seen) looked.view.ended = session_->ended(unseen_waits(looked), soon);
    session_->end_reading(soon);
    if (!session_->usable()) session_.reset();
  } catch (const Error& error) {
    session_.reset();
    looked.view = {};
    looked.view.note = std::string("the server could not be asked who holds and waits: ") + error.what();
  }
  return looked;
}

void Looker::close(Clock::time_point by) noexcept {
  std::unique_lock looking(looking_, std::defer_lock);
  if (looking.try_lock_until(by)) session_.reset();
}

}  // namespace hierlock::remote
