// Connections: the connections of one Locker, to one server or to the nodes of a cluster. A question takes one
// connection to each node that it needs, and gives it back when it has the answer.
//
// In a cluster a node refuses keys that it does not have, and names the node that has them. So a script always runs
// where its keys are, whatever this class remembers about hash slots.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "valkey/options.h"
#include "valkey_client/connection.h"
#include "valkey_client/slot_map.h"

namespace hierlock::valkey {

using timed::Clock;
using timed::Deadline;

extern const std::string_view locks_lua, notices_lua;

class Connections {
 public:
  explicit Connections(const Options& options) : options_(options) {}

  // A new connection to any node, for a caller that keeps it. Each attempt begins at another node.
  std::unique_ptr<Connection> connect_to_any(WaitLimit& limit);

  struct Call {
    std::vector<std::string> keys;  // in one slot
    Command arguments;
    bool confirm = false;  // asks wait_replicas replicas whether they have what it did
    Reply reply{};
    bool replicated = true;                 // they have
    std::shared_ptr<const Error> failed{};  // there is no reply
    bool silent = false;                    // if failed: its node was asked. Otherwise no time was left to ask it
    std::string node{};                     // that was asked; empty: any
    bool redirected = false;                // another one has named that node
    bool asking = false;                    // for this time only
    bool repeated = false;                  // an earlier attempt was given up. It may still arrive
    bool once = false;                      // run() must not repeat it if a reply was lost

    bool well() const { return failed == nullptr && reply.kind != Reply::Kind::error; }
  };
  // Runs a script for all of these calls, in one round trip to each node. If a node does not know the script, it is
  // loaded there. If one call cannot be made, the others are still made.
  void run_all(std::string_view script, std::span<Call> calls, WaitLimit& limit);
  // The same for renewals. They do not wait for a free connection. A node that has not answered is left out for a
  // moment: waiting for it once more would delay the renewals at the others.
  void renew_all(std::string_view script, std::span<Call> calls, WaitLimit& limit);
  // The same for one call. While its slot is moved, or has no primary, it is repeated. An error is thrown.
  const Reply& run(std::string_view script, Call& call, WaitLimit& limit);
  // A server that was started a moment ago may have lost locks that their holders still rely on. So it grants nothing
  // until all their leases have ended. `node` is Call::node after the call.
  Clock::time_point grants_from(const std::string& node) const;
  std::string node_of(const std::string& key) const { return slots_.node_of(key); }
  bool is_cluster() const { return slots_.known(); }
  void close() noexcept;

 private:
  struct Batch;
  std::unique_ptr<Connection> take_idle(const std::string& node);
  std::unique_ptr<Connection> connect(const std::string& node, WaitLimit& limit);
  std::unique_ptr<Connection> introduced(const std::string& node, std::unique_ptr<Connection> connection,
                                         WaitLimit& limit);
  void hold_off(const std::string& node, Clock::time_point from);
  void put_back(const std::string& node, std::unique_ptr<Connection> connection) noexcept;
  void drop_idle(const std::string& node) noexcept;
  void begin(WaitLimit& limit);
  void end() noexcept;
  void ask_nodes(std::string_view script, std::span<Call* const> calls, WaitLimit& limit);
  Clock::time_point silent_until(const std::string& node);
  void note_silence(const std::string& node, bool silent);
  void send(Batch& batch, std::string_view script, WaitLimit& limit);
  void receive(Batch& batch, std::string_view script, WaitLimit& limit);
  bool redirect(Call& call);
  void refresh(WaitLimit& limit);

  const Options& options_;
  SlotMap slots_;
  std::atomic<bool> slots_are_old_{false};
  std::atomic<std::size_t> next_node_{0};  // of connect_to_any()
  mutable std::mutex mutex_;               // guards what follows
  std::condition_variable freed_;
  std::map<std::string, std::vector<std::unique_ptr<Connection>>> idle_;  // by node; empty: any
  std::map<std::string, Clock::time_point> silent_;                       // nodes that did not answer a renewal
  std::map<std::string, Clock::time_point> grants_from_;                  // of nodes that were started a moment ago
  std::size_t used_ = 0;                                                  // questions now
  bool closed_ = false;
  std::string hashes_[2];  // of the scripts, as the server names them
};

// The keys of locks.lua.
std::vector<std::string> keys_at(const std::string& place);

}  // namespace hierlock::valkey
