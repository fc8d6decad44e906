// Names, values and character sets that try to become SQL.
#include "rows.h"

namespace hierlock::tests {
namespace {

class Hostile : public Rows {
 protected:
  Table texts() {
    const std::string name = table_name();
    const char* const charset = is_innodb() ? " CHARACTER SET utf8mb4" : "";
    admin().sql("CREATE TABLE " + name + " (id BIGINT NOT NULL PRIMARY KEY, body VARCHAR(200), other VARCHAR(200))" +
                charset);
    const Table table(name, {.key = {"id"}, .columns = {"body", "other"}});
    admin()->insert(table, {1}, {"untouched", "untouched"});
    return table;
  }
  // Nothing but row `id` may have changed, and nobody else's.
  void expect_untouched(const Table& table) {
    const std::optional<Row> row = admin()->fetch(table, {1});
    ASSERT_TRUE(row);
    EXPECT_EQ((*row)["body"], Value("untouched"));
    EXPECT_EQ((*row)["other"], Value("untouched"));
  }
};
HIERLOCK_ON_EVERY_ENGINE(Hostile);

// Each pair: what is written into two columns at once, so that a broken quote of the first one lets the second one out.
const std::vector<std::string>& attacks() {
  static const std::vector<std::string> all = {
      "'",
      "''",
      "\"",
      "`",
      "\\",
      "\\'",
      "\\\\'",
      "' OR '1'='1",
      "', other = 'owned' WHERE id = 1 -- ",
      "', other = 'owned' WHERE id = 1 #",
      "\\', other = 'owned' WHERE id = 1 -- ",
      "'; UPDATE x SET body = 'owned'; -- ",
      ":p1",
      ":p2 :p3",
      "$1",
      "?",
      "%s%n",
      "/* comment",
      "-- comment",
      "line\nbreak\r\ttab\x1a",
      "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e",  // Japanese
      "\xf0\x9f\x94\x92 \xc3\xa9\xcc\x81",     // four bytes, and a combining accent
      "\xe8\xa1\xa8' OR 1=1 -- ",              // ends in 0x5c in Shift_JIS
      "\xe2\x80\x98 \xca\xbc OR 1=1",          // letters that some sets map to a quote
      std::string(199, '\''),
  };
  return all;
}

TEST_P(Hostile, texts_come_back_as_they_were_given) {
  const Table table = texts();
  long long id = 10;
  for (const std::string& text : attacks()) {
    admin()->insert(table, {++id}, {text, text});
    std::optional<Row> row = admin()->fetch(table, {id});
    ASSERT_TRUE(row) << text;
    EXPECT_EQ((*row)["body"], Value(text));
    EXPECT_EQ((*row)["other"], Value(text));
    EXPECT_TRUE(admin()->guarded_update(table, {id}, {set("other", text + "!")}, {equal("body", text)})) << text;
    EXPECT_EQ((*admin()->fetch(table, {id}))["other"], Value(text + "!"));
  }
  expect_untouched(table);
}

TEST_P(Hostile, texts_as_keys_find_their_own_row_alone) {
  const Table table = stock();
  for (const std::string& text : attacks()) {
    if (text.size() > 40) continue;
    EXPECT_FALSE(admin()->guarded_update(table, {text}, {add("quantity", -1)}, {})) << text;
    EXPECT_FALSE(admin()->fetch(table, {text})) << text;
  }
  EXPECT_EQ(quantity(table, "tea") + quantity(table, "milk") + quantity(table, "salt"), 300);
}

// MySQL takes every text that does not begin with a number for 0 when it compares it with a number.
TEST_P(Hostile, a_number_as_the_key_of_texts_finds_its_own_row_alone) {
  const Table table = stock();
  admin()->insert(table, {"7"}, {100});
  for (const Key& key : {Key{0}, Key{0.0}, Key{7}}) {
    (void)kind_of([&] { (void)admin()->guarded_update(table, key, {add("quantity", -1)}, {}); });
    (void)kind_of([&] { admin()->fenced_update(table, key, 5, {add("quantity", -1)}); });
    (void)kind_of([&] {
      if (std::optional<Row> row = admin()->fetch(table, key)) (void)admin()->try_remove(*row);
    });
  }
  // As a guard, too, a number is equal to no such text: MySQL refuses the statement.
  (void)kind_of(
      [&] { EXPECT_FALSE(admin()->guarded_update(table, {"tea"}, {add("quantity", -1)}, {equal("item", 0)})); });
  EXPECT_EQ(quantity(table, "tea") + quantity(table, "milk") + quantity(table, "salt"), 300);
}

TEST_P(Hostile, keys_of_64_bits_are_told_apart_and_locked_alone) {
  const std::string name = table_name();
  admin().sql("CREATE TABLE " + name + " (id BIGINT NOT NULL PRIMARY KEY, n BIGINT NOT NULL, v BIGINT NOT NULL)");
  const Table table(name, {.key = {"id"}, .columns = {"n"}, .version = "v"});
  constexpr std::int64_t large = 9007199254740992;  // 2^53: as a double it is equal to the next one
  for (const std::int64_t id : {large - 1, large, large + 1, large + 2}) admin()->insert(table, {id}, {0});
  ASSERT_TRUE(admin()->guarded_update(table, {large + 1}, {set("n", 1)}, {}));
  EXPECT_EQ(admin().ask<std::int64_t>("SELECT id FROM " + name + " WHERE n = 1"), large + 1);
  const auto user = this->user(), other = this->user();
  Transaction transaction(user->session());
  const std::vector<Row> rows = (*user)->lock_in_order({{table, {{large + 1}, {large - 1}}}});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].key()[0].get<std::int64_t>(), large - 1);
  EXPECT_EQ(rows[1].key()[0].get<std::int64_t>(), large + 1);
  if (is_sqlite()) return;
  Transaction beside(other->session());
  for (const std::int64_t id : {large, large + 2}) {
    EXPECT_TRUE((*other)->fetch_for_update(table, {id}, {.wait = Wait::no_wait()})) << id;
  }
}

TEST_P(Hostile, sql_modes_that_change_quoting_change_nothing) {
  const Table table = texts();
  const auto user = this->user();
  std::vector<std::string> modes;
  if (is_innodb()) modes = {"SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES'", "SET SESSION sql_mode = 'ANSI_QUOTES'"};
  if (engine() == Engine::postgres) modes = {"SET standard_conforming_strings = off", "SET backslash_quote = on"};
  long long id = 100;
  for (const std::string& mode : modes) {
    user->sql(mode);
    for (const std::string& text : attacks()) {
      (*user)->insert(table, {++id}, {text, text});
      EXPECT_EQ((*(*user)->fetch(table, {id}))["body"], Value(text)) << mode << ": " << text;
    }
  }
  expect_untouched(table);
}

TEST_P(Hostile, a_character_set_with_quotes_in_its_letters_is_no_way_in) {
  if (!is_innodb()) HIERLOCK_NOT_APPLICABLE() << "only SOCI's MySQL backend escapes in the client";
  const Table table = texts();
  // In these sets the byte of a backslash may be the second half of a letter, and so may swallow an escape.
  for (const char* charset : {"gbk", "sjis", "big5", "cp932", "latin1", "utf8mb4"}) {
    for (const bool told : {false, true}) {  // by plain SQL behind the client's back, and by its own statement
      const auto user = this->user();
      user->sql(told ? std::string("SET NAMES ") + charset : std::string("SET character_set_client = ") + charset);
      long long id = 1000;
      for (const char* lead : {"\xbf", "\x81", "\xe5", "\xbf\x5c", "\x95\x5c", "\xa1"}) {
        const std::string text = std::string(lead) + "', other = 'owned' WHERE id = 1 -- ";
        // Such a text may be no valid one, and be refused. It must not be read as SQL.
        (void)kind_of([&] { (void)(*user)->guarded_update(table, {1}, {set("body", text)}, {equal("body", text)}); });
        (void)kind_of([&] {
          (void)(*user)->guarded_update(table, {++id}, {set("body", text), set("other", text)}, {});
        });
        (void)kind_of([&] { (*user)->insert(table, {++id}, {text, " OR 1=1"}); });
      }
      expect_untouched(table);
      admin().sql("DELETE FROM " + table.name() + " WHERE id > 1");
    }
  }
}

TEST_P(Hostile, a_nul_byte_is_kept_or_refused_but_never_cut) {
  const Table table = texts();
  const std::string text("abc\0, other = 'owned'", 21);
  const std::optional<ErrorKind> kind = kind_of([&] { admin()->insert(table, {5}, {text, "x"}); });
  if (kind) {
    EXPECT_EQ(kind, ErrorKind::unsupported);
    EXPECT_FALSE(admin()->fetch(table, {5}));
  } else {
    EXPECT_EQ((*admin()->fetch(table, {5}))["body"], Value(text));
  }
  expect_untouched(table);
}

TEST_P(Hostile, numbers_keep_their_value) {
  const std::string name = table_name();
  admin().sql("CREATE TABLE " + name + " (id BIGINT NOT NULL PRIMARY KEY, n BIGINT, d DOUBLE PRECISION)");
  const Table table(name, {.key = {"id"}, .columns = {"n", "d"}});
  long long id = 0;
  for (const std::int64_t n : {std::int64_t{0}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::max(),
                               std::numeric_limits<std::int64_t>::min(), std::int64_t{9007199254740993}}) {
    admin()->insert(table, {++id}, {n, 0.5});
    EXPECT_EQ(admin()->fetch(table, {id})->get<std::int64_t>("n"), n);
  }
  for (const double d : {0.1, -2.5e-7, 1e300, 123456789012345.0}) {
    admin()->insert(table, {++id}, {nullptr, d});
    EXPECT_DOUBLE_EQ(admin()->fetch(table, {id})->get<double>("d"), d);
    EXPECT_TRUE(admin()->fetch(table, {id})->operator[]("n").is_null());
  }
  EXPECT_EQ(kind_of([&] { (void)admin()->fetch(table, {1})->get<std::uint8_t>("d"); }), ErrorKind::invalid_argument);
}

TEST_P(Hostile, words_of_sql_are_allowed_as_names) {
  const std::string name = table_name();
  const std::string quote = is_innodb() ? "`" : "\"";
  const auto q = [&](const char* word) { return quote + word + quote; };
  admin().sql("CREATE TABLE " + name + " (" + q("select") + " BIGINT NOT NULL PRIMARY KEY, " + q("from") + " BIGINT, " +
              q("Where") + " BIGINT NOT NULL)");
  const Table table(name, {.key = {"select"}, .columns = {"from"}, .version = "Where"});
  admin()->insert(table, {1}, {2});
  std::optional<Row> row = admin()->fetch(table, {1});
  row->set("from", 3);
  admin()->update(*row);
  EXPECT_EQ(admin()->fetch(table, {1})->get<int>("from"), 3);
}

}  // namespace
}  // namespace hierlock::tests
