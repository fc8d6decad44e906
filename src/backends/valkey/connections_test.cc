// Connections to nodes that a test has told how to answer.
#include "valkey/connections.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>
#include <utility>

namespace hierlock::valkey {
namespace {

using namespace std::chrono_literals;

// One node. It answers each script with the text `done`.
class FakeNode {
 public:
  std::atomic<bool> silent{false};  // it answers nobody
  std::atomic<bool> in_cluster{true};
  std::atomic<int> uptime{1000};               // seconds
  std::atomic<std::size_t> crowd{0};           // it answers scripts only when so many connections wait for an answer
  std::atomic<const FakeNode*> heir{nullptr};  // has the slots now

  FakeNode() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const at = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener_, at, size) != 0 || listen(listener_, 64) != 0 || getsockname(listener_, at, &size) != 0)
      std::abort();
    place_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
  }
  ~FakeNode() {
    thread_.request_stop();
    thread_.join();
    for (const Client& client : clients_) close(client.socket);
    close(listener_);
  }
  FakeNode(const FakeNode&) = delete;
  FakeNode& operator=(const FakeNode&) = delete;

  const std::string& place() const { return place_; }
  // Connections of before get no answer any more, as if a firewall had forgotten them.
  void forget() {
    forgets_ = true;
    while (forgets_) std::this_thread::sleep_for(1ms);
  }
  // These have all slots, in equal parts.
  void set_slots(const std::vector<const FakeNode*>& nodes) {
    slots_ = "*" + std::to_string(nodes.size()) + "\r\n";
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const std::string& place = nodes[i]->place();
      slots_ += "*3\r\n:" + std::to_string(slot_count * i / nodes.size()) +
                "\r\n:" + std::to_string(slot_count * (i + 1) / nodes.size() - 1) +
                "\r\n*2\r\n$9\r\n127.0.0.1\r\n:" + place.substr(place.find(':') + 1) + "\r\n";
    }
  }

 private:
  struct Client {
    int socket;
    bool forgotten = false;
    std::string text{};
    bool waits = false;  // for the answer of a script
  };

  void serve(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::vector<pollfd> fds{{listener_, POLLIN, 0}};
      for (const Client& client : clients_) fds.push_back({client.socket, POLLIN, 0});
      poll(fds.data(), fds.size(), 5);
      if (forgets_) {
        for (Client& client : clients_) client.forgotten = true;
        forgets_ = false;
      }
      for (std::size_t i = 1; i < fds.size(); ++i) {
        char bytes[65536];
        const ssize_t got = fds[i].revents == 0 ? -1 : recv(fds[i].fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got > 0) clients_[i - 1].text.append(bytes, static_cast<std::size_t>(got));
        if (got == 0) clients_[i - 1].forgotten = true;
      }
      if (fds[0].revents != 0) clients_.push_back({accept(listener_, nullptr, nullptr)});
      for (Client& client : clients_) answer(client);
      const auto waiting = std::count_if(clients_.begin(), clients_.end(), [](const Client& one) { return one.waits; });
      if (static_cast<std::size_t>(waiting) < crowd) continue;
      crowd = 0;
      for (Client& client : clients_) {
        if (std::exchange(client.waits, false)) say(client, "$4\r\ndone\r\n");
      }
    }
  }
  // Commands are `*WORDS`, and `$SIZE` and the text of each word.
  void answer(Client& client) {
    if (silent || client.forgotten) return;
    for (std::string& text = client.text; !text.empty();) {
      std::size_t at = 0;
      const auto number = [&]() -> std::size_t {  // of a line; none: the rest is to come
        const std::size_t from = at + 1, end = text.find('\n', at);
        at = end == text.npos ? end : end + 1;
        return at == text.npos ? 0 : std::stoul(text.substr(from, end - from));
      };
      std::vector<std::string> words(number());
      for (std::string& word : words) {
        const std::size_t size = at == text.npos ? 0 : number();
        if (at == text.npos || text.size() < at + size + 2) return;
        word = text.substr(at, size);
        at += size + 2;
      }
      if (words.empty()) return;
      text.erase(0, at);
      if (words[0] == "INFO") {
        const std::string info = std::string(in_cluster ? "redis_mode:cluster" : "redis_mode:standalone") +
                                 "\r\nuptime_in_seconds:" + std::to_string(uptime) + "\r\n";
        say(client, "$" + std::to_string(info.size()) + "\r\n" + info + "\r\n");
      } else if (words[0] == "CLUSTER") {
        say(client, slots_);
      } else if (words[0] == "SCRIPT") {
        say(client, "$4\r\nhash\r\n");
      } else if (const FakeNode* const to = heir; to != nullptr) {
        say(client, "-MOVED " + std::to_string(slot_of(words.at(3))) + " " + to->place() + "\r\n");
      } else {
        client.waits = true;
      }
    }
  }
  static void say(const Client& client, const std::string& text) {
    send(client.socket, text.data(), text.size(), MSG_NOSIGNAL);
  }

  const int listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string place_, slots_;
  std::vector<Client> clients_;
  std::atomic<bool> forgets_{false};
  std::jthread thread_;
};

// Two nodes in the order in which Connections asks them.
class Nodes : public ::testing::Test {
 protected:
  Nodes() {
    if (one_.place() > other_.place()) std::swap(first_, second_);
    for (FakeNode* node : {first_, second_}) node->set_slots({first_, second_});
  }
  // A long lease: a node that was silent is left out for a twentieth of it.
  Options options(const std::string& hosts) const {
    return read_url(spi::Url::parse("valkey://" + hosts + "?lease=60000"));
  }
  static std::string key_of(unsigned part) {
    for (int i = 0;; ++i) {
      const std::string key = "{" + std::to_string(i) + "}";
      if (slot_of(key) / (slot_count / 2) == part) return key;
    }
  }
  static Connections::Call call_to(unsigned part) { return {{key_of(part)}, {"do"}}; }

  FakeNode one_, other_;
  FakeNode *first_ = &one_, *second_ = &other_;
};

// Ask it for something, so that it knows the slots.
void get_to_know(Connections& connections, Connections::Call call) {
  Deadline limit(10s);
  connections.run(locks_lua, call, limit);
  connections.run(locks_lua, call, limit);
  ASSERT_TRUE(connections.is_cluster());
}

TEST_F(Nodes, that_are_in_no_cluster_are_refused) {  // B3
  const auto refuses = [&](const std::string& hosts) {
    const Options read = options(hosts);
    Connections connections(read);
    Deadline limit(10s);
    Connections::Call call = call_to(0);
    try {
      connections.run(locks_lua, call, limit);
      return false;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unsafe_topology) << error.what();
      return true;
    }
  };
  EXPECT_FALSE(refuses(first_->place() + "," + second_->place()));
  for (FakeNode* node : {first_, second_}) node->in_cluster = false;
  EXPECT_FALSE(refuses(first_->place())) << "one server needs no cluster";
  EXPECT_TRUE(refuses(first_->place() + "," + second_->place()));
  first_->silent = true;
  EXPECT_TRUE(refuses(first_->place() + "," + second_->place())) << "the second answers instead of the first";
}

TEST_F(Nodes, that_were_just_started_do_not_hold_up_others) {  // B4
  second_->uptime = 1;
  const Options read = options(first_->place());
  Connections connections(read);
  get_to_know(connections, call_to(0));
  get_to_know(connections, call_to(1));
  EXPECT_GT(connections.grants_from(connections.node_of(key_of(1))), Clock::now());
  EXPECT_LT(connections.grants_from(connections.node_of(key_of(0))), Clock::now());
}

// It has a slot from now on, which may be without the locks that the other node had.
TEST_F(Nodes, that_were_just_started_hold_up_the_heir_of_their_slots) {  // B4
  second_->uptime = 1;
  const Options read = options(first_->place());
  Connections connections(read);
  get_to_know(connections, call_to(1));
  second_->heir = first_;
  Deadline limit(10s);
  Connections::Call call = call_to(1);
  connections.run(locks_lua, call, limit);
  EXPECT_EQ(call.node, first_->place());
  EXPECT_GT(connections.grants_from(call.node), Clock::now());
}

// Each attempt has time for one silent node only.
TEST_F(Nodes, that_are_silent_do_not_keep_the_listener_from_the_others) {  // M7
  const Options read = options(first_->place() + "," + second_->place());
  Connections connections(read);
  get_to_know(connections, call_to(0));
  first_->silent = true;
  std::unique_ptr<Connection> connected;
  for (int i = 0; i < 6 && connected == nullptr; ++i) {
    try {
      Deadline limit(400ms);
      connected = connections.connect_to_any(limit);
    } catch (const Error&) {  // the silent one
    }
  }
  EXPECT_NE(connected, nullptr);
}

TEST_F(Nodes, that_had_no_time_to_answer_a_renewal_are_not_silent) {  // B4
  const Options read = options(first_->place());
  Connections connections(read);
  get_to_know(connections, call_to(0));
  first_->forget();
  first_->silent = true;
  const auto renews = [&](std::vector<Connections::Call> calls, Clock::duration time) {
    Deadline limit(time);
    connections.renew_all(locks_lua, calls, limit);
    return calls.back().well();
  };
  EXPECT_FALSE(renews({call_to(0), call_to(1)}, 100ms)) << "the first uses up the time before the second is asked";
  EXPECT_TRUE(renews({call_to(1)}, 2s));
}

TEST_F(Nodes, that_lost_all_connections_are_asked_by_a_new_one_next) {
  first_->in_cluster = false;
  const Options read = options(first_->place());
  Connections connections(read);
  const auto runs = [&](Clock::duration time) {
    Deadline limit(time);
    Connections::Call call = call_to(0);
    try {
      connections.run(locks_lua, call, limit);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  first_->crowd = 4;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back([&] { EXPECT_TRUE(runs(10s)); });
  }
  first_->forget();
  EXPECT_FALSE(runs(100ms));
  EXPECT_TRUE(runs(2s)) << "the second of the four has used up its time";
}

}  // namespace
}  // namespace hierlock::valkey
