// A URL that names several servers, although they are not one cluster.
#include <hierlock/operate.h>

#include "on_valkey.h"

namespace hierlock::valkey_tests {
namespace {

class SeveralServers : public OnValkey {
 protected:
  // The server that the tests use, and another place before or after it.
  std::string url_of(const std::string& before, const std::string& after) const {
    std::string hosts = url();
    const std::size_t at = hosts.find('@') + 1, end = hosts.find('/', at);
    return hosts.replace(at, end - at, before + hosts.substr(at, end - at) + after);
  }
};

// While the first one stalls, the other one would grant its locks to somebody else.
TEST_P(SeveralServers, that_are_no_cluster_are_refused) {  // B3
  const auto refuses = [](const std::string& several) {
    return fails_with(
        ErrorKind::unsafe_topology, [&] { hierlock::open(several); }, "Name one server");
  };
  EXPECT_TRUE(refuses(url_of("", ",127.0.0.1:1")));
  EXPECT_TRUE(refuses(url_of("127.0.0.1:1,", ""))) << "the first one is down";
}

TEST_P(SeveralServers, that_are_no_cluster_are_unsafe_for_doctor) {
  const std::vector<Finding> all = doctor(url_of("", ",127.0.0.1:1"));
  const auto cluster = std::find_if(all.begin(), all.end(), [](const Finding& one) { return one.check == "cluster"; });
  ASSERT_NE(cluster, all.end());
  EXPECT_EQ(cluster->verdict, Finding::Verdict::unsafe) << cluster->text;
}

HIERLOCK_ON_VALKEY_AND_REDIS(SeveralServers);

}  // namespace
}  // namespace hierlock::valkey_tests
