#include "cases.h"

#include <algorithm>
#include <utility>

#include "groups.h"
#include "session.h"

namespace bench {

namespace {

constexpr Bar at_least(double value) { return {Bar::Kind::at_least, value}; }
constexpr Bar at_most(double value) { return {Bar::Kind::at_most, value}; }
constexpr std::optional<Bar> no_bar = std::nullopt;

constexpr auto rate = Unit::pairs_per_second;
constexpr auto time = Unit::nanoseconds;
constexpr auto bytes = Unit::bytes;
constexpr auto cores = Unit::cores;
constexpr auto instructions_run = Unit::instructions;
constexpr auto bytes_a_second = Unit::bytes_per_second;
constexpr auto sleeps = Unit::sleeps;
constexpr auto connections = Unit::connections;
constexpr auto requests = Unit::requests_per_second;
constexpr auto statements = Unit::statements_per_second;

constexpr std::string_view spread = "1 thread, 1,000 users";
constexpr std::string_view of_a_pair = "instructions of a pair on memory:, prepared target";
constexpr std::string_view of_a_shared_pair = "the same, shared";
constexpr std::string_view of_a_string_pair = "the same from a plain string";
constexpr std::string_view hot_user = "1 thread, one hot user";
constexpr std::string_view apart = "2 threads, different users";
constexpr std::string_view hot_user_2 = "2 threads, one hot user";
constexpr std::string_view uuids = "1 thread, 1,000 users, ids of 36 bytes";
constexpr std::string_view tree_held = "1 thread, 10^6 other locks held";
constexpr std::string_view tree_held_there = "1 thread, in accounts where the 10^6 are held";
constexpr std::string_view tree_bytes = "memory of a held lock, 10^6 of 1,000 users";
constexpr std::string_view alone_held = "1 thread, 10^6 held, no two under one user";
constexpr std::string_view alone_bytes = "memory of a held lock, no two under one user";
constexpr std::string_view was_shared = "exclusive on an account that was shared, p99";
constexpr std::string_view hand_over = "from release to the waiting thread's return, p50";
constexpr std::string_view one_lock = "2 threads on one and the same lock";

constexpr std::string_view apart_processes = "2 processes, different users";
constexpr std::string_view hot_user_processes = "2 processes, one hot user";
constexpr std::string_view hand_over_processes = "from release to the waiting process's return, p50";
constexpr std::string_view exec_true = "hierlock exec --on shm: ... -- true, from start to end";

constexpr std::string_view idle_waiters = "what 400 processes use that wait for one name, shm:";
constexpr std::string_view drain_x = "4,000 waiting threads get a name one by one";
constexpr std::string_view drain_s = "4,000 waiting threads share a name";
constexpr std::string_view drain_slots = "4,000 waiting threads get one of 3 slots";
constexpr std::string_view drain_shm_x = "the same one by one on shm:";
constexpr std::string_view drain_shm_s = "the same shared on shm:";
constexpr std::string_view drain_shm_slots = "the same with 3 slots on shm:";
constexpr std::string_view valkey_pair = "1 thread, nobody in the way, valkey:";
constexpr std::string_view valkey_hand_over = "from release to the return of another Locker's waiter, p99";
constexpr std::string_view valkey_held_scripts = "one process holds 10,000 locks on valkey: scripts";
constexpr std::string_view valkey_held_bytes = "the same: bytes to and from the server";
constexpr std::string_view second = "a limit of 1 s";
constexpr std::string_view new_wait = "a new wait among 800, one of whom holds a lock";
constexpr std::string_view wait_of_holder = "the same if somebody waits for the new waiter";
constexpr std::string_view wait_of_chain = "a new wait for which 800 in a chain wait";
constexpr std::string_view wait_many = "a new wait among 20 who hold 10,000 locks each";
constexpr std::string_view wait_many_shared = "the same if all of them wait for the new waiter";
constexpr std::string_view fifth_ms = "a limit of 0.2 ms of processor time";
constexpr std::string_view two_ms = "a limit of 2 ms of processor time";
constexpr std::string_view queue_of_futexes = "a bare futex queue";

constexpr std::string_view fill_mysql = "all rows of a level, made on MySQL";
constexpr std::string_view fill_mariadb = "all rows of a level, made on MariaDB";
constexpr std::string_view size_mysql = "the table after that, MySQL";
constexpr std::string_view size_mariadb = "the table after that, MariaDB";
constexpr std::string_view digits = "one INSERT of cross-joined digits";

constexpr std::string_view on_mysql = "MySQL, 1 thread, nobody in the way";
constexpr std::string_view on_mariadb = "MariaDB, 1 thread, nobody in the way";
constexpr std::string_view by_row = "a prepared and closed SELECT a row";

constexpr std::string_view herd = "1,000 threads on 16 connections, a path each";
constexpr std::string_view herd_processor = "processor time of the process a pair, 1,000 threads";
constexpr std::string_view herd_sleeps = "sleeps of its threads a pair, 1,000 threads";
constexpr std::string_view sixteen = "16 threads on them";
constexpr std::string_view wait_one = "what a process uses in which 1,000 threads wait for one path";
constexpr std::string_view wait_holding = "the same if 8 of them hold a lock";
constexpr std::string_view wait_paths = "the same if they wait for 1,000 paths under a held one";
constexpr std::string_view wait_server = "what the server uses meanwhile, for all 3,000";
constexpr std::string_view fifth_core = "a limit of 0.2 of a core";
constexpr std::string_view notices = "notices of 64 processes, 15 threads each hold and wait";
constexpr std::string_view new_waits = "the same while 13 of their waits a second end and begin anew";
constexpr std::string_view all_said = "all that they and the server say to each other";
constexpr std::string_view held_1000 = "statements that 1,000 held locks cause";

constexpr std::string_view name_pair = "1 thread, names";
constexpr std::string_view get_lock = "GET_LOCK, RELEASE_LOCK by hand";
constexpr std::string_view names_held = "connections of a process that holds 10,000 names";
constexpr std::string_view names_statements = "statements that they cause";
constexpr std::string_view names_bytes = "memory of a held name";
constexpr std::string_view hot_name = "64 threads on one name";
constexpr std::string_view hot_64 = "64 threads on one lock";
constexpr std::string_view every_lock_asked = "the same with gate=off: the server grants each lock";
constexpr std::string_view hot_connections = "connections of theirs that hold or wait";
constexpr std::string_view rival_p50 = "how long another process waits for that lock, p50";
constexpr std::string_view rival_p99 = "the same, p99";
constexpr std::string_view rival_max = "the same, longest";
constexpr std::string_view fifty_ms = "a limit of 50 ms";
constexpr std::string_view far_pair = "a pair at a server that is 1 ms away each way";
constexpr std::string_view nested = "2 processes, 32 threads each, 5 % take locks one by one";
constexpr std::string_view extending = "the same, and extend() instead of a second lock";
constexpr std::string_view plain_transactions = "the same by plain InnoDB transactions";

constexpr std::string_view isolationtester = "PostgreSQL's own isolationtester";
constexpr std::string_view by_hand = "the same SQL by hand, through SOCI";

constexpr std::string_view bdb = "Berkeley DB, private region";
constexpr std::string_view bdb_stock = "Berkeley DB, default partitions";
constexpr std::string_view bdb_shared = "Berkeley DB, shared region";
constexpr std::string_view bdb_held = "Berkeley DB with as many held";
constexpr std::string_view mutexes = "bare striped std::shared_mutex";
constexpr std::string_view rocks = "RocksDB TransactionDB, point locks";

constexpr Case cases[] = {
    {"pair", "berkeley", "ours", "berkeley", rate, at_least(5), spread, bdb},
    {"pair", "striped", "ours", "striped", rate, at_least(0.45), spread, mutexes},
    {"pair", "rocksdb", "ours", "rocksdb", rate, no_bar, spread, rocks},
    {"pair", "berkeley-stock", "ours", "stock", rate, no_bar, spread, bdb_stock},
    {"instructions", "target", "target", "limit", instructions_run, at_most(1), of_a_pair, "a limit of 600"},
    {"instructions", "shared", "shared", "limit", instructions_run, no_bar, of_a_shared_pair, "a limit of 600"},
    {"instructions", "string", "string", "limit", instructions_run, no_bar, of_a_string_pair, "a limit of 600"},
    {"hot", "berkeley", "ours", "berkeley", rate, no_bar, hot_user, bdb},
    {"hot", "striped", "ours", "striped", rate, no_bar, hot_user, mutexes},
    {"disjoint2", "berkeley", "ours", "berkeley", rate, at_least(10), apart, bdb},
    {"disjoint2", "striped", "ours", "striped", rate, no_bar, apart, mutexes},
    {"disjoint2", "rocksdb", "ours", "rocksdb", rate, no_bar, apart, rocks},
    {"disjoint2", "berkeley-stock", "ours", "stock", rate, no_bar, apart, bdb_stock},
    {"hot2", "berkeley", "ours", "berkeley", rate, at_least(10), hot_user_2, bdb},
    {"hot2", "one-thread", "ours", "one-thread", rate, at_least(1.3), hot_user_2, "hierlock, 1 thread on that user"},
    {"hot2", "striped", "ours", "striped", rate, no_bar, hot_user_2, mutexes},
    {"hot2", "berkeley-stock", "ours", "stock", rate, no_bar, hot_user_2, bdb_stock},
    {"million", "berkeley", "ours", "berkeley", rate, at_least(5), tree_held, bdb_held},
    {"million", "same-users", "ours-there", "berkeley-there", rate, no_bar, tree_held_there, bdb_held},
    {"million", "bytes", "ours-bytes", "limit-bytes", bytes, at_most(1), tree_bytes, "a limit of 200 bytes"},
    {"million", "berkeley-bytes", "ours-bytes", "berkeley-bytes", bytes, no_bar, tree_bytes, bdb},
    {"million", "exclusive-p99", "ours-exclusive", "limit-time", time, at_most(1), was_shared, "a limit of 1 ms"},
    {"alone", "berkeley", "ours", "berkeley", rate, no_bar, alone_held, bdb_held},
    {"alone", "bytes", "ours-bytes", "limit-bytes", bytes, no_bar, alone_bytes, "the limit of million/bytes"},
    {"alone", "berkeley-bytes", "ours-bytes", "berkeley-bytes", bytes, no_bar, alone_bytes, bdb},
    {"handover", "futex", "ours", "futex", time, at_most(1.3), hand_over, "bare futex ping-pong"},
    {"handover", "berkeley", "ours", "berkeley", time, no_bar, hand_over, bdb},
    {"uuid", "berkeley", "ours", "berkeley", rate, no_bar, uuids, bdb},
    {"uuid", "striped", "ours", "striped", rate, no_bar, uuids, mutexes},
    {"string", "prepared", "string", "prepared", rate, at_least(0.85), "from a plain string",
     "hierlock, prepared target"},
    {"named", "berkeley", "ours", "berkeley", rate, no_bar, "1 thread, 4,096 names", "Berkeley DB, one lock_get"},
    {"slots", "named", "slots", "named", rate, no_bar, "1 thread, 4,096 counted locks of 3", "hierlock, names"},
    {"contended", "berkeley", "ours", "berkeley", rate, no_bar, one_lock, bdb},
    {"contended", "striped", "ours", "striped", rate, no_bar, one_lock, "bare std::shared_mutex, which is not fair"},
    {"shm", "memory", "ours", "memory", rate, at_least(0.9), "shm:, 1 thread, 1,000 users", "hierlock, memory:"},
    {"shm", "berkeley", "ours", "berkeley", rate, no_bar, "shm:, 1 thread, 1,000 users", bdb_shared},
    {"shm-disjoint2", "berkeley", "ours", "berkeley", rate, at_least(8), apart_processes, bdb_shared},
    {"shm-hot2", "berkeley", "ours", "berkeley", rate, at_least(8), hot_user_processes, bdb_shared},
    {"shm-handover", "futex", "ours", "futex", time, at_most(2), hand_over_processes, "futex ping-pong of processes"},
    {"shm-handover", "berkeley", "ours", "berkeley", time, no_bar, hand_over_processes, bdb_shared},
    {"exec", "flock", "ours", "flock", time, at_most(1.3), exec_true, "flock FILE true"},
    {"waiting", "limit", "ours", "limit", cores, at_most(1), idle_waiters, "a limit of 0.2 of a core"},
    {"waiting", "futex", "ours", "futex", cores, no_bar, idle_waiters, "as many in a futex, looking 10 times a second"},
    {"drain", "exclusive", "exclusive", "limit", time, at_most(1), drain_x, second},
    {"drain", "shared", "shared", "limit", time, at_most(1), drain_s, second},
    {"drain", "slots", "slots", "limit", time, at_most(1), drain_slots, second},
    {"drain", "shm-exclusive", "shm-exclusive", "limit", time, at_most(1), drain_shm_x, second},
    {"drain", "shm-shared", "shm-shared", "limit", time, at_most(1), drain_shm_s, second},
    {"drain", "shm-slots", "shm-slots", "limit", time, at_most(1), drain_shm_slots, second},
    {"drain", "exclusive-futex", "exclusive", "futex-exclusive", time, no_bar, drain_x, queue_of_futexes},
    {"drain", "shared-futex", "shared", "futex-shared", time, no_bar, drain_s, queue_of_futexes},
    {"drain", "slots-futex", "slots", "futex-slots", time, no_bar, drain_slots, queue_of_futexes},
    {"entangled", "one", "one", "limit", time, at_most(1), new_wait, fifth_ms},
    {"entangled", "holder", "holder", "limit", time, at_most(1), wait_of_holder, fifth_ms},
    {"entangled", "chain", "chain", "limit", time, at_most(1), wait_of_chain, fifth_ms},
    {"entangled", "many-locks", "many-locks", "limit", time, at_most(1), wait_many, fifth_ms},
    {"entangled", "many-shared", "many-shared", "limit-shared", time, no_bar, wait_many_shared, two_ms},
    {"entangled", "futex", "one", "futex", time, no_bar, new_wait, queue_of_futexes},
    {"mysql", "by-row", "ours", "by-row", rate, at_least(3), on_mysql, by_row},
    {"mariadb", "by-row", "ours", "by-row", rate, at_least(3), on_mariadb, by_row},
    {"mysql-herd", "sixteen", "thousand", "sixteen", rate, at_least(0.7), herd, sixteen},
    {"mysql-herd", "processor", "thousand-processor", "sixteen-processor", time, no_bar, herd_processor, sixteen},
    {"mysql-herd", "sleeps", "thousand-sleeps", "sixteen-sleeps", sleeps, no_bar, herd_sleeps, sixteen},
    {"mysql-waiting", "one", "one", "limit", cores, at_most(1), wait_one, fifth_core},
    {"mysql-waiting", "some-hold", "some-hold", "limit", cores, at_most(1), wait_holding, fifth_core},
    {"mysql-waiting", "many-paths", "many-paths", "limit", cores, at_most(1), wait_paths, fifth_core},
    {"mysql-waiting", "server", "server", "limit", cores, no_bar, wait_server, fifth_core},
    {"mysql-notices", "limit", "notices", "limit", bytes_a_second, at_most(1), notices, "a limit of 1 MB/s"},
    {"mysql-notices", "busy", "notices-busy", "limit", bytes_a_second, no_bar, new_waits, "a limit of 1 MB/s"},
    {"mysql-notices", "all", "all", "limit", bytes_a_second, no_bar, all_said, "a limit of 1 MB/s"},
    {"mysql-held", "limit", "ours", "limit", statements, at_most(1), held_1000, "a limit of 400 a second"},
    {"mariadb-herd", "sixteen", "thousand", "sixteen", rate, at_least(0.7), herd, sixteen},
    {"mariadb-herd", "processor", "thousand-processor", "sixteen-processor", time, no_bar, herd_processor, sixteen},
    {"mariadb-herd", "sleeps", "thousand-sleeps", "sixteen-sleeps", sleeps, no_bar, herd_sleeps, sixteen},
    {"mariadb-waiting", "one", "one", "limit", cores, at_most(1), wait_one, fifth_core},
    {"mariadb-waiting", "some-hold", "some-hold", "limit", cores, at_most(1), wait_holding, fifth_core},
    {"mariadb-waiting", "many-paths", "many-paths", "limit", cores, at_most(1), wait_paths, fifth_core},
    {"mariadb-waiting", "server", "server", "limit", cores, no_bar, wait_server, fifth_core},
    {"mariadb-notices", "limit", "notices", "limit", bytes_a_second, at_most(1), notices, "a limit of 1 MB/s"},
    {"mariadb-notices", "busy", "notices-busy", "limit", bytes_a_second, no_bar, new_waits, "a limit of 1 MB/s"},
    {"mariadb-notices", "all", "all", "limit", bytes_a_second, no_bar, all_said, "a limit of 1 MB/s"},
    {"mariadb-held", "limit", "ours", "limit", statements, at_most(1), held_1000, "a limit of 400 a second"},
    {"mysql-hot", "memory", "ours", "memory", rate, at_least(0.6), hot_64, "hierlock, memory:"},
    {"mysql-hot", "gate-off", "ours", "gate-off", rate, at_least(5), hot_64, every_lock_asked},
    {"mysql-hot", "connections", "connections", "two", connections, at_most(1), hot_connections, "a limit of 2"},
    {"mysql-hot", "rival-p50", "rival-p50", "limit", time, no_bar, rival_p50, fifty_ms},
    {"mysql-hot", "rival-p99", "rival-p99", "limit", time, at_most(1), rival_p99, fifty_ms},
    {"mysql-hot", "rival-max", "rival-max", "limit", time, no_bar, rival_max, fifty_ms},
    {"mysql-far", "round-trip", "pair", "round-trip", time, at_most(1.15), far_pair, "a round trip to it"},
    {"mariadb-hot", "memory", "ours", "memory", rate, at_least(0.6), hot_64, "hierlock, memory:"},
    {"mariadb-hot", "gate-off", "ours", "gate-off", rate, at_least(5), hot_64, every_lock_asked},
    {"mariadb-hot", "connections", "connections", "two", connections, at_most(1), hot_connections, "a limit of 2"},
    {"mariadb-hot", "rival-p50", "rival-p50", "limit", time, no_bar, rival_p50, fifty_ms},
    {"mariadb-hot", "rival-p99", "rival-p99", "limit", time, at_most(1), rival_p99, fifty_ms},
    {"mariadb-hot", "rival-max", "rival-max", "limit", time, no_bar, rival_max, fifty_ms},
    {"mariadb-far", "round-trip", "pair", "round-trip", time, at_most(1.15), far_pair, "a round trip to it"},
    {"rows", "sqlite-guarded", "sqlite-guarded", "sqlite-guarded-hand", time, at_most(1.1),
     "SQLite, in memory, a guarded update", by_hand},
    {"rows", "sqlite-optimistic", "sqlite-optimistic", "sqlite-optimistic-hand", time, at_most(1.1),
     "SQLite, in memory, a read and a versioned update", by_hand},
    {"rows", "sqlite-pessimistic", "sqlite-pessimistic", "sqlite-pessimistic-hand", time, at_most(1.1),
     "SQLite, in memory, a transaction: locking read, update", by_hand},
    {"rows", "mysql-guarded", "mysql-guarded", "mysql-guarded-hand", time, at_most(1.1), "MySQL, a guarded update",
     by_hand},
    {"rows", "mysql-optimistic", "mysql-optimistic", "mysql-optimistic-hand", time, at_most(1.1),
     "MySQL, a read and a versioned update", by_hand},
    {"rows", "mysql-pessimistic", "mysql-pessimistic", "mysql-pessimistic-hand", time, at_most(1.1),
     "MySQL, a transaction: locking read, update", by_hand},
    {"rows", "mariadb-guarded", "mariadb-guarded", "mariadb-guarded-hand", time, at_most(1.1),
     "MariaDB, a guarded update", by_hand},
    {"rows", "mariadb-optimistic", "mariadb-optimistic", "mariadb-optimistic-hand", time, at_most(1.1),
     "MariaDB, a read and a versioned update", by_hand},
    {"rows", "mariadb-pessimistic", "mariadb-pessimistic", "mariadb-pessimistic-hand", time, at_most(1.1),
     "MariaDB, a transaction: locking read, update", by_hand},
    {"rows", "postgres-guarded", "postgres-guarded", "postgres-guarded-hand", time, at_most(1.1),
     "PostgreSQL, a guarded update", by_hand},
    {"rows", "postgres-optimistic", "postgres-optimistic", "postgres-optimistic-hand", time, at_most(1.1),
     "PostgreSQL, a read and a versioned update", by_hand},
    {"rows", "postgres-pessimistic", "postgres-pessimistic", "postgres-pessimistic-hand", time, at_most(1.1),
     "PostgreSQL, a transaction: locking read, update", by_hand},
    {"lab", "apart", "apart", "apart-peer", time, at_most(1.5), "an order of a lab run on PostgreSQL, nobody waits",
     isolationtester},
    {"lab", "in-the-way", "in-the-way", "in-the-way-peer", time, at_most(1.5), "the same if one of two sessions waits",
     isolationtester},
    {"lab-suite", "total", "suite", "suite-peer", time, at_most(1.5), "all specs of PostgreSQL's isolation suite",
     isolationtester},
    {"mysql-names", "by-hand", "ours", "by-hand", rate, at_least(0.9), name_pair, get_lock},
    {"mysql-names-hot", "memory", "ours", "memory", rate, at_least(0.6), hot_name, "hierlock, memory:"},
    {"mysql-names-hot", "gate-off", "ours", "gate-off", rate, at_least(5), hot_name, every_lock_asked},
    {"mysql-names-hot", "connections", "connections", "two", connections, at_most(1), hot_connections, "a limit of 2"},
    {"mysql-names-hot", "rival-p50", "rival-p50", "limit", time, no_bar, rival_p50, fifty_ms},
    {"mysql-names-hot", "rival-p99", "rival-p99", "limit", time, at_most(1), rival_p99, fifty_ms},
    {"mysql-names-hot", "rival-max", "rival-max", "limit", time, no_bar, rival_max, fifty_ms},
    {"mysql-names-held", "connections", "connections", "eight", connections, at_most(1), names_held, "a limit of 8"},
    {"mysql-names-held", "statements", "statements", "ten", statements, no_bar, names_statements,
     "a limit of 10 a second"},
    {"mysql-names-held", "bytes", "bytes", "kilobyte", bytes, no_bar, names_bytes, "a limit of 1 kB"},
    {"mariadb-names", "by-hand", "ours", "by-hand", rate, at_least(0.9), name_pair, get_lock},
    {"mariadb-names-hot", "memory", "ours", "memory", rate, at_least(0.6), hot_name, "hierlock, memory:"},
    {"mariadb-names-hot", "gate-off", "ours", "gate-off", rate, at_least(5), hot_name, every_lock_asked},
    {"mariadb-names-hot", "connections", "connections", "two", connections, at_most(1), hot_connections,
     "a limit of 2"},
    {"mariadb-names-hot", "rival-p50", "rival-p50", "limit", time, no_bar, rival_p50, fifty_ms},
    {"mariadb-names-hot", "rival-p99", "rival-p99", "limit", time, at_most(1), rival_p99, fifty_ms},
    {"mariadb-names-hot", "rival-max", "rival-max", "limit", time, no_bar, rival_max, fifty_ms},
    {"mariadb-names-held", "connections", "connections", "eight", connections, at_most(1), names_held, "a limit of 8"},
    {"mariadb-names-held", "statements", "statements", "ten", statements, no_bar, names_statements,
     "a limit of 10 a second"},
    {"mariadb-names-held", "bytes", "bytes", "kilobyte", bytes, no_bar, names_bytes, "a limit of 1 kB"},
    {"valkey", "pings", "ours", "pings", time, at_most(2.5), valkey_pair, "two PINGs"},
    {"valkey", "by-hand", "ours", "by-hand", time, at_most(2), valkey_pair, "SET NX PX and a release script"},
    {"valkey", "hand-over", "hand-over", "ping", time, at_most(5), valkey_hand_over, "a PING, p99"},
    {"valkey-hot", "memory", "ours", "memory", rate, at_least(0.3), hot_64, "hierlock, memory:"},
    {"valkey-held", "scripts", "scripts", "renewals", statements, at_most(1), valkey_held_scripts,
     "two for each lock every third of a lease"},
    {"valkey-held", "bytes", "bytes", "megabytes", bytes_a_second, at_most(1), valkey_held_bytes, "a limit of 2 MB/s"},
    {"nested", "mysql", "mysql-ours", "mysql-plain", requests, at_least(0.5), nested, plain_transactions},
    {"nested", "mariadb", "mariadb-ours", "mariadb-plain", requests, at_least(0.5), nested, plain_transactions},
    {"nested", "mysql-extend", "mysql-extends", "mysql-plain", requests, no_bar, extending, plain_transactions},
    {"nested", "mariadb-extend", "mariadb-extends", "mariadb-plain", requests, no_bar, extending, plain_transactions},
    {"provision-mysql", "digits", "ours", "digits", time, at_most(1), fill_mysql, digits},
    {"provision-mysql", "bytes", "ours-bytes", "digits-bytes", bytes, at_most(0.4), size_mysql, digits},
    {"provision-mariadb", "digits", "ours", "digits", time, at_most(1), fill_mariadb, digits},
    {"provision-mariadb", "bytes", "ours-bytes", "digits-bytes", bytes, at_most(1), size_mariadb, digits},
};

}  // namespace

std::span<const Case> all_cases() { return cases; }

Outcome run(const std::vector<const Case*>& selected, const Effort& effort, const Progress& progress) {
  constexpr std::pair<std::string_view, void (*)(Session&)> measured_by[] = {
      {"pair", groups::pair},
      {"instructions", groups::instructions},
      {"hot", groups::hot},
      {"disjoint2", groups::disjoint2},
      {"hot2", groups::hot2},
      {"million", groups::million},
      {"alone", groups::alone},
      {"handover", groups::handover},
      {"uuid", groups::uuid},
      {"string", groups::string},
      {"named", groups::named},
      {"slots", groups::slots},
      {"contended", groups::contended},
      {"shm", groups::shm},
      {"shm-disjoint2", groups::shm_disjoint2},
      {"shm-hot2", groups::shm_hot2},
      {"shm-handover", groups::shm_handover},
      {"exec", groups::exec},
      {"waiting", groups::waiting},
      {"drain", groups::drain},
      {"entangled", groups::entangled},
      {"mysql", groups::mysql},
      {"mariadb", groups::mariadb},
      {"mysql-herd", groups::mysql_herd},
      {"mariadb-herd", groups::mariadb_herd},
      {"mysql-waiting", groups::mysql_waiting},
      {"mariadb-waiting", groups::mariadb_waiting},
      {"mysql-notices", groups::mysql_notices},
      {"mariadb-notices", groups::mariadb_notices},
      {"mysql-held", groups::mysql_held},
      {"mariadb-held", groups::mariadb_held},
      {"mysql-hot", groups::mysql_hot},
      {"mariadb-hot", groups::mariadb_hot},
      {"mysql-far", groups::mysql_far},
      {"mariadb-far", groups::mariadb_far},
      {"rows", groups::rows},
      {"lab", groups::lab},
      {"lab-suite", groups::lab_suite},
      {"mysql-names", groups::mysql_names},
      {"mariadb-names", groups::mariadb_names},
      {"mysql-names-hot", groups::mysql_names_hot},
      {"mariadb-names-hot", groups::mariadb_names_hot},
      {"mysql-names-held", groups::mysql_names_held},
      {"mariadb-names-held", groups::mariadb_names_held},
      {"valkey", groups::valkey},
      {"valkey-hot", groups::valkey_hot},
      {"valkey-held", groups::valkey_held},
      {"nested", groups::nested},
      {"provision-mysql", groups::provision_mysql},
      {"provision-mariadb", groups::provision_mariadb},
  };
  Session session(effort, progress, selected);
  for (const auto& [group, measure] : measured_by) {
    const auto in_group = [name = group](const Case* c) { return c->group == name; };
    if (std::any_of(selected.begin(), selected.end(), in_group)) measure(session);
  }
  return std::move(session).outcome();
}

}  // namespace bench
