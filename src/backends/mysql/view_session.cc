#include "mysql/view_session.h"

#include <utility>

#include "mysql/notice_sql.h"
#include "mysql/schema.h"
#include "mysql/views.h"

namespace hierlock::mysql {

namespace {

class ViewSession final : public remote::LookSession {
 public:
  ViewSession(const Options& options, Deadline& limit) : options_(options), connection_(connect(options, limit)) {}

  bool usable() const noexcept override { return !connection_->broken() && !connection_->hung_up(); }
  std::optional<std::vector<remote::Notice>> notices(std::string& why, Deadline& limit) override {
    const Reply told = connection_->query(NoticeStatements(options_.layout.notices_table()).read_all(), limit);
    if (told.well()) return remote::read_notices(told.rows);
    why = told.message + " (" + std::to_string(told.code) + ")";
    // A transaction, in which MariaDB then finds this session.
    connection_->query("SELECT 1 FROM `" + options_.layout.settings_table() + "`", limit);
    return std::nullopt;
  }
  View view(Deadline& limit) override { return look(*connection_, options_, limit); }
  std::set<std::uint64_t> ended(const std::set<std::uint64_t>& sessions, Deadline& limit) override {
    return ended_sessions(*connection_, sessions, limit);
  }
  void end_reading(Deadline& limit) override { connection_->query("COMMIT", limit); }

 private:
  const Options& options_;
  const std::unique_ptr<Connection> connection_;
};

}  // namespace

std::unique_ptr<remote::LookSession> connect_to_look(const Options& options, Deadline& limit) {
  return std::make_unique<ViewSession>(options, limit);
}

}  // namespace hierlock::mysql
