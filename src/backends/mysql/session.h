// RowSession: a session of a MySQL or MariaDB server, as src/remote/ uses it: row locks in one transaction.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "mysql/fences.h"
#include "mysql/statements.h"
#include "mysql_client/connection.h"
#include "remote/name_driver.h"
#include "remote/session.h"
#include "remote/session_pool.h"

namespace hierlock::mysql {

// The server ends a session that is silent for 12 s (prepare_session). So the lock is surely held for 10 s after a
// question was sent that the server answered.
inline constexpr std::chrono::nanoseconds lease = std::chrono::seconds(10);

// How many connections a Locker may have beyond `connections=`: the pool's two on the side, and the Looker's.
inline constexpr std::size_t sessions_beyond = remote::SessionPool::beyond + 1;
// And if it uses names or slots.
inline constexpr std::size_t sessions_of_names = remote::NameDriver::most_keepers + remote::NameDriver::most_ushers;

class RowSession final : public remote::Session {
 public:
  // `table` must outlive the RowSession. The RowSession is among `open` as long as it lives.
  RowSession(std::unique_ptr<Connection> connection, bool in_group, std::shared_ptr<Mint> mint,
             const BucketTable& table, std::shared_ptr<remote::OpenSessions> open);
  ~RowSession() override;

  std::uint64_t id() const noexcept override { return connection_->id(); }
  const std::string& server() const noexcept override { return mint_->name; }
  int socket() const noexcept override { return connection_->socket(); }
  bool broken() const noexcept override { return connection_->broken(); }
  void give_up() noexcept override { connection_->give_up(); }
  bool hung_up() const noexcept override { return connection_->hung_up(); }

  remote::LockReply lock(std::span<const remote::Cell> cells, bool no_wait, WaitLimit& limit) override;
  void find_missing(std::span<const remote::Cell> cells, remote::LockReply& reply, WaitLimit& limit) override;
  void unlock_all(WaitLimit& limit) noexcept override;
  void begin_unlock_all() noexcept override;
  void begin_heartbeat() override;
  Answer answer() override;
  Answer wait_for_answer(WaitLimit& limit) override;

  Connection& connection() noexcept { return *connection_; }
  Mint& mint() const noexcept { return *mint_; }
  const std::shared_ptr<Mint>& shared_mint() const noexcept { return mint_; }
  const std::string& fitness() const noexcept { return fitness_; }  // fitness_now() of its server

 private:
  Answer judge(const Reply& reply);

  const std::unique_ptr<Connection> connection_;
  const std::string fitness_;
  const std::shared_ptr<Mint> mint_;
  const BucketTable& table_;
  const std::shared_ptr<remote::OpenSessions> open_;
  enum class Asked : std::uint8_t { nothing, heartbeat, unlock } asked_ = Asked::nothing;  // and not answered yet
};

// All sessions of the store are RowSessions.
inline const RowSession& row_session(const remote::Session& session) { return static_cast<const RowSession&>(session); }
inline Mint& mint_of(const remote::Session& session) { return row_session(session).mint(); }
inline Connection& connection_of(remote::Session& session) { return static_cast<RowSession&>(session).connection(); }

}  // namespace hierlock::mysql
