// One thread, and the rows themselves, on MySQL and MariaDB.
#include <cstdint>
#include <string_view>

#include "groups.h"
#include "keys.h"
#include "measure.h"
#include "ours.h"
#include "peer_mysql.h"
#include "provision.h"
#include "server.h"
#include "session.h"

namespace bench::groups {

namespace {

// What one of the two locks, the other must find locked: otherwise they would not do the same work.
void check_same_rows(Ours& ours, SelectByRow& by_row_store) {
  Ours::Worker a(ours, std::vector<Path>{});
  SelectByRow::Worker b(by_row_store, {});
  check_exclusion("hierlock and SELECT by row", a, b);
}

void database_pairs(Session& session, std::string_view group, const char* variable) {
  const char* const url = server_for(session, group, variable);
  if (url == nullptr) return;
  session.preparing(group, "rows");
  const BucketTable table(url, 100'000);
  Team<Ours> ours("hierlock, mysql:", {spread_keys()}, table.url());
  Team<SelectByRow> selects("SELECT by row", {spread_keys()}, table);
  check_same_rows(*ours.store, *selects.store);
  // Many pairs a turn: after each turn of the other a session has to be woken up, which is not what a pair costs.
  constexpr std::size_t pairs_a_turn = 50;
  const auto timed = [](auto& worker) {
    return [&worker, i = std::size_t{0}]() mutable {
      const Clock::time_point begin = Clock::now();
      for (std::size_t n = 0; n < pairs_a_turn; ++n) worker.pair(i++ % worker.size());
      return nanoseconds(Clock::now() - begin) / pairs_a_turn;
    };
  };
  InTurns round(session.quick() ? 15 : 51, timed(*ours.crew[0]), timed(*selects.crew[0]));
  const auto per_second = [](double nanoseconds) { return 1e9 / nanoseconds; };
  session.measure(group, {{"ours", [&] { return per_second(round.ours()); }},
                          {"by-row", [&] { return per_second(round.peer()); }}});
}

void provision(Session& session, std::string_view group, const char* variable) {
  const char* const url = server_for(session, group, variable);
  if (url == nullptr) return;
  const std::uint64_t rows = session.full() ? 10'000'000 : session.quick() ? 100'000 : 1'000'000;
  Filling ours(url, rows, Filling::Way::ours), digits_joined(url, rows, Filling::Way::cross_joins);
  session.measure(group,
                  {{"ours", [&] { return ours.nanoseconds(); }},
                   {"ours-bytes", [&] { return ours.bytes(); }},
                   {"digits", [&] { return digits_joined.nanoseconds(); }},
                   {"digits-bytes", [&] { return digits_joined.bytes(); }}},
                  session.full() ? 1 : 5);
}

}  // namespace

void mysql(Session& session) { database_pairs(session, "mysql", "HIERLOCK_TEST_MYSQL"); }
void mariadb(Session& session) { database_pairs(session, "mariadb", "HIERLOCK_TEST_MARIADB"); }

void provision_mysql(Session& session) { provision(session, "provision-mysql", "HIERLOCK_TEST_MYSQL"); }
void provision_mariadb(Session& session) { provision(session, "provision-mariadb", "HIERLOCK_TEST_MARIADB"); }

}  // namespace bench::groups
