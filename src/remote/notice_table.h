// NoticeTable: a NoticeStore that keeps notices as rows of a SQL table (notice_rows.h), on the pool's side session.
//
// It writes many rows per statement. It reads only changes: first one row that sums up all others. If that has changed,
// it reads one row per Locker. Of each Locker that changed it reads ids and stamps, and then the notices that are new
// to it. (If it knows no notice of a Locker, or the Locker has few, it reads all of that Locker.) A store adds the
// statements and the way to send them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "remote/driver.h"
#include "remote/notice_rows.h"
#include "remote/session_pool.h"

namespace hierlock::remote {

// The statements. `ids` are Notice::id(), and rows are found by them alone: a scan would wait for rows that other
// processes are writing. Reading leaves out rows whose process has been silent for 10 s.
class NoticeSql {
 public:
  virtual ~NoticeSql() = default;
  virtual std::string publish(std::span<const Notice> notices) const = 0;  // each in place of the one with its id
  virtual std::string remove(std::span<const std::uint64_t> ids) const = 0;
  virtual std::string keep_alive(std::span<const std::uint64_t> ids) const = 0;
  virtual std::string find_old() const = 0;         // ids of processes that have been silent for a minute
  virtual std::string read_signature() const = 0;   // rows, stamps
  virtual std::string read_signatures() const = 0;  // locker, rows, stamps
  virtual std::string read_stamps(std::span<const std::uint64_t> lockers) const = 0;  // id, stamp
  // notice_columns. The second: of these Lockers, and those with these ids. At least one of both is not empty.
  virtual std::string read_all() const = 0;
  virtual std::string read_some(std::span<const std::uint64_t> lockers, std::span<const std::uint64_t> ids) const = 0;
};

// How they are sent. A session that fails is broken afterwards.
struct SqlAnswer {
  bool well = false;  // the server has done it
  SqlRows rows{};
  std::uint64_t changed = 0;  // rows
};
class SqlChannel {
 public:
  virtual ~SqlChannel() = default;
  virtual SqlAnswer change(Session& session, const std::string& sql,
                           Deadline& limit) = 0;  // in a transaction of its own
  virtual SqlAnswer query(Session& session, const std::string& sql, Deadline& limit) = 0;
  virtual void end_reading(Session& session, Deadline& limit) = 0;  // after one or more of query()
};

class NoticeTable final : public NoticeStore {
 public:
  // All three must outlive it.
  NoticeTable(const NoticeSql& sql, SqlChannel& channel, SessionPool& pool)
      : sql_(sql), channel_(channel), pool_(pool) {}

  Published publish(std::span<const Notice> notices, Deadline& limit) override;
  bool remove(std::span<const std::uint64_t> ids, Deadline& limit) override;
  std::optional<std::size_t> keep_alive(std::span<const std::uint64_t> ids, Deadline& limit) override;
  std::optional<std::vector<Notice>> read(Deadline& limit) override;
  void remove_old(Deadline& limit) override;

 private:
  // False: the server could not be used.
  bool publish_some(std::span<const Notice> notices, std::size_t first, std::vector<bool>& written, Deadline& limit);
  // No value: the server could not be used.
  std::optional<SqlAnswer> change(const std::string& sql, Deadline& limit);
  bool refresh(Session& side, Deadline& limit);

  const NoticeSql& sql_;
  SqlChannel& channel_;
  SessionPool& pool_;

  // A copy of the rows, by id. Only the thread that has the side session uses it.
  struct Known {
    NoticeRow row;
    Clock::time_point read;
  };
  std::map<std::uint64_t, Known> known_;
};

}  // namespace hierlock::remote
