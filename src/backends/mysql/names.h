// Names: the SQL of names and slots (GET_LOCK), and sessions that keep them or wait for them.
//
// The names of GET_LOCK are server-wide and have at most 64 characters, and MySQL ignores their case. So hierlock locks
// a hash. SHA-256 over database, table and name makes 64 hex digits (docs/format.md):
//
//   hla + 60 digits                  the turnstile of a name, or of slots
//   hlb + 60 digits                  a name
//   hls + 40 digits + i              slot i, in 5 hex digits
//   hln + 40 digits + i + n          the holder of slot i says that there are n slots
//
// A holder of a slot takes `hln` first and then `hls`, and gives them back in the reverse order. Suppose that `hls` of
// a slot is held, and `hln` with the requester's n is not. Then the holder uses another number of slots. So no process
// has to write n down. It is gone with its holder, however the holder ends.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "mysql/session.h"
#include "remote/name_store.h"

namespace hierlock::mysql {

// The database and the table of names, in the form in which the server compares them. The same name with another table
// is another lock.
struct NameRoom {
  std::string database, table;
};
// Asks for both, as one row.
std::string ask_for_room(const std::string& table);

// The names that GET_LOCK gets.
class LockTexts {
 public:
  LockTexts(const NameRoom& room, const remote::LockName& name);
  static constexpr std::size_t size = 63;  // of the first two, without quotes
  std::string turnstile() const { return "'hla" + digits_.substr(0, 60) + "'"; }
  std::string lock() const { return "'hlb" + digits_.substr(0, 60) + "'"; }
  // The first two without quotes, written to `to`.
  void copy_turnstile(std::span<char> to) const noexcept { copy("hla", to); }
  void copy_lock(std::span<char> to) const noexcept { copy("hlb", to); }
  std::string slot(std::uint32_t i) const;
  std::string marker(std::uint32_t i, std::uint32_t n) const;

 private:
  void copy(std::string_view role, std::span<char> to) const noexcept {
    std::copy_n(digits_.begin(), size - role.size(), std::copy(role.begin(), role.end(), to.begin()));
  }
  std::string digits_;
};

// compared_slots: slots up to this one are checked for holders that use another number of slots. most_tried_slots: one
// statement tries at most so many slots.
inline constexpr std::uint32_t compared_slots = 32, most_tried_slots = 1000;

// The statement that asks for all operations. Each operation is an expression that returns a number. If it takes a
// lock, a second expression returns the minted number.
std::string statement(const NameRoom& room, std::span<const remote::NameOp> ops);
remote::NameResult read_result(const remote::NameOp& op, std::uint64_t answer, std::uint64_t minted);
bool mints(const remote::NameOp& op);

class GetLockSession final : public remote::NameSession {
 public:
  static constexpr std::size_t most_prepared = 2;  // statements, of a keeper

  // `session` is a RowSession.
  GetLockSession(std::unique_ptr<remote::Session> session, NameRoom room, std::shared_ptr<remote::Minter> minter)
      : session_(std::move(session)), room_(std::move(room)), minter_(std::move(minter)) {}
  // For a keeper. Prepares the statements that most locks need: one name at a time. That saves a sixth of a pair's
  // time. If the server prepares no more statements, they are sent as text.
  void prepare(WaitLimit& limit);

  remote::Session& session() noexcept override { return *session_; }
  const std::shared_ptr<remote::Minter>& minter() const noexcept override { return minter_; }
  void begin(std::span<const remote::NameOp> ops) override;
  std::optional<remote::NameReply> answer() override;
  void look(bool briefly, std::chrono::milliseconds time) noexcept override { connection().look(briefly, time); }
  Waited wait(const remote::LockName& name, At at, std::chrono::seconds time, WaitLimit& limit) override;
  std::optional<bool> any_free(const remote::LockName& name, WaitLimit& limit) override;
  bool step_back(const remote::LockName& name, WaitLimit& limit) override;
  void begin_clear() noexcept override;
  bool cleared(WaitLimit& limit) noexcept override;

 private:
  Connection& connection() { return connection_of(*session_); }
  Statement* prepared(std::span<const remote::NameOp> ops);
  void read(std::span<const std::uint64_t> row, remote::NameReply& said) const;

  const std::unique_ptr<remote::Session> session_;
  const NameRoom room_;
  const std::shared_ptr<remote::Minter> minter_;
  std::vector<remote::NameOp> asked_;                      // and not answered yet
  std::optional<std::pair<std::string, LockTexts>> last_;  // of prepared(): a name that is taken is given back next
  Statement *take_ = nullptr, *give_ = nullptr, *executed_ = nullptr;
  bool asked_fitness_ = false, clearing_ = false;
  Clock::time_point fit_at_ = Clock::now();
};

// As NameStore has it.
std::optional<remote::NameStore::Holders> holders(Connection& connection, const NameRoom& room,
                                                  std::span<const remote::LockName> names, WaitLimit& limit);

// The number of slots that the holder of a slot uses, if it is at most 20,000.
std::optional<std::uint32_t> slots_of_holder(Connection& connection, const NameRoom& room, const remote::LockName& name,
                                             std::uint32_t slot, WaitLimit& limit);

}  // namespace hierlock::mysql
