// The text of --help, at most 80 columns wide.
#include "cli/arguments.h"

namespace hierlock::cli {
namespace {

constexpr const char* tool_help =
    R"(hierlock: exclusion control you can prove.

A lock on u1/a1/r1 holds resource r1 of account a1 of user u1 exclusively. It
also marks a1 and u1 as partly in use. So it excludes locks on r1, a1 and u1,
but not on a1's other resources.

Usage: hierlock [--on URL] COMMAND ...

Commands:
  exec TARGET... -- CMD   run a command while holding locks
  status [TARGET]         show who holds what, who waits, and for whom
  break TARGET            take a lock away from its holder
  explain TARGET...       show what a lock on a target means: levels, modes,
                          keys, buckets, and the order of several locks
  collisions --ids N      predict how often different ids share a bucket of a
                          store that locks rows of a fixed table, and wait
                          unnecessarily
  provision               make the table and rows that a database's locks need
  doctor                  report what is unsafe or slow about a store, and the
                          fix
  lab run|list|permute|import
                          play scenarios: what blocks, what deadlocks, and why
  help [COMMAND]          print this, or the help of a command

Options:
  --on URL                the store; default: $HIERLOCK_URL, else shm:, the
                          store of this user on this machine
  --version               print the version, and the stores that are built in
  -h, --help              print this; after a command: the help of that command

Targets:
  u1/a1/r1                a path: 1 to 8 ids, the root first; exclusive
  'shared u1/a1'          a path, held shared
  'named "refresh"'       a name, without a hierarchy
  'slots "import" 3'      a name with 3 slots
  If an id contains / or %, write %2F or %25 instead.

Examples:
  hierlock exec u1/a1 -- echo 'nobody else works on u1/a1'
  hierlock status
  hierlock explain u1/a1/r1

Exit codes: 0 success; 1 nothing was broken; 64 wrong usage; 69 the store
cannot be reached, or has no room; 70 a lock was lost, or the tool failed; 74
the output could not be written; 75 not acquired; 77 missing rights; 78 not
provisioned, unsafe or incompatible; after exec: the exit code of its command.
)";

constexpr const char* exec_help =
    R"(Runs a command while holding locks.

Usage: hierlock exec [OPTIONS] TARGET... -- COMMAND [ARGUMENT...]

hierlock locks all targets or none, runs the command, and releases the locks.
If hierlock itself is killed, the store decides: on shm: the lock lasts as long
as the command. On a database, the lock and the command end with hierlock. On
valkey: the command ends with hierlock, and the lock ends with its lease.

The command finds the lock's fence in HIERLOCK_FENCE. It is higher than that of
every earlier lock on the same target, above it or below it. If the command
stores the fence with each write, the receiver can refuse a lower one.

hierlock passes signals on to the command. If a signal comes while hierlock
still waits for the lock, hierlock ends and does not run the command. If the
lock is lost, the command gets SIGTERM, and SIGKILL 5 s later.

Options:
  -s, --shared             lock the targets shared instead of exclusively
  --named                  each TARGET is a name, used as written
  --slots N                each TARGET is a name with N slots, used as written
  -w, --timeout T          wait no longer than T: 5s, 250ms, 1.5m, 1h, 1d; a
                           number without a unit means seconds; default: wait
                           for ever, and report on stderr every 10 s which
                           process is in the way
  -n, --no-wait            do not wait
  -E, --conflict-exit-code N
                           exit code if the lock is not acquired; default: 75
  --note TEXT              shown beside the lock in hierlock status
  --on URL                 the store; default: $HIERLOCK_URL, else shm:
  -h, --help               print this

If a path begins with -, write %2D instead. The equivalent of flock -n FILE
COMMAND is hierlock exec -n --named FILE -- COMMAND.

Examples:
  hierlock exec u1/a1/r1 -- echo 'order 17'
      no other lock on this resource, on its account or on its user
  hierlock exec --shared u1 -- echo 'a report about u1'
  hierlock exec u1/a1 u2/a7 -- echo 'from u1/a1 to u2/a7'
  hierlock exec --slots 3 --timeout 1m import -- echo 'one of three'
  hierlock exec --named refresh --no-wait -- sh -c 'echo $HIERLOCK_FENCE'

Exit codes: the command's own; 128+n if signal n ended the command, or ended
hierlock while it waited; 127 if the command was not found, 126 if it cannot be
run; 75 not acquired (timeout, busy, deadlock); 69 the store cannot be reached,
or has no room; 70 the lock was lost; others as in hierlock --help.
)";

constexpr const char* status_help =
    R"(Shows who holds what, who waits, and for whom.

Usage: hierlock status [OPTIONS] [TARGET]

The first line names the table. For each lock, status shows its target, mode (X
exclusive, S shared), process, age, fence, command, owner and note. With TARGET
it shows only locks and waits at TARGET, above it or below it. It marks holders
that are stopped, and holders that ended while their command keeps the lock.
On shm: it then shows the log of the table: dead processes, broken locks and
deadlocks. status never makes a missing table.

On a database, status also shows the rows that requests wait for, and which
waits are false contention: a wait for another id that shares the row.

Options:
  --all            also show the ancestors of held nodes (modes IX and IS),
                   and the whole log
  --json           print one JSON document, described in docs/cli.md
  --dot            print who waits for whom as a graph for Graphviz
  --watch          repeat until q or Ctrl-C
  --interval T     with --watch: time between two displays; default: 1s
  --count N        with --watch: number of displays; default: no limit
  --on URL         the store; default: $HIERLOCK_URL, else shm:
  -h, --help       print this

Examples:
  hierlock status
  hierlock status u1/a1
  hierlock status --json
  hierlock status --watch --count 2 --interval 100ms
)";

constexpr const char* break_help =
    R"(Takes a lock away from its holder: an operator's last resort.

Usage: hierlock break [OPTIONS] TARGET

hierlock shows the holders of TARGET, asks, and releases their locks by force.
It breaks only locks that were taken with exactly this target, not locks above
or below it. The holders continue. They find their lock lost, and hierlock exec
then ends its command. Until a holder checks its lock, it may still write: use
the fence to refuse these writes. The nodes above TARGET stay in use until the
holder notices the loss, or ends. On shm: the table's log records who broke the
lock, and why.

Options:
  --yes            do not ask
  --reason TEXT    the reason, for the log
  --named          TARGET is a name, used as written
  --slots N        TARGET is a name with slots, used as written; all
                   holders of a slot lose it, whatever N is
  --shared         no effect: break always breaks shared locks, too
  --json           print one JSON document, described in docs/cli.md
  --on URL         the store; default: $HIERLOCK_URL, else shm:
  -h, --help       print this

Examples:
  hierlock break u1/a1/r1 --yes --reason 'the host is gone'
  hierlock break --yes --named refresh
  hierlock break --yes --json u1/a1

Exit codes: 0 a lock was broken; 1 nothing was broken, because nobody held
TARGET or the answer was no; others as in hierlock --help.
)";

constexpr const char* explain_help =
    R"(Shows what a lock on targets means. It needs no store. With --on mysql://... or
valkey://... it shows the exact statements instead of rows. If the server can be
reached, it reads the recorded settings there.

Usage: hierlock explain [OPTIONS] TARGET...

For each level of each target, explain shows the mode on memory:, shm: and
valkey: (IS, IX, S, X). MySQL and MariaDB lock a row of a fixed table instead:
explain shows its bucket and its mode (S or X). It also shows the bytes of the
key. Both the exact key and the bucket come from these bytes.

For several targets, explain shows the order in which every process locks their
rows. It also shows which targets share a row and so wait unnecessarily.

Options:
  --shared         lock the targets shared instead of exclusively
  --named          each TARGET is a name, used as written
  --slots N        each TARGET is a name with N slots, used as written
  --buckets N      buckets per level of the table; default: 10,000,000
  --json           print one JSON document, described in docs/cli.md
  --on URL         the store; default: $HIERLOCK_URL, else shm:
  -h, --help       print this

Numbers may end in k, M, G or T. If a target begins with -, put it after --.

Examples:
  hierlock explain u1/a1/r1
      a resource in X; its account and its user in IX
  hierlock explain --shared u1/a1
      an account, shared: other readers do not wait, writers below it wait
  hierlock explain u1/a1/r1 u1/a2/r7
      two resources in one lock, and their order
  hierlock explain --named token-refresh
  hierlock explain --buckets 4 u1 u2 u5
      few buckets, to see ids that share one

With --on mysql://app@db/shop the number of buckets comes from its table, not
from --buckets.
)";

constexpr const char* collisions_help =
    R"(Predicts false contention. A store that locks rows of a fixed table may put
different ids into the same bucket. These ids wait for each other unnecessarily.
Sharing a bucket never loses a lock. The prediction needs no store.

The prediction is for random ids. In measurements, consecutive ids (1, 2, 3,
...) shared buckets 0.7 to 1.4 times as often as predicted.

Usage: hierlock collisions --ids N[,N...] [OPTIONS]

Options:
  --ids N[,N...]   the number of ids on one level, or on each level from the
                   root: 1k,50k,1M for users, accounts and resources
  --buckets N      buckets per level of the table; default: 10,000,000
  --at-once K      the number of locks that others hold at one moment;
                   default: 100
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

provision makes a row for every bucket of every level, in chunks of one
transaction each. You may kill it at any time and run it again: it keeps the
rows that exist, and makes the rest. Two operators may run it at once. Locks may
be held meanwhile: it changes no row, and does not wait for holders. Ctrl-C ends
it after the current chunk; a second Ctrl-C ends it at once.

Progress goes to stderr, with the time left and the final size of the table.
The database records the numbers of buckets and levels when the tables are made.
They cannot be changed later. memory:, shm: and valkey: need no provisioning.

Options:
  --buckets N      rows per level; default: as recorded, or 10,000,000
  --levels N       levels; default: as recorded, or 3
  --chunk N        rows per transaction, at most 1M; default: 50,000
  --throttle N     make no more than N rows a second; default: no limit
  --on URL         the store; default: $HIERLOCK_URL, else shm:
  -h, --help       print this

Numbers may end in k, M or G.

Examples:
  hierlock provision --on 'mysql://app@db/shop?password_file=secret'
      3 levels of 10,000,000 rows: some minutes and 765 MB
  hierlock provision --buckets 100k
      a smaller table for fewer ids; hierlock collisions predicts the cost
  hierlock provision --throttle 20k
      while others use the server

Exit codes: 0 all rows exist; 128+n if signal n ended it; 69 the database
cannot be reached; 77 missing rights; 78 other numbers are recorded; others as
in hierlock --help.
)";

constexpr const char* doctor_help =
    R"(Reports what is unsafe or slow about a store, and the fix. It checks rights,
replication, proxies, settings of the server, and missing rows. It also works if
the store would refuse locks. It changes nothing, but on Valkey it takes a lock
of its own and releases it. memory: and shm: have no settings that could be
wrong, so there is nothing to check.

Usage: hierlock doctor [OPTIONS]

The verdict of each check is good, slow, unsafe or unknown. Unknown means that
the check could not see enough. The worst verdicts come first.

Options:
  --json           print one JSON document, described in docs/cli.md
  --on URL         the store; default: $HIERLOCK_URL, else shm:
  -h, --help       print this

Examples:
  hierlock doctor --on mysql://app@db/shop?password_file=secret
  hierlock doctor --json
  hierlock doctor --json | jq '.findings[] | select(.verdict != "good")'

Exit codes: 0 no check is unsafe; 78 at least one is; 69 the store cannot be
reached; 77 it refuses the login; others as in hierlock --help.
)";

constexpr const char* lab_help =
    R"(Plays scenarios on real engines, and shows what blocks, what deadlocks, and
why. Each session of a scenario has its own connection. The lab asks the engine
which sessions are blocked, and by whom. docs/lab.md explains how to write a
scenario.

Usage: hierlock lab run [FILE|FOLDER...] [OPTIONS]
       hierlock lab list [FILE|FOLDER...] [--json]
       hierlock lab permute FILE [OPTIONS]
       hierlock lab import FILE.spec [--expected FILE.out] [OPTIONS]

run plays scenarios in their written order, on each engine of --on that they
are for. list lists the scenarios. permute plays every order of steps that can
really happen in one scenario, and shows the outcomes. Without files, the lab
uses the folder scenarios, here or from the installation. If a file is not here,
the lab looks for it in that folder.

import prints a scenario for a spec of PostgreSQL's isolationtester, with an
order for each permutation. With --on it plays the orders, and their results
become the expectations. With --expected the expectations come from the tester's
output, and --on adds who blocks whom.

Databases: the lab works in a schema of its own there, hierlock_lab, which it
makes and drops; on MariaDB also in hierlock_lab_1 and so on. It touches nothing
else.

Options:
  --on URL           an engine; repeat it for several. memory:, shm:,
                     sqlite:, mysql://user@host/db, postgres://user@host/db;
                     valkey://user@host, redis://user@host (lock steps only);
                     default: $HIERLOCK_URL, else memory:, shm: and sqlite:
  --report FILE      write the results as one HTML file, to step through
  --junit FILE       write the verdicts as JUnit XML
  --expected FILE    import: the output of isolationtester for the spec; with
                     --on, also its alternatives FILE_1.out and so on
  --json             print one JSON document, described in docs/lab-report.md
  --rewrite          write the results into the scenario as expectations
  --verbose          show the lanes of all scenarios, not only of failed ones
  --patience T       how long a step may neither answer nor be seen to wait;
                     default: 15s
  --schedule NAMES   play one file's steps in this order: a,c,b
  --side-by-side N   MariaDB: play at most N scenarios at the same time, each
                     in a schema of its own; default: 8. Scenarios that reach
                     beyond their schema are played alone
  --pin              permute: keep begin together with the next step
  --preemptions N    permute: switch at most N times away from a session that
                     could continue
  --random N         permute: play N random orders instead of all
  --seed N           permute: the seed for --random; default: 1
  --most N           permute: play at most N orders; default: 100,000
  -h, --help         print this

Examples:
  hierlock lab run
  hierlock lab run scenarios/rows --on mysql://app@db/shop --report lab.html
  hierlock lab permute scenarios/hierarchy/opposite-orders.scenario

Exit codes: 0 all played scenarios passed; 1 one did not pass, or none was
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
