// A request on its way, step by step, on the thread of the test.
#pragma once

#include "engine/table.h"

namespace hierlock::stores {

class Asking {
 public:
  // For an owner of its own, or for one of several threads of `crowd`.
  Asking(engine::Table& table, const Target& target, engine::Index crowd = engine::none)
      : table_(table), target_(target), plan_(target_) {
    if (crowd == engine::none) owner_ = table_.records().make_owner("somebody", engine::OwnerKind::handle);
    attempt_.steps = plan_.steps();
    attempt_.owner = crowd != engine::none ? crowd : owner_;
    attempt_.crowd = crowd != engine::none;
    attempt_.record = table_.records().take_record(attempt_.owner);
    attempt_.lane = table_.common_lane();
    attempt_.patience = 50'000'000;  // ns: somebody may be stopped
    table_.begin(attempt_);
  }
  ~Asking() {
    if (granted_) {
      table_.finish(attempt_);
      table_.release(attempt_.record, attempt_.lane);
    } else {
      table_.abandon(attempt_);
    }
    table_.records().return_record(attempt_.record);
    if (owner_ != engine::none) table_.records().retire_owner(owner_);
  }
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;

  bool granted() { return look() == engine::Progress::granted; }
  engine::Progress look() {
    const engine::Progress progress = granted_ ? engine::Progress::granted : table_.advance(attempt_, true);
    granted_ = progress == engine::Progress::granted;
    return progress;
  }
  bool told() const { return table_.queues().told(attempt_.waiter); }

 private:
  engine::Table& table_;
  const Target target_;
  const spi::Plan plan_;
  engine::Index owner_ = engine::none;
  engine::Attempt attempt_;
  bool granted_ = false;
};

}  // namespace hierlock::stores
