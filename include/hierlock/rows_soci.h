// The adapter of hierlock/rows.h for soci::session, with SOCI's backends mysql, postgresql and sqlite3. A component of
// its own: link hierlock::rows and hierlock::rows_soci.
//
//     soci::session sql(soci::postgresql, "dbname=shop");
//     hierlock::rows::SociAdapter adapter(sql);
//     hierlock::rows::Session session(adapter);
//
// Columns come as text, which Row::get<T>() reads. SOCI asks SQLite for text, too: a REAL has 15 digits then.
// A text with a NUL byte is `unsupported`: SOCI would cut it.
#pragma once

#include <hierlock/rows.h>

namespace soci {
class session;
}

namespace hierlock::rows {

class SociAdapter final : public Adapter {
 public:
  // The session must be connected and outlive the adapter. Asks a MySQL backend for its version, because MariaDB locks
  // with other words. Throws unsupported for other backends, unavailable if the session is not connected.
  explicit SociAdapter(soci::session& session);

  Engine engine() const override { return engine_; }
  Placeholder placeholder() const override { return Placeholder::colon; }
  Reply run(const std::string& sql, std::span<const Value> values, std::size_t columns) override;

 private:
  soci::session& session_;
  Engine engine_;
};

}  // namespace hierlock::rows
