// The text of --help, at most 80 columns wide.
#include "cli/arguments.h"

namespace hierlock::cli {
namespace {

constexpr const char* tool_help =
    R"(hierlock: exclusion control you can prove.

A lock on u1/a1/r1 holds the resource r1 of account a1 of user u1 exclusively,
and marks a1 and u1 as in use below. So it excludes locks on r1, on a1 and on
u1, but not on a1's other resources.

Usage: hierlock [--on URL] COMMAND ...

Commands:
  exec TARGET... -- CMD   run a command while holding locks
  status [TARGET]         who holds what, who waits, and for whom
  break TARGET            take a lock away from whoever holds it
  explain TARGET...       what locking a target means: levels, modes, keys and
                          buckets, and the order in which several are locked
  collisions --ids N      how often different ids meet in one bucket of a store
                          that locks rows of a fixed table, and wait without
                          need
  provision               make the table and rows that a database's locks need
  doctor                  what is unsafe or slow about a store, and the fix
  lab run|list|permute|import
                          play scenarios: what blocks, what deadlocks, and why
  help [COMMAND]          print this, or the help of a command

Options:
  --on URL                the store; default: $HIERLOCK_URL, else shm:, which
                          is this machine's, for this user
  --version               print the version, and the stores that are built in
  -h, --help              print this; after a command: the help of that command

Targets:
  u1/a1/r1                a path: 1 to 8 ids, the root first; exclusive
  'shared u1/a1'          the same, held shared
  'named "refresh"'       a name, outside of any hierarchy
  'slots "import" 3'      a name with 3 places
  In a path, / that belongs to an id is written %2F, and % is written %25.

Examples:
  hierlock exec u1/a1 -- echo 'nobody else works on u1/a1'
  hierlock status
  hierlock explain u1/a1/r1

Exit codes: 0 done; 1 nothing was broken; 64 wrong usage; 69 the store cannot
be reached, or has no room; 70 a lock was lost, or the tool failed; 74 the
output could not be written; 75 not acquired; 77 missing rights; 78 not
provisioned, unsafe or incompatible; those of the command that exec runs.
)";

constexpr const char* exec_help =
    R"(Runs a command while holding locks.

Usage: hierlock exec [OPTIONS] TARGET... -- COMMAND [ARGUMENT...]

All targets are locked at once or none, then the command runs, then they are
released. If hierlock itself is killed: on shm: the lock lasts as long as the
command, on a database both end with hierlock, on valkey: the lock ends with
its lease. The command has the lock's fence in HIERLOCK_FENCE: a number that is
higher than that of every earlier lock on the same target, or above or below it;
whatever the command writes to can refuse what comes with a lower one.

Signals sent to hierlock are passed on to the command; one that comes while it
still waits for the lock ends it, and nothing is run. If the lock is lost, the
command gets SIGTERM, and SIGKILL 5 s later.

Options:
  -s, --shared             the targets are held shared instead of exclusively
  --named                  each TARGET is a name, taken as it is
  --slots N                each TARGET is a name with N places, taken as it is
  -w, --timeout T          wait no longer than T: 5s, 250ms, 1.5m, 1h, 1d; a
                           number alone counts seconds; default: for ever, but
                           stderr tells every 10 s who is in the way
  -n, --no-wait            do not wait at all
  -E, --conflict-exit-code N
                           exit code if the lock is not acquired; default: 75
  --note TEXT              shown beside the lock in hierlock status
  --on URL                 the store; default: $HIERLOCK_URL, else shm:
  -h, --help               print this

A path that begins with - is written with %2D in its place. Who comes from
flock writes hierlock exec -n --named FILE -- COMMAND.

Examples:
  hierlock exec u1/a1/r1 -- echo 'order 17'
      nobody else locks this resource, or all of its account or its user
  hierlock exec --shared u1 -- echo 'a report about u1'
  hierlock exec u1/a1 u2/a7 -- echo 'from u1/a1 to u2/a7'
  hierlock exec --slots 3 --timeout 1m import -- echo 'one of three'
  hierlock exec --named refresh --no-wait -- sh -c 'echo $HIERLOCK_FENCE'

Exit codes: the command's own; 128+n if signal n ended it, or ended hierlock
while it waited; 127 if the command was not found, 126 if it cannot be run; 75
not acquired (timeout, busy, deadlock); 69 the store cannot be reached, or has
no room; 70 the lock was lost; others as in hierlock --help.
)";

constexpr const char* status_help =
    R"(Shows who holds what, who waits, and for whom.

Usage: hierlock status [OPTIONS] [TARGET]

The first line names the table. Of each lock: its target, the mode (X
exclusive, S shared), the process, how long it has been held, its fence, the
command, the owner and the note. With TARGET only what is held or awaited at
it, above it or below it. Who is stopped, or gone while its command keeps the
lock, is marked. Last, what happened to the table itself: processes that died,
locks that were broken. A table that is not there is not made. On a database
also the rows that are waited for, and which waits are false contention: for
other ids that share a row.

Options:
  --all            also the nodes that are held only because of something
                   below them (modes IX and IS), and the whole log
  --json           print one JSON document, described in docs/cli.md
  --dot            print who waits for whom as a graph for Graphviz
  --watch          show it again and again; q or Ctrl-C ends it
  --interval T     with --watch: how often; default: 1s
  --count N        with --watch: how many times; default: without end
  --on URL         the store; default: $HIERLOCK_URL, else shm:
  -h, --help       print this

Examples:
  hierlock status
  hierlock status u1/a1
  hierlock status --json
  hierlock status --watch --count 2 --interval 100ms
)";

constexpr const char* break_help =
    R"(Takes a lock away from whoever holds it: an operator's last resort.

Usage: hierlock break [OPTIONS] TARGET

Shows who holds TARGET, asks, and releases it by force. Only locks that were
asked for with exactly this target are broken, not those above or below it.
Their holders are not stopped: they find their lock lost (hierlock exec then
ends its command), and may write until they look. What they write must be
refused by its fence. The nodes above TARGET stay in use until the holder has
noticed, or ended. The table's log tells who broke the lock, and why.

Options:
  --yes            do not ask
  --reason TEXT    for the log
  --named          TARGET is a name, taken as it is
  --slots N        TARGET is a name with places, taken as it is; how many
                   makes no difference: all who hold one of them lose it
  --shared         makes no difference: shared locks on TARGET are broken too
  --json           print one JSON document, described in docs/cli.md
  --on URL         the store; default: $HIERLOCK_URL, else shm:
  -h, --help       print this

Examples:
  hierlock break u1/a1/r1 --yes --reason 'the host is gone'
  hierlock break --yes --named refresh
  hierlock break --yes --json u1/a1

Exit codes: 0 broken; 1 nothing was broken, because nobody held it or the
answer was no; others as in hierlock --help.
)";

constexpr const char* explain_help =
    R"(Shows what locking targets means. Needs no store; on a database, which is
asked how it was set up if it can be reached, also the exact statements.

Usage: hierlock explain [OPTIONS] TARGET...

For each level of each target: the mode it is held in by stores with exact keys
(IS, IX, S, X), the row that stores with a fixed table of buckets lock instead
(S or X, and the number of the bucket), and the bytes of the key that both are
made from. For several targets also the one order in which their rows are
locked, whoever asks, and which of them share a row and so wait without need.

Options:
  --shared         the targets are held shared instead of exclusively
  --named          each TARGET is a name, taken as it is
  --slots N        each TARGET is a name with N places, taken as it is
  --buckets N      buckets per level of the table; default: 10,000,000
  --json           print one JSON document, described in docs/cli.md
  --on URL         the store; default: $HIERLOCK_URL, else shm:
  -h, --help       print this

Numbers may end in k, M, G or T. A target that begins with - goes after --.

Examples:
  hierlock explain u1/a1/r1
      a resource, exclusively; its account and its user by intention
  hierlock explain --shared u1/a1
      an account, shared: readers of it get along, writers below it wait
  hierlock explain u1/a1/r1 u1/a2/r7
      two resources at once, in the order they are locked in
  hierlock explain --named token-refresh
  hierlock explain --buckets 4 u1 u2 u5
      few buckets, to see ids that share one

With --on mysql://app@db/shop the rows are those of its table, not those of
--buckets.
)";

constexpr const char* collisions_help =
    R"(Predicts false contention: how often different ids share a bucket of a store
that locks rows of a fixed table, and then wait for each other without need.
Sharing a bucket never loses a lock. Needs no store.

The prediction is for random ids. Ids that are counted up (1, 2, 3, ...) were
measured to share 0.7 to 1.4 times as often.

Usage: hierlock collisions --ids N[,N...] [OPTIONS]

Options:
  --ids N[,N...]   how many ids there are: on one level, or on each level from
                   the root, like 1k,50k,1M users, accounts and resources
  --buckets N      buckets per level of the table; default: 10,000,000
  --at-once K      how many locks others hold at one moment; default: 100
  --json           print one JSON document, described in docs/cli.md
  --on URL         the store; default: $HIERLOCK_URL, else shm:
  -h, --help       print this

Numbers may end in k, M, G or T.

Examples:
  hierlock collisions --ids 1M
  hierlock collisions --ids 1k,50k,1M --at-once 500
  hierlock collisions --ids 1M --buckets 100k
)";

constexpr const char* provision_help =
    R"(Makes the tables and rows that the locks of a database need.

Usage: hierlock provision --on URL [OPTIONS]

Every bucket of every level becomes a row, in chunks of one transaction each.
It may be killed at any time and run again: what is there stays, and the rest
is made. Two may run it at once, and locks may be held meanwhile: it changes no
row, and waits for nobody who holds one. Ctrl-C ends it after the chunk; a
second one ends it at once. How far it is goes to stderr, with the time that is
left and the size of the table in the end. The numbers of buckets and levels
are recorded in the database when the tables are made, and stay as they are.
memory: and shm: need no provisioning.

Options:
  --buckets N      rows per level; default: what is recorded, or 10,000,000
  --levels N       levels; default: what is recorded, or 3
  --chunk N        rows in one transaction, at most 1M; default: 50,000
  --throttle N     make no more than N rows a second; default: no limit
  --on URL         the store; default: $HIERLOCK_URL, else shm:
  -h, --help       print this

Numbers may end in k, M or G.

Examples:
  hierlock provision --on 'mysql://app@db/shop?password_file=secret'
      3 levels of 10,000,000 rows: some minutes and 765 MB
  hierlock provision --buckets 100k
      a smaller table for fewer ids; hierlock collisions tells what it costs
  hierlock provision --throttle 20k
      while others use the server

Exit codes: 0 all rows are there; 128+n if signal n ended it; 69 the database
cannot be reached any more; 77 missing rights; 78 other numbers are recorded;
others as in hierlock --help.
)";

constexpr const char* doctor_help =
    R"(Looks at a store and tells what is unsafe or slow about it, and the fix:
rights, replication, proxies, settings of the server, missing rows. Changes
nothing, and works where a lock would be refused. memory: and shm: have no
settings that could be wrong: there is nothing to look at.

Usage: hierlock doctor [OPTIONS]

Each thing that was looked at is good, slow, unsafe, or unknown: not to be seen
from here. The worst come first.

Options:
  --json           print one JSON document, described in docs/cli.md
  --on URL         the store; default: $HIERLOCK_URL, else shm:
  -h, --help       print this

Examples:
  hierlock doctor --on mysql://app@db/shop?password_file=secret
  hierlock doctor --json
  hierlock doctor --json | jq '.findings[] | select(.verdict != "good")'

Exit codes: 0 nothing is unsafe; 78 something is; 69 and 77 if the store cannot
be reached or does not let you in; others as in hierlock --help.
)";

constexpr const char* lab_help =
    R"(Plays scenarios on real engines, and tells what blocks, what deadlocks, and
why. Each session of a scenario is a connection of its own, and whether it is
blocked, and by whom, is asked of the engine. docs/lab.md tells how to write
one.

Usage: hierlock lab run [FILE|FOLDER...] [OPTIONS]
       hierlock lab list [FILE|FOLDER...] [--json]
       hierlock lab permute FILE [OPTIONS]
       hierlock lab import FILE.spec [--expected FILE.out] [OPTIONS]

run plays scenarios as they are written, each on every engine that is named
and that it is for. list tells which there are. permute plays every order that
the steps of one can really happen in, and tells how they end. Without files:
the folder scenarios, here or as it was installed. A file that is not here is
looked for there. import prints a scenario for a spec of PostgreSQL's
isolationtester, with an order for each permutation; with --on it plays them,
and what happened is what is expected. With --expected the tester's output says
what is expected, and --on adds who blocks whom.

Databases: the lab works in a schema of its own there, hierlock_lab, which it
makes and drops; on MariaDB also in hierlock_lab_1 and so on. It touches nothing
else.

Options:
  --on URL           an engine; may be there more than once. memory:, shm:,
                     sqlite:, mysql://user@host/db, postgres://user@host/db;
                     valkey://user@host, redis://user@host (lock steps only);
                     default: $HIERLOCK_URL, else memory:, shm: and sqlite:
  --report FILE      write what happened as one HTML file, to step through
  --junit FILE       write the verdicts as JUnit XML
  --expected FILE    import: what isolationtester prints for the spec; with
                     --on, also its alternatives FILE_1.out and so on
  --json             print one JSON document, described in docs/lab-report.md
  --rewrite          write what happened into the scenario as its expectation
  --verbose          show the lanes of all scenarios, not of failed ones only
  --patience T       how long a step may neither answer nor be seen to wait;
                     default: 15s
  --schedule NAMES   play one file's steps in this order: a,c,b
  --side-by-side N   MariaDB: play at most N scenarios at the same time, each
                     in a schema of its own; default: 8. Scenarios that reach
                     beyond their schema are played alone
  --pin              permute: begin is no choice of its own
  --preemptions N    permute: switch at most N times away from a session that
                     could go on
  --random N         permute: N orders by chance instead of all
  --seed N           permute: for --random; default: 1
  --most N           permute: N orders at most; default: 100,000
  -h, --help         print this

Examples:
  hierlock lab run
  hierlock lab run scenarios/rows --on mysql://app@db/shop --report lab.html
  hierlock lab permute scenarios/hierarchy/opposite-orders.scenario

Exit codes: 0 all that was played passed; 1 something did not, or nothing was
played; 64 a scenario cannot be read; 128+n if signal n ended it; others as in
hierlock --help.
)";

}  // namespace

std::string help(const std::string& command) {
  if (command == "exec") return exec_help;
  if (command == "status") return status_help;
  if (command == "break") return break_help;
  if (command == "explain") return explain_help;
  if (command == "collisions") return collisions_help;
  if (command == "provision") return provision_help;
  if (command == "doctor") return doctor_help;
  if (command == "lab") return lab_help;
  return tool_help;
}

}  // namespace hierlock::cli
