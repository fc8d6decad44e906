#include "valkey_client/slot_map.h"

#include <gtest/gtest.h>

#include "valkey_client/address.h"

namespace hierlock::valkey {
namespace {

Reply text(std::string of) { return {.kind = Reply::Kind::text, .text = std::move(of)}; }
Reply number(std::int64_t of) { return {.kind = Reply::Kind::number, .number = of}; }
Reply error(std::string of) { return {.kind = Reply::Kind::error, .text = std::move(of)}; }
Reply array(std::vector<Reply> of) { return {.kind = Reply::Kind::array, .items = std::move(of)}; }
Reply node(const std::string& host, std::int64_t port) { return array({text(host), number(port), text("id")}); }

// From the specification of the cluster.
TEST(Slots, of_keys_are_those_of_the_servers) {
  EXPECT_EQ(slot_of("123456789"), 0x31c3u);
  EXPECT_EQ(slot_of("{user1000}.following"), slot_of("{user1000}.followers"));
  EXPECT_EQ(slot_of("foo{}{bar}"), slot_of("foo{}{bar}"));
  EXPECT_NE(slot_of("foo{}{bar}"), slot_of("bar")) << "an empty tag counts for nothing";
  EXPECT_EQ(slot_of("foo{bar}{zap}"), slot_of("bar"));
  EXPECT_EQ(slot_of("hl:t:{p1}:q"), slot_of("hl:other:{p1}"));
}

TEST(Redirections, are_read) {
  const auto moved = redirection_in(error("MOVED 3999 127.0.0.1:6381"), "here:1");
  ASSERT_TRUE(moved);
  EXPECT_EQ(moved->slot, 3999u);
  EXPECT_EQ(moved->node, "127.0.0.1:6381");
  EXPECT_FALSE(moved->once);
  const auto ask = redirection_in(error("ASK 7 ::1:6381"), "here:1");
  ASSERT_TRUE(ask);
  EXPECT_EQ(ask->node, "::1:6381");
  EXPECT_TRUE(ask->once);
  EXPECT_EQ(redirection_in(error("MOVED 7 :6381"), "here:1")->node, "here:6381")
      << "a node that does not know its name";
  EXPECT_EQ(redirection_in(error("MOVED 7 ?:6381"), "here:1")->node, "here:6381");
  EXPECT_FALSE(redirection_in(error("TRYAGAIN later"), "here:1"));
  EXPECT_FALSE(redirection_in(error("MOVED"), "here:1"));
  EXPECT_FALSE(redirection_in(text("MOVED 7 there:1"), "here:1"));
}

TEST(Slots, are_known_once_the_cluster_has_told) {
  SlotMap map;
  EXPECT_FALSE(map.known());
  EXPECT_EQ(map.node_of("x"), "");
  map.set(slot_of("x"), "a:1");
  EXPECT_EQ(map.node_of("x"), "a:1");
  map.read(array({array({number(0), number(8191), node("", 1), node("r", 1), node("r", 2)}),
                  array({number(8192), number(16'382), node("b", 2), node("r", 3)})}),
           "here:9");
  EXPECT_EQ(map.shape().covered, 16'383u);
  EXPECT_EQ(map.shape().primaries, (std::vector<std::string>{"here:1", "b:2"}));
  EXPECT_EQ(map.shape().fewest_replicas, 1u);
  EXPECT_EQ(map.node_of("x"), slot_of("x") < 8192 ? "here:1" : "b:2");
  map.read(error("NOPERM"), "here:9");
  EXPECT_EQ(map.shape().primaries.size(), 2u) << "a refusal tells nothing";
}

TEST(Addresses, of_several_nodes_share_all_but_the_place) {
  const std::vector<Address> all = read_addresses(spi::Url::parse("valkey://app:a%2Cb@one:1,[::1]:2,three/4?tls=on"));
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].place(), "one:1");
  EXPECT_EQ(all[1].host, "::1");
  EXPECT_EQ(all[1].port, 2u);
  EXPECT_EQ(all[2].place(), "three:6379");
  for (const Address& one : all) {
    EXPECT_EQ(one.password, "a,b");
    EXPECT_EQ(one.database, "4");
    EXPECT_EQ(one.tls, Tls::on);
  }
  EXPECT_EQ(read_addresses(spi::Url::parse("valkey://localhost")).size(), 1u);
  EXPECT_THROW(read_addresses(spi::Url::parse("valkey://one:1,")), Error);
}

TEST(Addresses, of_other_machines_never_get_a_password_in_plain_text) {
  const Address here = read_addresses(spi::Url::parse("valkey://app:secret@localhost")).front();
  EXPECT_EQ(node_at(here, "127.0.0.1:7").port, 7u);
  EXPECT_THROW(node_at(here, "10.0.0.1:7"), Error);
  const Address there = read_addresses(spi::Url::parse("valkey://app:secret@10.0.0.1?tls=off")).front();
  EXPECT_EQ(node_at(there, "10.0.0.2:7").host, "10.0.0.2") << "the URL says so";
}

}  // namespace
}  // namespace hierlock::valkey
