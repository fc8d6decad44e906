// The script of notices (notices.lua), asked as clients ask it.
#include <filesystem>
#include <sstream>

#include "on_valkey.h"

namespace hierlock::valkey_tests {
namespace {

class NoticesScript : public OnValkey {
 protected:
  std::string run(const std::string& words, bool writes) {
    const std::string script = std::filesystem::path(HIERLOCK_LOCKS_LUA).replace_filename("notices.lua").string();
    const std::string keys = writes ? "2 " + key() + " " + key() + ":me " : "1 " + key() + " ";
    return ask("EVAL \"$(cat '" + script + "')\" " + keys + words);
  }
  void publish(const std::string& owner) { run("publish me 10000 1 0 7 " + owner + " c d e f g h i j k", true); }
  std::string key() const { return "'hl:" + table() + ":{notices}'"; }
};

// A reader gets only what has changed. A server may forget all notices, as after a restart without its data.
TEST_P(NoticesScript, has_another_version_after_all_keys_were_lost) {
  publish("first");
  std::istringstream read(run("read", false));
  std::string time, locker, version;
  read >> time >> locker >> version;
  EXPECT_EQ(locker, "me");
  EXPECT_EQ(run("read me " + version, false).find("first"), std::string::npos) << "the reader knows it";
  ask("DEL " + key() + " " + key() + ":me");
  publish("second");
  EXPECT_NE(run("read me " + version, false).find("second"), std::string::npos);
}

HIERLOCK_ON_VALKEY_AND_REDIS(NoticesScript);

}  // namespace
}  // namespace hierlock::valkey_tests
