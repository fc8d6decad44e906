// The shop: stock and orders, and many buyers at once. Shows what happens without exclusion control, and that each
// method of it keeps the books in balance (X1).
//
//     shop --method none                        oversells, and says so
//     shop --method optimistic --on postgres://app@db/shop
//     shop --method named --on mysql://app@db/shop --locks same
//
// The books balance if for every item: stock before - pieces ordered = stock now, and no stock is below zero.
// Exit code: 0 they balance, 1 they do not, 64 wrong usage, 69 the database cannot be used.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#ifdef SHOP_WITH_MYSQL_LOCKS
#include <hierlock/mysql.h>
#endif

#include "connection.h"
#include "methods.h"

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;
using namespace shop;

constexpr char usage[] =
    "usage: shop --method none|guarded|optimistic|pessimistic|named|hierarchical [--writers N] [--orders N]\n"
    "            [--items N] [--stock half|plenty] [--on URL] [--locks URL]\n"
    "  --writers N   buyers at once (8)\n"
    "  --orders N    orders of 1 to 5 pieces (10000)\n"
    "  --items N     different things to buy: the fewer, the more contention (4)\n"
    "  --stock       half: enough for half of the orders (the default); plenty: for all of them\n"
    "  --on URL      mysql://… or postgres://…, a database for two tables that are dropped at the end; default: "
    "SQLite\n"
    "  --locks URL   where the locks of named and hierarchical are: memory: (the default, enough for one process), "
    "shm:,\n"
    "                mysql://… (provisioned), or same: on the server of --on, in tables that are dropped at the end\n";

struct Options {
  Method method = Method::none;
  long long writers = 8, orders = 10'000, items = 4;
  bool plenty = false;
  std::string on, locks = "memory:";
};

struct UsageError {
  std::string what;
};

Options parsed(int argc, char** argv) {
  Options options;
  bool chosen = false;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 >= argc) throw UsageError{name + " needs a value"};
    const std::string value = argv[i + 1];
    const auto number = [&](long long most = 10'000'000) {
      long long parsed = 0;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
      if (error != std::errc() || end != value.data() + value.size() || parsed < 1 || parsed > most) {
        throw UsageError{name + " needs a number from 1 to " + std::to_string(most) + ", not " + value};
      }
      return parsed;
    };
    if (name == "--method") {
      const std::optional<Method> method = method_called(value);
      if (!method) throw UsageError{"no such method: " + value};
      options.method = *method;
      chosen = true;
    } else if (name == "--writers") {
      options.writers = number(1000);
    } else if (name == "--orders") {
      options.orders = number();
    } else if (name == "--items") {
      options.items = number();
    } else if (name == "--stock") {
      if (value != "half" && value != "plenty") throw UsageError{"--stock is half or plenty, not " + value};
      options.plenty = value == "plenty";
    } else if (name == "--on") {
      options.on = value;
    } else if (name == "--locks") {
      options.locks = value;
    } else {
      throw UsageError{"unknown option: " + name};
    }
  }
  if (!chosen) throw UsageError{"which --method?"};
  return options;
}

// The store of the locks. One on the server of --on is made for this run, and dropped after it.
class Locks {
 public:
  Locks(const Options& options, Connection& connection) : connection_(connection) {
    std::string url = options.locks;
    if (url == "same") {
      const hierlock::rows::Engine engine = connection.adapter().engine();
      if (engine != hierlock::rows::Engine::mysql && engine != hierlock::rows::Engine::mariadb) {
        throw UsageError{"--locks same needs --on mysql://…: there is no store of locks on " +
                         std::string(to_string(engine))};
      }
      table_ = "shop_locks_" + std::to_string(getpid());
      const char separator = options.on.find('?') == options.on.npos ? '?' : '&';
      url = options.on + separator + "provision=lazy&table=" + table_;
    }
#ifdef SHOP_WITH_MYSQL_LOCKS
    hierlock::mysql::enable();
#endif
    locker_.emplace(hierlock::open(url));
  }
  ~Locks() {
    locker_.reset();
    if (table_.empty()) return;
    try {
      for (const char* part : {"", "_settings", "_notices"})
        connection_.execute("DROP TABLE IF EXISTS " + table_ + part);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "shop: tables are left behind: %s\n", error.what());
    }
  }
  Locks(const Locks&) = delete;
  Locks& operator=(const Locks&) = delete;

  hierlock::Locker& locker() { return *locker_; }

 private:
  Connection& connection_;
  std::string table_;
  std::optional<hierlock::Locker> locker_;
};

// The two tables, made for this run and dropped after it.
class Books {
 public:
  Books(Connection& connection, const Options& options)
      : connection_(connection),
        tables_{{"shop_stock_" + std::to_string(getpid()),
                 {.key = {"item"}, .columns = {"quantity", "at_first"}, .version = "version"}},
                {"shop_orders_" + std::to_string(getpid()), {.key = {"id"}, .columns = {"item", "pieces"}}}},
        quantity_(options.plenty ? options.orders * 5 : std::max(1LL, options.orders * 3 / 2 / options.items)) {
    connection_.execute("CREATE TABLE " + tables_.stock.name() +
                        " (item VARCHAR(40) NOT NULL PRIMARY KEY, quantity BIGINT NOT NULL, at_first BIGINT NOT NULL, "
                        "version BIGINT NOT NULL)");
    connection_.execute("CREATE TABLE " + tables_.orders.name() +
                        " (id BIGINT NOT NULL PRIMARY KEY, item VARCHAR(40) NOT NULL, pieces BIGINT NOT NULL)");
    hierlock::rows::Session session(connection_.adapter());
    for (long long i = 0; i < options.items; ++i) session.insert(tables_.stock, {item(i)}, {quantity_, quantity_});
  }
  ~Books() {
    try {
      connection_.execute("DROP TABLE " + tables_.stock.name());
      connection_.execute("DROP TABLE " + tables_.orders.name());
    } catch (const std::exception& error) {
      std::fprintf(stderr, "shop: tables are left behind: %s\n", error.what());
    }
  }
  Books(const Books&) = delete;
  Books& operator=(const Books&) = delete;

  static std::string item(long long number) { return "tea " + std::to_string(number + 1); }
  const Tables& tables() const { return tables_; }
  long long at_first() { return connection_.number("SELECT SUM(at_first) FROM " + tables_.stock.name()); }
  long long left() { return connection_.number("SELECT SUM(quantity) FROM " + tables_.stock.name()); }
  long long ordered() { return connection_.number("SELECT SUM(pieces) FROM " + tables_.orders.name()); }
  long long orders() { return connection_.number("SELECT COUNT(*) FROM " + tables_.orders.name()); }
  // Items of which the stock is wrong.
  long long wrong_items() {
    return connection_.number("SELECT COUNT(*) FROM " + tables_.stock.name() +
                              " s WHERE quantity < 0 OR quantity <> at_first - (SELECT COALESCE(SUM(pieces), 0) FROM " +
                              tables_.orders.name() + " o WHERE o.item = s.item)");
  }
  // Pieces that were ordered and never existed.
  long long oversold() {
    return connection_.number(
        "SELECT COALESCE(SUM(pieces_over), 0) FROM (SELECT s.at_first, SUM(o.pieces) - s.at_first "
        "AS pieces_over FROM " +
        tables_.stock.name() + " s JOIN " + tables_.orders.name() +
        " o ON o.item = s.item GROUP BY s.item, s.at_first) t WHERE pieces_over > 0");
  }

 private:
  Connection& connection_;
  Tables tables_;
  long long quantity_;
};

// A line that is drawn again on a terminal; nothing where there is none.
class ProgressBar {
 public:
  ProgressBar(const Counters& counters, long long of) : counters_(counters), of_(of) {
    if (isatty(STDERR_FILENO) != 0) thread_ = std::jthread([this](std::stop_token stop) { draw(stop); });
  }

 private:
  void draw(const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any end;
    std::unique_lock lock(mutex);
    const Clock::time_point began = Clock::now();
    do {
      const long long done = counters_.done;
      const int filled = static_cast<int>(done * 40 / of_);
      const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
      std::fprintf(stderr, "\r[%s%s] %3lld %%  %lld orders, %.0f a second ", std::string(filled, '#').c_str(),
                   std::string(40 - filled, ' ').c_str(), done * 100 / of_, done,
                   static_cast<double>(done) / std::max(seconds, 0.001));
      end.wait_for(lock, stop, 100ms, [] { return false; });
    } while (!stop.stop_requested());
    std::fputs("\r\033[K", stderr);
  }

  const Counters& counters_;
  const long long of_;
  std::jthread thread_;  // last: it reads the others
};

// What one buyer orders is decided by its number, so that runs can be compared. Returns how long each order took, in
// ms.
std::vector<double> buy_all(const Options& options, long long writer, const std::string& url, const Tables& tables,
                            hierlock::Locker& locker, Counters& counters) {
  const std::unique_ptr<Connection> connection = connect(url);
  hierlock::rows::Session session(connection->adapter());
  Buyer buyer(options.method, session, tables, locker, counters);
  std::mt19937 random(static_cast<unsigned>(writer));
  std::vector<double> times;
  for (long long id = writer; id < options.orders; id += options.writers) {
    const long long item = static_cast<long long>(random()) % options.items;
    const Clock::time_point began = Clock::now();
    buyer.buy({id, Books::item(item), 1 + static_cast<int>(random() % 5)});
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - began).count());
  }
  return times;
}

double percentile_99(std::vector<double> times) {
  if (times.empty()) return 0;
  const auto place = times.begin() + static_cast<std::ptrdiff_t>((times.size() - 1) * 99 / 100);
  std::nth_element(times.begin(), place, times.end());
  return *place;
}

int run(const Options& options, const std::string& url) {
  const std::unique_ptr<Connection> connection = connect(url);
  if (connection->adapter().engine() == hierlock::rows::Engine::sqlite)
    connection->execute("PRAGMA journal_mode = wal");
  Books books(*connection, options);
  Locks locks(options, *connection);
  Counters counters;
  const Clock::time_point began = Clock::now();
  std::exception_ptr failed;
  std::vector<double> times;
  {
    const ProgressBar bar(counters, options.orders);
    std::mutex mutex;
    std::vector<std::jthread> buyers;
    for (long long writer = 0; writer < options.writers; ++writer) {
      buyers.emplace_back([&, writer] {
        try {
          const std::vector<double> own = buy_all(options, writer, url, books.tables(), locks.locker(), counters);
          const std::scoped_lock lock(mutex);
          times.insert(times.end(), own.begin(), own.end());
        } catch (...) {
          const std::scoped_lock lock(mutex);
          failed = std::current_exception();
        }
      });
    }
  }
  if (failed) std::rethrow_exception(failed);
  const double seconds = std::chrono::duration<double>(Clock::now() - began).count();

  const long long at_first = books.at_first(), left = books.left(), ordered = books.ordered(), orders = books.orders();
  const long long wrong = books.wrong_items(), oversold = books.oversold();
  const std::string_view engine = hierlock::rows::to_string(connection->adapter().engine());
  std::printf("method     %s on %.*s, %lld writers, %lld items\n",
              std::string(method_names[static_cast<std::size_t>(options.method)]).c_str(),
              static_cast<int>(engine.size()), engine.data(), options.writers, options.items);
  std::printf("stock      %lld pieces at first, %lld left\n", at_first, left);
  std::printf("orders     %lld accepted (%lld pieces), %lld sold out\n", orders, ordered, counters.sold_out.load());
  std::printf("conflicts  %lld\nretries    %lld\n", counters.conflicts.load(), counters.retries.load());
  std::printf("time       %.2f s, %.0f orders a second, p99 %.2f ms\n", seconds,
              static_cast<double>(options.orders) / seconds, percentile_99(times));
  const bool complete = counters.accepted == orders && counters.done == options.orders;
  if (wrong == 0 && complete) {
    std::printf("books      balance: %lld - %lld = %lld\n", at_first, ordered, left);
    return 0;
  }
  std::printf(
      "books      DO NOT BALANCE: %lld - %lld is not %lld; %lld of %lld items are wrong, %lld pieces oversold\n",
      at_first, ordered, left, wrong, options.items, oversold);
  return 1;
}

// A folder for the file of SQLite, which is removed again.
class Scratch {
 public:
  Scratch() : path_((std::filesystem::temp_directory_path() / "hierlock-shop-XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make a folder for the database");
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string url() const { return "sqlite:" + path_ + "/shop.db"; }

 private:
  std::string path_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && (std::string(argv[1]) == "--help" || std::string(argv[1]) == "-h")) {
    std::fputs(usage, stdout);
    return 0;
  }
  try {
    const Options options = parsed(argc, argv);
    if (!options.on.empty()) return run(options, options.on);
    const Scratch scratch;
    return run(options, scratch.url());
  } catch (const UsageError& error) {
    std::fprintf(stderr, "shop: %s\n%s", error.what.c_str(), usage);
    return 64;
  } catch (const hierlock::Error& error) {
    std::fprintf(stderr, "shop: %s\n", error.what());
    return error.kind() == hierlock::ErrorKind::invalid_argument ? 64 : 69;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "shop: %s\n", error.what());
    return 69;
  }
}
