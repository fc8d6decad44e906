// rows: exclusion on rows of the application's own tables, inside the session and the transaction that it already has.
// A component of its own: link hierlock::rows. On MySQL, MariaDB, PostgreSQL and SQLite.
//
//     soci::session sql(…);                                          // the application's own client
//     hierlock::rows::SociAdapter adapter(sql);                      // rows_soci.h; any client will do, see Adapter
//     hierlock::rows::Session session(adapter);
//     const hierlock::rows::Table stock("stock", {.key = {"item"}, .columns = {"quantity"}, .version = "version"});
//
//     // Guarded (X3): the check and the change are one statement. False: there is not enough.
//     session.guarded_update(stock, {"tea"}, {add("quantity", -5)}, {at_least("quantity", 5)});
//
//     // Optimistic (X4): nothing is locked. A row that has changed since it was read is `conflict`.
//     auto row = session.fetch(stock, {"tea"});
//     row->set("quantity", row->get<int>("quantity") + 10);
//     session.update(*row);
//
//     // Pessimistic (X7): the row is locked until the transaction ends.
//     auto locked = session.fetch_for_update(stock, {"tea"}, {.wait = Wait::at_most(200ms)});
//
// docs/rows.md has the SQL of each engine, and docs/choosing.md says which method suits which work.
//
// Errors: hierlock::Error, with the same kinds on every engine (X9).
//     conflict          the row is not as it was read (or is gone: the message says which)
//     timeout           the wait ended without the lock
//     busy              no wait was asked for, and another transaction holds the row
//     deadlock          the engine ended this transaction, or this wait, to break a cycle
//     serialization     the engine asks for the transaction to be run again
//     lost              a fence was too low; or a COMMIT was sent and its answer never came
//     unsupported       this engine cannot do that
//     not_provisioned   no such table or column
//     denied, unavailable, exhausted, cancelled    as everywhere in hierlock
//     invalid_argument  a malformed call, or the database refused the statement (constraint, type)
// native_code() is the engine's own number; of PostgreSQL sqlstate_number() of the SQLSTATE. **After any Error, end the
// transaction**: PostgreSQL has aborted it, and on MySQL locks of the failed statement may remain. Transaction does so.
//
// Identifiers are checked (ASCII letters, digits and _, not beginning with a digit, at most 63) and quoted. PostgreSQL
// therefore compares them as they are written: name tables as \d shows them. Values are always bound.
//
// A Session belongs to one thread at a time, like the session of the client below it.
#pragma once

#include <charconv>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <hierlock/error.h>

namespace hierlock::rows {

// --- values ---------------------------------------------------------------------------------------------

// What a column holds. Clients that fetch everything as text give std::string; get<T>() reads numbers from it.
class Value {
 public:
  using Held = std::variant<std::nullptr_t, std::int64_t, double, std::string>;

  Value() = default;
  Value(std::nullptr_t) {}
  template <std::integral T>
  Value(T number) : held_(checked(number)) {}
  Value(double number) : held_(number) {}
  Value(std::string text) : held_(std::move(text)) {}
  Value(std::string_view text) : held_(std::string(text)) {}
  Value(const char* text) : held_(std::string(text)) {}
  template <class T>
  Value(const std::optional<T>& value) : Value(value ? Value(*value) : Value()) {}

  bool is_null() const noexcept { return std::holds_alternative<std::nullptr_t>(held_); }
  const Held& held() const noexcept { return held_; }

  // As an integer, a floating-point number, bool, std::string or std::optional of these. Throws invalid_argument if the
  // value is not one, or does not fit.
  template <class T>
  T get() const;

  bool operator==(const Value&) const = default;

 private:
  template <class T>
  static std::int64_t checked(T number) {
    if (!std::in_range<std::int64_t>(widened(number))) too_large();
    return static_cast<std::int64_t>(number);
  }
  template <class T>
  static auto widened(T number) {  // in_range() takes no bool and no character
    if constexpr (std::is_signed_v<T>) return static_cast<std::int64_t>(number);
    if constexpr (!std::is_signed_v<T>) return static_cast<std::uint64_t>(number);
  }
  [[noreturn]] static void too_large();
  std::int64_t integer() const;
  double number() const;
  std::string text() const;
  [[noreturn]] static void out_of_range(std::int64_t value);

  Held held_ = nullptr;
};

using Key = std::vector<Value>;  // in the order of the table's key columns: {"tea"}, {17, "EUR"}

// --- the client -----------------------------------------------------------------------------------------

enum class Engine : std::uint8_t { mysql, mariadb, postgres, sqlite };
std::string_view to_string(Engine engine) noexcept;

// How the client writes the place of the second bound value.
enum class Placeholder : std::uint8_t {
  question,  // ?
  dollar,    // $2
  colon,     // :p2
};

// What became of a statement.
struct Reply {
  std::vector<std::vector<Value>> rows{};
  // Rows that an UPDATE or DELETE matched. On MySQL connect with CLIENT_FOUND_ROWS (SOCI does): otherwise the server
  // counts only rows that changed, and a guarded or fenced update that changes nothing counts as refused.
  std::int64_t affected = 0;
  // The engine's error number; of SQLite the extended one. 0: no error. PostgreSQL has none: see `state`.
  std::int64_t code = 0;
  std::string state{};    // the SQLSTATE, where the client tells it; PostgreSQL needs it
  std::string message{};  // the engine's words
  bool failed() const noexcept { return code != 0 || !message.empty(); }
};

// A client library, as the module sees it. docs/rows.md shows a whole one in 60 lines.
class Adapter {
 public:
  virtual ~Adapter() = default;
  virtual Engine engine() const = 0;
  virtual Placeholder placeholder() const = 0;
  // Runs one statement in the session's transaction, with the values bound in order. `columns`: how many the result
  // has; 0 for statements without one. An error of the database is told in the Reply, not thrown. So is a COMMIT that
  // PostgreSQL answers by the command tag ROLLBACK, because an earlier statement had failed: state 25P02.
  virtual Reply run(const std::string& sql, std::span<const Value> values, std::size_t columns) = 0;
};

// Error::native_code() of a SQLSTATE: its five characters as a number of base 36.
std::int64_t sqlstate_number(std::string_view state) noexcept;

// --- tables and rows ------------------------------------------------------------------------------------

struct TableColumns {
  std::vector<std::string> key{};      // the primary key, in its order; at least one column
  std::vector<std::string> columns{};  // the others that are read and written
  std::string version{};               // an integer column, NOT NULL, 0 on insert (X4); empty: the table has none
  std::string fence{};                 // a 64-bit integer column, NULL or 0 on insert (X11); empty: the table has none
};

// A table of the application. Immutable and cheap to copy; threads may share it.
class Table {
 public:
  // `name` is TABLE or SCHEMA.TABLE. Throws invalid_argument for a name that is not allowed, or one that stands twice.
  Table(std::string name, TableColumns columns);

  const std::string& name() const noexcept { return data_->name; }
  const TableColumns& columns() const noexcept { return data_->columns; }

 private:
  friend class Row;
  struct Data {
    std::string name;
    TableColumns columns;
  };
  std::shared_ptr<const Data> data_;
};

// A row as it was fetched. Its key and version are what the database said: there is no way to set them (X5).
class Row {
 public:
  const Table& table() const noexcept { return table_; }
  const Key& key() const noexcept { return key_; }
  // The version that was read, or that this row's last update() made. Keep it with a form that a user fills in, and
  // check it in a later transaction by fetch_checked(). Throws invalid_argument if the table has no version column.
  std::int64_t version() const;

  // A column of TableColumns::columns. Throws invalid_argument for any other name.
  const Value& operator[](std::string_view column) const { return values_[place(column)]; }
  template <class T>
  T get(std::string_view column) const {
    return (*this)[column].template get<T>();
  }
  // Changes the row in memory; update() writes what was changed. Key, version and fence are not among the columns.
  void set(std::string_view column, Value value);

 private:
  friend class Session;
  Row(Table table, Key key, std::vector<Value> values, std::optional<std::int64_t> version);
  std::size_t place(std::string_view column) const;

  Table table_;
  Key key_;
  std::vector<Value> values_;          // in the order of TableColumns::columns
  std::vector<std::uint8_t> changed_;  // of each value: set() since it was read or written; empty: none
  std::optional<std::int64_t> version_;
};

// --- what is written ------------------------------------------------------------------------------------

// One assignment of an update. A column may stand in one of them only.
struct Change {
  std::string column;
  Value value;
  bool relative = false;  // column = column + value, computed by the database
};
inline Change set(std::string column, Value value) { return {std::move(column), std::move(value), false}; }
inline Change add(std::string column, Value amount) { return {std::move(column), std::move(amount), true}; }

// One condition of a guarded update. All must hold.
struct Guard {
  enum class Test : std::uint8_t { equal, not_equal, less, at_most, greater, at_least, null, not_null };
  std::string column;
  Test test;
  Value value{};
};
inline Guard equal(std::string column, Value value) {
  return {std::move(column), Guard::Test::equal, std::move(value)};
}
inline Guard not_equal(std::string column, Value value) {
  return {std::move(column), Guard::Test::not_equal, std::move(value)};
}
inline Guard less(std::string column, Value value) { return {std::move(column), Guard::Test::less, std::move(value)}; }
inline Guard at_most(std::string column, Value value) {
  return {std::move(column), Guard::Test::at_most, std::move(value)};
}
inline Guard greater(std::string column, Value value) {
  return {std::move(column), Guard::Test::greater, std::move(value)};
}
inline Guard at_least(std::string column, Value value) {
  return {std::move(column), Guard::Test::at_least, std::move(value)};
}
inline Guard is_null(std::string column) { return {std::move(column), Guard::Test::null}; }
inline Guard is_not_null(std::string column) { return {std::move(column), Guard::Test::not_null}; }

// What became of a versioned update or delete (X4).
enum class Outcome : std::uint8_t { done, conflict, vanished };

// --- locks ----------------------------------------------------------------------------------------------

// How long a locking fetch waits for another transaction (X7).
class Wait {
 public:
  enum class Kind : std::uint8_t { for_ever, at_most, no_wait, skip_locked };

  // Until the lock is granted. PostgreSQL still obeys a lock_timeout that the session, role or database has set.
  static Wait for_ever() { return Wait(Kind::for_ever, {}); }
  // Then `timeout`. Rounded up to milliseconds; zero or less is no_wait().
  static Wait at_most(std::chrono::nanoseconds time);
  // A row that is locked is `busy`.
  static Wait no_wait() { return Wait(Kind::no_wait, {}); }
  // A row that is locked is left out. For queues; SQLite has no rows to skip: `unsupported`.
  static Wait skip_locked() { return Wait(Kind::skip_locked, {}); }

  Kind kind() const noexcept { return kind_; }
  std::chrono::milliseconds time() const noexcept { return time_; }

 private:
  Wait(Kind kind, std::chrono::milliseconds time) : kind_(kind), time_(time) {}
  Kind kind_;
  std::chrono::milliseconds time_;
};

enum class Strength : std::uint8_t {
  read,             // shared: others may read-lock it too. SQLite has no such lock: `unsupported`
  write,            // exclusive
  force_increment,  // exclusive, and the version is incremented at once: optimistic readers of now will conflict
};

struct LockOptions {
  Strength strength = Strength::write;
  std::optional<Wait> wait{};  // none: the session's default
};

// Rows of one table, for lock_in_order().
struct RowsOf {
  Table table;
  std::vector<Key> keys;
};

// --- an application's struct ----------------------------------------------------------------------------

// One member of T and its column.
template <class T>
struct Field {
  template <class M>
  Field(std::string column_name, M T::*member)
      : column(std::move(column_name)),
        read([member](const T& from) { return Value(from.*member); }),
        write([member](T& to, const Value& value) { to.*member = value.template get<M>(); }) {}

  std::string column;
  std::function<Value(const T&)> read;
  std::function<void(T&, const Value&)> write;
};

template <class T>
class Fetched;

// How a table maps to T, a struct with a default constructor.
//
//     struct Stock { std::string item; int quantity; };
//     const hierlock::rows::Mapping<Stock> stock(
//         "stock", {{"item", &Stock::item}}, {{"quantity", &Stock::quantity}}, "version");
//
// The version is not a member: Fetched keeps it, out of reach (X5).
template <class T>
class Mapping {
 public:
  Mapping(std::string table, std::vector<Field<T>> key, std::vector<Field<T>> columns, std::string version = {},
          std::string fence = {})
      : key_(std::move(key)),
        fields_(std::move(columns)),
        table_(
            std::move(table),
            {.key = names(key_), .columns = names(fields_), .version = std::move(version), .fence = std::move(fence)}) {
  }

  const Table& table() const noexcept { return table_; }
  operator const Table&() const noexcept { return table_; }
  Key key_of(const T& value) const {
    Key key;
    for (const Field<T>& field : key_) key.push_back(field.read(value));
    return key;
  }
  std::vector<Value> values_of(const T& value) const {
    std::vector<Value> values;
    for (const Field<T>& field : fields_) values.push_back(field.read(value));
    return values;
  }
  Fetched<T> from(Row row) const {
    T value{};
    for (std::size_t i = 0; i < key_.size(); ++i) key_[i].write(value, row.key()[i]);
    for (const Field<T>& field : fields_) field.write(value, row[field.column]);
    return Fetched<T>(*this, std::move(row), std::move(value));
  }

 private:
  friend class Fetched<T>;
  static std::vector<std::string> names(const std::vector<Field<T>>& fields) {
    std::vector<std::string> all;
    for (const Field<T>& field : fields) all.push_back(field.column);
    return all;
  }
  std::vector<Field<T>> key_, fields_;  // before table_, which is made of their names
  Table table_;
};

// A row as the application's struct. Change `value` and give it to Session::update(). The Mapping must outlive it.
template <class T>
class Fetched {
 public:
  T value;

  std::int64_t version() const { return row_.version(); }
  const Key& key() const noexcept { return row_.key(); }
  // The row with the changes of `value` in it. Throws invalid_argument if a member of the key was changed.
  Row& row() {
    for (std::size_t i = 0; i < mapping_->key_.size(); ++i) {
      if (!(mapping_->key_[i].read(value) == mapping_->key_[i].read(original_))) {
        throw Error(ErrorKind::invalid_argument, "the key of a fetched row of " + mapping_->table_.name() +
                                                     " was changed: insert a new row instead");
      }
    }
    for (const Field<T>& field : mapping_->fields_) {
      Value now = field.read(value);
      if (!(now == field.read(original_))) row_.set(field.column, std::move(now));
    }
    original_ = value;
    return row_;
  }

 private:
  friend class Mapping<T>;
  Fetched(const Mapping<T>& mapping, Row row, T fetched)
      : value(fetched), mapping_(&mapping), row_(std::move(row)), original_(std::move(fetched)) {}
  const Mapping<T>* mapping_;
  Row row_;
  T original_;  // as the row in the database, so that only what changed is written
};

// --- the session ----------------------------------------------------------------------------------------

struct SessionOptions {
  Wait wait = Wait::for_ever();  // of a locking fetch that says nothing else
};

enum class Begin : std::uint8_t {
  write,  // SQLite: BEGIN IMMEDIATE, with the session's default wait. Elsewhere an ordinary BEGIN
  read,   // an ordinary BEGIN
};

class Session {
 public:
  // The adapter must outlive the session.
  explicit Session(Adapter& adapter, SessionOptions options = {}) : adapter_(adapter), options_(options) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Engine engine() const { return adapter_.engine(); }

  // Refused (invalid_argument) while a transaction that began here is open; one of the application's own must not be
  // open either: MySQL would commit it. The application may as well begin and end its transactions through its own
  // client. A transaction that begins here must end here, or by Transaction. Once a statement of it has failed with an
  // Error, only rollback() is possible; anything else is refused, since the engine may have ended the transaction.
  void begin(Begin how = Begin::write);
  // SQLite: waits for readers as the session's default says. Elsewhere COMMIT waits for nobody.
  // If the connection breaks while COMMIT is under way, nobody knows whether it took effect: `lost`, not retryable.
  void commit();
  void rollback();

  // A new row, with version 0 and no fence. `values` in the order of TableColumns::columns.
  void insert(const Table& table, const Key& key, const std::vector<Value>& values);

  // Reads a row without a lock. None: there is no such row.
  std::optional<Row> fetch(const Table& table, const Key& key);
  // The same for a change that began in an earlier transaction (X5): the row must still have the version that was read
  // then, or it is `conflict`, also if it is gone. update() checks the version once more.
  Row fetch_checked(const Table& table, const Key& key, std::int64_t version);
  // Reads the newest version of a row and locks it until the transaction ends (X7). None: there is no such row, or it
  // was skipped. Outside of a transaction the lock ends with the statement; PostgreSQL cannot keep a time to wait then,
  // which is invalid_argument.
  std::optional<Row> fetch_for_update(const Table& table, const Key& key, const LockOptions& options = {});

  // Locks rows of one or several tables in the one order that all callers of this function share: by table name, then
  // by primary key as the database compares it (X8). So two of them never deadlock over these rows. One statement per
  // table. Returns the rows that exist (and were not skipped) in that order. A time to wait is for all of them
  // together.
  std::vector<Row> lock_in_order(std::vector<RowsOf> wanted, const LockOptions& options = {});

  // Writes the changed columns if the version is still the one of the row, and increments it (X4). Only key and version
  // are in the WHERE clause. update() throws `conflict` unless done. The table needs a version column.
  [[nodiscard]] Outcome try_update(Row& row);
  void update(Row& row);
  // Deletes the row if its version is still the one that was read.
  [[nodiscard]] Outcome try_remove(const Row& row);
  void remove(const Row& row);

  // Changes the row if all guards hold, in one statement (X3); increments the version if the table has one (X6). False
  // is a business outcome: a guard does not hold, or there is no such row.
  [[nodiscard]] bool guarded_update(const Table& table, const Key& key, const std::vector<Change>& changes,
                                    const std::vector<Guard>& guards);

  // Changes the row unless it has accepted a higher fence (X11), and remembers this one; increments the version if
  // there is one. `fence` is that of the Lock under which the caller works. A higher fence in the row: `lost`, because
  // a later holder of the lock has written. No such row: `conflict`. The table needs a fence column.
  void fenced_update(const Table& table, const Key& key, std::int64_t fence, const std::vector<Change>& changes);

  // The same with the application's struct.
  template <class T>
  void insert(const Mapping<T>& mapping, const T& value) {
    insert(mapping.table(), mapping.key_of(value), mapping.values_of(value));
  }
  template <class T>
  std::optional<Fetched<T>> fetch(const Mapping<T>& mapping, const Key& key) {
    return mapped(mapping, fetch(mapping.table(), key));
  }
  template <class T>
  Fetched<T> fetch_checked(const Mapping<T>& mapping, const Key& key, std::int64_t version) {
    return mapping.from(fetch_checked(mapping.table(), key, version));
  }
  template <class T>
  std::optional<Fetched<T>> fetch_for_update(const Mapping<T>& mapping, const Key& key,
                                             const LockOptions& options = {}) {
    return mapped(mapping, fetch_for_update(mapping.table(), key, options));
  }
  template <class T>
  [[nodiscard]] Outcome try_update(Fetched<T>& fetched) {
    return try_update(fetched.row());
  }
  template <class T>
  void update(Fetched<T>& fetched) {
    update(fetched.row());
  }
  template <class T>
  void remove(Fetched<T>& fetched) {
    remove(fetched.row());
  }

 private:
  class Statement;  // SQL and the values bound to it
  struct Asked;     // what a statement is for, and how long it may wait
  struct InnodbTimeouts {
    std::int64_t seconds;  // of a wait, in this session
    bool roll_back;        // whether the end of a wait ends the transaction
  };
  template <class T>
  static std::optional<Fetched<T>> mapped(const Mapping<T>& mapping, std::optional<Row> row) {
    if (!row) return std::nullopt;
    return mapping.from(*std::move(row));
  }

  Statement statement() const;
  Reply run(const Statement& statement);
  Reply run(const Statement& statement, const Asked& asked);
  Reply run(const std::string& sql, const Asked& asked, std::size_t columns = 0);
  [[noreturn]] void fail(const Reply& reply, const Asked& asked, std::chrono::nanoseconds took);
  ErrorKind kind_of_busy(const Asked& asked, std::chrono::nanoseconds took);

  Statement select(const Table& table, std::span<const Key> keys) const;
  Row row_of(const Table& table, std::vector<Value> cells) const;
  std::vector<Row> rows_of(const Table& table, Reply reply) const;
  std::vector<Row> lock_rows(const Table& table, std::span<const Key> keys, Strength strength, const Wait& wait);
  Reply lock_innodb(const Statement& select, const char* lock, const Asked& asked);
  Reply lock_postgres(const Statement& select, const char* lock, const Asked& asked);
  void lock_sqlite(const Statement& statement, const Asked& asked);
  Reply lock_mysql_in_time(const Statement& select, const char* lock, const Asked& asked);
  std::optional<Reply> wait_in_queue(const Statement& queued, std::chrono::nanoseconds left, const Asked& asked);
  InnodbTimeouts innodb_timeouts();
  std::string set_busy_timeout(const std::string& milliseconds);
  Outcome outcome(const Row& row, const Reply& reply);

  Adapter& adapter_;
  SessionOptions options_;
  bool begun_ = false;      // by begin(), and neither commit() nor rollback() has ended it
  bool failed_ = false;     // a statement failed since the transaction began: it can only be rolled back
  bool immediate_ = false;  // SQLite: begin() has taken the write lock, and nothing has ended it
};

// A transaction that is rolled back unless it was committed. What the roll back fails with is dropped: the session is
// then beyond use, and the database rolls back by itself.
class Transaction {
 public:
  explicit Transaction(Session& session, Begin how = Begin::write) : session_(session) { session_.begin(how); }
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  void commit();

 private:
  Session& session_;
  bool open_ = true;
};

// --- templates ------------------------------------------------------------------------------------------

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <class T>
T Value::get() const {
  if constexpr (IsOptional<T>::value) {
    if (is_null()) return std::nullopt;
    return get<typename T::value_type>();
  } else if constexpr (std::is_same_v<T, bool>) {
    // PostgreSQL's text protocol says t and f.
    if (const auto* said = std::get_if<std::string>(&held_); said && (*said == "t" || *said == "f"))
      return *said == "t";
    return integer() != 0;
  } else if constexpr (std::is_integral_v<T>) {
    const std::int64_t value = integer();
    if (!std::in_range<T>(value)) out_of_range(value);
    return static_cast<T>(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(number());
  } else {
    static_assert(std::is_same_v<T, std::string>, "an integer, a floating-point number, bool or std::string");
    return text();
  }
}

}  // namespace hierlock::rows
