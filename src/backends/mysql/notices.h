// Notices: keeps notices in a table beside the buckets, on the pool's side session.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mysql/notice_sql.h"
#include "mysql/options.h"
#include "mysql_client/connection.h"
#include "remote/driver.h"
#include "remote/session_pool.h"

namespace hierlock::mysql {

class Notices final : public remote::NoticeStore {
 public:
  Notices(const Layout& layout, remote::SessionPool& pool) : layout_(layout), pool_(pool) {}

  Published publish(std::span<const remote::Notice> notices, Deadline& limit) override;
  bool remove(std::span<const std::uint64_t> ids, Deadline& limit) override;
  std::optional<std::size_t> keep_alive(std::span<const std::uint64_t> ids, Deadline& limit) override;
  std::optional<std::vector<remote::Notice>> read(Deadline& limit) override;
  void remove_old(Deadline& limit) override;

 private:
  // False: the server could not be used.
  bool publish_some(std::span<const remote::Notice> notices, std::size_t first, std::vector<bool>& written,
                    Deadline& limit);
  // A statement and its COMMIT, in one round trip. No value: the server could not be used.
  struct Changed {
    bool well = false;
    std::uint64_t rows = 0;
  };
  std::optional<Changed> change(const std::string& sql, Deadline& limit);

  bool refresh(Connection& connection, Deadline& limit);

  const Layout& layout_;
  remote::SessionPool& pool_;

  // The last answers, by Locker. Only whoever has the side session uses them.
  struct Known {
    OfLocker of;
    Clock::time_point read;
  };
  std::map<std::uint64_t, Known> known_;
};

}  // namespace hierlock::mysql
