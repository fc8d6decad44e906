#include "valkey/connections.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "endpoint/sql.h"

namespace hierlock::valkey {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds longest_wait_for_replicas{1000}, longest_connect{500};
constexpr milliseconds first_pause{5}, longest_pause{50};
constexpr int most_redirections = 8;

int number_of(std::string_view script) { return script.data() == locks_lua.data() ? 0 : 1; }

// Said by a node of a cluster: it passes by itself, or another node helps.
bool passes(const Reply& reply) {
  return reply.is_error("TRYAGAIN") || reply.is_error("CLUSTERDOWN") || reply.is_error("MOVED") ||
         reply.is_error("ASK");
}

}  // namespace

std::vector<std::string> keys_at(const std::string& place) { return {place, place + ":l", place + ":q"}; }

// What one node is asked.
struct Connections::Batch {
  Connections& of;
  const std::string node;
  std::vector<Call*> calls{};
  std::unique_ptr<Connection> connection{};
  bool asked = false;        // there was time to ask it
  std::size_t commands = 0;  // that have no reply yet
  bool waits = false;        // the last one is WAIT
  bool failed = false;       // its connection may have replies that nobody has read

  ~Batch() {
    if (commands == 0 && !failed) of.put_back(node, std::move(connection));
  }
  void fail(const Error& error) {
    commands = 0;
    failed = true;
    for (Call* call : calls) {
      call->failed = std::make_shared<const Error>(error);
      call->silent = asked;
    }
    if (of.slots_.known()) of.slots_are_old_ = true;
    // What broke this connection (a firewall that forgot it) may have broken the others, too.
    if (asked && error.kind() == ErrorKind::unavailable) of.drop_idle(node);
  }
};

// --- connections -------------------------------------------------------------------------------------------

std::unique_ptr<Connection> Connections::connect(const std::string& node, WaitLimit& limit) {
  if (!node.empty()) {
    return introduced(node, std::make_unique<Connection>(node_at(options_.address, node), limit), limit);
  }
  for (std::size_t i = 0;; ++i) {
    const bool last = i + 1 == options_.seeds.size();
    timed::Within soon(limit, longest_connect);
    WaitLimit& patience = last ? limit : static_cast<WaitLimit&>(soon);
    try {
      return introduced(node, std::make_unique<Connection>(options_.seeds.at(i), patience), patience);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::unavailable || last) throw;
    }
  }
}

// Asks a new connection for how long its server runs.
std::unique_ptr<Connection> Connections::introduced(const std::string& node, std::unique_ptr<Connection> connection,
                                                    WaitLimit& limit) {
  const Reply info = connection->ask({"INFO", "server"}, "ask " + options_.url + " how long it runs", limit);
  const bool in_cluster = info.text.find("_mode:cluster") != info.text.npos;
  if (!in_cluster && options_.seeds.size() > 1) {
    throw Error(ErrorKind::unsafe_topology,
                options_.url +
                    " names several servers, and one of them is in no cluster. Each would grant its own locks, so two "
                    "owners could hold one lock. Name one server, or only nodes of one cluster");
  }
  constexpr std::string_view name = "uptime_in_seconds:";
  const std::size_t at = info.text.find(name);
  // A difference of whole seconds: a server that has run for a moment may say 1.
  const std::chrono::seconds said(
      at == info.text.npos ? 0 : endpoint::number<std::int64_t>(std::string_view(info.text).substr(at + name.size())));
  const std::chrono::seconds uptime = std::max(said - std::chrono::seconds(1), std::chrono::seconds(0));
  if (uptime < options_.lease) hold_off(node, Clock::now() + (options_.lease - uptime));
  if (!slots_.known() && in_cluster) slots_are_old_ = true;
  return connection;
}

Clock::time_point Connections::grants_from(const std::string& node) const {
  const std::lock_guard guard(mutex_);
  const auto found = grants_from_.find(node);
  return found == grants_from_.end() ? Clock::time_point() : found->second;
}

// The time only rises, whatever other threads have found.
void Connections::hold_off(const std::string& node, Clock::time_point from) {
  const std::lock_guard guard(mutex_);
  Clock::time_point& known = grants_from_[node];
  known = std::max(known, from);
}

// One node that does not answer must not use up the time of every attempt.
std::unique_ptr<Connection> Connections::connect_to_any(WaitLimit& limit) {
  const std::vector<std::string> nodes = slots_.shape().primaries;
  for (std::size_t i = 0; i < nodes.size() && limit.next(); ++i) {
    try {
      timed::Within soon(limit, longest_connect);
      return connect(nodes[next_node_++ % nodes.size()], soon);
    } catch (const Error&) {  // the next one
      slots_are_old_ = true;
    }
  }
  return connect("", limit);
}

std::unique_ptr<Connection> Connections::take_idle(const std::string& node) {
  const std::lock_guard guard(mutex_);
  for (std::vector<std::unique_ptr<Connection>>& idle = idle_[node]; !idle.empty();) {
    std::unique_ptr<Connection> connection = std::move(idle.back());
    idle.pop_back();
    if (!connection->hung_up()) return connection;
  }
  return nullptr;
}

void Connections::put_back(const std::string& node, std::unique_ptr<Connection> connection) noexcept {
  const std::lock_guard guard(mutex_);
  if (connection != nullptr && !connection->broken() && !closed_) idle_[node].push_back(std::move(connection));
}

void Connections::drop_idle(const std::string& node) noexcept {
  const std::lock_guard guard(mutex_);
  if (const auto found = idle_.find(node); found != idle_.end()) found->second.clear();
}

void Connections::begin(WaitLimit& limit) {
  std::unique_lock guard(mutex_);
  while (used_ >= options_.connections && !closed_) {
    const std::optional<Clock::duration> time = limit.next();
    if (!time) throw Error(ErrorKind::unavailable, "no connection to " + options_.url + " was free in time");
    freed_.wait_for(guard, *time);
  }
  ++used_;
}

void Connections::end() noexcept {
  const std::lock_guard guard(mutex_);
  --used_;
  freed_.notify_one();
}

void Connections::close() noexcept {
  const std::lock_guard guard(mutex_);
  closed_ = true;
  idle_.clear();
}

// --- questions ---------------------------------------------------------------------------------------------

// Asks one node after the other, until one tells where the slots are: first those that answer.
void Connections::refresh(WaitLimit& limit) {
  if (!slots_are_old_.exchange(false)) return;
  std::vector<std::string> nodes = slots_.shape().primaries;
  std::stable_partition(nodes.begin(), nodes.end(),
                        [&](const std::string& node) { return silent_until(node) == Clock::time_point(); });
  nodes.emplace_back();
  for (const std::string& node : nodes) {
    if (!limit.next()) {
      slots_are_old_ = true;
      return;
    }
    try {
      timed::Within soon(limit, std::min<Clock::duration>(longest_connect, options_.lease / 20));
      std::unique_ptr<Connection> connection = take_idle(node);
      if (connection == nullptr) connection = connect(node, soon);
      slots_.read(connection->ask({"CLUSTER", "SLOTS"}, "ask for the slots", soon),
                  node.empty() ? options_.address.place() : node);
      put_back(node, std::move(connection));
      return;
    } catch (const Error&) {  // the next one
    }
  }
}

void Connections::send(Batch& batch, std::string_view script, WaitLimit& limit) {
  if (batch.connection == nullptr) batch.connection = connect(batch.node, limit);
  std::string hash;
  {
    const std::lock_guard guard(mutex_);
    hash = hashes_[number_of(script)];
  }
  if (hash.empty()) {
    hash = batch.connection->ask({"SCRIPT", "LOAD", std::string(script)}, "load a script", limit).text;
    const std::lock_guard guard(mutex_);
    hashes_[number_of(script)] = hash;
  }
  Request request;
  batch.waits = false;
  for (const Call* call : batch.calls) {
    if (call->asking) {
      request.begin(1);
      request.word("ASKING");
    }
    request.begin(3 + call->keys.size() + call->arguments.size());
    request.word("EVALSHA");
    request.word(hash);
    request.word(std::to_string(call->keys.size()));
    for (const std::string& key : call->keys) request.word(key);
    for (const std::string& argument : call->arguments) request.word(argument);
    batch.waits = batch.waits || (call->confirm && options_.wait_replicas > 0);
  }
  if (batch.waits) {
    const auto time = std::min(longest_wait_for_replicas, options_.lease / 5);
    request.begin(3);
    request.word("WAIT");
    request.word(std::to_string(options_.wait_replicas));
    request.word(std::to_string(time.count()));
  }
  batch.commands = request.commands();
  batch.connection->send_all(request, limit);
}

void Connections::receive(Batch& batch, std::string_view script, WaitLimit& limit) {
  std::vector<Reply> replies = batch.connection->receive_all(batch.commands, limit);
  batch.commands = 0;  // not before: without memory some of them are left unread
  const bool replicated = !batch.waits || replies.back().number >= static_cast<std::int64_t>(options_.wait_replicas);
  std::size_t at = 0;
  for (Call* call : batch.calls) {
    if (call->asking) ++at;
    call->reply = std::move(replies[at++]);
    call->replicated = replicated;
  }
  // After a restart, or SCRIPT FLUSH, or at another node.
  std::erase_if(batch.calls, [](const Call* call) { return !call->reply.is_error("NOSCRIPT"); });
  if (batch.calls.empty()) return;
  batch.connection->ask({"SCRIPT", "LOAD", std::string(script)}, "load a script", limit);
  send(batch, script, limit);
  receive(batch, script, limit);
}

// False: it has its reply. The node that was named is asked, whatever the map says: another node may know less.
bool Connections::redirect(Call& call) {
  const auto to = redirection_in(call.reply, call.node.empty() ? options_.address.place() : call.node);
  call.redirected = call.failed == nullptr && to;
  call.asking = call.redirected && to->once;
  if (!call.redirected) return false;
  // The node may have had the slot, lost its locks in a restart, and moved it without them.
  if (!call.node.empty()) hold_off(to->node, grants_from(call.node));
  call.node = to->node;
  if (!to->once) {
    slots_.set(to->slot, to->node);
    slots_are_old_ = true;
  }
  return true;
}

// All nodes work at once. A node that cannot be reached must not keep the others from being asked, and from being
// heard, in time. So those to which a connection exists come first.
void Connections::ask_nodes(std::string_view script, std::span<Call* const> calls, WaitLimit& limit) {
  std::map<std::string, Batch> batches;
  for (Call* call : calls) {
    call->failed.reset();
    call->silent = false;
    batches.try_emplace(call->node, *this, call->node).first->second.calls.push_back(call);
  }
  const auto each = [&](const auto& which, const auto& step) {
    for (auto& [node, batch] : batches) {
      if (!which(batch)) continue;
      try {
        batch.asked = batch.asked || limit.next().has_value();
        step(batch);
      } catch (const Error& error) {
        batch.fail(error);
      }
    }
  };
  const auto is_asked = [](const Batch& batch) { return batch.commands > 0; };
  const auto sends = [&](Batch& batch) { send(batch, script, limit); };
  const auto receives = [&](Batch& batch) { receive(batch, script, limit); };
  const auto connects = [&](Batch& batch) {
    timed::Within soon(limit, longest_connect);
    batch.connection = connect(batch.node, batches.size() > 1 ? static_cast<WaitLimit&>(soon) : limit);
    sends(batch);
  };
  for (auto& [node, batch] : batches) batch.connection = take_idle(node);
  each([](const Batch& batch) { return batch.connection != nullptr; }, sends);
  const bool all_asked =
      std::all_of(batches.begin(), batches.end(), [](const auto& one) { return one.second.connection != nullptr; });
  if (!all_asked) {
    each(is_asked, receives);
    each([](const Batch& batch) { return batch.connection == nullptr; }, connects);
  }
  each(is_asked, receives);
}

void Connections::run_all(std::string_view script, std::span<Call> calls, WaitLimit& limit) {
  begin(limit);
  struct End {
    Connections& of;
    ~End() { of.end(); }
  } end{*this};
  std::vector<Call*> left;
  for (Call& call : calls) left.push_back(&call);
  for (int i = 0; i < most_redirections && !left.empty(); ++i) {
    refresh(limit);
    for (Call* call : left) {
      if (!call->redirected) call->node = slots_.node_of(call->keys.front());
    }
    ask_nodes(script, left, limit);
    std::erase_if(left, [&](Call* call) { return !redirect(*call); });
  }
}

void Connections::renew_all(std::string_view script, std::span<Call> calls, WaitLimit& limit) {
  std::vector<Call*> left;
  for (Call& call : calls) left.push_back(&call);
  for (int i = 0; i < most_redirections && !left.empty(); ++i) {
    std::vector<Call*> first, later;
    for (Call* call : left) {
      if (!call->redirected) call->node = slots_.node_of(call->keys.front());
      (silent_until(call->node) == Clock::time_point() ? first : later).push_back(call);
    }
    ask_nodes(script, first, limit);
    timed::Within soon(limit, options_.lease / 10);
    refresh(soon);
    std::vector<Call*> again;
    for (Call* call : later) {
      if (!call->redirected) call->node = slots_.node_of(call->keys.front());  // it may be elsewhere by now
      if (Clock::now() >= silent_until(call->node)) {
        again.push_back(call);
      } else {
        call->failed = std::make_shared<const Error>(ErrorKind::unavailable, call->node + " did not answer");
      }
    }
    ask_nodes(script, again, soon);
    for (const auto* const some : {&first, &again}) {
      for (const Call* call : *some) {
        if (call->failed == nullptr || call->silent) note_silence(call->node, call->failed != nullptr);
      }
    }
    std::erase_if(left, [&](Call* call) { return !redirect(*call); });
  }
}

// Nodes that gave no answer to a renewal are not asked for others until then.
Clock::time_point Connections::silent_until(const std::string& node) {
  const std::lock_guard guard(mutex_);
  const auto found = silent_.find(node);
  return found == silent_.end() ? Clock::time_point() : found->second;
}

void Connections::note_silence(const std::string& node, bool silent) {
  if (!slots_.known()) return;  // there is no other node
  const std::lock_guard guard(mutex_);
  if (silent) {
    silent_[node] = Clock::now() + options_.lease / 20;
  } else {
    silent_.erase(node);
  }
}

const Reply& Connections::run(std::string_view script, Call& call, WaitLimit& limit) {
  std::optional<Reply> told;  // it tells more than that there was no time for another answer
  for (milliseconds pause = first_pause;; pause = std::min(2 * pause, longest_pause)) {
    run_all(script, {&call, 1}, limit);
    if (call.failed == nullptr) told = call.reply;
    const bool again = call.failed == nullptr
                           ? passes(call.reply)
                           : slots_.known() && !call.once && call.failed->kind() == ErrorKind::unavailable;
    if (!again || !limit.next()) break;
    call.repeated = call.repeated || call.failed != nullptr;
    slots_are_old_ = true;
    std::this_thread::sleep_for(pause);
  }
  if (call.failed != nullptr && !told) throw Error(*call.failed);
  if (!call.well()) throw error_of(*told, "lock at " + options_.url);
  return call.reply;
}

}  // namespace hierlock::valkey
