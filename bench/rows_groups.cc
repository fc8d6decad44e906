// Rows: what the module adds to the same SQL by hand, through the same client.
#include "groups.h"
#include "session.h"

#ifdef HIERLOCK_BENCH_ROWS

#include <soci/soci-platform.h>
#undef SOCI_HAVE_BOOST  // see src/rows_soci/adapter.cc

#include <soci/mysql/soci-mysql.h>
#include <soci/postgresql/soci-postgresql.h>
#include <soci/soci.h>
#include <soci/sqlite3/soci-sqlite3.h>
#include <unistd.h>

#include <hierlock/rows.h>
#include <hierlock/rows_soci.h>
#include <hierlock/spi/url.h>
#include <cctype>
#include <cstdlib>

#endif

namespace bench::groups {

#ifndef HIERLOCK_BENCH_ROWS

void rows(Session& session) { session.skip("rows", "built without SOCI"); }

#else

namespace {

namespace rows_of = hierlock::rows;

// SOCI's parameters of mysql://user:password@host:port/database, and of postgres:// alike.
std::string parameters(const std::string& text, const char* database) {
  const std::string rest = hierlock::spi::Url::parse(text).rest.substr(2);
  const std::size_t user = rest.find(':'), at = rest.rfind('@'), slash = rest.rfind('/'), port = rest.find(':', at);
  const auto part = [&](const char* name, std::size_t from, std::size_t to) {
    return std::string(name) + "='" + hierlock::spi::Url::decode(rest.substr(from, to - from)) + "' ";
  };
  return part("user", 0, user) + part("password", user + 1, at) + part("host", at + 1, port) +
         part("port", port + 1, slash) + part(database, slash + 1, rest.size());
}

// One table, and each operation twice: by the module and by hand. Both use the same session.
class Place {
 public:
  Place(const soci::backend_factory& backend, const std::string& text)
      : sql_(backend, text),
        adapter_(sql_),
        session_(adapter_),
        name_("bench_rows_" + std::to_string(getpid())),
        table_(name_, {.key = {"item"}, .columns = {"quantity"}, .version = "version"}),
        begin_(adapter_.engine() == rows_of::Engine::sqlite     ? "BEGIN IMMEDIATE"
               : adapter_.engine() == rows_of::Engine::postgres ? "BEGIN"
                                                                : "START TRANSACTION"),
        lock_(adapter_.engine() == rows_of::Engine::sqlite ? "" : " FOR UPDATE") {
    sql_ << "DROP TABLE IF EXISTS " + name_;
    sql_ << "CREATE TABLE " + name_ +
                " (item VARCHAR(40) NOT NULL PRIMARY KEY, quantity BIGINT NOT NULL, version BIGINT NOT NULL)";
    session_.insert(table_, {"tea"}, {1'000'000'000});
  }
  ~Place() {
    try {
      sql_ << "DROP TABLE " + name_;
    } catch (const std::exception&) {  // it stays behind; the next process of this number drops it
    }
  }

  void guarded() {
    check(session_.guarded_update(table_, {"tea"}, {rows_of::add("quantity", -1)}, {rows_of::at_least("quantity", 1)}));
  }
  void guarded_by_hand() {
    const std::string item = "tea";
    const long long change = -1, least = 1;
    soci::statement update =
        (sql_.prepare << "UPDATE " + name_ +
                             " SET quantity = quantity + :d, version = version + 1 WHERE item = :i AND "
                             "quantity >= :q",
         soci::use(change), soci::use(item), soci::use(least));
    update.execute(true);
    check(update.get_affected_rows() == 1);
  }

  void optimistic() {
    std::optional<rows_of::Row> row = session_.fetch(table_, {"tea"});
    row->set("quantity", row->get<long long>("quantity") - 1);
    session_.update(*row);
  }
  void optimistic_by_hand() {
    const auto [quantity, version] = read("");
    write(quantity - 1, version);
  }

  void pessimistic() {
    rows_of::Transaction transaction(session_);
    std::optional<rows_of::Row> row = session_.fetch_for_update(table_, {"tea"});
    row->set("quantity", row->get<long long>("quantity") - 1);
    session_.update(*row);
    transaction.commit();
  }
  void pessimistic_by_hand() {
    sql_ << begin_;
    const auto [quantity, version] = read(lock_);
    write(quantity - 1, version);
    sql_ << "COMMIT";
  }

 private:
  static void check(bool fine) {
    if (!fine) throw std::runtime_error("rows: an update changed nothing");
  }
  std::pair<long long, long long> read(const std::string& lock) {
    const std::string key = "tea";
    std::string item;
    long long quantity = 0, version = 0;
    sql_ << "SELECT item, quantity, version FROM " + name_ + " WHERE item = :i" + lock, soci::use(key),
        soci::into(item), soci::into(quantity), soci::into(version);
    return {quantity, version};
  }
  void write(long long quantity, long long version) {
    const std::string item = "tea";
    soci::statement update = (sql_.prepare << "UPDATE " + name_ +
                                                  " SET quantity = :q, version = version + 1 WHERE item "
                                                  "= :i AND version = :v",
                              soci::use(quantity), soci::use(item), soci::use(version));
    update.execute(true);
    check(update.get_affected_rows() == 1);
  }

  soci::session sql_;
  rows_of::SociAdapter adapter_;
  rows_of::Session session_;
  const std::string name_;
  const rows_of::Table table_;
  const std::string begin_, lock_;
};

// The three operations on one engine, in turns.
class Trio {
 public:
  Trio(Session& session, const soci::backend_factory& backend, const std::string& text, std::size_t operations)
      : place_(backend, text),
        guarded_(turns(session, operations, &Place::guarded, &Place::guarded_by_hand)),
        optimistic_(turns(session, operations, &Place::optimistic, &Place::optimistic_by_hand)),
        pessimistic_(turns(session, operations, &Place::pessimistic, &Place::pessimistic_by_hand)) {}

  void add_to(Contenders& contenders, const std::string& engine) {
    const auto add = [&](const std::string& method, InTurns& turns) {
      contenders[engine + "-" + method] = [&turns] { return turns.ours(); };
      contenders[engine + "-" + method + "-hand"] = [&turns] { return turns.peer(); };
    };
    add("guarded", guarded_);
    add("optimistic", optimistic_);
    add("pessimistic", pessimistic_);
  }

 private:
  InTurns turns(Session& session, std::size_t operations, void (Place::*ours)(), void (Place::*peer)()) {
    const auto timed = [this, operations](void (Place::*operation)()) {
      return [this, operations, operation] {
        const Clock::time_point begin = Clock::now();
        for (std::size_t i = 0; i < operations; ++i) (place_.*operation)();
        return nanoseconds(Clock::now() - begin) / static_cast<double>(operations);
      };
    };
    return InTurns(session.quick() ? 11 : 51, timed(ours), timed(peer));
  }

  Place place_;
  InTurns guarded_, optimistic_, pessimistic_;
};

}  // namespace

void rows(Session& session) {
  Contenders contenders;
  std::vector<std::unique_ptr<Trio> > trios;
  const auto add = [&](const std::string& engine, const soci::backend_factory& backend, const std::string& text,
                       std::size_t operations) {
    session.preparing("rows", engine);
    trios.push_back(std::make_unique<Trio>(session, backend, text, operations));
    trios.back()->add_to(contenders, engine);
  };
  add("sqlite", soci::sqlite3, "db=:memory:", 50);
  for (const std::string engine : {"mysql", "mariadb", "postgres"}) {
    std::string variable = "HIERLOCK_TEST_" + engine;
    for (char& c : variable) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    const char* const url = std::getenv(variable.c_str());
    if (url == nullptr || *url == '\0') {
      for (const char* method : {"-guarded", "-optimistic", "-pessimistic"}) {
        session.skip("rows", engine + method, variable + " names no server");
      }
    } else if (engine == "postgres") {
      add(engine, soci::postgresql, parameters(url, "dbname"), 10);
    } else {
      add(engine, soci::mysql, parameters(url, "db"), 10);
    }
  }
  session.measure("rows", contenders);
}

#endif

}  // namespace bench::groups
