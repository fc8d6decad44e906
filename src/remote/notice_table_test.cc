// Notices as rows, and the table that reads only what has changed, with a server made of a map.
#include "remote/notice_table.h"

#include <gtest/gtest.h>

#include <algorithm>
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

TEST(NoticeRows, the_rows_of_a_locker_are_summed_up_as_the_server_does) {  // B12
  const std::uint64_t p = locker_of(notice(1, "p:1")), q = locker_of(notice(1, "q:1"));
  EXPECT_EQ(locker_of(notice(9, "p:2")), p);
  const auto read = read_by_locker(
      {row_of(notice(1, "p:1"), 12), row_of(notice(2, "p:2"), 10), row_of(notice(3, "q:1"), 3, "nonsense")});
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read.at(p).signature, (Signature{2, 12 ^ 10}));
  EXPECT_EQ(read.at(p).notices.size(), 2u);
  EXPECT_EQ(read.at(q).signature, (Signature{1, 3})) << "one that cannot be read counts, or it would be read for ever";
  EXPECT_TRUE(read.at(q).notices.empty());
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
  std::string read_all() const override { return "all"; }
  std::string read_of(std::span<const std::uint64_t> lockers) const override { return with("of", lockers); }

  mutable std::vector<Notice> to_publish;

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
    const auto numbers = said(sql);
    if (denied_) return {};
    std::map<std::uint64_t, Signature> sums;
    Signature all;
    SqlAnswer answer{.well = true};
    for (const auto& [id, row] : rows_) {
      const std::uint64_t locker = locker_of(row.first);
      for (Signature* sum : {&all, &sums[locker]}) {
        ++sum->rows;
        sum->stamps ^= row.second;
      }
      const bool wanted = std::find(numbers.begin(), numbers.end(), locker) != numbers.end();
      if (wanted) answer.rows.push_back(row_of(row.first, row.second));
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
  std::size_t read() {
    Deadline soon(1min);
    const auto notices = table_.read(soon);
    return notices ? notices->size() : 999;
  }

  std::map<std::uint64_t, std::pair<Notice, std::uint64_t>> rows_;
  std::vector<std::string> asked_;
  std::vector<std::size_t> sizes_;
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
  rows_[1] = {notice(1, "p:1"), 11};
  rows_[2] = {notice(2, "q:1"), 12};
  EXPECT_EQ(read(), 2u);
  EXPECT_EQ(asked(), (std::vector<std::string>{"signature", "signatures", "of"}));
  EXPECT_EQ(read(), 2u);
  EXPECT_EQ(asked(), (std::vector<std::string>{"signature"}));
  rows_[3] = {notice(3, "q:2"), 13};
  EXPECT_EQ(read(), 3u);
  EXPECT_EQ(asked(), (std::vector<std::string>{"signature", "signatures", "of"}));
  rows_.erase(1);
  EXPECT_EQ(read(), 2u);
  EXPECT_EQ(asked(), (std::vector<std::string>{"signature", "signatures"})) << "p is gone, q has not changed";
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
