// NameDriver: names and slots beside paths, for a store whose sessions hold locks by name (name_store.h).
//
// - A few keepers (keeper.h) hold all names. The hash of a name decides which keeper has it. So releases and acquires
//   of one name in this process stay in order. An uncontended name costs one question to its keeper.
// - A request that must wait takes an usher. An usher is a session that holds only the turnstile of the name that it
//   waits for. It waits at the store, in line with other processes. When it gets the lock, the lock moves to the
//   keeper.
// - If there are more waits than ushers, they take turns. Requests without an usher ask their keeper from time to time,
//   and each usher changes to another request every second. Then the order of requests is not kept.
// - A lock may also have paths. The driver of paths locks them first. Paths and names are then one lock: see
//   Hold::attach(). The order of all cells is: paths, names, slots.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "remote/driver.h"
#include "remote/keeper.h"
#include "remote/name_store.h"
#include "remote/session_driver.h"

namespace hierlock::remote {

// Throws unsupported: locks by name are exclusive.
void refuse_shared_names(const spi::Plan& plan);

class NameDriver final : public Driver {
 public:
  static constexpr std::size_t most_keepers = 5, most_ushers = 3;

  // `store` must live as long as `paths`, as the store of `paths` does.
  NameDriver(std::unique_ptr<SessionDriver> paths, NameStore& store, const SessionDriver::Timing& timing);
  ~NameDriver() override;

  Capabilities capabilities() const override;
  void check(const spi::Plan& plan) const override;
  Cell cell_of(Space space, std::uint8_t level, std::string_view key, Mode mode) const override;
  Granted grant(const Ask& ask) override;
  std::vector<InLine> in_line() const override { return paths_->in_line(); }
  void let_pass(const std::unordered_set<std::uint64_t>& places) override { paths_->let_pass(places); }
  void extend(Hold& hold, const Ask& ask, Extended& result) override;
  bool give_back(std::shared_ptr<Hold> hold, Clock::time_point by) noexcept override;
  bool park(Hold& hold) noexcept override;
  std::shared_ptr<Hold> resume(Hold& hold, std::uint64_t owner) override;
  void lose(Hold& hold) override;
  void give(Hold& hold, std::uint64_t to) override;
  NoticeStore& notices() override { return paths_->notices(); }
  std::optional<View> waits(Deadline& limit) override;
  Look look(Clock::time_point by) override { return paths_->look(by); }
  bool is_own(std::uint64_t session) const override { return paths_->is_own(session); }
  RowNames row_names() const override { return paths_->row_names(); }
  void describe(Snapshot& snapshot) const override { paths_->describe(snapshot); }
  void attach(std::function<bool(std::uint64_t)> stands) override { paths_->attach(std::move(stands)); }
  void notices_changed() noexcept override { paths_->notices_changed(); }
  void start() override { paths_->start(); }
  void housekeep(Deadline& limit) override;
  void end(Clock::time_point by) noexcept override;

 private:
  class NameHold;
  class Usher;
  class Waiting;
  struct Wanted {
    LockName name;
    Cell cell;
    Keeper* keeper;
  };
  static bool in_order(const Wanted& a, const Wanted& b) noexcept {
    return std::pair(place(a.cell), std::string_view(a.name.key)) <
           std::pair(place(b.cell), std::string_view(b.name.key));
  }
  struct Taken {  // a name that is held
    LockName name;
    std::uint32_t slot = 0;
    std::shared_ptr<KeptSession> on;
    Keeper* keeper = nullptr;
  };
  struct Holding {  // what a request has got so far
    std::vector<Taken> taken;
    std::int64_t fence = 0;
  };

  static NameHold* names_in(Hold& hold) noexcept;
  static SessionHold* paths_in(Hold& hold) noexcept;
  std::vector<Wanted> wanted(const spi::Plan& plan) const;
  Answer take_all(const Ask& ask, const std::vector<Wanted>& names, std::uint64_t number, Holding& holding);
  Answer take_in_order(const Ask& ask, const std::vector<Wanted>& names, std::uint64_t number, Holding& holding);
  Answer wait_for(const Ask& ask, const Wanted& name, std::uint64_t number, Holding& holding);
  bool take_once(const Ask& ask, const Wanted& name, NameOp::Kind kind, Clock::time_point end, Holding& holding);
  std::vector<Keeper::JobPtr> ask_keepers(const Ask& ask, std::span<const Wanted> names, NameOp::Kind kind,
                                          Clock::time_point end);
  static void abandon(std::span<const Wanted> names, std::span<const Keeper::JobPtr> jobs) noexcept;
  static void keep(const Wanted& name, Keeper::Job& job, Holding& holding);
  static void mint(const Taken& taken, const Keeper::Job& job, Holding& holding);
  bool give_back(std::vector<Taken>& taken) noexcept;
  void refuse_disagreement(const Wanted& name, std::uint32_t slot, bool enough);
  std::uint64_t new_number(std::uint64_t session) noexcept;

  NameStore& store_;
  const std::unique_ptr<SessionDriver> paths_;
  SessionPool& pool_;
  std::vector<std::unique_ptr<Keeper>> keepers_;
  std::atomic<std::uint64_t> numbers_{0};

  class Waits;
  mutable std::mutex waits_mutex_;           // guards what follows
  std::map<std::uint64_t, LockName> waits_;  // for names, by the number of the wait

  std::atomic<int> in_line_{0};  // requests that have to wait and have no usher
  std::mutex ushers_;            // guards what follows
  std::vector<std::unique_ptr<NameSession>> idle_ushers_;
  std::size_t open_ushers_ = 0;
  bool closed_ = false;
};

}  // namespace hierlock::remote
