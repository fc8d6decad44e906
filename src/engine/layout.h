// Layout: the words of the lock table. Indices instead of pointers, so that the table can be mapped anywhere, by any
// number of processes. Index 0 of every pool is never used: 0 means "none".
//
//   nodes      one per path prefix, name or slots name that is or was locked; found through the hash index
//   records    one per lock (handle), belonging to an owner; says which nodes it holds and how
//   owners     who holds and waits
//   processes  who shares the table (processes.h)
//   tallies    per lane (roughly: per thread) and shared node: how many records of that lane hold it in IS, IX, S. A
//              node has a number while it is shared, and a lane has memory only for the numbers that it counts in
//   stripes    a latch, and the waiters of the nodes that fall into the stripe
//   blocks     notes, names, and the steps of locks on many targets
//   texts      what a node has no room for of a long segment
//
// Whose an entry is. Records, owners and blocks belong to processes, 8 at a time: one word per chunk names the
// process, and inside its chunks a process keeps its own accounts, in private memory (own_pool.h). A chunk goes back to
// the table when none of its entries is used. Lanes belong to processes, too.
// So what a dead process leaves behind is found by these words alone. Nodes, texts and the numbers of tallies belong to
// the table and are given out under index_latch; what of them is in use follows from the nodes.
//
// What decides who holds a node:
//   X       the node's word names the record. One compare-and-swap takes it, one gives it back.
//   IS IX S a tally in the holder's own lane. Sharing a node writes nothing that another thread reads in its own fast
//           path; a writer looks at all lanes, but only at nodes that carry the mark `marked`.
#pragma once

#include <cstddef>
#include <cstdint>

#include <hierlock/mode.h>
#include <hierlock/target.h>

#include "engine/cell.h"
#include "engine/latch.h"
#include "engine/processes.h"

namespace hierlock::engine {

using Index = std::uint32_t;

inline constexpr Index none = 0;
inline constexpr std::size_t line = 64;  // bytes of a cache line; every pool's entry is one
inline constexpr unsigned stripe_count = 64;
inline constexpr unsigned most_lanes = 2048;

// A node's word:   generation (32) | flags (6) | record that holds it in X (26)
//
// The generation changes when the node falls out of use and when it is used again, so that what was prepared against
// the old key fails.
namespace word {
inline constexpr unsigned holder_bits = 26;
inline constexpr std::uint64_t holder = (std::uint64_t{1} << holder_bits) - 1;
inline constexpr std::uint64_t queued = std::uint64_t{1} << 26;   // waiters, or a latched change: no fast path
inline constexpr std::uint64_t marked = std::uint64_t{1} << 27;   // tallies may be non-zero: X must look at the lanes
inline constexpr std::uint64_t sharing = std::uint64_t{1} << 28;  // S is open and IX is not; otherwise the reverse
inline constexpr std::uint64_t closed = std::uint64_t{1} << 29;   // slots, or unused: never a fast path
inline constexpr std::uint64_t unused = std::uint64_t{1}
                                        << 30;  // free, or on its way there: whatever it says is not so
inline constexpr unsigned generation_shift = 32;
constexpr std::uint32_t generation(std::uint64_t w) { return static_cast<std::uint32_t>(w >> generation_shift); }
}  // namespace word

// How many records hold a node in IS, IX and S, or one of its slots, as far as one lane has counted. A lane adds what
// its thread takes and subtracts what its thread gives back, also of locks that other threads took: so a single lane's
// numbers may be below zero, and only the sum over all lanes means something. The sum has room for all records there
// can be.
//
// Each lane but the common one has one thread that writes to it, which therefore needs no locked instruction to count.
struct Tally {
  Cell<std::uint64_t> intents;  // IX (32) | IS (32)
  Cell<std::uint64_t> shared;   // slots (32) | S (32)

  Cell<std::uint64_t>& of(Mode mode) noexcept { return mode == Mode::S ? shared : intents; }
  static constexpr std::uint64_t unit(Mode mode) noexcept { return mode == Mode::IX ? std::uint64_t{1} << 32 : 1; }
  // A slot is counted apart from S. A late sharer counts for a moment under a number that is another node's by then
  // (see "Numbers" in docs/engine.md). There it may keep somebody waiting for a moment, but it must not look like a
  // slot.
  static constexpr std::uint64_t slot = std::uint64_t{1} << 32;
};

// Two lines, because a processor fetches two: a thread writes to its lane at every lock.
struct alignas(2 * line) Lane {
  Cell<std::int64_t> last_fence;  // the highest that was minted in this lane, whoever had it; never goes down
  Cell<ProcessRef> process;       // whose lane it is; 0: nobody's, and all its tallies are zero
  Cell<Index> arena;              // where it last got a number; guarded by index_latch
  Cell<Index> page_hand;          // the arena whose page is looked at next, to be given back; its own thread's
};

// The numbers under which lanes count come in arenas of 256. A lane that counts under a number has a page for the whole
// arena: 4 KiB, at a place of its own that no other lane or arena ever gets. One byte for each lane and arena says
// whether the page is there.
inline constexpr Index arena_size = 256;
inline constexpr std::size_t tally_page = arena_size * sizeof(Tally);
enum class PageState : std::uint8_t {
  absent,  // nobody touches it: it may have no memory
  spare,   // has memory, and counts nothing: left by a process that is gone, for the lane's next user
  used,    // its lane counts in it, and the common lane of the same process has one, too
};

struct alignas(line) Arena {
  Cell<Index> node[arena_size];  // which node has the number; none: the number is free
  Cell<std::uint32_t> used;      // how many are not free
  Cell<std::uint32_t> hint;      // where to look for a free one
};
inline constexpr Index nobodys_node = ~Index{0};  // "has" number 0, which is never given to a node

// What a node is, beside its text: length (16) | level (8) | space (8).
constexpr std::uint32_t make_meta(std::size_t length, unsigned level, Space space) {
  return static_cast<std::uint32_t>(length) | level << 16 | static_cast<std::uint32_t>(space) << 24;
}
constexpr std::size_t meta_length(std::uint32_t meta) { return meta & 0xFFFF; }
constexpr unsigned meta_level(std::uint32_t meta) { return meta >> 16 & 0xFF; }
// As far as a damaged table allows: whatever was read, it is a space, and below, a mode.
constexpr Space meta_space(std::uint32_t meta) { return static_cast<Space>((meta >> 24) % 3); }
constexpr Mode mode_of(std::uint32_t stored) { return static_cast<Mode>(stored & 3); }

inline constexpr std::size_t inline_text = 16;

struct alignas(line) Node {
  Cell<std::uint64_t> word;
  Cell<std::int64_t> last_fence;  // see I6 in table.h
  Cell<std::uint64_t> hash;
  Cell<std::uint64_t> text[inline_text / 8];  // the segment's first bytes, padded with zeros
  Cell<Index> parent;                         // while free: the next free node
  Cell<std::uint32_t> meta;
  Cell<Index> tally;  // the number under which the lanes count this node; given before it is shared
  Cell<Index> more;   // texts with the rest of a long segment
  // Nodes below it: it is not reused before they are. A slots node has none: there it is the capacity, as its present
  // holders and waiters understand it (Node::slots).
  Cell<std::uint32_t> children;
  Cell<Index> queue;  // the first waiter; guarded by the stripe's latch

  Cell<std::uint32_t>& slots() noexcept { return children; }
  const Cell<std::uint32_t>& slots() const noexcept { return children; }
};
static_assert(sizeof(Node) == line);

enum class RecordState : std::uint32_t {
  free,
  taking,  // being acquired, handed over or released
  held,
  changing,  // held, and being extended
  doomed,    // the same, but an operator has taken it away: its owner ends the extend, and then it is broken
  broken,    // taken away by an operator: only the intentions on ancestors count, until its owner releases it
};

// A record's word: generation (32) | changes (28) | state (4). A handle carries the generation, so a stale handle is
// noticed. Every extend and every hand-over adds one to `changes` when it begins, and it stays added if they fail: as
// long as the word is the same, the record holds the same.
inline constexpr unsigned record_state_bits = 4;
inline constexpr std::uint64_t one_change = std::uint64_t{1} << record_state_bits;
constexpr std::uint64_t record_word(std::uint32_t generation, RecordState state) {
  return std::uint64_t{generation} << 32 | static_cast<std::uint32_t>(state);
}
constexpr RecordState record_state(std::uint64_t w) { return static_cast<RecordState>(w & (one_change - 1)); }
constexpr bool extended(RecordState state) { return state == RecordState::changing || state == RecordState::doomed; }
constexpr std::uint32_t record_generation(std::uint64_t w) { return static_cast<std::uint32_t>(w >> 32); }
// The same lock in another state.
constexpr std::uint64_t with_state(std::uint64_t w, RecordState state) {
  return (w & ~(one_change - 1)) | static_cast<std::uint32_t>(state);
}
// The same lock, about to change what it holds.
constexpr std::uint64_t with_change(std::uint64_t w, RecordState state) {
  constexpr std::uint64_t low = 0xFFFFFFFF;
  return (w & ~low) | ((with_state(w, state) + one_change) & low);
}
constexpr bool same_lock(std::uint64_t a, std::uint64_t b) { return record_generation(a) == record_generation(b); }

// A lock on one path names only the deepest node it holds and that node's parent: the other ancestors follow from the
// parent. Once the lock is broken the deepest node may be reused for another key, its parent not, because the lock's
// intention is still counted there. A lock on several targets lists its steps in blocks, newest first.
struct alignas(line) Record {
  Cell<std::uint64_t> word;
  Cell<std::int64_t> fence;
  Cell<std::int64_t> since;  // coarse_time() when it was granted
  Cell<Index> owner;
  Cell<Index> next_of_owner;  // all records of an owner; see "the records of an owner" in records.cc
  Cell<Index> next_free;
  Cell<Index> want;          // the node being taken: written before its word is changed
  Cell<Index> node;          // one path: the deepest node held
  Cell<Index> steps;         // many: blocks of steps; then `node` means nothing
  Cell<Index> note;          // blocks
  Cell<std::uint32_t> mode;  // one path: the mode `node` is held in, and `slot_mode` if it is a slots name
  Cell<ProcessRef> process;  // its owner's
  Cell<Index> parent;        // one path: the parent of `node`; written before `node`
};
static_assert(sizeof(Record) == line);

// Whether an X is a slot, which is counted, or an X, which is in the node's word, is written down with the mode: a
// broken lock must not ask a node that may be another's by then.
inline constexpr std::uint32_t slot_mode = 4;
constexpr std::uint32_t stored_mode(Mode mode, bool slot) {
  return static_cast<std::uint32_t>(mode) | (slot ? slot_mode : 0);
}
constexpr bool is_slot(std::uint32_t stored) { return (stored & slot_mode) != 0; }

// A step in a block: node (32) | mode (8) | asked (1) | asked by an extend that has not ended (1). 0 is an empty place.
constexpr std::uint64_t make_step(Index node, std::uint32_t stored, bool asked) {
  return std::uint64_t{node} | std::uint64_t{stored & 0xFF} << 32 | std::uint64_t{asked} << 40;
}
constexpr Index step_node(std::uint64_t step) { return static_cast<Index>(step); }
constexpr std::uint32_t step_stored_mode(std::uint64_t step) { return static_cast<std::uint32_t>(step >> 32 & 0xFF); }
constexpr Mode step_mode(std::uint64_t step) { return mode_of(step_stored_mode(step)); }
constexpr bool step_asked(std::uint64_t step) { return (step >> 40 & 1) != 0; }
inline constexpr std::uint64_t step_new = std::uint64_t{1} << 41;

struct alignas(line) Block {
  static constexpr std::size_t words = 7;
  Cell<std::uint64_t> word[words];
  Cell<Index> next;
  Cell<std::uint32_t> used;  // text: bytes in this block and those after it
};
static_assert(sizeof(Block) == line);

// Entries that a process takes at a time. One that is used keeps a whole chunk from the others: so there are eight
// times as many entries as may be used (Capacity::for_locks).
inline constexpr Index chunk_size = 8;
inline constexpr Index chunks_per_growth = 8;  // chunks made usable at a time: 4 KiB of entries

enum class OwnerKind : std::uint32_t {
  thread,  // acts alone
  handle,  // owns one lock, and goes with it
  crowd,   // several threads may act for it at once
};

enum class OwnerState : std::uint32_t { free, live, retired };

struct alignas(line) OwnerSlot {
  Cell<std::uint64_t> word;  // generation (32) | state (32)
  // Free records that others than its thread gave back: how many (32) | the first (32). A stack that anybody pushes to
  // and one party at a time pops from.
  Cell<std::uint64_t> returned;
  Cell<Index> records;             // all its records, see Record::next_of_owner
  Cell<std::uint32_t> linked;      // how many they are
  Cell<std::uint32_t> departures;  // how often records were taken out of the list
  Cell<Index> name;                // blocks
  Cell<ProcessRef> process;
  Cell<std::int32_t> thread;
  Cell<std::uint32_t> kind;
};
static_assert(sizeof(OwnerSlot) == line);

constexpr std::uint64_t record_stack(Index first, std::uint32_t count) { return std::uint64_t{count} << 32 | first; }
constexpr Index stack_first(std::uint64_t stack) { return static_cast<Index>(stack); }
constexpr std::uint32_t stack_count(std::uint64_t stack) { return static_cast<std::uint32_t>(stack >> 32); }

// The place in a queue: requests of owners that already hold the node come first (top bit clear), then by ticket.
using QueueKey = std::uint64_t;
inline constexpr QueueKey newcomer = QueueKey{1} << 63;

// How many waiters of a queue want each mode: 16 bits a mode. Never too low; those who died or left without the latch
// are counted until they are unlinked.
constexpr std::uint64_t queue_unit(Mode mode) { return std::uint64_t{1} << 16 * static_cast<unsigned>(mode); }
constexpr bool queue_has(std::uint64_t counts, Mode mode) { return (counts & queue_unit(mode) * 0xFFFF) != 0; }

// The waiters of a node are a ring in the order of their keys, and Node::queue is the first. The ring, the counts and
// the list of free places are guarded by the stripe's latch. If a process dies while it has the latch, all three are
// made again from `process`, `node`, `key` and `mode` (Queues::relink), so these alone say who waits.
struct alignas(line) Waiter {
  Cell<ProcessRef> process;    // who waits. 0: nobody, or no longer. Set last, cleared first
  Cell<std::uint32_t> signal;  // futex. 0: sleep. Otherwise it was told to look again, see WakeList
  Cell<QueueKey> key;
  Cell<std::int64_t> since;  // coarse_time()
  Cell<Index> node;
  Cell<Index> record;
  Cell<Index> owner;
  Cell<Index> wanted;  // blocks: the whole request as text
  Cell<std::uint32_t> mode;
  Cell<std::uint32_t> entangled;  // its owner holds something outside the canonical order, see wait_graph.cc
  Cell<Index> next;               // in the ring; of a free place, the next free one
  Cell<Index> prev;               // in the ring; of a free place, none
  Cell<std::uint64_t> counts;     // of the first waiter: what the whole queue wants (queue_unit)
};
static_assert(sizeof(Waiter) == line);

struct alignas(line) Stripe {
  Latch latch;                  // guards: queues of the stripe's nodes, and their words' flags
  Cell<std::uint32_t> used;     // no waiter at or above this place of the stripe's part of the pool
  Cell<Index> free;             // places below that are free: a list
  Cell<std::uint32_t> waiting;  // places below that are not free
  // The node that the latch was last taken for. Whoever takes the latch over from a dead process settles this node, so
  // that `queued` is not left set.
  Cell<Index> deciding;
  Cell<std::uint64_t> tickets;
};

// Entries of the table itself, given out under index_latch. `next` is the first entry never used, `free` a list through
// a field of the entry.
struct Pool {
  Cell<Index> next;
  Cell<Index> free;
};

// Entries of processes, in chunks. A chunk is taken by a compare-and-swap of the word that names its process.
struct ChunkPool {
  Cell<Index> next;  // no chunk at or above this was ever used
  Cell<Index> hint;  // probably no chunk below this is free
};

// How far collecting has come with the dead process of a slot.
struct Collecting {
  Latch latch;             // guards: everything that the dead process of the slot, and those before it, left behind
  Cell<ProcessRef> told;   // the queues were settled after this process was marked dead
  Cell<std::uint64_t> at;  // lane + 1 (32) | the lane's pages of arenas below this are wiped (32); 0: none half done
};

// What happened in the table, as log.h says. Each entry is written by one process, and torn only if that dies.
struct alignas(line) LogEntry {
  static constexpr std::size_t words = 125;
  Cell<std::uint64_t> ticket;  // the number of the entry in its ring, written last
  Cell<std::int64_t> when;     // nanoseconds of the wall clock
  Cell<std::uint64_t> size;    // in bytes
  Cell<std::uint64_t> bytes[words];
};
struct LogRing {
  static constexpr std::size_t size = 32;
  alignas(line) Cell<std::uint64_t> next;
  LogEntry entries[size];
};

// A lock that is broken, or about to be, and whose shared holds and slots stay counted until its owner releases it:
// generation (32) | record (32). The entry is in use as long as the record is that lock. See breaks.cc.
using BrokenEntry = std::uint64_t;
constexpr BrokenEntry make_broken(std::uint32_t generation, Index record) {
  return std::uint64_t{generation} << 32 | record;
}
constexpr std::uint32_t broken_generation(BrokenEntry entry) { return static_cast<std::uint32_t>(entry >> 32); }
constexpr Index broken_record(BrokenEntry entry) { return static_cast<Index>(entry); }
inline constexpr std::uint32_t most_broken = 1024;

// Fresh nodes are given out a page at a time, so that those that one thread makes lie side by side. A processor fetches
// the neighbours of what is used. If those are another thread's, that thread loses them again and again: two threads
// that made every other node were hardly faster than one.
inline constexpr std::uint32_t run_count = 16;
inline constexpr Index run_size = 64;

struct Header {
  Cell<std::int64_t> fence_floor;     // no fence of a node that was reused is higher; guarded by index_latch
  Cell<std::uint32_t> index_log2;     // size of the hash index in use
  Cell<std::uint32_t> index_entries;  // guarded by index_latch
  Cell<Index> sweep_hand;             // guarded by index_latch
  // A round along all nodes, in slices, by whoever needs room; guarded by index_latch.
  Cell<std::uint32_t> swept;           // nodes looked at since an idle one was found
  Cell<std::int64_t> swept_at;         // coarse_time() of the last slice: what was seen long ago does not count
  Cell<std::uint64_t> swept_late;      // stripes whose latch could not be had meanwhile
  Cell<std::int64_t> swept_in_vain;    // coarse_time() when all nodes were found in use; 0 after a release
  Cell<std::uint32_t> lanes_used;      // lanes at and above this were never used; only rises
  Cell<std::uint32_t> processes_used;  // slots at and above this were never used; only rises
  Cell<std::int64_t> last_watch;       // coarse_time() at which somebody last looked for the dead
  Cell<ProcessRef> on_duty;            // whose waiting thread looks for the dead regularly; 0: nobody's
  Cell<std::uint32_t> deaths;          // how often that found somebody
  // Order of latches: that of a Collecting, index_latch, then stripes in ascending order.
  alignas(line) Latch index_latch;  // creating and reusing nodes, growing the index, and the pools of the next line
  alignas(line) Pool nodes;
  Pool texts;
  Cell<Index> arenas;                         // how many there are; only rises
  Cell<Index> number_hand;                    // the arena that is looked at next by who finds no number anywhere
  Cell<std::uint32_t> pages;                  // pages of tallies that are there, of all lanes; for roomy() only
  alignas(line) Cell<Index> runs[run_count];  // free nodes that lie side by side, for lanes of that remainder
  alignas(line) ChunkPool records;
  ChunkPool owners, blocks;
  Lane lanes[most_lanes];
  Stripe stripes[stripe_count];
  ProcessSlot processes[process_count];
  Collecting collecting[process_count];
  LogRing events, deadlocks;                      // the latter may be many, and must not push out what is rare
  alignas(line) Cell<std::uint32_t> broken_used;  // entries at and above this were never used; only rises
  Cell<BrokenEntry> broken[most_broken];
  Cell<std::uint64_t> handovers;  // odd while a lock is being handed over; guarded by all stripes together
};

// Processes of two builds share a table if it says the same format to both.
static_assert(offsetof(Header, nodes) == 192 && offsetof(Header, runs) == 256 && offsetof(Header, records) == 320 &&
                  offsetof(Header, lanes) == 384 && offsetof(Header, stripes) == 262'528 &&
                  offsetof(Header, processes) == 266'624 && offsetof(Header, collecting) == 528'768 &&
                  offsetof(Header, events) == 545'152 && sizeof(Header) == 619'136 && sizeof(Lane) == 128 &&
                  sizeof(ProcessSlot) == 256 && sizeof(Tally) == 16,
              "a field of the table has moved: raise Description::the_format, then correct these numbers");

}  // namespace hierlock::engine
