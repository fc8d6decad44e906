// Table: the lock table. It grants, queues and gives back, one node at a time, and never sleeps: waiting is engine.h's.
//
// THE PROTOCOL (invariants I1 to I7; the comments in table.cc name them, and the steps of the model in model/)
//
// I1 exclusion   For every node: if its word names a record (X), no tally of it counts anybody else, and if some tally
//                counts an S, no tally counts another record's IX.
// I2 handshake   A sharer first counts itself in its lane, then reads the word (a locked instruction between). A writer
//                (or an S against IX) first sets `queued` in the word, then reads the lanes. So at least one sees the
//                other. The sharer that sees the writer takes its count back and comes again through the latch.
// I3 mark        A tally of a node is non-zero only while the word is `marked`. The first sharer sets the mark, under
//                the latch, before it counts; only a writer that has found every lane empty, while `queued` keeps the
//                fast path shut, clears it.
// I4 queue       A request is granted exactly when it conflicts with no holder and with no earlier waiter of the node.
//                Requests of owners that already hold the node are earlier than all others; one whose owner holds the
//                node in a covering mode does not look at the queue. `queued` is set while anybody waits.
// I5 self-grant  A waiter grants itself, under the latch, when it finds that it may. Others only tell it to look. So a
//                grant is never made to somebody who is gone, and a lost wake-up costs time, not correctness.
// I6 fence       A fence is one more than the highest last_fence of the plan's nodes, read after they were taken. It
//                goes into last_fence of the nodes held in X and of the lane, before anything is given back. When an X
//                (or the first S) is taken at a node that was shared, last_fence of the node rises to the highest of
//                all lanes, after the tallies were seen to be gone: so it is not below the fence of any earlier lock
//                further down. The first last_fence is the wall clock in nanoseconds, and a chain of locks that each
//                wait for the one before is slower than one a nanosecond: so a later table starts higher.
// I7 death       Whatever a process adds names it (its records, lanes, waiters, latches, chunks), and counts only while
//                its slot says `live`. So its death is one compare-and-swap on that slot; see processes.h, recovery.cc.
//
// Unguarded reads of a node that is being reused see a mixture; the generation in the word, read before and compared
// after, throws such a mixture away.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <hierlock/mode.h>
#include <hierlock/spi/plan.h>

#include "engine/file.h"
#include "engine/layout.h"
#include "engine/region.h"
#include "engine/table_size.h"

namespace hierlock::engine {

inline constexpr std::size_t growth = 1024;        // entries of a pool made usable at a time
inline constexpr std::size_t tally_growth = 4096;  // 64 KiB of each lane

enum class Progress : std::uint8_t {
  granted,
  blocked,         // in the queue (or, without permission to queue, nowhere): come again when signalled
  self_deadlock,   // the owner itself holds or awaits what this would wait for
  deadlock,        // waiting would close a cycle: Attempt::cycle
  full,            // out of nodes, records, blocks, tallies or waiters
  slots_disagree,  // the holders of this slots name counted on another number: Attempt::slots_there
  lost,            // the lock was taken away
  late,            // somebody has had a latch for longer than is usual (a stopped process): come again, or give up
};

// One acquire or extend on its way. Lives on the stack of whoever makes it.
struct Attempt {
  std::span<const spi::Step> steps;
  Index owner = none;
  Index record = none;
  std::uint32_t lane = 0;
  bool crowd = false;                       // several threads may act for the owner
  bool extending = false;                   // the record holds something already
  std::int64_t patience = Latch::for_ever;  // for latches, before advance() says `late`

  std::size_t next = 0;  // the step being taken
  Index waiter = none;   // its place in the queue
  std::int64_t floor = 0;
  std::uint32_t slots_there = 0;
  Index wanted = none;  // blocks: the request as text, for those who look; once `described`
  bool described = false;
  bool closed_by_taking = false;  // after `deadlock`: the last step was taken nevertheless
  std::string cycle;              // after `deadlock`, `self_deadlock`: what happened, in words

  Index& node_of(std::size_t step) { return step < few.size() ? few[step] : many[step - few.size()]; }
  std::array<Index, max_depth> few;  // nodes of the steps
  std::vector<Index> many;

  struct Undo {
    Index node;
    std::optional<Mode> before;
    bool asked_before;
  };
  std::vector<Undo> undo;  // extending: what to put back on failure
};

// Waiters to wake once the latch is free again.
class WakeList {
 public:
  explicit WakeList(Reach reach) : reach_(reach) {}
  void add(Waiter& waiter);
  ~WakeList();
  WakeList(const WakeList&) = delete;
  WakeList& operator=(const WakeList&) = delete;

 private:
  const Reach reach_;
  std::array<Waiter*, 8> waiters_;
  std::size_t count_ = 0;
};

class Table {
 public:
  // In private memory.
  explicit Table(const Capacity& capacity);
  // In a file, with all other processes that open it. Creates it if there is none. Throws Error.
  explicit Table(const FileOptions& options);
  ~Table();
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  // --- processes (recovery.cc) --------------------------------------------------------------------------------------
  bool shared() const noexcept { return !processes_.alone(); }
  // Where it is; empty in private memory.
  std::string path() const { return file_ ? file_->path() : std::string(); }
  // How many processes share it, those included that are dead and not collected yet.
  std::uint32_t processes() const noexcept;
  // Looks for dead processes, unless somebody else did just now, and gives back what they had. True if one was found
  // that nobody knew of. `soon`: for somebody who will not look again.
  bool recover(bool soon = false) noexcept;
  bool recover_now(bool thorough) noexcept;
  // The table was taken away from this process: the file is gone, was replaced or cut short, or the others have taken
  // this process for dead. There is no way back.
  bool lost() noexcept;
  // Asks the filesystem; lost() only knows what was found by then.
  bool look_for_loss() noexcept;
  std::int64_t last_look() const noexcept { return last_look_.load(std::memory_order_relaxed); }
  // In a child after fork(): the parent's death must be seen.
  void close_in_child() noexcept {
    if (!file_) return;
    file_->close_in_child();
    region_->forget();
  }
  int lifeline() noexcept;
  // Takes away every lock that was asked for with this target. How many.
  std::size_t break_locks(std::span<const spi::Step> steps);
  void write_log(std::string_view text) noexcept;
  struct LogCopy {
    std::int64_t when;
    std::string text;
  };
  std::vector<LogCopy> read_log() const;

  // --- owners and records -------------------------------------------------------------------------------------------
  // none if full.
  Index make_owner(std::string_view name, OwnerKind kind);
  // The owner goes; what it still holds stays held, and its slot is used again after that.
  void retire_owner(Index owner) noexcept;

  // A free record of this owner's, or a new one; none if full. Only one party at a time may ask for one owner.
  Index take_record(Index owner);
  // Back to its owner's free records; may be called by anybody.
  void return_record(Index record) noexcept;
  void set_note(Index record, std::string_view note);
  Index owner_of(Index record) const { return records_[record].owner.relaxed(); }
  OwnerKind owner_kind(Index owner) const { return static_cast<OwnerKind>(owner_at(owner).kind.relaxed()); }
  // A list of free records of the caller's own.
  Index next_free(Index record) const {
    const Index next = records_[record].next_free.relaxed();
    return next < capacity_.records ? next : none;
  }
  void set_next_free(Index record, Index next) { records_[record].next_free.set(next); }

  // --- lanes --------------------------------------------------------------------------------------------------------
  // A lane for one thread, or the common one of this process if there is none left.
  std::uint32_t enter_lane() noexcept;
  std::uint32_t common_lane() const noexcept { return common_lane_; }
  void leave_lane(std::uint32_t lane) noexcept;

  // --- locks --------------------------------------------------------------------------------------------------------
  // Begins: the record is the attempt's, in state `taking`. False if what is to be extended was taken away.
  bool begin(Attempt& attempt);
  // Goes on until everything is held, or something stands in the way. With `queue` false a conflict leaves no waiter.
  Progress advance(Attempt& attempt, bool queue);
  // After `granted`: mints the fence; the record is held.
  std::int64_t finish(Attempt& attempt);
  // The usual case from beginning to end: one path or name, nothing in the way, a lane of one's own. The fence, or 0
  // and nothing has changed.
  std::int64_t take_at_once(const spi::Chain& chain, Index record, std::uint32_t lane) noexcept;
  // Gives up: leaves the queue and undoes what this attempt took (extending: what it added).
  void abandon(Attempt& attempt) noexcept;
  // Gives back everything the record holds. The record is then free, but still its owner's to return.
  void release(Index record, std::uint32_t lane) noexcept;
  // Moves a lock to `to`, a free record of another owner's. If that would close a cycle: deadlock, nothing has changed,
  // and `cycle` tells.
  Progress give(Index record, Index to, std::string& cycle);

  std::uint64_t record_state_word(Index record) const { return records_[record].word.acquire(); }

  Index node_awaited(Index index) const { return waiter(index).node.relaxed(); }
  // Sleeps until the waiter is told to look again, for at most so long.
  void sleep(Index waiter, std::int64_t nanoseconds) const noexcept;
  // Tells it.
  void tell(Index waiter) noexcept;
  bool told(Index index) const noexcept { return waiter(index).signal.acquire() != 0; }

  // --- looking ------------------------------------------------------------------------------------------------------
  struct PartyCopy {
    std::uint64_t identity;  // distinguishes successive owners of one slot
    std::string name, note;
    std::int32_t process;
    std::string command;
    std::uint32_t slot;  // of its process
  };
  struct HolderCopy {
    Index owner, record, node;
    Mode mode;
    bool asked;
    std::int64_t fence, since;  // 0 of an acquire that is not finished
    std::size_t party;
    std::string target;
  };
  struct WaiterCopy {
    Index owner, record, node, waiter;
    Mode mode;
    QueueKey key;
    std::int64_t since;
    std::size_t party;
    std::string target, wanted;
  };
  struct Copy {
    std::vector<PartyCopy> parties;
    std::vector<HolderCopy> holders;
    std::vector<WaiterCopy> waiters;  // by node, then by place in the queue
  };
  Copy copy() const;
  Snapshot::Doing doing(const PartyCopy& party) const noexcept { return processes_.doing(party.slot); }
  // The owners that a waiter of the copy waits for.
  std::vector<Index> blockers(const Copy& copy, const WaiterCopy& waiter) const;
  // The owners that a waiter waits for, looked up for it alone.
  std::vector<Index> blockers_of(Index waiter) const;
  std::string node_text(Index node) const;
  std::string owner_name(Index owner) const;
  std::string owner_text(Index owner) const;    // the name and, if it is another's, the process
  std::string record_text(Index record) const;  // the targets it was asked for
  std::uint64_t owner_identity(Index owner) const;
  bool nothing_held() const;

  // Walks the whole table, with everything quiet, and says what is wrong; empty if sound.
  std::string check() const;
  struct Use {
    std::uint32_t nodes, records, owners, blocks;
  };
  Use use();

 private:
  friend class WaitGraph;

  // --- nodes and their index (find.h, index.cc) ---
  struct Key {
    std::uint64_t hash;
    std::string_view segment;
    unsigned level;
    Space space;
  };
  static constexpr Index too_late = ~Index{0};  // index_latch could not be had
  static Key key_of(const spi::Step& step) noexcept { return {step.hash, step.segment, step.level, step.space}; }
  struct IndexView {
    const Cell<std::uint64_t>* entries;
    std::size_t mask;
    unsigned shift;
  };
  IndexView index_now() const noexcept;
  [[gnu::always_inline]] void expect(const IndexView& index, const spi::Chain& chain) const noexcept;
  [[gnu::always_inline]] Index find(const IndexView& index, const Key& key, Index parent,
                                    std::uint64_t& word) const noexcept;
  // none if full, or too_late.
  Index find_or_create(const spi::Step& step, Index parent, std::uint64_t& word, std::int64_t patience);
  // Before a node is first shared. False if full or too late.
  Progress prepare_sharing(Index node, std::int64_t patience);
  bool matches(const Node& node, const Key& key, Index parent) const noexcept;
  bool rest_matches(const Node& node, std::string_view segment) const noexcept;
  Index take_node();
  void free_node(Index node) noexcept;
  Index fresh_node();
  enum class Reuse : std::uint8_t { done, in_use, late };
  Reuse reuse(Index node);
  bool sweep(std::uint32_t steps);
  bool grow_index();
  bool index_insert(std::uint64_t hash, Index node) noexcept;
  void index_remove(std::uint64_t hash, Index node) noexcept;
  Cell<std::uint64_t>* index_of(std::uint32_t log2) const noexcept {
    return index_ + (std::size_t{1} << log2) - first_index_size;
  }
  std::size_t index_place(std::uint64_t hash, std::uint32_t log2) const noexcept {
    return (hash * index_multiplier_) >> (64 - log2);
  }

  // Holds index_latch; put right what a dead process left half done.
  class IndexGuard {
   public:
    IndexGuard(Table& table, std::int64_t patience) noexcept;
    ~IndexGuard();
    IndexGuard(const IndexGuard&) = delete;
    IndexGuard& operator=(const IndexGuard&) = delete;
    bool taken() const noexcept { return taken_; }

   private:
    Table& table_;
    bool taken_;
  };
  void rebuild() noexcept;
  std::uint32_t index_log2() const noexcept {
    return std::clamp<std::uint32_t>(header_->index_log2.acquire(), first_index_log2, largest_index_log2_);
  }

  // --- pools (pools.cc) ---
  // Where the chunks of one kind lie.
  struct Area {
    Index chunks;
    std::size_t owners, entries;
  };
  // This process's own accounts of the entries it has; guarded by pool_mutex_.
  struct OwnPool {
    Index free = none;              // a list through the entries
    Index next = none, end = none;  // the rest of the last chunk
    Index handed_out = 0, idle = 0;
  };
  Cell<ProcessRef>& chunk_owner(const Area& area, Index chunk) const noexcept;
  std::optional<Index> claim_chunk(ChunkPool& pool, const Area& area) noexcept;
  void free_chunk(ChunkPool& pool, const Area& area, Index chunk) noexcept;
  Index take_entry(OwnPool& own, ChunkPool& pool, const Area& area, Cell<Index>& (*link)(const Table&, Index));
  bool owner_holds_anything(Index owner) const;
  Index take_block();
  static void clear_block(Block& block) noexcept;
  void free_blocks(Index first) noexcept;
  Index take_text();
  void free_texts(Index first) noexcept;
  Index write_text(std::string_view text);
  Index write_long_segment(std::string_view text);
  std::string read_text(Index first) const;
  std::string read_long_segment(Index first) const;
  template <class At, class Take, class Free>
  Index write(std::string_view text, At at, Take take, Free give_back);
  template <class At>
  static std::string read(Index first, At at);
  struct Lanes {
    std::optional<std::uint32_t> lane;
    bool late;
  };
  Lanes claim_lane(std::uint32_t end, std::int64_t patience) noexcept;
  bool give_tally(Node& node);

  // --- setting up (setup.cc), recovery (recovery.cc) ---
  bool enter(const FileOptions& options, ProcessRef& instead_of);
  void open_or_create(const FileOptions& options);
  void find_parts() noexcept;
  void initialise();
  void join();
  void leave() noexcept;
  bool collect(ProcessRef dead) noexcept;
  void collect_all_of(ProcessRef dead) noexcept;
  void log_death(std::uint32_t slot) noexcept;
  bool collect_garbage(ProcessRef dead) noexcept;
  void drop_words(const Record& record, ProcessRef dead) noexcept;
  void drop_word(Index node, ProcessRef dead) noexcept;
  bool drop_waiters(unsigned stripe, ProcessRef dead) noexcept;
  // Calls f(entry) for every entry of the chunks of one kind that a dead process has.
  template <class F>
  void each_entry_of(ProcessRef dead, const ChunkPool& pool, const Area& area, F f) const;
  bool live_record(Index record) const noexcept { return processes_.live(record_at(record).process.acquire()); }
  bool anybody_entangled() const noexcept;
  Cell<std::uint32_t>& own_entangled() const noexcept { return processes_.slot(processes_.self_slot()).entangled; }
  std::uint32_t lanes_used() const noexcept { return std::min(header_->lanes_used.ordered(), capacity_.lanes); }
  struct Held {
    Index node;
    Mode mode;
  };
  void break_hold(Index record, std::uint32_t generation, const Held& held) noexcept;
  void clear_own_words(Index record) noexcept;

  // --- one node (table.cc) ---
  // Holds the latch of a node's stripe, or all of them; or none, if somebody has had one for too long. What a dead
  // process left under such a latch needs no putting right: see "At a crash" in docs/engine.md.
  class Latched {
   public:
    Latched(Table& table, Index node, bool all, std::int64_t patience) noexcept;
    ~Latched();
    Latched(const Latched&) = delete;
    Latched& operator=(const Latched&) = delete;
    bool taken() const noexcept { return first_ < end_; }

   private:
    Table& table_;
    unsigned first_, end_;  // stripes
  };
  enum class Again : std::uint8_t { no, with_text, with_all };  // what a decision to wait still needs
  struct Counts {
    std::uint64_t is = 0, ix = 0, s = 0;
  };
  Counts count(const Node& node) const noexcept;
  std::optional<Mode> held_mode(Index record, Index node) const noexcept;
  bool holders_conflict(Index node, Mode mode, Index record) const noexcept;
  bool queue_conflicts(Index node, Mode mode, QueueKey key) const noexcept;
  bool own_waiter_conflicts(const Attempt& attempt, Index node, Mode mode) const noexcept;
  void check_memory(std::string& wrong, bool nobody_dead) const;
  PartyCopy copy_party(Index owner, Index record) const;
  std::string self_conflict(const Attempt& attempt, Index node, Mode mode) const;
  bool take_fast(Attempt& attempt, Index node, std::uint64_t word, Mode mode) noexcept;
  std::int64_t highest_fence() const noexcept;
  void note_fence(std::uint32_t lane, std::int64_t fence) noexcept;
  void tell_queue(Index node) noexcept;
  Progress take_latched(Attempt& attempt, Index node, std::uint32_t generation, Mode mode, std::optional<Mode> own,
                        bool queue, bool& stale);
  Progress decide(Attempt& attempt, Index node, Mode mode, std::optional<Mode> own, bool queue, bool all, Again& again);
  Progress decide_slots(Attempt& attempt, Index node, bool queue, bool all, Again& again);
  Progress wait_or_refuse(Attempt& attempt, Index node, Mode mode, bool all, Again& again);
  Progress apply(Attempt& attempt, Index node, Mode mode, std::optional<Mode> own);
  void give_back(Index node, Index record, Mode mode, std::uint32_t lane) noexcept;
  bool weaken(Index node, Index record, std::uint32_t lane, Mode from, Mode to, std::int64_t patience) noexcept;
  void settle(Index node, WakeList& wake) noexcept;
  bool tell_slots(Index node, WakeList& wake) noexcept;
  bool tell_modes(Index node, WakeList& wake) noexcept;
  void leave_queue(Attempt& attempt) noexcept;
  Index enqueue(const Attempt& attempt, Index node, Mode mode, QueueKey key, bool entangled);
  void dequeue(Waiter& waiter) noexcept;
  bool prepare_step(Attempt& attempt);
  void describe(Attempt& attempt);
  void drop_last_step(Index record) noexcept;
  void note_step(Attempt& attempt, Index node, Mode mode, bool fresh) noexcept;
  bool to_steps(Index record);
  void move_record(Index from, Index to) noexcept;
  // Every index that was read from the table passes through one of these: entry 0 is nobody's, so whatever a damaged
  // table says, nothing else is touched.
  Node& node_at(Index i) const noexcept { return nodes_[i < capacity_.nodes ? i : 0]; }
  Record& record_at(Index i) const noexcept { return records_[i < capacity_.records ? i : 0]; }
  OwnerSlot& owner_at(Index i) const noexcept { return owners_[i < capacity_.owners ? i : 0]; }
  Block& block_at(Index i) const noexcept { return blocks_[i < capacity_.blocks ? i : 0]; }
  Block& text_at(Index i) const noexcept { return texts_[i < capacity_.texts ? i : 0]; }
  Waiter& waiter(Index i) const noexcept { return waiters_[i <= stripe_count * capacity_.waiters_per_stripe ? i : 0]; }
  Index waiter_index(const Waiter& waiter) const { return static_cast<Index>(&waiter - waiters_); }
  Waiter* waiters_of(unsigned stripe) const {
    return waiters_ + 1 + std::size_t{stripe} * capacity_.waiters_per_stripe;
  }
  std::uint32_t waiters_used(unsigned stripe) const {
    return std::min(header_->stripes[stripe].used.acquire(), capacity_.waiters_per_stripe);
  }
  Index records_end() const noexcept {
    return std::min(header_->records.next.acquire(), at_.records.chunks) * chunk_size;
  }
  Index owners_end() const noexcept { return std::min(header_->owners.next.acquire(), at_.owners.chunks) * chunk_size; }
  Index blocks_end() const noexcept { return std::min(header_->blocks.next.acquire(), at_.blocks.chunks) * chunk_size; }
  Index nodes_end() const noexcept { return std::min(header_->nodes.next.acquire(), capacity_.nodes); }
  Cell<std::uint64_t>* find_step(Index record, Index node) const noexcept;

  // Calls f(node, mode, asked) for everything the record holds, descendants before ancestors; stops when f says true.
  template <class F>
  bool any_hold(const Record& record, F f) const;
  // Calls f(record index, node mode) for each of the owner's holds of `node`; stops when f says true.
  template <class F>
  bool any_hold_of(Index owner, Index node, F f) const;
  // Calls f(waiter) for the waiters of a stripe, those of dead processes left out.
  template <class F>
  void each_waiter(unsigned stripe, F f) const;

  static unsigned stripe_of(Index node) { return node % stripe_count; }
  Stripe& stripe(Index node) { return header_->stripes[stripe_of(node)]; }
  Tally& tally_of(std::uint32_t lane, Index tally) const noexcept {
    return tallies_[std::size_t{lane} * capacity_.tallies + (tally < capacity_.tallies ? tally : 0)];
  }
  Mode node_mode(const Record& record) const { return mode_of(record.mode.acquire()); }
  bool is_slots(const Node& node) const { return meta_space(node.meta.relaxed()) == Space::slots; }

  static constexpr std::uint32_t first_index_log2 = 10;
  static constexpr std::size_t first_index_size = std::size_t{1} << first_index_log2;
  static constexpr std::int64_t join_patience = 2'000'000'000;

  struct Offsets {
    std::size_t description, header, index, nodes, texts;
    Area records, owners, blocks;
    std::size_t waiters, tallies, end;
  };
  static Offsets lay_out(const Capacity& capacity);

  Capacity capacity_;
  Offsets at_;
  std::unique_ptr<TableFile> file_;
  std::unique_ptr<Region> region_;
  Processes processes_;

  Header* header_;
  Cell<std::uint64_t>* index_;
  Node* nodes_;
  Block* texts_;
  Record* records_;
  OwnerSlot* owners_;
  Block* blocks_;
  Waiter* waiters_;
  Tally* tallies_;
  std::uint32_t largest_index_log2_;
  std::uint64_t index_multiplier_;  // odd, random: where keys fall is not known to those who choose them

  std::uint32_t common_lane_ = 0;  // for threads that came too late for one of their own, or only release
  // How long a latch is waited for by those who only want to tell others something, which can be left out (I5). In
  // private memory the latch's owner cannot be stopped alone.
  std::int64_t patience_ = Latch::for_ever;
  std::mutex pool_mutex_;  // guards what follows
  OwnPool own_records_, own_owners_, own_blocks_;
  std::vector<std::uint32_t> idle_lanes_;

  std::atomic<bool> lost_{false};
  std::atomic<std::int64_t> last_look_{0};
  std::atomic<std::int64_t> last_thorough_{0};
  std::atomic<std::int64_t> last_late_{0};  // coarse_time() when somebody was not told
};

// Nanoseconds, to within a few milliseconds, of a clock that all processes share: for ages, not for order.
std::int64_t coarse_time() noexcept;

// A walk may meet a record that somebody releases and takes again: what it reads is then a mixture, so every index is
// looked at before it is used and every list has a bound. Those who need the truth compare the generation afterwards.
template <class F>
bool Table::any_hold(const Record& record, F f) const {
  if (Index block = record.steps.acquire(); block != none) {
    const Index blocks = blocks_end();
    const Index nodes = nodes_end();
    const std::uint64_t lock = record.word.acquire();
    const bool broken = record_state(lock) == RecordState::broken;
    for (Index walked = 0; block != none && block < blocks && walked < blocks; ++walked) {
      if (record_generation(record.word.acquire()) != record_generation(lock)) return false;  // it is another lock now
      if (record_state(record.word.acquire()) == RecordState::free) return false;
      for (std::size_t i = Block::words; i-- > 0;) {
        const std::uint64_t step = block_at(block).word[i].acquire();
        if (step_node(step) == none || step_node(step) >= nodes) continue;
        if (broken && (step_mode(step) == Mode::X || step_mode(step) == Mode::S)) continue;
        if (f(step_node(step), step_mode(step), step_asked(step))) return true;
      }
      block = block_at(block).next.acquire();
    }
    return false;
  }
  Mode mode = node_mode(record);  // before the node: a lock on its way never looks stronger than it is
  Index node = record.node.acquire();
  const RecordState state = record_state(record.word.acquire());
  bool asked = state == RecordState::held;
  for (std::size_t i = 0; node != none && i < max_depth; ++i) {
    const Index parent = node_at(node).parent.acquire();  // before f, which may give the node back
    const bool gone = state == RecordState::broken && i == 0;
    if (!gone && f(node, mode, asked)) return true;
    node = parent;
    mode = intention(mode);
    asked = false;
  }
  return false;
}

template <class F>
bool Table::any_hold_of(Index owner, Index node, F f) const {
  const unsigned level = meta_level(node_at(node).meta.relaxed());
  Index walked = 0;
  for (Index r = owner_at(owner).records.acquire(); r != none && ++walked < capacity_.records;
       r = record_at(r).next_of_owner.acquire()) {
    const Record& record = record_at(r);
    const std::uint64_t before = record.word.acquire();
    if (record_state(before) == RecordState::free) continue;
    const auto still = [&] {
      const std::uint64_t now = record.word.acquire();
      return record_generation(now) == record_generation(before) && record_state(now) != RecordState::free;
    };
    if (record.steps.acquire() == none && record_state(before) != RecordState::broken) {
      // one path: look at its node of the same level only
      Mode mode = node_mode(record);  // before the node, as above
      Index at = record.node.acquire();
      if (at == none || meta_level(node_at(at).meta.relaxed()) < level) continue;
      for (std::size_t i = 0; at != none && i < max_depth && meta_level(node_at(at).meta.relaxed()) > level; ++i) {
        at = node_at(at).parent.acquire();
        mode = intention(mode);
      }
      if (at == node && still() && f(r, mode)) return true;
    } else if (any_hold(record, [&](Index held, Mode mode, bool) { return held == node && still() && f(r, mode); })) {
      return true;
    }
  }
  return false;
}

template <class F>
void Table::each_waiter(unsigned stripe, F f) const {
  const std::uint32_t used = waiters_used(stripe);
  Waiter* const first = waiters_of(stripe);
  for (std::uint32_t i = 0; i < used; ++i) {
    if (first[i].waiting.acquire() != 0 && processes_.runs(first[i].process.acquire())) f(first[i]);
  }
}

}  // namespace hierlock::engine
