// Rows of an application's own table, in its own session: here SQLite in memory, through SOCI.
#include <soci/soci-platform.h>
#undef SOCI_HAVE_BOOST  // Debian's libsoci-dev says that Boost is there, and does not bring it

#include <soci/soci.h>
#include <soci/sqlite3/soci-sqlite3.h>

#include <cstdio>

#include <hierlock/retry.h>
#include <hierlock/rows_soci.h>

using namespace hierlock::rows;

int main() {
  soci::session sql(soci::sqlite3, ":memory:");
  sql << "CREATE TABLE stock (item VARCHAR(40) PRIMARY KEY, quantity INT NOT NULL, version INT NOT NULL)";

  SociAdapter adapter(sql);
  Session session(adapter);
  const Table stock("stock", {.key = {"item"}, .columns = {"quantity"}, .version = "version"});
  session.insert(stock, {"tea"}, {8});

  // Guarded: the check and the change are one statement. False: there is not enough.
  const bool sold = session.guarded_update(stock, {"tea"}, {add("quantity", -5)}, {at_least("quantity", 5)});

  // Optimistic: a row that has changed since it was read is `conflict`; here it is read again and tried again.
  hierlock::retry({.conflicts = true}, [&] {
    auto row = session.fetch(stock, {"tea"});
    row->set("quantity", row->get<int>("quantity") + 10);
    session.update(*row);
  });

  // Pessimistic: the row is locked until the transaction ends, and nobody is waited for.
  Transaction transaction(session);
  auto locked = session.fetch_for_update(stock, {"tea"}, {.wait = Wait::no_wait()});
  std::printf("sold: %d, left: %d\n", sold, locked->get<int>("quantity"));
  transaction.commit();
}
