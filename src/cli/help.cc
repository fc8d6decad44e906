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
  explain TARGET...    what locking a target means: levels, modes, keys and
                       buckets, and the order in which several are locked
  collisions --ids N   how often different ids meet in one bucket of a store
                       that locks rows of a fixed table, and wait without need

Options:
  --on URL             the store; default: $HIERLOCK_URL, else memory:
  --version            print the version
  -h, --help           print this; after a command: the help of that command

Targets:
  u1/a1/r1             a path: 1 to 8 ids, the root first; exclusive
  'shared u1/a1'       the same, held shared
  'named "refresh"'    a name, outside of any hierarchy
  'slots "import" 3'   a name with 3 places
  In a path, / that belongs to an id is written %2F, and % is written %25.

Examples:
  hierlock explain u1/a1/r1
  hierlock explain --shared u1/a1
  hierlock collisions --ids 1M

Exit codes: 0 done; 64 wrong usage; 74 the output could not be written.
)";

constexpr const char* explain_help =
    R"(Shows what locking targets means. Needs no store.

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
  --on URL         the store; default: $HIERLOCK_URL, else memory:
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
  hierlock explain --buckets 4 u1 u2 u3
      few buckets, to see ids that share one
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
  --on URL         the store; default: $HIERLOCK_URL, else memory:
  -h, --help       print this

Numbers may end in k, M, G or T.

Examples:
  hierlock collisions --ids 1M
  hierlock collisions --ids 1k,50k,1M --at-once 500
  hierlock collisions --ids 1M --buckets 100k
)";

}  // namespace

std::string help(const std::string& command) {
  if (command == "explain") return explain_help;
  if (command == "collisions") return collisions_help;
  return tool_help;
}

}  // namespace hierlock::cli
