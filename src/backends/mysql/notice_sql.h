// NoticeSql: the table in which processes that lock in one database keep their notices (remote/notice_table.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "remote/notice_table.h"

namespace hierlock::mysql {

class NoticeStatements final : public remote::NoticeSql {
 public:
  explicit NoticeStatements(const std::string& table) : table_("`" + table + "`") {}

  std::string make_table() const;
  std::string publish(std::span<const remote::Notice> notices) const override;
  std::string remove(std::span<const std::uint64_t> ids) const override;
  std::string keep_alive(std::span<const std::uint64_t> ids) const override;
  std::string find_old() const override;
  std::string read_signature() const override;
  std::string read_signatures() const override;
  std::string read_stamps(std::span<const std::uint64_t> lockers) const override;
  std::string read_all() const override;
  std::string read_some(std::span<const std::uint64_t> lockers, std::span<const std::uint64_t> ids) const override;

 private:
  const std::string table_;
};

class NoticeChannel final : public remote::SqlChannel {
 public:
  remote::SqlAnswer change(remote::Session& session, const std::string& sql, timed::Deadline& limit) override;
  remote::SqlAnswer query(remote::Session& session, const std::string& sql, timed::Deadline& limit) override;
  void end_reading(remote::Session& session, timed::Deadline& limit) override;
};

}  // namespace hierlock::mysql
