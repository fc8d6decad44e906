#include "valkey/doctor.h"

namespace hierlock::valkey {

namespace {

using remote::good, remote::Judgement, remote::slow, remote::unknown, remote::unsafe;

Judgement server(const Seen& seen, const Options&) {
  const std::string valkey = seen.info.value("valkey_version"), redis = seen.info.value("redis_version");
  const std::string name = valkey.empty() ? "Redis " + redis : "Valkey " + valkey;
  if (valkey.starts_with("8.") || (valkey.empty() && redis.starts_with("7."))) return good(name);
  if (valkey.empty() && seen.info.number("redis_version") < 7) {
    return unsafe(name + ": its scripts may fail half-way if memory is short", "use Redis 7 or Valkey");
  }
  return unknown(name + ": hierlock was tested with Valkey 8.0 and Redis 7.0 only",
                 "run the tests of hierlock against this version before you rely on it");
}

Judgement proxy(const Seen& seen, const Options&) {
  return remote::judge_proxy({.logged_in_as = seen.clients.empty() ? 0 : seen.clients.front(), .asked = seen.clients});
}

Judgement tls(const Seen& seen, const Options& options) {
  return remote::judge_tls({.cipher = seen.cipher,
                            .verified = options.address.tls == Tls::verify,
                            .local = is_local(options.address),
                            .place = options.address.place()});
}

bool is_primary(const Seen& seen) { return seen.info.value("role") == "master"; }

std::string to_primary(const Seen& seen) {
  const std::string host = seen.info.value("master_host"), port = seen.info.value("master_port");
  return host.empty() ? "connect to the primary" : "connect to the primary, " + host + ":" + port;
}

Judgement rights(const Seen& seen, const Options& options) {
  if (seen.rights.empty()) return good("a lock was taken, renewed and given back");
  if (!is_primary(seen)) return unknown("no lock can be taken on a replica, so no right was tried", to_primary(seen));
  // A script that fails for any other reason has nothing to do with rights.
  if (!seen.denied) return unsafe("a lock cannot be taken and given back: " + seen.rights, "see what the server says");
  const std::string user = options.address.user.empty() ? "default" : options.address.user;
  return unsafe("a lock cannot be taken and given back: " + seen.rights,
                "as an operator of the server run ACL SETUSER " + user +
                    " with the rights of docs/valkey.md, under Rights; then ACL SAVE");
}

Judgement eviction(const Seen& seen, const Options&) {
  const std::string policy = seen.info.value("maxmemory_policy");
  if (policy.empty()) return remote::not_said();
  if (policy == "noeviction") return good("noeviction");
  if (seen.info.number("maxmemory") == 0) {
    return unknown("maxmemory-policy is " + policy + ", and would remove locks if a maxmemory were set",
                   "CONFIG SET maxmemory-policy noeviction");
  }
  return unsafe("maxmemory-policy is " + policy + ": if memory is short, the server removes locks",
                "CONFIG SET maxmemory-policy noeviction");
}

Judgement role(const Seen& seen, const Options&) {
  if (seen.info.is_on("cluster_enabled")) return good("a node of a cluster");
  if (is_primary(seen)) return good("a primary");
  return unsafe("this is a replica: it grants no locks", to_primary(seen));
}

Judgement cluster(const Seen& seen, const Options& options) {
  const bool enabled = seen.info.is_on("cluster_enabled");
  if (!enabled && options.seeds.size() > 1) {
    return unsafe("the URL names several servers, and the first is in no cluster: each would grant its own locks",
                  "name one server, or only nodes of one cluster");
  }
  if (!enabled) return good("no cluster: one server has all keys");
  const std::string covered = std::to_string(seen.cluster.covered) + " of " + std::to_string(slot_count) + " slots";
  if (seen.cluster.covered == slot_count) {
    return good(std::to_string(seen.cluster.primaries.size()) + " primaries have all slots");
  }
  if (seen.cluster.primaries.empty()) {
    return unknown("a cluster that does not say which node has which slot: each has to be found by trial",
                   "grant +cluster|slots (ACL SETUSER)");
  }
  return unsafe("only " + covered + " have a primary: locks in the others are refused",
                "start the missing nodes, or give their slots to others (valkey-cli --cluster fix)");
}

Judgement replicas(const Seen& seen, const Options& options) {
  const bool cluster = !seen.cluster.primaries.empty();
  const std::uint64_t count = cluster ? seen.cluster.fewest_replicas : seen.info.number("connected_slaves");
  const std::uint64_t wanted = options.wait_replicas;
  const std::string follow = std::to_string(count) + (count == 1 ? " replica follows" : " replicas follow") +
                             (cluster ? " each primary, or more" : "");
  if (count < wanted) {
    return unsafe(follow + ", and wait_replicas=" + std::to_string(wanted) + " asks for more: no lock is granted",
                  "start more replicas, or lower wait_replicas=");
  }
  if (count == 0) return good("no replicas, so no failover");
  if (count == wanted) return good(follow + ", and confirms each lock (wait_replicas)");
  return unknown(
      follow +
          ": a failover loses the locks that the new primary has not seen, and two may hold one lock until the "
          "lease of the first ends",
      "write wait_replicas=" + std::to_string(count) +
          " into all URLs, and fence what the lock protects (docs/valkey.md, failover)");
}

Judgement persistence(const Seen& seen, const Options&) {
  if (seen.info.is_on("aof_enabled")) return good("append-only file");
  return slow(
      "no append-only file: a restart ends all locks. None is granted for a lease after each start, so two never "
      "hold one lock",
      "CONFIG SET appendonly yes, if locks shall outlive a restart");
}

Judgement clock(const Seen& seen, const Options&) {
  return remote::judge_clock(seen.clock_ahead, "leases end by the server's clock, and fences are above its time");
}

}  // namespace

std::vector<Finding> judge(const Seen& seen, const Options& options) {
  constexpr remote::Check<Seen, Options> checks[] = {
      {"server", server},     {"proxy", proxy},       {"tls", tls},
      {"rights", rights},     {"role", role},         {"cluster", cluster},
      {"eviction", eviction}, {"replicas", replicas}, {"persistence", persistence},
      {"clock", clock}};
  return remote::judge_all(checks, seen, options);
}

}  // namespace hierlock::valkey
