// Notices as rows, and the table that reads only what has changed, with a server made of a map.
#include "remote/notice_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <sstream>

namespace hierlock::remote {
namespace {

using namespace std::chrono_literals;

Notice notice(std::uint64_t session, const std::string& owner) {
  Notice notice;
  notice.session = session;
  notice.owner = notice.owner_name = owner;
  notice.host = "h";
  notice.nodes = {{{0, session, Mode::X}, true, "r" + std::to_string(session)}};
  return notice;
}

SqlRow row_of(const Notice& notice, std::uint64_t stamp, const std::string& nodes) {
  return {std::to_string(notice.session),
          notice.owner,
          notice.owner_name,
          notice.host,
          notice.program,
          notice.note,
          std::to_string(notice.process),
          "0",
          "5",
          notice.waits ? "1" : "0",
          nodes,
          std::to_string(locker_of(notice)),
          std::to_string(stamp),
          std::to_string(notice.since)};
}
SqlRow row_of(const Notice& notice, std::uint64_t stamp) { return row_of(notice, stamp, write_nodes(notice)); }

TEST(NoticeRows, a_notice_is_read_as_it_was_written) {  // B11
  Notice one = notice(1 | in_queue, "p:1");
  one.waits = true;
  one.since = 840'000'000'000'000;
  one.behind = {7, 18'446'744'073'709'551'615u};
  one.nodes = {{{0, 12, Mode::S}, false, "u 1"},
               {{1, std::uint64_t{1} << 63, Mode::X}, true, "u 1/a"},
               {{2, 14, Mode::X}, false, "u 1/b", true},
               {{slots_level, 15, Mode::S}, true, "s", false, 1'000'000}};
  const std::vector<Notice> read = read_notices({row_of(one, 8)});
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].session, one.session);
  EXPECT_EQ(read[0].behind, one.behind);
  EXPECT_EQ(read[0].since, one.since);
  EXPECT_TRUE(read[0].waits);
  ASSERT_EQ(read[0].nodes.size(), one.nodes.size());
  for (std::size_t i = 0; i < one.nodes.size(); ++i) {
    EXPECT_EQ(read[0].nodes[i].cell, one.nodes[i].cell) << i;
    EXPECT_EQ(read[0].nodes[i].text, one.nodes[i].text) << i;
    EXPECT_EQ(read[0].nodes[i].asked, one.nodes[i].asked) << i;
    EXPECT_EQ(read[0].nodes[i].leftover, one.nodes[i].leftover) << i;
    EXPECT_EQ(read[0].nodes[i].slots, one.nodes[i].slots) << i;
  }
}

TEST(NoticeRows, rows_that_cannot_be_read_are_left_out) {
  SqlRows rows;
  for (const char* bad : {"", "nonsense", "0", "0 1", "0 1 Q 1 x", "0 1 X", "0 1 X y z", "-1 1 X 1 x", "0 1 X 1"}) {
    rows.push_back(row_of(notice(7, "o"), 8, bad));
  }
  rows.push_back({"7"});
  EXPECT_TRUE(read_notices(rows).empty());
  rows.push_back(row_of(notice(7, "o"), 8));
  EXPECT_EQ(read_notices(rows).size(), 1u);
}

TEST(NoticeRows, a_row_that_cannot_be_read_is_known_by_its_id) {  // B12
  Notice waits = notice(3, "q:1");
  waits.waits = true;
  const auto read = read_rows({row_of(notice(1, "p:1"), 12), row_of(waits, 3, "nonsense")});
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].locker, locker_of(notice(9, "p:2")));
  EXPECT_EQ(read[0].stamp, 12u);
  EXPECT_TRUE(read[0].notice);
  EXPECT_EQ(read[1].id, waits.id());
  EXPECT_EQ(read[1].stamp, 3u) << "it counts, or it would be read for ever";
  EXPECT_FALSE(read[1].notice);
}

// --- the table -------------------------------------------------------------------------------------------

// Statements are a word and numbers.
class Words final : public NoticeSql {
 public:
  std::string publish(std::span<const Notice> notices) const override {
    to_publish.assign(notices.begin(), notices.end());
    return "publish";
  }
  std::string remove(std::span<const std::uint64_t> ids) const override { return with("remove", ids); }
  std::string keep_alive(std::span<const std::uint64_t> ids) const override { return with("keep", ids); }
  std::string find_old() const override { return "old"; }
  std::string read_signature() const override { return "signature"; }
  std::string read_signatures() const override { return "signatures"; }
  std::string read_stamps(std::span<const std::uint64_t> lockers) const override { return with("stamps", lockers); }
  std::string read_all() const override { return "all"; }
  std::string read_some(std::span<const std::uint64_t> lockers, std::span<const std::uint64_t> ids) const override {
    by_id.assign(ids.begin(), ids.end());
    return with("some", lockers);
  }

  mutable std::vector<Notice> to_publish;
  mutable std::vector<std::uint64_t> by_id;

 private:
  static std::string with(std::string word, std::span<const std::uint64_t> numbers) {
    for (const std::uint64_t number : numbers) word += " " + std::to_string(number);
    return word;
  }
};

class FakeSession final : public Session {
 public:
  explicit FakeSession(const bool& gone) : gone_(gone) {}
  std::uint64_t id() const noexcept override { return 1; }
  const std::string& server() const noexcept override { return server_; }
  int socket() const noexcept override { return -1; }
  bool broken() const noexcept override { return gone_; }
  void give_up() noexcept override {}
  bool hung_up() const noexcept override { return false; }
  LockReply lock(std::span<const Cell>, bool, timed::WaitLimit&) override { return {}; }
  void unlock_all(timed::WaitLimit&) noexcept override {}
  void begin_unlock_all() noexcept override {}
  void begin_heartbeat() override {}
  Answer answer() override { return Answer::good; }
  Answer wait_for_answer(timed::WaitLimit&) override { return Answer::good; }

 private:
  const bool& gone_;
  const std::string server_ = "s";
};

class Tables : public testing::Test, public SqlChannel {
 protected:
  SqlAnswer change(Session&, const std::string& sql, Deadline&) override {
    const auto ids = said(sql);
    if (sql == "publish") {
      sizes_.push_back(words_.to_publish.size());
      for (const Notice& one : words_.to_publish) {
        if (one.note == "bad") return {};
      }
      for (const Notice& one : words_.to_publish) rows_[one.id()] = {one, new_stamp()};
      return {.well = true};
    }
    sizes_.push_back(ids.size());
    SqlAnswer answer{.well = true};
    for (const std::uint64_t id : ids) {
      answer.changed += rows_.count(id);
      if (sql.starts_with("remove")) rows_.erase(id);
    }
    return answer;
  }
  SqlAnswer query(Session&, const std::string& sql, Deadline&) override {
    if (meanwhile_) meanwhile_();
    const auto lockers = said(sql);
    if (denied_) return {};
    const auto is_among = [](const std::vector<std::uint64_t>& numbers, std::uint64_t number) {
      return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
    };
    std::map<std::uint64_t, Signature> sums;
    Signature all;
    SqlAnswer answer{.well = true};
    for (const auto& [id, row] : rows_) {
      const std::uint64_t locker = locker_of(row.first);
      for (Signature* sum : {&all, &sums[locker]}) sum->add(row.second);
      const bool wanted = is_among(lockers, locker);
      if (sql.starts_with("some") && (wanted || is_among(words_.by_id, id))) {
        answer.rows.push_back(row_of(row.first, row.second));
        ++rows_read_;
      }
      if (sql.starts_with("stamps") && wanted) answer.rows.push_back({std::to_string(id), std::to_string(row.second)});
      if (sql == "old") answer.rows.push_back({std::to_string(id)});
    }
    if (sql == "signature") answer.rows = {{std::to_string(all.rows), std::to_string(all.stamps)}};
    if (sql == "signatures") {
      for (const auto& [locker, sum] : sums) {
        answer.rows.push_back({std::to_string(locker), std::to_string(sum.rows), std::to_string(sum.stamps)});
      }
    }
    return answer;
  }
  void end_reading(Session&, Deadline&) override {}

  std::vector<std::uint64_t> said(const std::string& sql) {
    std::istringstream text(sql);
    std::string word;
    text >> word;
    asked_.push_back(word);
    std::vector<std::uint64_t> numbers;
    for (std::uint64_t number = 0; text >> number;) numbers.push_back(number);
    return numbers;
  }
  std::vector<std::string> asked() { return std::exchange(asked_, {}); }
  std::optional<std::vector<Notice>> read_all() {
    Deadline soon(1min);
    return table_.read(soon);
  }
  std::size_t read() {
    const auto notices = read_all();
    return notices ? notices->size() : 999;
  }
  void write(const Notice& one, std::uint64_t stamp) { rows_[one.id()] = {one, stamp}; }

  std::map<std::uint64_t, std::pair<Notice, std::uint64_t>> rows_;
  std::vector<std::string> asked_;
  std::vector<std::size_t> sizes_;
  std::size_t rows_read_ = 0;
  std::function<void()> meanwhile_;  // before each question
  bool denied_ = false, gone_ = false;
  Words words_;
  SessionPool pool_{1, [this](timed::WaitLimit&) { return std::make_unique<FakeSession>(gone_); }};
  NoticeTable table_{words_, *this, pool_};
};

TEST_F(Tables, many_notices_are_one_statement) {
  std::vector<Notice> notices;
  for (std::uint64_t i = 0; i < 250; ++i) notices.push_back(notice(i, "p:1"));
  Deadline soon(1min);
  const auto done = table_.publish(notices, soon);
  EXPECT_FALSE(done.failed);
  EXPECT_EQ(std::count(done.written.begin(), done.written.end(), true), 250);
  EXPECT_EQ(sizes_, (std::vector<std::size_t>{100, 100, 50}));
}

TEST_F(Tables, a_notice_that_is_refused_spoils_only_itself) {
  std::vector<Notice> notices;
  for (std::uint64_t i = 0; i < 10; ++i) notices.push_back(notice(i, "p:1"));
  notices[3].note = "bad";
  Deadline soon(1min);
  const auto done = table_.publish(notices, soon);
  EXPECT_FALSE(done.failed);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(done.written[i], i != 3) << i;
  EXPECT_EQ(rows_.size(), 9u);
}

TEST_F(Tables, a_server_that_cannot_be_used_is_told_from_a_refusal) {
  gone_ = true;
  const Notice one = notice(1, "p:1");
  Deadline soon(1min);
  EXPECT_TRUE(table_.publish(std::span(&one, 1), soon).failed);
  const std::uint64_t id = one.id();
  EXPECT_FALSE(table_.remove(std::span(&id, 1), soon));
  EXPECT_FALSE(table_.keep_alive(std::span(&id, 1), soon).has_value());
  EXPECT_FALSE(table_.read(soon).has_value());
}

TEST_F(Tables, what_has_not_changed_is_not_read_again) {  // B12
  write(notice(1, "p:1"), 11);
  write(notice(2, "q:1"), 12);
  EXPECT_EQ(read(), 2u);
  EXPECT_EQ(asked(), (std::vector<std::string>{"signature", "signatures", "some"}));
  EXPECT_EQ(read(), 2u);
  EXPECT_EQ(asked(), (std::vector<std::string>{"signature"}));
  write(notice(3, "q:2"), 13);
  EXPECT_EQ(read(), 3u);
  EXPECT_EQ(asked(), (std::vector<std::string>{"signature", "signatures", "some"}));
  rows_.erase(notice(1, "p:1").id());
  EXPECT_EQ(read(), 2u);
  EXPECT_EQ(asked(), (std::vector<std::string>{"signature", "signatures"})) << "p is gone, q has not changed";
}

TEST_F(Tables, of_a_locker_with_many_only_new_notices_are_read) {  // B12
  for (std::uint64_t i = 1; i <= 10; ++i) write(notice(i, "p:1"), i);
  write(notice(50, "q:1"), 50);
  EXPECT_EQ(read(), 11u);
  asked();
  rows_read_ = 0;
  write(notice(3, "p:7"), 103);        // another in its place
  write(notice(11, "p:1"), 111);       // a new one
  rows_.erase(notice(5, "p:1").id());  // one less
  EXPECT_EQ(read(), 11u);
  EXPECT_EQ(asked(), (std::vector<std::string>{"signature", "signatures", "stamps", "some"}));
  EXPECT_EQ(rows_read_, 2u);
  rows_.erase(notice(6, "p:1").id());
  EXPECT_EQ(read(), 10u);
  EXPECT_EQ(asked(), (std::vector<std::string>{"signature", "signatures", "stamps"})) << "none is new";
  EXPECT_EQ(read(), 10u);
  EXPECT_EQ(asked(), (std::vector<std::string>{"signature"}));
}

// A notice may come, change or go between any two questions, also from one Locker to another.
TEST_F(Tables, what_is_read_is_the_table_whatever_changed_meanwhile) {  // B11
  std::minstd_rand random(7);
  std::uint64_t stamps = 0;
  const auto change = [&] {
    const std::string owner = (random() % 2 == 0 ? "p:" : "q:") + std::to_string(random() % 100);
    const Notice one = notice(random() % 12, owner);
    if (random() % 3 == 0) {
      rows_.erase(one.id());
    } else {
      write(one, ++stamps * 0x9E37'79B9'7F4A'7C15u);
    }
  };
  for (int turn = 0; turn < 3'000; ++turn) {
    meanwhile_ = [&] {
      if (random() % 2 == 0) change();
    };
    ASSERT_TRUE(read_all());
    meanwhile_ = nullptr;
    const auto all = read_all();
    ASSERT_TRUE(all);
    ASSERT_EQ(all->size(), rows_.size()) << turn;
    for (const Notice& one : *all) ASSERT_EQ(one.owner, rows_.at(one.id()).first.owner) << turn;
  }
}

TEST_F(Tables, without_the_right_to_read_there_are_no_notices) {
  rows_[1] = {notice(1, "p:1"), 11};
  EXPECT_EQ(read(), 1u);
  denied_ = true;
  EXPECT_EQ(read(), 0u);
}

TEST_F(Tables, rows_are_kept_alive_counted_and_removed_by_their_ids) {
  for (std::uint64_t i = 0; i < 600; ++i) rows_[i] = {notice(i, "p:1"), i};
  std::vector<std::uint64_t> ids(601);
  for (std::uint64_t i = 0; i < ids.size(); ++i) ids[i] = i;
  Deadline soon(1min);
  EXPECT_EQ(table_.keep_alive(ids, soon), 600u);
  EXPECT_EQ(sizes_, (std::vector<std::size_t>{500, 101}));
  table_.remove_old(soon);
  EXPECT_TRUE(rows_.empty());
}

}  // namespace
}  // namespace hierlock::remote
