// Owners that hold one lock and ask for the next, in any order: deadlocks across processes.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "crowd.h"
#include "groups.h"
#include "measure.h"
#include "ours.h"
#include "peer_mysql.h"
#include "process.h"
#include "server.h"
#include "session.h"
#include "sql_session.h"

namespace bench::groups {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t processes = 2, threads = 32, accounts_wanted = 64;
constexpr unsigned nested_percent = 5;
// Threads, times the locks that each holds at once, plus a third: the rule of docs/mysql.md.
constexpr std::size_t connections = threads * 2 * 4 / 3;
constexpr std::uint32_t buckets = 20'000;

struct Request {
  std::size_t first, second;
  bool nested;  // one after the other, in this order; otherwise both at once, or in the order of their numbers
};

// The same requests for both contenders.
class Requests {
 public:
  explicit Requests(std::size_t seed) : random_(static_cast<std::uint32_t>(seed)) {}
  Request next() {
    const auto below = [this](std::uint32_t end) { return static_cast<std::size_t>(random_() % end); };
    Request request{below(accounts_wanted), below(accounts_wanted - 1), below(100) < nested_percent};
    if (request.second >= request.first) ++request.second;
    return request;
  }

 private:
  std::minstd_rand random_;
};

// How one lock comes after the other.
enum class Next : std::uint8_t { acquire, extend };

class OurRequests {
 public:
  OurRequests(const std::string& url, const std::vector<std::string>& paths, Next next)
      : locker_(hierlock::open(url)), targets_(paths.begin(), paths.end()), next_(next) {}

  class Worker {
   public:
    Worker(OurRequests& store, std::size_t) : store_(store) {}
    // False: a deadlock ended it.
    bool serve(const Request& request) {
      hierlock::Locker& locker = store_.locker_;
      const hierlock::Target &first = store_.targets_[request.first], &second = store_.targets_[request.second];
      try {
        if (request.nested && store_.next_ == Next::acquire) {
          const hierlock::Lock one = locker.acquire(first);
          const hierlock::Lock two = locker.acquire(second);
        } else if (request.nested) {
          hierlock::Lock lock = locker.acquire(first);
          lock.extend(second);
        } else {
          const hierlock::Lock both = locker.acquire({first, second});
        }
        return true;
      } catch (const hierlock::Error& error) {
        if (error.kind() != hierlock::ErrorKind::deadlock) throw;
        return false;
      }
    }

   private:
    OurRequests& store_;
  };

 private:
  hierlock::Locker locker_;
  std::vector<hierlock::Target> targets_;
  const Next next_;
};

// Rows of a table of its own, locked by SELECT ... FOR UPDATE in transactions. A session a thread.
class PlainRequests {
 public:
  PlainRequests(std::string url, std::string table) : url_(std::move(url)), table_(std::move(table)) {}

  class Worker {
   public:
    Worker(PlainRequests& store, std::size_t)
        : session_(store.url_),
          one_(session_, "SELECT id FROM " + store.table_ + " WHERE id = ? FOR UPDATE"),
          two_(session_, "SELECT id FROM " + store.table_ + " WHERE id IN (?, ?) ORDER BY id FOR UPDATE") {}
    bool serve(const Request& request) {
      try {
        session_.ask("START TRANSACTION");
        if (request.nested) {
          lock(one_, {static_cast<std::uint32_t>(request.first)});
          lock(one_, {static_cast<std::uint32_t>(request.second)});
        } else {
          lock(two_, {static_cast<std::uint32_t>(request.first), static_cast<std::uint32_t>(request.second)});
        }
        session_.ask("ROLLBACK");
        return true;
      } catch (const SqlError& error) {
        if (!error.deadlock()) throw;
        session_.ask("ROLLBACK");
        return false;
      }
    }

   private:
    static void lock(SqlSession::Statement& statement, const std::vector<SqlValue>& ids) {
      if (statement.execute(ids) != ids.size()) throw std::runtime_error("nested: a row is missing");
    }

    SqlSession session_;
    SqlSession::Statement one_, two_;
  };

 private:
  const std::string url_, table_;
};

// The threads of one process.
template <class Store>
class Servers {
 public:
  Servers(std::unique_ptr<Store> store, std::size_t process) : store_(std::move(store)), crowd_(threads) {
    for (std::size_t i = 0; i < threads; ++i) {
      workers_.push_back(std::make_unique<typename Store::Worker>(*store_, i));
      requests_.emplace_back(process * threads + i + 1);
    }
  }

  // Requests that were served, a second. The first of them are not counted: all goes well until the first deadlock.
  // Nor is the time in which the last ones end.
  double run(Clock::duration length) {
    std::atomic<bool> over = false;
    std::atomic<std::uint64_t> served = 0;
    crowd_.begin([&](std::size_t i) {
      while (!over) {
        const Request request = requests_[i].next();
        while (!workers_[i]->serve(request) && !over) {
        }
        ++served;
      }
    });
    std::this_thread::sleep_for(1s);
    const auto before = static_cast<double>(served.load());
    const Clock::time_point begin = Clock::now();
    std::this_thread::sleep_until(begin + length);
    const double count = static_cast<double>(served.load()) - before;
    const double seconds = nanoseconds(Clock::now() - begin) / 1e9;
    over = true;
    crowd_.finish();
    return count / seconds;
  }

 private:
  const std::unique_ptr<Store> store_;
  std::vector<std::unique_ptr<typename Store::Worker>> workers_;
  std::vector<Requests> requests_;
  ThreadCrowd crowd_;
};

// Both processes of a contender.
class Pair {
 public:
  template <class Make>
  explicit Pair(const Make& make) {
    for (std::size_t p = 0; p < processes; ++p) {
      both_[p] = std::make_unique<Process>([&make, p]() -> Process::Service {
        using Store = typename decltype(make())::element_type;
        return [servers = std::make_shared<Servers<Store>>(make(), p)](const Order& order) {
          return servers->run(order.window.length);
        };
      });
    }
  }
  double requests_per_second(Clock::duration length) {
    for (auto& process : both_) process->tell({.kind = Order::Kind::pairs, .window = {length}});
    double sum = 0;
    for (auto& process : both_) sum += process->answer();
    return sum;
  }

 private:
  std::array<std::unique_ptr<Process>, processes> both_;
};

// The rows that the plain transactions lock.
class PlainRows {
 public:
  explicit PlainRows(const std::string& url) : session_(url), name_(scratch_table("nested")) {
    session_.ask("CREATE TABLE " + name_ + " (id INT UNSIGNED PRIMARY KEY) ENGINE=InnoDB");
    for (std::size_t i = 0; i < accounts_wanted; ++i) {
      session_.ask("INSERT INTO " + name_ + " VALUES (" + std::to_string(i) + ")");
    }
  }
  ~PlainRows() {
    try {
      session_.ask("DROP TABLE " + name_);
    } catch (const std::exception&) {
    }
  }
  PlainRows(const PlainRows&) = delete;
  PlainRows& operator=(const PlainRows&) = delete;
  const std::string& name() const { return name_; }

 private:
  SqlSession session_;
  const std::string name_;
};

// All contenders on one server.
class Nested {
 public:
  Nested(const char* url)
      : table_(url, buckets),
        rows_(url),
        paths_(paths_on_own_rows(accounts_wanted, buckets)),
        our_url_(table_.url() + "&connections=" + std::to_string(connections)),
        ours_([&] { return std::make_unique<OurRequests>(our_url_, paths_, Next::acquire); }),
        extends_([&] { return std::make_unique<OurRequests>(our_url_, paths_, Next::extend); }),
        plain_([&] { return std::make_unique<PlainRequests>(url, rows_.name()); }) {}

  double ours(Clock::duration length) { return ours_.requests_per_second(length); }
  double extends(Clock::duration length) { return extends_.requests_per_second(length); }
  double plain(Clock::duration length) { return plain_.requests_per_second(length); }

 private:
  const BucketTable table_;
  const PlainRows rows_;
  const std::vector<std::string> paths_;
  const std::string our_url_;
  Pair ours_, extends_, plain_;
};

}  // namespace

void nested(Session& session) {
  const auto length = session.quick() ? 3s : 8s;
  std::vector<std::unique_ptr<ConnectionRoom>> rooms;
  std::vector<std::unique_ptr<Nested>> measured;
  Contenders contenders;
  for (const ServerKind* const server : {&mysql_server, &mariadb_server}) {
    const std::string ours = server->name + "-ours", extends = server->name + "-extends",
                      plain = server->name + "-plain";
    if (!session.needs("nested", plain)) continue;
    const char* const url = server_for(session, "nested", plain, *server);
    if (url == nullptr) continue;
    session.preparing("nested", "rows and processes");
    rooms.push_back(
        std::make_unique<ConnectionRoom>(*server, 2 * processes * (connections + 3) + processes * threads + 20));
    if (const std::string& why = rooms.back()->why_not(); !why.empty()) {
      session.skip("nested", plain, why);
      continue;
    }
    Nested& nested = *measured.emplace_back(std::make_unique<Nested>(url));
    contenders[ours] = [&nested, length] { return nested.ours(length); };
    contenders[extends] = [&nested, length] { return nested.extends(length); };
    contenders[plain] = [&nested, length] { return nested.plain(length); };
  }
  session.measure("nested", contenders, session.quick() ? 2 : 7);
}

}  // namespace bench::groups
