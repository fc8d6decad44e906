// How valkey:// locks: one script for each root (locks.lua), leases, and a message that wakes a waiter.
#include <algorithm>
#include <cstdio>
#include <random>
#include <thread>
#include <utility>

#include <hierlock/spi/store.h>
#include <hierlock/valkey.h>

#include "endpoint/sql.h"
#include "remote/gate.h"
#include "remote/lease_driver.h"
#include "remote/opening.h"
#include "valkey/connections.h"
#include "valkey/doctor.h"
#include "valkey/explain.h"
#include "valkey/notices.h"
#include "valkey/places.h"

namespace hierlock::valkey {

namespace {

using remote::LeaseReply;

constexpr std::chrono::seconds connect_time{5};
constexpr std::chrono::milliseconds reconnect_time{2000}, acknowledge_time{3000};
// A server that listen() has not heard for so long is asked whether it is there, and has as long to answer.
constexpr std::chrono::seconds longest_quiet{3};

class KeyStore final : public remote::LeaseStore {
 public:
  KeyStore(Options options, std::string locker)
      : options_(std::move(options)),
        channel_("hl:" + options_.table + ":wake:" + locker),
        connections_(options_),
        notices_(connections_, options_) {}

  // Takes a lock of nobody else's, waits for it, hands it over and gives it back: a missing right is told now, and not
  // in the middle of a script.
  void try_out(const std::string& id, WaitLimit& limit) {
    const remote::LeaseGroup probe{"hl:" + options_.table + ":{probe}", {{"probe " + id, Mode::X, 0}}};
    take({.id = id}, probe, limit, true);
    remote::Renewal renewal{probe.place, id};
    renew({&renewal, 1}, limit);
    Connections::Call look{keys_at(probe.place), {"view", "0"}};
    connections_.run(locks_lua, look, limit);
    const std::string waiter = id + "w";
    take({.id = waiter, .wait = true}, probe, limit, true);
    drop({probe.place, id}, limit);
    drop({probe.place, waiter}, limit);
  }

  Capabilities capabilities() const override {
    return {.names = true,
            .shared_inner = true,
            .shared_names = true,
            .slots = true,
            .fifo = true,
            .wakes_waiters = true,
            .frees_at_once = true,
            .extends = true,
            .exact_keys = true,
            .across_processes = true,
            .across_machines = true,
            .leases = true};
  }
  void check(const spi::Plan&) const override {}
  remote::Cell cell_of(Space space, std::uint8_t level, std::string_view key, Mode mode) const override {
    return valkey::cell_of(space, level, key, mode);
  }
  remote::NoticeStore& notices() override { return notices_; }
  std::optional<remote::View> waits(Deadline& limit) override { return notices_.view(limit); }
  remote::Look look(Clock::time_point by) override {
    Deadline limit(by);
    remote::Look seen;
    if (auto read = notices_.read(limit)) {
      seen.notices = std::move(*read);
      // A notice stays for a moment after its wait is over.
      if (const auto view = notices_.view(limit)) seen.view.ended = view->ended;
    } else {
      seen.notes.emplace_back("the server could not be asked what other processes hold and wait for");
    }
    return seen;
  }
  void describe(Snapshot& snapshot) const override {
    snapshot.store = options_.url;
    snapshot.table = options_.table;
  }
  void end(Clock::time_point) noexcept override {
    connections_.close();
    listener_.reset();
  }

  std::vector<remote::LeaseGroup> groups(const spi::Plan& plan) const override {
    return groups_of(plan, options_.table);
  }
  LeaseReply take(const remote::LeaseRequest& request, const remote::LeaseGroup& group, WaitLimit& limit) override {
    return take(request, group, limit, false);
  }
  LeaseReply drop(const Drop& what, WaitLimit& limit) override {
    Connections::Call call{keys_at(what.place),
                           {"drop", what.id, std::to_string(what.part), std::to_string(what.number)}};
    if (what.surely || what.unanswered) {
      call.arguments.insert(call.arguments.end(), {what.surely ? "1" : "0", what.unanswered ? "1" : "0"});
    }
    return reply_of(connections_.run(locks_lua, call, limit));
  }
  std::size_t break_locks(const std::string& place, const remote::LeaseNode& node, WaitLimit& limit) override;
  void acknowledge(const std::string& place, const std::string& id, WaitLimit& limit) override {
    Connections::Call call{keys_at(place), {"free", "1", id}};
    connections_.run(locks_lua, call, limit);
  }
  void renew(std::span<remote::Renewal> renewals, WaitLimit& limit) override;
  // A server that was started a moment ago may have lost the locks of the last second, and grants to its waiters all
  // the same. take() believes it when that time is over. In a cluster a message comes from another node than the one
  // that was started: only a question to that node shows its uptime.
  bool confirms_grants() const override {
    return options_.wait_replicas > 0 || connections_.is_cluster() || Clock::now() < connections_.grants_from("");
  }

  void start_listening(WaitLimit& limit) override { subscribe(limit); }
  std::vector<remote::LeaseNews> listen(WaitLimit& limit) override;

 private:
  LeaseReply take(const remote::LeaseRequest& request, const remote::LeaseGroup& group, WaitLimit& limit, bool probe);
  static LeaseReply reply_of(const Reply& reply);
  void subscribe(WaitLimit& limit) {
    auto connection = connections_.connect_to_any(limit);
    connection->ask({"SUBSCRIBE", channel_}, "listen at " + options_.url, limit);
    listener_ = std::move(connection);
    listener_asked_ = false;
  }

  const Options options_;
  const std::string channel_;
  Connections connections_;
  Notices notices_;
  std::unique_ptr<Connection> listener_;  // only the thread that listens uses it, and then end()
  bool listener_asked_ = false;           // whether it is there
};

LeaseReply KeyStore::reply_of(const Reply& reply) {
  using State = LeaseReply::State;
  const std::string& word = reply.items.at(0).text;
  LeaseReply read;
  read.state = word == "granted" || word == "held" ? State::granted
               : word == "waiting"                 ? State::waiting
               : word == "busy"                    ? State::busy
                                                   : State::gone;
  if (reply.items.size() > 1) read.number = endpoint::number<std::int64_t>(std::string_view(reply.items[1].text));
  if (reply.items.size() > 2) read.question = endpoint::number<std::uint64_t>(std::string_view(reply.items[2].text));
  return read;
}

LeaseReply KeyStore::take(const remote::LeaseRequest& request, const remote::LeaseGroup& group, WaitLimit& limit,
                          bool probe) {
  Connections::Call call{
      keys_at(group.place),
      {"take", request.id, std::to_string(options_.lease.count()), std::to_string(request.above),
       std::to_string(request.known ? request.granted_part + 1 : 0), std::to_string(request.question),
       std::to_string(request.part) + (request.wait ? " 1 " : " 0 ") + std::to_string(request.session) + " " + channel_,
       words_of(group.nodes)}};
  call.confirm = !probe;
  const LeaseReply later{.state = LeaseReply::State::later,
                         .from = connections_.grants_from(connections_.node_of(group.place)),
                         .asked = false};
  if (!probe && Clock::now() < later.from) return later;
  const Reply& reply = connections_.run(locks_lua, call, limit);
  if (reply.items.at(0).text == "slots") {
    const auto node = std::find_if(group.nodes.begin(), group.nodes.end(),
                                   [&](const remote::LeaseNode& one) { return one.name == reply.items.at(1).text; });
    throw Error(ErrorKind::incompatible, node->name + " is in use with " + reply.items.at(2).text + " slots, not " +
                                             std::to_string(node->slots) + "; use one number everywhere");
  }
  // The connection was made just now, and the server with it. What an extend has got there stays: asked once more, the
  // server tells what the request then has.
  if (const auto from = connections_.grants_from(call.node); !probe && Clock::now() < from) {
    if (request.part == 0) {
      try {
        drop({group.place, request.id, request.part, 0, true}, limit);
      } catch (const Error&) {  // the driver drops it once more. Only, it must not ask again by this id
      }
    }
    return {.state = LeaseReply::State::later, .from = from};
  }
  LeaseReply answer = reply_of(reply);
  answer.repeated = call.repeated;
  // A place in a queue renews what the request has there already.
  const bool counts =
      answer.state == LeaseReply::State::granted || (answer.state == LeaseReply::State::waiting && request.known);
  if (counts && !call.replicated) {
    throw Error(ErrorKind::unavailable, "cannot lock at " + options_.url +
                                            ": wait_replicas=" + std::to_string(options_.wait_replicas) +
                                            ", and fewer replicas have confirmed it, so it is given back. Check the "
                                            "replicas (INFO replication), or lower "
                                            "wait_replicas=");
  }
  return answer;
}

// The node is free when its holder has acknowledged the break. A holder that is silent (stopped, cut off, dead) may
// still rely on its lock, so the node stays taken until its lease ends. This call does not wait for that.
std::size_t KeyStore::break_locks(const std::string& place, const remote::LeaseNode& node, WaitLimit& limit) {
  Connections::Call call{keys_at(place), {"break", node.name}};
  call.once = true;  // if the reply was lost, a second break might take the lock from the next holder
  Reply broken;
  try {
    broken = connections_.run(locks_lua, call, limit);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unavailable) throw;
    throw Error(ErrorKind::unavailable,
                std::string(error.what()) + ". The lock may have been broken: look at `status` before you try again");
  }
  if (broken.items.at(0).text == "too many") {
    throw Error(ErrorKind::exhausted, node.name +
                                          " was not broken: so many nodes and requests are under its root that the "
                                          "server would stand still while it looks for the lock. Try again when fewer "
                                          "are locked, or end the process that holds it");
  }
  Connections::Call ask{keys_at(place), {"free", "0"}};
  for (std::size_t i = 1; i < broken.items.size(); ++i) ask.arguments.push_back(broken.items[i].text);
  const Clock::time_point end = Clock::now() + acknowledge_time;
  try {
    while (broken.items.size() > 1 && connections_.run(locks_lua, ask, limit).number > 0 && Clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  } catch (const Error&) {  // broken it is, all the same
  }
  return static_cast<std::size_t>(broken.items.at(0).number);
}

void KeyStore::renew(std::span<remote::Renewal> renewals, WaitLimit& limit) {
  std::map<std::string, std::vector<remote::Renewal*>> by_place;
  for (remote::Renewal& one : renewals) by_place[one.place].push_back(&one);
  std::vector<Connections::Call> calls;
  for (const auto& [place, some] : by_place) {
    Connections::Call& call =
        calls.emplace_back(Connections::Call{keys_at(place), {"renew", std::to_string(options_.lease.count())}, true});
    for (const remote::Renewal* one : some) {
      call.arguments.insert(call.arguments.end(),
                            {one->id, one->waits ? "1" : "0", std::to_string(one->raise), std::to_string(one->part)});
    }
  }
  // A request that raises numbers may be cancelled, and wait for a connection: its failure says nothing about a node.
  if (std::any_of(renewals.begin(), renewals.end(), [](const remote::Renewal& one) { return one.raise != 0; })) {
    connections_.run_all(locks_lua, calls, limit);
  } else {
    connections_.renew_all(locks_lua, calls, limit);
  }
  std::size_t at = 0;
  for (const auto& [place, some] : by_place) {
    const Connections::Call& call = calls.at(at++);
    if (!call.well()) {  // not confirmed
      const std::string why = call.failed != nullptr ? call.failed->what() : call.reply.text;
      for (remote::Renewal* one : some) one->refusal = why;
      continue;
    }
    for (std::size_t i = 0; i < some.size(); ++i) {
      const LeaseReply reply = reply_of(call.reply.items.at(i));
      if (call.replicated || reply.state == LeaseReply::State::gone) some[i]->reply = reply;
    }
  }
}

// A message is `ID QUESTION NUMBER PLACE`. NUMBER 0: the lock was broken.
std::vector<remote::LeaseNews> KeyStore::listen(WaitLimit& limit) {
  if (listener_ == nullptr || listener_->broken()) {
    timed::Within soon(limit, reconnect_time);
    subscribe(soon);
  }
  timed::Within quiet(limit, longest_quiet);
  const std::optional<Reply> reply = listener_->receive(quiet);
  if (!reply && limit.next()) {  // a node that hangs keeps its connections, and tells nothing
    if (listener_asked_) {
      listener_.reset();
      throw Error(ErrorKind::unavailable, "the server that tells of grants does not answer");
    }
    Request ping;
    ping.begin(1);
    ping.word("PING");
    timed::Within soon(limit, reconnect_time);
    listener_->send_all(ping, soon);
  }
  listener_asked_ = !reply;
  if (!reply || reply->items.size() < 3 || reply->items[0].text != "message") return {};
  std::string_view text = reply->items[2].text;
  const auto word = [&text] {
    const std::string_view first = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), first.size() + 1));
    return first;
  };
  remote::LeaseNews news;
  news.id = word();
  news.question = endpoint::number<std::uint64_t>(word());
  news.number = endpoint::number<std::int64_t>(word());
  news.broken = news.number == 0;
  news.place = text;
  return {std::move(news)};
}

std::unique_ptr<spi::Backend> open(const spi::Url& url, const OpenOptions& options) {
  Options read = read_url(url);
  const remote::GateOptions gate{.owners = options.owners, .publish_after = read.publish_after, .hand_over = read.gate};
  const std::chrono::nanoseconds lease = read.lease;
  const std::string locker = random_name(), text = read.url;
  auto store = std::make_unique<KeyStore>(std::move(read), locker);
  const remote::Opening opening(options, connect_time);
  try {
    Deadline limit = opening.deadline();
    store->try_out(locker + ":0", limit);
  } catch (const Error& error) {
    opening.failed(error, text);
  }
  const auto number = static_cast<std::uint32_t>(std::random_device()());
  return remote::make_gate(std::make_unique<remote::LeaseDriver>(std::move(store), locker + ":", number, lease), gate);
}

// Asks everything first; judge() does no I/O.
std::vector<Finding> doctor(const spi::Url& url) {
  const Options options = read_url(url);
  Deadline limit(connect_time);
  Connection connection(options.address, limit);
  Seen seen;
  seen.cipher = connection.cipher();
  const std::string info = connection.ask({"INFO"}, "ask " + options.url + " about itself", limit).text;
  for (std::size_t at = 0; at < info.size();) {
    const std::size_t end = std::min(info.find('\n', at), info.size());
    const std::string_view line = std::string_view(info).substr(at, end - at);
    const std::size_t colon = line.find(':');
    if (colon != line.npos) {
      const std::string_view value = line.substr(colon + 1);
      seen.info.emplace(line.substr(0, colon), value.substr(0, value.find('\r')));
    }
    at = end + 1;
  }
  if (seen.info.is_on("cluster_enabled")) {
    SlotMap slots;
    slots.read(connection.call({"CLUSTER", "SLOTS"}, limit), options.address.place());
    seen.cluster = slots.shape();
  }
  for (int i = 0; i < 3; ++i) {
    seen.clients.push_back(static_cast<std::uint64_t>(connection.call({"CLIENT", "ID"}, limit).number));
  }
  using std::chrono::system_clock;
  const auto before = system_clock::now();
  const Reply time = connection.ask({"TIME"}, "ask for the time", limit);
  const auto ours = before + (system_clock::now() - before) / 2;
  const std::chrono::microseconds theirs(endpoint::number<std::int64_t>(std::string_view(time.items.at(0).text)) *
                                             1'000'000 +
                                         endpoint::number<std::int64_t>(std::string_view(time.items.at(1).text)));
  seen.clock_ahead = std::chrono::duration_cast<std::chrono::milliseconds>(theirs - ours.time_since_epoch());
  try {
    KeyStore store(options, random_name());
    store.try_out(random_name() + ":0", limit);
    store.start_listening(limit);
  } catch (const Error& error) {
    seen.rights = error.what();
    seen.denied = error.kind() == ErrorKind::denied;
  }
  return judge(seen, options);
}

}  // namespace

void enable() {
  for (const char* scheme : {"valkey", "redis"}) {
    spi::add_store(scheme, {.open = open, .doctor = doctor, .statements = statements});
  }
}

}  // namespace hierlock::valkey
