// rows: exclusion on rows of the application's own tables, in the application's own session and transaction. It works
// on MySQL, MariaDB, PostgreSQL and SQLite. It is a separate component: link hierlock::rows.
//
//     soci::session sql(…);                                          // the application's own client
//     hierlock::rows::SociAdapter adapter(sql);                      // rows_soci.h; for other clients see Adapter
//     hierlock::rows::Session session(adapter);
//     const hierlock::rows::Table stock("stock", {.key = {"item"}, .columns = {"quantity"}, .version = "version"});
//
//     // Guarded (X3): one statement checks and changes the row. False: there is not enough stock.
//     session.guarded_update(stock, {"tea"}, {add("quantity", -5)}, {at_least("quantity", 5)});
//
//     // Optimistic (X4): no lock. If the row has changed since it was read, update() throws `conflict`.
//     auto row = session.fetch(stock, {"tea"});
//     row->set("quantity", row->get<int>("quantity") + 10);
//     session.update(*row);
//
//     // Pessimistic (X7): the row is locked until the transaction ends.
//     auto locked = session.fetch_for_update(stock, {"tea"}, {.wait = Wait::at_most(200ms)});
//
// docs/rows.md has the SQL of each engine. docs/choosing.md says which method suits which work.
//
// Errors: hierlock::Error, with the same kinds on every engine (X9).
//     conflict          the row has changed since it was read, or is gone; the message says which
//     timeout           the wait ended without the lock
//     busy              the request must not wait, and another transaction holds the row
//     deadlock          the engine ended this transaction, or this wait, to break a cycle
//     serialization     the engine asks to run the transaction again
//     lost              the fence was too low; or the answer to a COMMIT never came
//     unsupported       this engine cannot do that
//     not_provisioned   no such table or column
//     denied, unavailable, exhausted, cancelled    as everywhere in hierlock
//     invalid_argument  a malformed call, or the database refused the statement (constraint, type)
// native_code() is the engine's own number; for PostgreSQL it is sqlstate_number() of the SQLSTATE.
//
// **After any Error, end the transaction.** PostgreSQL has aborted it. On MySQL, locks of the failed statement may
// remain. The class Transaction ends it for you.
//
// An identifier has at most 63 ASCII letters, digits and _, and does not begin with a digit. The module checks and
// quotes identifiers. So PostgreSQL compares them exactly as written: write the name of a table as \d in psql shows it.
// The module always binds values.
//
// Only one thread at a time may use a Session, as with the client's own session.
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

// The value of a column. Some clients return every value as text, as std::string; get<T>() also reads numbers from
// text.
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

  // The value as an integer, a floating-point number, bool, std::string, or std::optional of these. Throws
  // invalid_argument if the value has another type, or does not fit.
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

// How the client writes a placeholder. The comments show the placeholder of the second bound value.
enum class Placeholder : std::uint8_t {
  question,  // ?
  dollar,    // $2
  colon,     // :p2
};

// The result of a statement.
struct Reply {
  std::vector<std::vector<Value>> rows{};
  // Rows that an UPDATE or DELETE matched. On MySQL, connect with CLIENT_FOUND_ROWS (SOCI does). Otherwise the server
  // counts only changed rows, and a guarded or fenced update that changes no value counts as refused.
  std::int64_t affected = 0;
  // The engine's error number; for SQLite the extended one. 0: no error. PostgreSQL has no numbers: see `state`.
  std::int64_t code = 0;
  std::string state{};    // the SQLSTATE, if the client returns it; required for PostgreSQL
  std::string message{};  // the engine's error message
  bool failed() const noexcept { return code != 0 || !message.empty(); }
};

// The interface to a client library. docs/rows.md shows a complete adapter in 60 lines.
class Adapter {
 public:
  virtual ~Adapter() = default;
  virtual Engine engine() const = 0;
  virtual Placeholder placeholder() const = 0;
  // Runs one statement in the session's transaction, and binds the values in order. `columns` is the number of result
  // columns; 0 for statements without a result. The Reply reports errors of the database; run() does not throw them. If
  // an earlier statement failed, PostgreSQL answers COMMIT with the command tag ROLLBACK. Report that as state 25P02.
  virtual Reply run(const std::string& sql, std::span<const Value> values, std::size_t columns) = 0;
};

// Error::native_code() for a SQLSTATE: its five characters as a number in base 36.
std::int64_t sqlstate_number(std::string_view state) noexcept;

// --- tables and rows ------------------------------------------------------------------------------------

struct TableColumns {
  std::vector<std::string> key{};      // the primary key, in its order; at least one column
  std::vector<std::string> columns{};  // the other columns to read and write
  std::string version{};               // an integer column, NOT NULL, 0 on insert (X4); empty: the table has none
  std::string fence{};                 // a 64-bit integer column, NULL or 0 on insert (X11); empty: the table has none
};

// A table of the application. Immutable and cheap to copy; threads may share it.
class Table {
 public:
  // `name` is TABLE or SCHEMA.TABLE. Throws invalid_argument if a name is not allowed or appears twice.
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

// A fetched row. Its key and version come from the database; you cannot set them (X5).
class Row {
 public:
  const Table& table() const noexcept { return table_; }
  const Key& key() const noexcept { return key_; }
  // The version that was read, or the one from this row's last update(). Keep it with a form that a user fills in.
  // Check it in a later transaction with fetch_checked(). Throws invalid_argument if the table has no version column.
  std::int64_t version() const;

  // A column of TableColumns::columns. Throws invalid_argument for any other name.
  const Value& operator[](std::string_view column) const { return values_[place(column)]; }
  template <class T>
  T get(std::string_view column) const {
    return (*this)[column].template get<T>();
  }
  // Changes the row in memory. update() writes the changed columns. You cannot change key, version and fence.
  void set(std::string_view column, Value value);

 private:
  friend class Session;
  Row(Table table, Key key, std::vector<Value> values, std::optional<std::int64_t> version);
  std::size_t place(std::string_view column) const;

  Table table_;
  Key key_;
  std::vector<Value> values_;          // in the order of TableColumns::columns
  std::vector<std::uint8_t> changed_;  // for each value: set() since it was read or written; empty: none
  std::optional<std::int64_t> version_;
};

// --- changes and guards ---------------------------------------------------------------------------------

// One assignment of an update. An update may assign each column once.
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

// The result of a versioned update or delete (X4).
enum class Outcome : std::uint8_t { done, conflict, vanished };

// --- locks ----------------------------------------------------------------------------------------------

// How long a locking fetch waits for another transaction (X7).
class Wait {
 public:
  enum class Kind : std::uint8_t { for_ever, at_most, no_wait, skip_locked };

  // Until the lock is granted. Lock timeouts that the session or the server has set do not end the wait; limits for
  // whole statements do.
  static Wait for_ever() { return Wait(Kind::for_ever, {}); }
  // At most this time, then `timeout`. The time is rounded up to milliseconds; zero or less means no_wait().
  static Wait at_most(std::chrono::nanoseconds time);
  // Does not wait: a locked row is `busy`.
  static Wait no_wait() { return Wait(Kind::no_wait, {}); }
  // Leaves out locked rows, for queues. SQLite has no row locks: `unsupported`.
  static Wait skip_locked() { return Wait(Kind::skip_locked, {}); }

  Kind kind() const noexcept { return kind_; }
  std::chrono::milliseconds time() const noexcept { return time_; }

 private:
  Wait(Kind kind, std::chrono::milliseconds time) : kind_(kind), time_(time) {}
  Kind kind_;
  std::chrono::milliseconds time_;
};

enum class Strength : std::uint8_t {
  read,             // shared: others may lock the row for reading, too. SQLite has no such lock: `unsupported`
  write,            // exclusive
  force_increment,  // exclusive, and increments the version at once: an optimistic writer that has read the row before
                    // gets `conflict`
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
// The version is not a member of T: Fetched keeps it, and nobody can change it (X5).
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

// A row as the application's struct. Change `value`, and pass the Fetched to Session::update(). The Mapping must
// outlive the Fetched.
template <class T>
class Fetched {
 public:
  T value;

  std::int64_t version() const { return row_.version(); }
  const Key& key() const noexcept { return row_.key(); }
  // The row with the changes of `value`. Throws invalid_argument if a member of the key was changed.
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
  T original_;  // the row as it is in the database, to write only changed columns
};

// --- the session ----------------------------------------------------------------------------------------

struct SessionOptions {
  Wait wait = Wait::for_ever();  // default for locking fetches
};

enum class Begin : std::uint8_t {
  write,  // SQLite: BEGIN IMMEDIATE, with the session's default wait. Other engines: an ordinary BEGIN
  read,   // an ordinary BEGIN
};

class Session {
 public:
  // The adapter must outlive the session.
  explicit Session(Adapter& adapter, SessionOptions options = {}) : adapter_(adapter), options_(options) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Engine engine() const { return adapter_.engine(); }

  // Begins a transaction. Throws invalid_argument if a transaction of begin() is open. The application must not have
  // its own transaction open either: MySQL would commit it.
  //
  // The application may instead begin and end its transactions through its own client. A transaction that begins here
  // must end with commit(), rollback() or Transaction. If a statement of such a transaction fails with an Error, only
  // rollback() works from then on. The Session refuses all other calls, because the engine may have ended the
  // transaction.
  void begin(Begin how = Begin::write);
  // On SQLite, COMMIT waits for readers, for as long as the session's default wait says. On other engines it does not
  // wait. If the connection breaks during COMMIT, the result is unknown: commit() throws `lost`, which is not
  // retryable.
  void commit();
  void rollback();

  // Inserts a new row with version 0 and no fence. `values` has the order of TableColumns::columns.
  void insert(const Table& table, const Key& key, const std::vector<Value>& values);

  // Reads a row without a lock. No value: there is no such row.
  std::optional<Row> fetch(const Table& table, const Key& key);
  // Like fetch(), for a change that began in an earlier transaction (X5). If the row no longer has the version that was
  // read then, or is gone, fetch_checked() throws `conflict`. update() checks the version once more.
  Row fetch_checked(const Table& table, const Key& key, std::int64_t version);
  // Reads the newest version of a row, and locks the row until the transaction ends (X7). No value: there is no such
  // row, or it was skipped. Outside a transaction the lock ends with the statement. Outside a transaction PostgreSQL
  // cannot limit the wait, so Wait::at_most is invalid_argument there.
  std::optional<Row> fetch_for_update(const Table& table, const Key& key, const LockOptions& options = {});

  // Locks rows of one or several tables in an order that all callers of this function share. The order is by table
  // name, then by primary key as the database compares it (X8). So two callers never deadlock over these rows. It locks
  // the rows of each table by one SELECT. Waits and force_increment need more statements. It returns the rows in that
  // order, without missing and skipped rows. A time limit counts for all rows together.
  std::vector<Row> lock_in_order(std::vector<RowsOf> wanted, const LockOptions& options = {});

  // If the version in the database is still that of `row`: writes the changed columns, and increments the version (X4).
  // The WHERE clause has only key and version. update() throws `conflict` unless the outcome is `done`. The table needs
  // a version column.
  [[nodiscard]] Outcome try_update(Row& row);
  void update(Row& row);
  // Deletes the row if its version is still the one that was read.
  [[nodiscard]] Outcome try_remove(const Row& row);
  void remove(const Row& row);

  // If all guards hold: changes the row, in one statement (X3), and increments the version if the table has one (X6).
  // False: a guard does not hold, or there is no such row.
  [[nodiscard]] bool guarded_update(const Table& table, const Key& key, const std::vector<Change>& changes,
                                    const std::vector<Guard>& guards);

  // Changes the row and stores `fence` in it, unless the row has a higher fence (X11). It also increments the version
  // if the table has one. `fence` is Lock::fence() of the caller's lock. If the row has a higher fence, a later holder
  // of the lock has written it: fenced_update() throws `lost`. If there is no such row: `conflict`. The table needs a
  // fence column.
  void fenced_update(const Table& table, const Key& key, std::int64_t fence, const std::vector<Change>& changes);

  // The same calls with the application's struct.
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
  Reply lock_postgres_for_ever(const Statement& select, const char* lock, bool one_row, const Asked& asked);
  void lock_sqlite(const Statement& statement, const Asked& asked);
  Reply lock_mysql_in_time(const Statement& select, const char* lock, const Asked& asked);
  std::optional<Reply> wait_in_queue(const Statement& queued, std::chrono::nanoseconds left, const Asked& asked);
  InnodbTimeouts innodb_timeouts();
  std::string set_busy_timeout(const std::string& milliseconds);
  Outcome outcome(const Row& row, const Reply& reply);

  Adapter& adapter_;
  SessionOptions options_;
  bool begun_ = false;      // begin() was called, but not yet commit() or rollback()
  bool failed_ = false;     // a statement of this transaction failed: only rollback() is possible
  bool immediate_ = false;  // SQLite: begin() has taken the write lock, and the transaction has not ended
};

// Transaction: rolls back in its destructor unless commit() was called. An error of this rollback is dropped: the
// session is unusable then, and the database rolls back by itself.
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
