// The Looker with a server made of values.
#include "remote/looker.h"

#include <gtest/gtest.h>

#include <hierlock/error.h>

namespace hierlock::remote {
namespace {

using namespace std::chrono_literals;

struct Server {
  int connected = 0, views_asked = 0;
  bool refuses = false, usable = true, notices_denied = false;
  View view;
  std::vector<Notice> notices;
  std::set<std::uint64_t> asked_for, ended;
};

class FakeSession final : public LookSession {
 public:
  explicit FakeSession(Server& server) : server_(server) { ++server.connected; }
  bool usable() const noexcept override { return server_.usable; }
  std::optional<std::vector<Notice>> notices(std::string& why, Deadline&) override {
    if (!server_.notices_denied) return server_.notices;
    why = "SELECT denied (1142)";
    return std::nullopt;
  }
  View view(Deadline&) override {
    ++server_.views_asked;
    return server_.view;
  }
  std::set<std::uint64_t> ended(const std::set<std::uint64_t>& sessions, Deadline&) override {
    server_.asked_for = sessions;
    return server_.ended;
  }
  void end_reading(Deadline&) override {}

 private:
  Server& server_;
};

class Looking : public testing::Test {
 protected:
  Looker looker(Looker::Views views = Looker::Views::on) {
    return Looker(
        [this](Deadline&) -> std::unique_ptr<LookSession> {
          if (server_.refuses) throw Error(ErrorKind::unavailable, "nobody there");
          return std::make_unique<FakeSession>(server_);
        },
        views);
  }
  static Look look(Looker& looker) { return looker.look(Clock::now() + 1min); }

  Server server_;
};

TEST_F(Looking, one_session_is_kept_until_it_cannot_be_used) {
  server_.view.seen = true;
  Looker looker = this->looker();
  look(looker);
  look(looker);
  EXPECT_EQ(server_.connected, 1);
  server_.usable = false;
  look(looker);
  EXPECT_EQ(server_.connected, 2);
}

TEST_F(Looking, a_server_that_does_not_answer_is_told_in_a_note) {
  server_.refuses = true;
  Looker looker = this->looker();
  const Look looked = look(looker);
  EXPECT_FALSE(looked.view.seen);
  EXPECT_NE(looked.view.note.find("nobody there"), std::string::npos) << looked.view.note;
}

TEST_F(Looking, a_right_that_is_missing_is_not_asked_for_at_every_look) {
  server_.view.denied = true;
  server_.view.note = "denied";
  Looker looker = this->looker();
  EXPECT_EQ(look(looker).view.note, "denied");
  EXPECT_EQ(look(looker).view.note, "denied");
  EXPECT_EQ(server_.views_asked, 1);
}

TEST_F(Looking, views_can_be_left_out) {
  Looker looker = this->looker(Looker::Views::off);
  EXPECT_NE(look(looker).view.note.find("views=off"), std::string::npos);
  EXPECT_EQ(server_.views_asked, 0);
}

TEST_F(Looking, notices_that_cannot_be_read_are_told) {
  server_.notices_denied = true;
  Looker looker = this->looker();
  const Look looked = look(looker);
  ASSERT_EQ(looked.notes.size(), 1u);
  EXPECT_NE(looked.notes[0].find("(1142)"), std::string::npos);
}

// A wait that the view does not show may be of a process that was killed.
TEST_F(Looking, sessions_with_unseen_waits_are_asked_for) {
  const auto waits = [](std::uint64_t session) {
    Notice notice;
    notice.session = session;
    notice.waits = true;
    return notice;
  };
  server_.notices = {waits(1), waits(2), waits(3 | in_queue), Notice{.session = 4}};
  server_.view.seen = true;
  server_.view.locks = {{.session = 2, .waits = true}};
  server_.ended = {1};
  Looker looker = this->looker();
  EXPECT_EQ(look(looker).view.ended, (std::set<std::uint64_t>{1}));
  EXPECT_EQ(server_.asked_for, (std::set<std::uint64_t>{1})) << "2 is seen, 3 waits in its process, 4 holds";
}

}  // namespace
}  // namespace hierlock::remote
