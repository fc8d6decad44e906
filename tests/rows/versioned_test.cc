// Optimistic writes: a version column, checked in the write itself.
#include "rows.h"

namespace hierlock::tests {
namespace {

class Versioned : public Rows {};
HIERLOCK_ON_EVERY_ENGINE(Versioned);

TEST_P(Versioned, begins_at_0_and_rises_with_each_update) {  // X4
  const Table table = stock();
  std::optional<Row> row = admin()->fetch(table, {"tea"});
  ASSERT_TRUE(row);
  EXPECT_EQ(row->version(), 0);
  for (int round = 1; round <= 3; ++round) {
    row->set("quantity", 100 + round);
    admin()->update(*row);
    EXPECT_EQ(row->version(), round);
  }
  EXPECT_EQ(admin()->fetch(table, {"tea"})->version(), 3);
  EXPECT_EQ(quantity(table, "tea"), 103);
}

TEST_P(Versioned, the_second_writer_of_one_version_conflicts) {  // X1, X4
  const Table table = stock();
  const auto first = user(), second = user();
  std::optional<Row> a = (*first)->fetch(table, {"tea"}), b = (*second)->fetch(table, {"tea"});
  a->set("quantity", 110);
  b->set("quantity", 120);
  (*first)->update(*a);
  std::string message;
  EXPECT_EQ(kind_of([&] { (*second)->update(*b); }, &message), ErrorKind::conflict);
  EXPECT_NE(message.find("has changed"), message.npos) << message;
  EXPECT_EQ(b->version(), 0) << "a failed update leaves the row as it was read";
  EXPECT_EQ(quantity(table, "tea"), 110);
}

TEST_P(Versioned, a_row_that_vanished_is_told_from_a_changed_one) {  // X4
  const Table table = stock();
  const auto first = user(), second = user();
  std::optional<Row> a = (*first)->fetch(table, {"tea"}), b = (*second)->fetch(table, {"tea"});
  (*first)->remove(*a);
  EXPECT_EQ((*second)->try_update(*b), Outcome::vanished);
  EXPECT_EQ((*second)->try_remove(*b), Outcome::vanished);
  std::string message;
  EXPECT_EQ(kind_of([&] { (*second)->update(*b); }, &message), ErrorKind::conflict);
  EXPECT_NE(message.find("is gone"), message.npos) << message;
}

TEST_P(Versioned, a_vanished_row_is_not_found_in_an_old_snapshot) {  // X4
  if (is_sqlite()) HIERLOCK_NOT_APPLICABLE() << "a SQLite transaction that has read keeps others from committing";
  const Table table = stock();
  const auto first = user(), second = user();
  (*second)->begin();
  if (engine() == Engine::postgres) second->sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ");
  std::optional<Row> b = (*second)->fetch(table, {"tea"});
  (*first)->remove(*(*first)->fetch(table, {"tea"}));
  if (engine() == Engine::postgres) {
    EXPECT_EQ(kind_of([&] { (void)(*second)->try_update(*b); }), ErrorKind::serialization);
  } else {
    EXPECT_EQ((*second)->try_update(*b), Outcome::vanished);
  }
  (*second)->rollback();
}

TEST_P(Versioned, a_delete_of_a_changed_row_conflicts) {  // X4
  const Table table = stock();
  std::optional<Row> old = admin()->fetch(table, {"tea"}), now = admin()->fetch(table, {"tea"});
  now->set("quantity", 7);
  admin()->update(*now);
  EXPECT_EQ(admin()->try_remove(*old), Outcome::conflict);
  EXPECT_EQ(kind_of([&] { admin()->remove(*old); }), ErrorKind::conflict);
  EXPECT_EQ(quantity(table, "tea"), 7);
  admin()->remove(*now);
  EXPECT_FALSE(admin()->fetch(table, {"tea"}));
}

TEST_P(Versioned, only_key_and_version_are_in_the_where_clause) {  // X4
  const Table table = stock();
  std::optional<Row> row = admin()->fetch(table, {"tea"});
  row->set("quantity", 1);
  admin().spy().forget();
  admin()->update(*row);
  const std::vector<std::string> sent = admin().spy().sent();
  ASSERT_EQ(sent.size(), 1u);
  const std::string where = sent[0].substr(sent[0].find(" WHERE "));
  EXPECT_NE(where.find("item"), where.npos) << sent[0];
  EXPECT_NE(where.find("version"), where.npos) << sent[0];
  EXPECT_EQ(where.find("quantity"), where.npos) << sent[0];
  EXPECT_EQ(where.find("fence"), where.npos) << sent[0];
}

template <class T>
concept VersionCanBeSet = requires(T row) {
  row.version() = 1;
}
|| requires(T row) { row.set_version(1); }
|| requires(T row) { row.version(1); };

TEST_P(Versioned, no_caller_sets_version_or_key_of_a_fetched_row) {  // X5
  static_assert(!VersionCanBeSet<Row>);
  static_assert(!std::is_constructible_v<Row, Table, Key, std::vector<Value>, std::optional<std::int64_t>>);
  static_assert(!std::is_default_constructible_v<Row>);
  static_assert(std::is_const_v<std::remove_reference_t<decltype(std::declval<Row&>().key())>>);
  const Table table = stock();
  std::optional<Row> row = admin()->fetch(table, {"tea"});
  for (const char* column : {"version", "item", "fence", "VERSION", "nothing"}) {
    EXPECT_EQ(kind_of([&] { row->set(column, 9); }), ErrorKind::invalid_argument) << column;
    EXPECT_EQ(kind_of([&] { (void)admin()->guarded_update(table, {"tea"}, {set(column, 9)}, {}); }),
              ErrorKind::invalid_argument)
        << column;
  }
}

TEST_P(Versioned, a_version_read_earlier_is_checked_when_fetched) {  // X5
  const Table table = stock();
  const std::int64_t shown = admin()->fetch(table, {"tea"})->version();  // to a user, in a form
  {
    Row row = admin()->fetch_checked(table, {"tea"}, shown);
    row.set("quantity", 50);
    admin()->update(row);
  }
  std::string message;
  EXPECT_EQ(kind_of([&] { admin()->fetch_checked(table, {"tea"}, shown); }, &message), ErrorKind::conflict);
  EXPECT_NE(message.find("has 1 now"), message.npos) << message;
  EXPECT_EQ(kind_of([&] { admin()->fetch_checked(table, {"rum"}, shown); }, &message), ErrorKind::conflict);
  EXPECT_NE(message.find("is gone"), message.npos) << message;
}

TEST_P(Versioned, a_change_between_checked_fetch_and_update_conflicts) {  // X5
  const Table table = stock();
  const auto online = user(), other = user();
  Row row = (*online)->fetch_checked(table, {"tea"}, 0);
  ASSERT_TRUE((*other)->guarded_update(table, {"tea"}, {add("quantity", 1)}, {}));
  row.set("quantity", 5);
  EXPECT_EQ((*online)->try_update(row), Outcome::conflict);
  EXPECT_EQ(quantity(table, "tea"), 101);
}

TEST_P(Versioned, a_table_without_a_version_refuses_versioned_writes) {  // X4
  const Table versioned = stock();
  const Table plain(versioned.name(), {.key = {"item"}, .columns = {"quantity"}});
  std::optional<Row> row = admin()->fetch(plain, {"tea"});
  EXPECT_EQ(kind_of([&] { (void)admin()->try_update(*row); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_of([&] { (void)row->version(); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_of([&] { admin()->fetch_checked(plain, {"tea"}, 0); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_of([&] { admin()->fetch_for_update(plain, {"tea"}, {.strength = Strength::force_increment}); }),
            ErrorKind::invalid_argument);
}

// At the end of the type a version would stay as it is, or be no integer any more: nobody would notice the write.
TEST_P(Versioned, a_version_at_the_end_of_its_type_is_refused) {  // X4
  const Table table = stock();
  const std::int64_t last = std::numeric_limits<std::int64_t>::max();
  admin().sql("UPDATE " + table.name() + " SET version = " + std::to_string(last));
  std::optional<Row> row = admin()->fetch(table, {"tea"});
  EXPECT_EQ(row->version(), last);
  row->set("quantity", 5);
  EXPECT_EQ(kind_of([&] { (void)admin()->try_update(*row); }), ErrorKind::invalid_argument);
  EXPECT_EQ(row->version(), last);
  EXPECT_EQ(quantity(table, "tea"), 100);
  if (!is_innodb()) return;
  const std::string name = table_name();
  admin().sql("CREATE TABLE " + name + " (k BIGINT PRIMARY KEY, v BIGINT UNSIGNED NOT NULL)");
  admin().sql("INSERT INTO " + name + " VALUES (1, 18446744073709551615)");
  EXPECT_EQ(kind_of([&] { (void)admin()->fetch(Table(name, {.key = {"k"}, .version = "v"}), {1}); }),
            ErrorKind::invalid_argument);
}

TEST_P(Versioned, a_trigger_that_writes_elsewhere_does_not_change_the_count) {  // X4
  const Table table = stock();
  const std::string log = table_name();
  admin().sql("CREATE TABLE " + log + " (n BIGINT)");
  const std::string once = "INSERT INTO " + log + " VALUES (1);", twice = once + once;
  const std::string head = "CREATE TRIGGER t_" + log + " AFTER UPDATE ON " + table.name() + " FOR EACH ROW ";
  if (engine() == Engine::postgres) {
    admin().sql("CREATE FUNCTION f_" + log + "() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN " + twice +
                " RETURN NULL; END $$");
    admin().sql(head + "EXECUTE FUNCTION f_" + log + "()");
  } else if (is_sqlite()) {
    admin().sql(head + "BEGIN " + twice + " END");
  } else {
    const std::optional<std::string> may_make_triggers = server_variable(GetParam().server + "_OPERATOR");
    if (!may_make_triggers) GTEST_SKIP() << "no server with an operator's account";
    User(server_client(*may_make_triggers)).sql(head + "BEGIN " + twice + " END");
  }
  std::optional<Row> row = admin()->fetch(table, {"tea"}), old = row;
  row->set("quantity", 5);
  EXPECT_EQ(admin()->try_update(*row), Outcome::done);
  old->set("quantity", 6);
  EXPECT_EQ(admin()->try_update(*old), Outcome::conflict);
  EXPECT_FALSE(admin()->guarded_update(table, {"tea"}, {add("quantity", -9)}, {at_least("quantity", 9)}));
  EXPECT_EQ(admin().ask<int>("SELECT COUNT(*) FROM " + log), 2);
  if (engine() == Engine::postgres) admin().sql("DROP FUNCTION f_" + log + "() CASCADE");
}

struct Stock {
  std::string item;
  int quantity = 0;
  std::optional<std::string> note;
  double price = 0;
};

TEST_P(Versioned, a_row_maps_to_the_struct_of_the_application) {  // X4, X5
  const std::string name = table_name();
  admin().sql("CREATE TABLE " + name +
              " (item VARCHAR(40) NOT NULL PRIMARY KEY, quantity INT NOT NULL, note VARCHAR(40), price DOUBLE "
              "PRECISION NOT NULL, v INT NOT NULL)");
  const Mapping<Stock> mapping(name, {{"item", &Stock::item}},
                               {{"quantity", &Stock::quantity}, {"note", &Stock::note}, {"price", &Stock::price}}, "v");
  admin()->insert(mapping, Stock{"tea", 5, std::nullopt, 2.5});
  std::optional<Fetched<Stock>> tea = admin()->fetch(mapping, {"tea"});
  ASSERT_TRUE(tea);
  EXPECT_EQ(tea->value.item, "tea");
  EXPECT_EQ(tea->value.quantity, 5);
  EXPECT_EQ(tea->value.note, std::nullopt);
  EXPECT_EQ(tea->value.price, 2.5);
  tea->value.quantity = 6;
  tea->value.note = "new";
  admin().spy().forget();
  admin()->update(*tea);
  EXPECT_EQ(admin().spy().sent().at(0).find("price"), std::string::npos) << "only what changed is written";
  EXPECT_EQ(tea->version(), 1);
  tea->value.note = std::nullopt;
  admin()->update(*tea);
  const std::optional<Fetched<Stock>> again = admin()->fetch(mapping, {"tea"});
  EXPECT_EQ(again->value.quantity, 6);
  EXPECT_EQ(again->value.note, std::nullopt);
  EXPECT_EQ(again->version(), 2);
  tea->value.item = "coffee";
  EXPECT_EQ(kind_of([&] { admin()->update(*tea); }), ErrorKind::invalid_argument) << "a key does not change";
}

TEST_P(Versioned, keys_of_several_columns_are_whole) {  // X4
  const std::string name = table_name();
  admin().sql("CREATE TABLE " + name +
              " (a BIGINT NOT NULL, b VARCHAR(10) NOT NULL, n BIGINT NOT NULL, v BIGINT NOT NULL, PRIMARY KEY (a, b))");
  const Table table(name, {.key = {"a", "b"}, .columns = {"n"}, .version = "v"});
  for (const auto& [a, b] : {std::pair{1, "x"}, {1, "y"}, {2, "x"}}) admin()->insert(table, {a, b}, {0});
  std::optional<Row> row = admin()->fetch(table, {1, "y"});
  row->set("n", 9);
  admin()->update(*row);
  EXPECT_EQ(admin().ask<int>("SELECT SUM(n) FROM " + name), 9);
  EXPECT_EQ(admin()->fetch(table, {1, "y"})->get<int>("n"), 9);
  EXPECT_EQ(kind_of([&] { admin()->fetch(table, {1}); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_of([&] { admin()->fetch(table, {1, nullptr}); }), ErrorKind::invalid_argument);
}

}  // namespace
}  // namespace hierlock::tests
