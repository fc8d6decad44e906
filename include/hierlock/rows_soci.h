// The adapter of hierlock/rows.h for soci::session, with SOCI's backends mysql, postgresql and sqlite3. It is a
// separate component: link hierlock::rows and hierlock::rows_soci.
//
//     soci::session sql(soci::postgresql, "dbname=shop");
//     hierlock::rows::SociAdapter adapter(sql);
//     hierlock::rows::Session session(adapter);
//
// SOCI returns columns as text, and Row::get<T>() reads it. On SQLite this limits a REAL to 15 digits. A text with a
// NUL byte is `unsupported`, because SOCI would truncate it.
#pragma once

#include <hierlock/rows.h>

namespace soci {
class session;
}

namespace hierlock::rows {

class SociAdapter final : public Adapter {
 public:
  // The session must be connected, and must outlive the adapter. The constructor asks a MySQL backend for its version,
  // because MariaDB has another syntax for locks. It throws `unsupported` for other backends, and `unavailable` if the
  // session is not connected.
  explicit SociAdapter(soci::session& session);

  Engine engine() const override { return engine_; }
  Placeholder placeholder() const override { return Placeholder::colon; }
  Reply run(const std::string& sql, std::span<const Value> values, std::size_t columns) override;

 private:
  soci::session& session_;
  Engine engine_;
};

}  // namespace hierlock::rows
