/* The lock protocol of src/engine, for several processes that may be killed between any two instructions.
 *
 * Every step that stands alone below is one load, one store or one compare-and-swap of shared memory, and is named
 * (F1, L1, ...) so that the code can refer to it. `atomic` and `d_step` join such an access with what is local to its
 * process, or with ghosts. What is checked, what is left out and how the steps map to the code: README.md.
 *
 * A configuration is a set of -D options; model/check has them all:
 *   SLOTS        processes from the beginning, one slot each: 3, or 2    LATE   with two: process 2 comes later, and takes a slot
 *                that is free or, if there is none, that of a dead process
 *   PLAN0...     which plans process 0... chooses from, see below        ROUNDS how many locks each takes in turn
 *   LANES        lanes a process has (1 or 2)                            DEATHS how many are killed
 *   GIVES_UP     bits: which processes may give up a wait                NO_TIMEOUT a waiter sleeps until it is told
 *   LEAVES       a process that ends gives its slot back                 VICTIMS  bits: which may be killed
 *   STOPS        how many are stopped, for ever                          STOPPABLE bits: which may be stopped
 *   NODES        1, or 2: a path                                         ONE_STRIPE both nodes have the same latch
 *   PARTIAL      a collector's time may be up in the middle              JANITOR_NOW  the janitor works beside the others,
 *                                                                        not only at the end
 *   LOOKERS      bits: who looks for the dead when its wait times out; the others only look at the node again
 *   IMPATIENT    bits: who gives up if somebody has the latch, stopped or only slow
 *   STOPPED_ONLY what is left when the stopped process is gone is not looked at
 *   OLD_...      steps as they were once, which must be found            BREAK_...  a mistake, which must be found
 */

#ifndef SLOTS
#define SLOTS 3
#endif
#ifndef LATE
#define LATE 0
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef LANES
#define LANES 1
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#ifndef GIVES_UP
#define GIVES_UP 0
#endif
#ifndef NODES
#define NODES 1
#endif
#ifndef STOPS
#define STOPS 0
#endif
#ifndef LOOKERS
#define LOOKERS 15
#endif

/* Plans: one node in a mode, or the parent (node 0) by intention and the child (node 1) in X. */
#define PLAN_IX 1
#define PLAN_S 2
#define PLAN_X 4
#define PLAN_PATH 8
#define PLAN_LOOK 16 /* takes nothing; looks for the dead, as somebody who opens the table */
#define PLAN_S_OR_X (PLAN_S | PLAN_X)
#define PLAN_ANY (PLAN_IX | PLAN_S | PLAN_X)
#ifndef PLAN0
#define PLAN0 PLAN_ANY
#endif
#ifndef PLAN1
#define PLAN1 PLAN_ANY
#endif
#ifndef PLAN2
#define PLAN2 PLAN_ANY
#endif
#define MAY(p) ((id == 0 -> PLAN0 : (id == 1 -> PLAN1 : PLAN2)) & (p))

/* What is checked has a name, which spin prints: model/check knows which check must fail. */
#define MUST(condition, otherwise) assert((condition) || otherwise)
hidden byte two_holders, live_marked_dead, latch_lost, stopped_keeps_dead, slot_left, latch_left, record_left, waiter_left,
  lanes_left, tally_left, word_left, word_lost, queued_left; /* never set */

#define ACTORS (SLOTS + LATE)
#define MEMORIES (SLOTS + LATE)
#define JANITOR SLOTS       /* the janitor's slot: it holds nothing and is never killed */

/* Latches: of the stripes, then those of who collects: one for each slot. */
#ifdef ONE_STRIPE
#define STRIPE(n) 0
#define STRIPES 1
#else
#define STRIPE(n) n
#define STRIPES NODES
#endif
#ifdef OLD_COLLECT
#define COLLECTING(v) STRIPES
#else
#define COLLECTING(v) (STRIPES + (v))
#endif

/* --- shared memory -------------------------------------------------------------------------------------------------*/

/* Modes. 0: none. */
#define IX 1
#define S 2
#define X 3
#define CONFLICT(a, b) ((a) != 0 && (b) != 0 && ((a) == X || (b) == X || (a) != (b)))

/* A slot's word: generation | state, one word. A process is named by slot and generation ("ref"), so that one that
 * takes a slot over is another process. Refs start at 1: 0 names nobody. */
#define FREE 0
#define LIVE 1
#define DEAD 2
byte slot[SLOTS + 1];
#define STATE(w) ((w) & 3)
#define GENERATION(w) ((w) >> 2)
#define WORD(state, generation) ((state) | (generation) << 2)
#define REF(s, generation) (1 + (s) + (generation) * (SLOTS + 1))
#define SLOT_OF(ref) (((ref) - 1) % (SLOTS + 1))
#define GENERATION_OF(ref) (((ref) - 1) / (SLOTS + 1))
#define LIVE_WORD(ref) WORD(LIVE, GENERATION_OF(ref))
#define REF_LIVE(ref) (slot[SLOT_OF(ref)] == LIVE_WORD(ref))

/* What a process has: a record (`me` is which), lanes (`MINE`), a place in a queue (`PLACE`), and its slot (`MY`). Without
 * LATE all of these are one number, for ever. With LATE there is one more record and one more set of lanes, and
 * `record_of` and `lanes_of` name whose each is: 0 nobody's. The code gives out records by chunks, and lanes one by one. */
#if LATE
byte record_of[MEMORIES];
byte lanes_of[MEMORIES];
#define MY my
#define MINE mine_in
#define LIVE_RECORD(i) (record_of[i] != 0 && REF_LIVE(record_of[i]))
#define LIVE_LANES(i) (lanes_of[i] != 0 && REF_LIVE(lanes_of[i]))
/* A place in a queue is an actor's own, and names it. */
#define PLACE id
#define PLACE_REF(i) ((i) < SLOTS -> REF(i, 0) : REF(slot_of_actor[SLOTS], 1))
#define LIVE_PLACE(i) REF_LIVE(PLACE_REF(i))
#else
#define PLACE me
#define MINE me
#define MY me
#define LIVE_RECORD(i) (STATE(slot[i]) == LIVE)
#define LIVE_LANES(i) LIVE_RECORD(i)
#define LIVE_PLACE(i) LIVE_RECORD(i)
#endif
#ifdef BREAK_LATCH_NAMES_SLOT
#define NAMES_LIVE(ref) (STATE(slot[SLOT_OF(ref)]) == LIVE)
#define ME_IN_LATCH REF(MY, 0)
#else
#define NAMES_LIVE(ref) REF_LIVE(ref)
#if LATE
#define ME_IN_LATCH REF(MY, generation)
#else
#define ME_IN_LATCH REF(MY, 0)
#endif
#endif

/* A node's word: all of these are one word and change in one step. */
typedef Node {
  byte holder; /* the record that holds it in X: 1 + memory, as each process has one */
  bool queued; /* somebody waits, or a decision is being made */
  bool marked; /* lanes may count somebody */
  bool sharing /* S is open and IX is not; otherwise the reverse */
};
Node node[NODES];
#define OPEN(n, m) (node[n].holder == 0 && !node[n].queued && node[n].marked && node[n].sharing == ((m) == S))
#define UNTOUCHED(n) (node[n].holder == 0 && !node[n].queued && !node[n].marked)

byte latch[STRIPES + SLOTS]; /* a ref; 0: free */
#ifdef ONE_STRIPE
byte deciding; /* 1 + the node that the latch was last taken for */
#endif

/* How many hold the node in IX and S, by lane; modulo 256, as a lane may be below zero. */
#define TALLY(n, s, l, m) (((n) * MEMORIES + (s)) * LANES + (l)) * 2 + (m) - IX
byte tally[NODES * MEMORIES * LANES * 2];

/* A process has one record. 1 + node, or 0. */
byte want[MEMORIES];    /* the node being taken; written before its word is changed */
byte held[MEMORIES];    /* the deepest node that is held; cleared after its word was */
byte told[SLOTS + 1]; /* 1 + the generation of the dead process for whom the queues were settled */
byte waiting[ACTORS]; /* the node whose queue it stands in; one store joins or leaves */
byte wants[ACTORS];   /* in which mode */
byte key[ACTORS];     /* its place in the queue, the lowest first */
bool signalled[ACTORS];  /* "look again" */

/* --- the kernel, and ghosts -----------------------------------------------------------------------------------------*/

bool alive[SLOTS + 1]; /* the slot's byte is locked */
bool gone[ACTORS];     /* killed: does nothing any more */
bool ended[ACTORS];    /* ended by itself */
#if STOPS
bool frozen[ACTORS];      /* stopped: does nothing any more, and is not dead */
bool stopped[SLOTS + 1];  /* the same, by slot */
byte stops;
#define STOPPED_REF(ref) ((ref) != 0 && stopped[SLOT_OF(ref)])
#else
#define STOPPED_REF(ref) false
#endif
byte deaths;
byte slot_of_actor[ACTORS];
byte uses[ACTORS]; /* with one round: its plan */
byte holds[NODES * ACTORS]; /* the mode in which this actor believes that it holds this node */
#define HOLDS(n, a) holds[(n) * ACTORS + (a)]

/* A wait's time-out may come at any time, and as often as it likes; but to look again when nothing has changed since
 * the last look changes nothing either. So a waiter's time-out fires once, and again whenever somebody gave something
 * back or died since: then every run ends, and a waiter that waits for ever is a run that ends wrongly. */
byte looked; /* bits: its time-out has fired since the last change */
#define CHANGED looked = 0

/* Inside a step: this process has the node in this mode from now on. */
inline granted(n, m) {
  d_step {
    HOLDS(n, id) = m;
    k = 0;
    do
    :: k < ACTORS -> MUST(k == id || !CONFLICT(HOLDS(n, k), m), two_holders); k++
    :: else -> break
    od;
    k = 0
  }
}

/* What the dead leave in records is read by collect only: without deaths it need not be written. */
#if DEATHS || STOPS
#define write_record(field, value) field[me] = value;
#else
#define write_record(field, value)
#endif

/* --- death ----------------------------------------------------------------------------------------------------------*/

/* W1 read the slot's word, W2 ask the kernel, W3 change exactly that word. W1 and W2 are one step: if the word changes
 * between them, W3 fails. While no slot is used twice W3 joins them for the same reason: it can fail only because
 * somebody else did it. */
#define LOOKS_GONE(s) (STATE(slot[s]) == LIVE && !alive[s])
inline mark_dead(s) {
#if LATE
  if
  :: atomic { LOOKS_GONE(s) -> w = slot[s] };
     d_step {
       if
#ifdef BREAK_DEATH_WITHOUT_GENERATION
       :: STATE(slot[s]) == LIVE ->
#else
       :: slot[s] == w ->
#endif
          MUST(!alive[s], live_marked_dead);
          slot[s] = WORD(DEAD, GENERATION(slot[s]));
          CHANGED
       :: else
       fi;
       w = 0
     }
  :: else
  fi
#else
  if
  :: d_step { LOOKS_GONE(s) -> slot[s] = WORD(DEAD, 0); CHANGED }
  :: else
  fi
#endif
}

/* --- latches --------------------------------------------------------------------------------------------------------*/

/* L1 free: take it. L2 not free: read whom it names. L3 is that one dead (if the kernel says so, mark it)? L4 then take
 * it over, if it still names the same. To look at a latch of the living and find it so changes nothing: not a step.
 * While no slot is used twice L2 to L4 are one step: a latch that names the dead changes only by being taken over. */
#ifdef ONE_STRIPE
#define TOOK_OVER over = true
#else
#define TOOK_OVER skip /* see lock_stripe */
#endif
#define IS_DEAD(ref) (!NAMES_LIVE(ref) || !alive[SLOT_OF(ref)])
inline lock(x) {
  do
  :: atomic { latch[x] == 0 -> latch[x] = ME_IN_LATCH; break }
#if LATE
  :: atomic { latch[x] != 0 && IS_DEAD(latch[x]) -> o = latch[x] };
     mark_dead(SLOT_OF(o));
     if
     :: !NAMES_LIVE(o) ->
        if
        :: atomic { latch[x] == o -> latch[x] = ME_IN_LATCH; o = 0; TOOK_OVER; break }
        :: atomic { latch[x] != o -> o = 0 }
        fi
     :: else -> o = 0
     fi
#else
  :: d_step { latch[x] != 0 && LOOKS_GONE(SLOT_OF(latch[x])) -> slot[SLOT_OF(latch[x])] = WORD(DEAD, 0); CHANGED }
  :: atomic { latch[x] != 0 && !NAMES_LIVE(latch[x]) -> latch[x] = ME_IN_LATCH; TOOK_OVER; break }
#endif
#if STOPS
  :: atomic { STOPPED_REF(latch[x]) -> late = true; break } /* L6 */
#endif
#ifdef IMPATIENT
  :: atomic { (IMPATIENT >> id & 1) && latch[x] != 0 && latch[x] != ME_IN_LATCH -> late = true; break }
#endif
#ifdef BREAK_LATCH_OF_THE_LIVING
  :: atomic { latch[x] != 0 && latch[x] != ME_IN_LATCH -> latch[x] = ME_IN_LATCH; break }
#endif
  od
}

/* Without patience: the kernel is not asked. The janitor waits for those who will go on, to have less to try. */
inline try_lock(x, stripe) {
  if
  :: atomic { latch[x] == 0 -> latch[x] = ME_IN_LATCH }
  :: atomic { latch[x] != 0 && !NAMES_LIVE(latch[x]) -> o = latch[x] };
     if
     :: atomic { latch[x] == o -> latch[x] = ME_IN_LATCH; o = 0; over = stripe }
     :: atomic { latch[x] != o -> o = 0; late = true }
     fi
  :: atomic { latch[x] != 0 && NAMES_LIVE(latch[x]) && (MY != JANITOR || STOPPED_REF(latch[x]) || !alive[SLOT_OF(latch[x])]) -> late = true }
  fi
}

/* L5 */
inline unlock(x) {
#ifdef BREAK_LATCH_OF_THE_LIVING
  latch[x] = 0
#else
  d_step { MUST(latch[x] == ME_IN_LATCH, latch_lost); latch[x] = 0 }
#endif
}

/* Of the stripe of the node `at`. Whoever took it over from the dead first settles the node that the dead had it for. If
 * that is the node that it is taken for, nothing is lost by settling it only once, at the end, as all do who come this
 * way. Then `deciding` says for which node it has it; where a stripe is one node, it is that. */
inline lock_stripe() {
  lock(STRIPE(at));
#ifdef ONE_STRIPE
  if
#ifndef BREAK_TAKEN_OVER_UNSETTLED
  :: atomic { !late && over && deciding != 0 && deciding != at + 1 -> back = at; at = deciding - 1 };
     settle();
     atomic { at = back; back = 0 }
#endif
  :: else
  fi;
  if
  :: late
  :: else -> atomic { over = false; deciding = at + 1 }
  fi
#endif
}

/* --- adding up ------------------------------------------------------------------------------------------------------*/

/* The tallies of a node are READS words in a row: slot by slot, lane by lane, IX and S. `need` says which modes. One's
 * own are not a step: nobody else writes them. Nor is one that the process never uses: it is zero. */
#define READS (MEMORIES * LANES * 2)
#define READ_MEMORY(j) ((j) / (LANES * 2))
#define NEED_IX 1
#define NEED_S 2
#define NEED(m) ((m) == X -> NEED_IX | NEED_S : ((m) == S -> NEED_IX : NEED_S))
#if ROUNDS == 1 && !LATE
#define USES_IX(j) (uses[READ_MEMORY(j)] == PLAN_IX || uses[READ_MEMORY(j)] == PLAN_PATH)
#define ALWAYS_ZERO(j) ((j) % 2 == 0 && !USES_IX(j) || (j) % 2 == 1 && uses[READ_MEMORY(j)] != PLAN_S)
#else
#define ALWAYS_ZERO(j) false
#endif
#define NEEDED(j) (need >> ((j) % 2) & 1)
#define SKIPPED(j) (READ_MEMORY(j) == MINE || !NEEDED(j) || ALWAYS_ZERO(j))

/* Inside a step: the own tallies, and on to the first of somebody else. `at` is the node. */
inline begin_to_add_up() {
  ix = 0;
  s = 0;
  counted = 0;
  j = 0;
  do
  :: j < READS ->
     if
     :: READ_MEMORY(j) == MINE && NEEDED(j) && j % 2 == 0 -> ix = ix + tally[at * READS + j]
     :: READ_MEMORY(j) == MINE && NEEDED(j) && j % 2 == 1 -> s = s + tally[at * READS + j]
     :: else
     fi;
     j++
  :: else -> break
  od;
  j = 0;
  do
  :: j < READS && SKIPPED(j) -> j++
  :: else -> break
  od;
  skip /* the end of a loop must not be the end of a d_step */
}

#define WAITS(i) (waiting[i] == at + 1 && LIVE_PLACE(i))
#if ACTORS == 2
#define ANYBODY_WAITS (WAITS(0) || WAITS(1))
#elif ACTORS == 3
#define ANYBODY_WAITS (WAITS(0) || WAITS(1) || WAITS(2))
#else
#define ANYBODY_WAITS (WAITS(0) || WAITS(1) || WAITS(2) || WAITS(3))
#endif

/* Is the node held in X by somebody who lives, and is not this one? */
#define HELD_IN_X (node[at].holder != 0 && node[at].holder != me + 1 && LIVE_RECORD(node[at].holder - 1))

/* What the flags alone tell: without the mark nobody shares, and `sharing` says which of S and IX there may be. They
 * change under the latch only, so they are the same whenever they are looked at below. */
#ifdef BREAK_FLAGS_IGNORE_SHARING
#define NOBODY_SHARES_AGAINST(m) (!node[at].marked || (m) != X)
#else
#define NOBODY_SHARES_AGAINST(m) (!node[at].marked || (m) == S && node[at].sharing || (m) == IX && !node[at].sharing)
#endif
#define MUST_ADD_UP(m) (NOBODY_SHARES_AGAINST(m) -> 0 : NEED(m))
#define HELD_UP(m) (!NOBODY_SHARES_AGAINST(m) && ((m) == X && ix + s != 0 || (m) == S && ix != 0 || (m) == IX && s != 0))

/* Tells the first that may go and was not told. (The code tells up to 16.) Whoever takes its grant settles again, and so
 * tells the next. */
inline signal_who_may_go() {
  d_step {
    k = 0;
    do
    :: k < MEMORIES ->
       w = WAITS(k) && !HELD_UP(wants[k]);
       i = 0;
       do
       :: i < MEMORIES -> w = w && !(WAITS(i) && key[i] < key[k] && CONFLICT(wants[i], wants[k])); i++
       :: else -> break
       od;
       if
       :: w && !signalled[k] && (o == 0 || key[k] < key[o - 1]) -> o = k + 1
       :: else
       fi;
       k++
    :: else -> break
    od;
    if
    :: o != 0 -> signalled[o - 1] = true
    :: else
    fi;
    k = 0; i = 0; w = 0; o = 0;
    node[at].queued = true
  }
}

/* Inside a step: is anybody earlier in the queue in the way? */
inline look_at_queue() {
  blocked = HELD_UP(mode);
  k = 0;
  do
  :: k < MEMORIES ->
     blocked = blocked || k != PLACE && WAITS(k) && (waiting[PLACE] == 0 || key[k] < key[PLACE]) && CONFLICT(wants[k], mode);
     k++
  :: else -> break
  od;
  k = 0
}

/* Q1 is the process live? Q2 read its tally. Q3 after all of them: is everybody of whom anything was counted still live,
 * and still the same process? Otherwise again. What follows from the sum, D4 or T3, is found in the same step.
 *
 * Q1 and Q2 are one step here, and so are the looks of Q3. Nothing is lost by that: if Q3 finds a process live, it was
 * live at its Q2, too; and the looks of Q3 that all succeed would have succeeded together, at the time of the first. */
#if LATE
#define COUNTED(j) (GENERATION_OF(lanes_of[READ_MEMORY(j)]) == 0 -> 1 << READ_MEMORY(j) : 128)
#else
#define COUNTED(j) (1 << READ_MEMORY(j))
#endif
#ifdef BREAK_SUM_UNVERIFIED
#define OTHER_NOW(i) false
#define LATE_OTHER_NOW false
#else
#define OTHER_NOW(i) ((counted >> (i) & 1) && slot[i] != WORD(LIVE, 0))
#if LATE
#define LATE_OTHER_NOW ((counted & 128) && slot[slot_of_actor[SLOTS]] != WORD(LIVE, 1))
#else
#define LATE_OTHER_NOW false
#endif
#endif
#if SLOTS == 2
#define SUM_STANDS (!OTHER_NOW(0) && !OTHER_NOW(1) && !LATE_OTHER_NOW)
#else
#define SUM_STANDS (!OTHER_NOW(0) && !OTHER_NOW(1) && !OTHER_NOW(2) && !LATE_OTHER_NOW)
#endif

inline add_up(decides) {
  do
  :: d_step {
       j < READS ->
       if
       :: LIVE_LANES(READ_MEMORY(j)) && tally[at * READS + j] != 0 ->
          counted = counted | COUNTED(j);
          if
          :: j % 2 == 0 -> ix = ix + tally[at * READS + j]
          :: else -> s = s + tally[at * READS + j]
          fi
       :: else
       fi;
       j++;
       do
       :: j < READS && SKIPPED(j) -> j++
       :: else -> break
       od;
       skip
     }
  :: atomic {
       j == READS && SUM_STANDS ->
       if
       :: decides -> look_at_queue()
       :: !decides -> signal_who_may_go()
       fi;
       j = 0; counted = 0; need = 0; ix = 0; s = 0;
       break
     }
  :: d_step { j == READS && !SUM_STANDS -> begin_to_add_up() }
  od
}

/* --- the queue, under the latch -------------------------------------------------------------------------------------*/

#ifdef BREAK_MARK_CLEARED_UNSEEN
#define shut_no_longer node[at].queued = false; node[at].marked = false
#else
#define shut_no_longer node[at].queued = false
#endif

/* T1 does anybody wait? If not, T4 `queued` goes. If so, T2 is the node held in X? and add up the lanes; T3 signal those
 * who may go; T4 `queued` (it is there already). Queues change only under the latch and nobody rises from the dead, so T1
 * is not a step of its own. */
inline settle() {
  if
  :: d_step { !ANYBODY_WAITS -> shut_no_longer }
  :: d_step { ANYBODY_WAITS && HELD_IN_X -> node[at].queued = true }
  :: d_step {
       ANYBODY_WAITS && !HELD_IN_X ->
       k = 0;
       need = 0;
       do
       :: k < MEMORIES && WAITS(k) -> need = need | MUST_ADD_UP(wants[k]); k++
       :: k < MEMORIES && !WAITS(k) -> k++
       :: else -> break
       od;
       k = 0;
       begin_to_add_up()
     };
     add_up(false)
  fi
}

inline leave_queue(p) {
  d_step { waiting[p] = 0; wants[p] = 0; key[p] = 0; signalled[p] = false; CHANGED }
}

/* Of the node `at`. */
inline tell_queue() {
  lock_stripe();
#if STOPS || defined(IMPATIENT)
  if
  :: late -> late = false /* they look for themselves */
  :: else -> settle(); unlock(STRIPE(at))
  fi
#else
  settle();
  unlock(STRIPE(at))
#endif
}

/* --- recovery -------------------------------------------------------------------------------------------------------*/

/* A collector has little time. With PARTIAL it may be up after each part; the rest is left for the next look. The
 * janitor has time. */
#ifdef PARTIAL
#define TIME_UP(then)                                                                                                  \
  ; if                                                                                                                 \
  :: MY != JANITOR -> then                                                                                             \
  :: true                                                                                                              \
  fi
#else
#define TIME_UP(then)
#endif

/* What the dead process of slot v left, or one before it in the same slot. */
#if LATE
#define LEFT_BY(ref) ((ref) != 0 && SLOT_OF(ref) == v && GENERATION_OF(ref) <= GENERATION(dead))
#define C c /* which of the records or lanes */
#define ITS_RECORD(c) LEFT_BY(record_of[c])
#define ITS_LANES(c) LEFT_BY(lanes_of[c])
#else
#define LEFT_BY(ref) ((ref) != 0 && SLOT_OF(ref) == v)
#define C v
#define ITS_RECORD(c) ((c) == v)
#define ITS_LANES(c) ((c) == v)
#endif

/* C1, without a latch: if the word names a record of the dead, clear it: read, and compare-and-swap. One step while
 * nothing is used twice: the word of a dead holder is only overwritten, and nobody puts it back. */
#define NAMES_ITS_RECORD (node[at].holder != 0 && ITS_RECORD(node[at].holder - 1))
inline drop_word() {
#if LATE
  if
  :: atomic { NAMES_ITS_RECORD -> o = node[at].holder };
     d_step {
       if
       :: node[at].holder == o -> node[at].holder = 0; CHANGED
       :: else
       fi;
       o = 0
     }
  :: else
  fi;
#else
  if
  :: d_step { NAMES_ITS_RECORD -> node[at].holder = 0; CHANGED }
  :: else
  fi;
#endif
  at = 0
}

/* C1 both nodes that the record may name; then C6, the record, which goes to others. To write zero where there is zero
 * is not a step, here and below. */
inline drop_words() {
  if
  :: atomic { want[C] != 0 -> at = want[C] - 1 }; drop_word()
  :: else
  fi;
  if
  :: atomic { held[C] != 0 && held[C] != want[C] -> at = held[C] - 1 }; drop_word()
  :: else
  fi
}
inline free_record() {
  if
  :: d_step { want[C] != 0 -> want[C] = 0 }
  :: else
  fi;
  if
  :: d_step { held[C] != 0 -> held[C] = 0 }
  :: else
  fi
#if LATE
  ; record_of[C] = 0
#endif
}
inline collect_record() {
#ifdef BREAK_RECORD_FREED_FIRST
  free_record();
  drop_words()
#else
  drop_words();
  free_record()
#endif
  TIME_UP(left = true)
}

/* C5 the tallies of its lanes, one by one; then the lanes go to others. If time is up, `wiped` says how far it came: the
 * next collector goes on from there. */
#define TALLIES_OF_LANE (NODES * LANES * 2)
#define TALLY_OF(v, q) tally[((q) / (LANES * 2)) * READS + (v) * LANES * 2 + (q) % (LANES * 2)]
#ifdef PARTIAL
byte wiped[SLOTS + 1]; /* Collecting::at: the tallies below this are wiped */
#endif
inline wipe_lanes() {
#ifndef BREAK_LANES_NOT_WIPED
#ifdef PARTIAL
  q = wiped[v];
#endif
  do
  :: d_step {
       q < TALLIES_OF_LANE ->
       do
       :: q < TALLIES_OF_LANE && TALLY_OF(C, q) == 0 -> q++
       :: else -> break
       od;
       if
       :: q < TALLIES_OF_LANE -> TALLY_OF(C, q) = 0
       :: else
       fi
     }
#ifdef PARTIAL
  :: atomic { q != 0 && q < TALLIES_OF_LANE && MY != JANITOR -> wiped[v] = q; left = true; q = 0; break }
#endif
  :: atomic { q == TALLIES_OF_LANE -> q = 0; break }
  od
#else
  skip
#endif
#ifdef PARTIAL
#ifndef BREAK_PLACE_NOT_FORGOTTEN
  ; if
  :: !left && wiped[v] != 0 -> wiped[v] = 0
  :: else
  fi
#endif
#endif
#if LATE
  ; if
  :: !left -> lanes_of[C] = 0
  :: else
  fi
#endif
  TIME_UP(left = true)
}

/* C7, one compare-and-swap: from exactly the word that was seen dead. */
inline free_slot() {
  d_step {
    if
    :: slot[v] == dead -> slot[v] = WORD(FREE, GENERATION(dead)); CHANGED
    :: else
    fi
  }
}

/* C2 waiters of the dead leave the queue of the node `at`, and it is settled; C3 so it is if others wait there. */
#ifdef OLD_COLLECT
#define DEAD_WAITER(i) (waiting[i] == at + 1 && i == v)
#else
#define DEAD_WAITER(i) (waiting[i] == at + 1 && !LIVE_PLACE(i))
#endif
#if ACTORS == 2
#define ANY_DEAD_WAITER (DEAD_WAITER(0) || DEAD_WAITER(1))
#define ANYBODY_STANDS(n) (waiting[0] == (n) + 1 || waiting[1] == (n) + 1)
#elif ACTORS == 3
#define ANY_DEAD_WAITER (DEAD_WAITER(0) || DEAD_WAITER(1) || DEAD_WAITER(2))
#define ANYBODY_STANDS(n) (waiting[0] == (n) + 1 || waiting[1] == (n) + 1 || waiting[2] == (n) + 1)
#else
#define ANY_DEAD_WAITER (DEAD_WAITER(0) || DEAD_WAITER(1) || DEAD_WAITER(2) || DEAD_WAITER(3))
#define ANYBODY_STANDS(n) (waiting[0] == (n) + 1 || waiting[1] == (n) + 1 || waiting[2] == (n) + 1 || waiting[3] == (n) + 1)
#endif
inline tidy_node() {
  do
  :: ANY_DEAD_WAITER ->
#ifdef ONE_STRIPE
     deciding = at + 1;
#endif
     d_step {
       do
       :: DEAD_WAITER(k) -> break
       :: else -> k++
       od;
       leave_queue(k);
       k = 0
     };
     settle()
  :: atomic { !ANY_DEAD_WAITER && !ANYBODY_WAITS -> break }
  :: !ANY_DEAD_WAITER && ANYBODY_WAITS -> settle(); break
  od
}

/* A stripe, for C2 and C3. Its latch is taken over if it names a dead process; then the node that it was taken for is
 * settled. If it is not to be had at once: `late`. */
#ifdef ONE_STRIPE
#define LATCH_OF(n) 0
#define ANYBODY_STANDS_IN(l) (ANYBODY_STANDS(0) || ANYBODY_STANDS(1))
#else
#define LATCH_OF(n) n
#define ANYBODY_STANDS_IN(l) ANYBODY_STANDS(l)
#endif
#ifdef OLD_COLLECT
#define lock_to_tidy lock(l)
#else
#define lock_to_tidy try_lock(l, true)
#endif
inline tidy_stripe() {
  lock_to_tidy;
  if
  :: late
  :: else ->
#if !defined(OLD_COLLECT) && !defined(BREAK_TAKEN_OVER_UNSETTLED)
     if
#ifdef ONE_STRIPE
     :: atomic { over && deciding != 0 -> at = deciding - 1 };
#else
     :: atomic { over -> at = l };
#endif
        settle()
     :: else
     fi;
#endif
     atomic { over = false; at = l };
     tidy_node();
#ifdef ONE_STRIPE
     at = 1;
     tidy_node();
#endif
     atomic { unlock(l); at = 0 }
  fi
}

/* M1 after a death all queues are settled, once: those who may go are told. M2 `told` says for whom it was done, by name;
 * it may be written late. Where nobody stands in any queue M1 and M2 are one step: whoever comes later knows of the death. */
#if LATE
#define NAME_BIT(i) (STATE(slot[i]) == DEAD && told[i] != 1 + GENERATION(slot[i]) -> 1 << (i) + 4 * GENERATION(slot[i]) : 0)
#else
#define NAME_BIT(i) (STATE(slot[i]) == DEAD && told[i] == 0 -> 1 << (i) : 0)
#endif
#ifdef OLD_COLLECT
#define UNTOLD 0
#elif SLOTS == 2
#define UNTOLD (NAME_BIT(0) | NAME_BIT(1))
#else
#define UNTOLD (NAME_BIT(0) | NAME_BIT(1) | NAME_BIT(2))
#endif
#if NODES == 1
#define ANYBODY_STANDS_ANYWHERE ANYBODY_STANDS(0)
#else
#define ANYBODY_STANDS_ANYWHERE (ANYBODY_STANDS(0) || ANYBODY_STANDS(1))
#endif
/* Inside a step: one store for each of the dead. (One step: whoever is killed between two of them leaves one more to
 * be told about, and that is as if it had been killed before the first.) */
inline now_told() {
  l = 0;
  do
  :: l < SLOTS && (untold >> l & 1) -> told[l] = 1; l++
  :: l < SLOTS && (untold >> l + 4 & 1) -> told[l] = 2; l++
  :: l < SLOTS && !(untold >> l & 1) && !(untold >> l + 4 & 1) -> l++
  :: else -> break
  od;
  l = 0;
  untold = 0
}
inline tell_of_deaths() {
  do
  :: atomic { l < STRIPES && !ANYBODY_STANDS_IN(l) -> l++ }
  :: atomic { l < STRIPES && ANYBODY_STANDS_IN(l) -> skip };
     tidy_stripe();
     atomic { late = false; l++ }
     TIME_UP(l = STRIPES + 1)
  :: atomic { l == STRIPES -> now_told(); break }
  :: atomic { l > STRIPES -> l = 0; untold = 0; break }
  od
}

/* C4 the stripes whose latch names the dead process, or in which it waits. One whose latch is not to be had at once is
 * left for the next time, and so is the slot. */
#define LATCHED_BY_IT(l) LEFT_BY(latch[l])
#ifdef ONE_STRIPE
#define STANDS_IN(i, l) (waiting[i] != 0)
#else
#define STANDS_IN(i, l) (waiting[i] == (l) + 1)
#endif
#ifdef OLD_COLLECT
#define MUST_TIDY(l) true
#elif LATE
#define MUST_TIDY(l) (LATCHED_BY_IT(l) || STANDS_IN(v, l) || STANDS_IN(SLOTS, l) && slot_of_actor[SLOTS] == v && GENERATION(dead) == 1)
#else
#define MUST_TIDY(l) (LATCHED_BY_IT(l) || STANDS_IN(v, l))
#endif
inline collect_latches() {
  do
  :: atomic { l < STRIPES && !MUST_TIDY(l) -> l++ }
  :: atomic { l < STRIPES && MUST_TIDY(l) -> skip };
     tidy_stripe();
     atomic {
       if
       :: late -> late = false; left = true
       :: else
       fi;
       l++
     }
  :: atomic { l == STRIPES -> l = 0; break }
  od
}

/* C2 to C4 the queues; C1 and C6 its record; C5 its lanes. `left`: something is left. What is left of the queues keeps
 * nobody from the rest; `kept` remembers it. */
#if LATE
#define each_of(which, what)                                                                                           \
  do                                                                                                                   \
  :: c < MEMORIES && !left && which(c) -> what; c++                                                                    \
  :: atomic { c < MEMORIES && (left || !which(c)) -> c++ }                                                             \
  :: atomic { c == MEMORIES -> c = 0; break }                                                                          \
  od
#else
#define each_of(which, what)                                                                                           \
  if                                                                                                                   \
  :: !left -> what                                                                                                     \
  :: else                                                                                                              \
  fi
#endif
inline collect_garbage() {
#ifdef OLD_COLLECT
  /* Before, the words came first. Then each stripe's latch was waited for, and the first that was late ended it all. */
  drop_words();
  collect_latches();
#else
  collect_latches();
  atomic { kept = left; left = false };
#endif
  each_of(ITS_RECORD, collect_record());
  each_of(ITS_LANES, wipe_lanes());
  atomic { left = left || kept; kept = false }
}

/* C0 whoever collects has the latch of the dead one's slot. C7 only in the end, the slot. Whoever is killed in the middle
 * leaves a slot that is dead as before, and it is all done again. Before, there was one such latch for all slots. */
#ifdef BREAK_TWO_COLLECT
#define lock_collecting skip
#define unlock_collecting skip
#else
#define lock_collecting try_lock(COLLECTING(v), false)
#define unlock_collecting unlock(COLLECTING(v))
#endif
inline collect() {
  lock_collecting;
  if
  :: late -> late = false
  :: else ->
     if
     :: atomic { STATE(slot[v]) == DEAD -> dead = slot[v] };
#ifdef BREAK_SLOT_FREED_FIRST
        free_slot();
#endif
        collect_garbage();
#ifndef BREAK_SLOT_FREED_FIRST
        if
        :: left
        :: else -> free_slot()
        fi;
#endif
        atomic { left = false; dead = 0 }
     :: else
     fi;
     unlock_collecting
  fi
}

/* By a newcomer that took the slot of a dead process: what that one left. If somebody is at it, or in the way, it is
 * collected together with what the newcomer leaves. */
inline collect_before() {
  if
  :: STATE(dead) == DEAD ->
     v = my;
     lock_collecting;
     if
     :: late -> late = false
     :: else ->
        collect_garbage();
        atomic { left = false; unlock_collecting }
     fi;
     v = 0
  :: else
  fi
}

/* Marks all who are gone, tells those who may go, and collects what is dead, as far as nobody is in the way. */
#define IS_GONE(i) ((i) != MY && LOOKS_GONE(i))
#define IS_GARBAGE(i) ((i) != MY && STATE(slot[i]) == DEAD)
#if SLOTS == 2
#define NOBODY_GONE (!IS_GONE(0) && !IS_GONE(1))
#define NO_GARBAGE (!IS_GARBAGE(0) && !IS_GARBAGE(1))
#else
#define NOBODY_GONE (!IS_GONE(0) && !IS_GONE(1) && !IS_GONE(2))
#define NO_GARBAGE (!IS_GARBAGE(0) && !IS_GARBAGE(1) && !IS_GARBAGE(2))
#endif
inline watch() {
  do
  :: atomic { !(NOBODY_GONE) -> do :: LOOKS_GONE(v) && v != MY -> break :: else -> v++ od };
     mark_dead(v);
     v = 0
  :: atomic { NOBODY_GONE && UNTOLD != 0 && ANYBODY_STANDS_ANYWHERE -> untold = UNTOLD }; tell_of_deaths(); break
  :: atomic { NOBODY_GONE && UNTOLD != 0 && !ANYBODY_STANDS_ANYWHERE -> untold = UNTOLD; now_told(); break }
  :: atomic { NOBODY_GONE && UNTOLD == 0 -> break }
  od;
  do
  :: atomic { v < SLOTS && IS_GARBAGE(v) -> skip };
     collect();
     v++
  :: atomic {
       v < SLOTS && !IS_GARBAGE(v) ->
       do
       :: v < SLOTS && !IS_GARBAGE(v) -> v++
       :: else -> break
       od
     }
  :: atomic { v == SLOTS -> v = 0; break }
  od
}

/* --- giving back ----------------------------------------------------------------------------------------------------*/

#ifdef BREAK_RELEASE_TELLS_NOBODY
#define QUEUED(n) false
#else
#define QUEUED(n) node[n].queued
#endif

/* G1 uncount; then G2 look for `queued`, and G3 tell the queue. In any lane: another thread may give back. */
inline uncount(n, m) {
#if LANES == 2
  if
  :: d_step { tally[TALLY(n, MINE, 0, m)]--; HOLDS(n, id) = 0; CHANGED }
  :: d_step { tally[TALLY(n, MINE, 1, m)]--; HOLDS(n, id) = 0; CHANGED }
  fi
#else
  d_step { tally[TALLY(n, MINE, 0, m)]--; HOLDS(n, id) = 0; CHANGED }
#endif
}

inline look_and_tell(n) {
  if
  :: atomic { QUEUED(n) -> at = n }; tell_queue()
  :: atomic { !QUEUED(n) -> at = n }
  fi
}

/* G4 X: the word no longer names the record; this also tells whether it was `queued`. */
inline give_back_x() {
  if
  :: d_step { QUEUED(at) -> MUST(node[at].holder == me + 1, word_lost); node[at].holder = 0; HOLDS(at, id) = 0; CHANGED };
     tell_queue()
  :: d_step { !QUEUED(at) -> MUST(node[at].holder == me + 1, word_lost); node[at].holder = 0; HOLDS(at, id) = 0; CHANGED }
  fi
}

#define CAN_TAKE(s) (!alive[s] && STATE(slot[s]) != LIVE)

/* --- the other inlines of a process ---------------------------------------------------------------------------------*/

inline choose(plan) {
  if
  :: MAY(PLAN_IX) -> plan = PLAN_IX
  :: MAY(PLAN_S) -> plan = PLAN_S
  :: MAY(PLAN_X) -> plan = PLAN_X
  :: MAY(PLAN_PATH) -> plan = PLAN_PATH
  :: MAY(PLAN_LOOK) -> plan = PLAN_LOOK
  fi
}
#define MODE(plan) (plan == PLAN_IX -> IX : (plan == PLAN_S -> S : X))

/* In any lane; q is which. */
inline count(n, m) {
#if LANES == 2
  if
  :: d_step { tally[TALLY(n, MINE, 0, m)]++; q = 0 }
  :: d_step { tally[TALLY(n, MINE, 1, m)]++; q = 1 }
  fi
#else
  tally[TALLY(n, MINE, 0, m)]++
#endif
}

inline enqueue() {
  d_step {
    signalled[PLACE] = false;
    if
    :: waiting[PLACE] == 0 ->
       k = 0;
       do
       :: k < MEMORIES && waiting[k] == at + 1 && key[k] > key[PLACE] -> key[PLACE] = key[k]; k++
       :: k < MEMORIES && !(waiting[k] == at + 1 && key[k] > key[PLACE]) -> k++
       :: else -> break
       od;
       k = 0;
       key[PLACE]++;
       wants[PLACE] = mode;
       waiting[PLACE] = at + 1
    :: else
    fi
  }
}

/* Inside a step: all locals as at the beginning, so that states that differ in nothing else are one. */
inline forget() {
  me = 0; generation = 0; plan = 0; at = 0; mode = 0; ix = 0; s = 0; j = 0; counted = 0; need = 0; i = 0; k = 0; w = 0;
  o = 0; q = 0; l = 0; v = 0; dead = 0; untold = 0; back = 0; blocked = false; mine = false; round = 0; late = false;
  left = false; kept = false; over = false;
#if LATE
  my = 0; mine_in = 0; c = 0;
#endif
  skip
}

/* The end. With LEAVES it says so itself: V1 the slot is dead, as if it had been killed; the others collect. V2 the byte. */
inline leave() {
#ifdef LEAVES
  break
#else
  ended[id] = true;
  forget();
  break
#endif
}

#if STOPS
/* Whoever waits for what a stopped process has, or stands behind it, keeps its deadline. */
#define HAS_SOMETHING(a) (frozen[a] && (want[a] != 0 || held[a] != 0 || waiting[a] != 0))
#if SLOTS == 2
#define IN_THE_WAY (HAS_SOMETHING(0) || HAS_SOMETHING(1))
#else
#define IN_THE_WAY (HAS_SOMETHING(0) || HAS_SOMETHING(1) || HAS_SOMETHING(2))
#endif
#define MAY_GIVE_UP ((GIVES_UP >> id & 1) || IN_THE_WAY || STOPPED_REF(latch[STRIPE(at)]))
#else
#define MAY_GIVE_UP (GIVES_UP >> id & 1)
#endif

/* --- a process ------------------------------------------------------------------------------------------------------*/

proctype Process(byte id) {
  byte me, generation;          /* its slot, and how often that was used before */
  byte round, plan, at, mode;   /* `at`: the node being taken or given back, `mode`: how */
  byte ix, s, j, counted, need; /* adding up */
  byte i, k, w, o, q, l, v, dead, untold, back; /* passing */
  bool blocked, mine;
  bool late, over; /* a latch was not to be had; it was taken over from a dead process */
  bool left, kept; /* something remains to be collected */
#if LATE
  byte my, mine_in, c; /* its slot and its lanes; passing */
#endif
  {
#if LATE
    if
    :: atomic { id < SLOTS -> me = id; my = id; mine_in = id }
    /* It marks those who are gone. N1 the byte of a slot that is free, or dead (if there was no free one: that may be different by now). N2 then its
     * word, with a new generation, from exactly the one that was seen. N3 lanes, and a record, that are nobody's. */
    :: id == SLOTS ->
end_no_slot:
       if
       :: LOOKS_GONE(0) -> mark_dead(0); goto end_no_slot
       :: LOOKS_GONE(1) -> mark_dead(1); goto end_no_slot
       :: d_step { CAN_TAKE(0) -> my = 0; alive[0] = true; w = slot[0] }
       :: d_step { CAN_TAKE(1) -> my = 1; alive[1] = true; w = slot[1] }
       fi;
       if
       :: d_step { slot[my] == w -> slot_of_actor[id] = my; generation = 1; slot[my] = WORD(LIVE, 1); dead = w; w = 0 };
          collect_before();
          dead = 0
       :: d_step { slot[my] != w -> alive[my] = false; w = 0 }; goto end_no_slot
       fi;
       if
       :: d_step { lanes_of[0] == 0 -> lanes_of[0] = REF(my, 1); mine_in = 0 }
       :: d_step { lanes_of[1] == 0 -> lanes_of[1] = REF(my, 1); mine_in = 1 }
       :: d_step { lanes_of[2] == 0 -> lanes_of[2] = REF(my, 1); mine_in = 2 }
       fi;
       if
       :: d_step { record_of[0] == 0 -> record_of[0] = REF(my, 1); me = 0 }
       :: d_step { record_of[1] == 0 -> record_of[1] = REF(my, 1); me = 1 }
       :: d_step { record_of[2] == 0 -> record_of[2] = REF(my, 1); me = 2 }
       fi
    fi;
#endif

    do
    :: atomic {
#if !LATE
      me = id;
#endif
      round++;
#if ROUNDS == 1
      plan = uses[id];
#else
      choose(plan);
#endif
      if
#if (PLAN0 | PLAN1 | PLAN2) & PLAN_LOOK
      :: plan == PLAN_LOOK -> goto look
#endif
      :: plan != PLAN_PATH && plan != PLAN_LOOK -> mode = MODE(plan); goto take
      :: else
      fi
    };

#if NODES == 2
    /* The whole path at once. A1 parent open? A2 count there. A3 write down the target. A4 take the target: one
     * compare-and-swap. A5 parent still open? Then all is held. A6 otherwise everything back, as G1 to G4. */
    if
    :: OPEN(0, IX) ->
       tally[TALLY(0, MINE, 0, IX)]++;
       write_record(want, 2)
       if
       :: d_step { UNTOUCHED(1) -> node[1].holder = me + 1; at = 1 };
          if
          :: atomic { OPEN(0, IX) -> granted(0, IX); granted(1, X); mode = X; goto have_at_once }
          :: else
          fi;
          give_back_x()
       :: else
       fi;
       uncount(0, IX);
       look_and_tell(0)
    :: else
    fi;
    mode = IX;
#endif

    /* The node `at` in `mode`. F1 write down what is wanted. F2 X: one compare-and-swap, if nobody is or was here.
     * Shared: F3 open? F4 count. F5 still open? F6 otherwise uncount; whoever saw the count is told by what follows. */
take:
#ifndef BREAK_WANT_AFTER
    write_record(want, at + 1)
#endif
    if
    :: atomic { mode == X && UNTOUCHED(at) -> node[at].holder = me + 1; granted(at, X) };
#ifdef BREAK_WANT_AFTER
       write_record(want, at + 1)
#endif
       goto have
    :: mode != X && OPEN(at, mode) ->
#ifdef BREAK_LOOK_THEN_COUNT
       if
       :: OPEN(at, mode) -> atomic { tally[TALLY(at, MINE, 0, mode)]++; granted(at, mode); goto have }
       :: else
       fi
#else
       count(at, mode);
       if
       :: atomic { OPEN(at, mode) -> granted(at, mode); q = 0; goto have }
       :: else
       fi;
       d_step { tally[TALLY(at, MINE, q, mode)]--; q = 0; CHANGED }
#endif
    :: else
    fi;

    /* Under the latch. D1 shut the fast path. D2 is the node held in X by somebody who lives? D3 add up the lanes, and
     * (not a step: under the latch) D4 is anybody earlier in the queue in the way? */
latched:
    lock_stripe();
#if STOPS || defined(IMPATIENT)
    if
    :: late -> goto too_late
    :: else
    fi;
#endif
#ifdef BREAK_WANT_AFTER
    write_record(want, at + 1)
#endif
#ifndef BREAK_QUEUED_NOT_SET
    node[at].queued = true;
#endif
    if
    :: d_step { HELD_IN_X -> blocked = true }
    :: d_step { !HELD_IN_X -> need = MUST_ADD_UP(mode); begin_to_add_up() };
       add_up(true)
    fi;

    if
    /* E1 into the queue, behind everybody; or, if there already: not signalled any more. */
    :: atomic { blocked -> blocked = false; enqueue(); goto settling }
    /* P1 X: the word names the record, and the mark goes: the lanes were seen empty while the fast path is shut.
     * (Whether it goes is left open: the code counts once more, and may see a sharer between count and look.) */
    :: atomic {
         !blocked && mode == X ->
         node[at].holder = me + 1;
         if
         :: node[at].marked = false; node[at].sharing = false
         :: node[at].marked
         fi;
         granted(at, X);
         mine = true;
         if
         :: waiting[PLACE] == 0 -> goto settling
         :: else
         fi
       }
    /* P2 shared: mark, and a dead holder loses the word; then P3 count. */
    :: d_step { !blocked && mode != X -> node[at].holder = 0; node[at].marked = true; node[at].sharing = (mode == S) };
       atomic {
         count(at, mode);
         q = 0;
         granted(at, mode);
         mine = true;
         if
         :: waiting[PLACE] == 0 -> goto settling
         :: else
         fi
       }
    fi;
    leave_queue(PLACE); /* P4 */
settling:
    settle();
    atomic {
      unlock(STRIPE(at));
      if
      :: mine -> mine = false; goto have
      :: else
      fi
    };
    /* Z1 asleep. */
    if
    :: signalled[PLACE] -> goto latched
#ifndef NO_TIMEOUT
#if LOOKERS
    :: atomic { (LOOKERS >> id & 1) && (looked >> id & 1) == 0 -> looked = looked | 1 << id; back = at; at = 0 };
       watch();
       atomic { at = back; back = 0; goto latched }
#endif
    :: atomic { !(LOOKERS >> id & 1) && (looked >> id & 1) == 0 -> looked = looked | 1 << id; goto latched }
#endif
    :: atomic { MAY_GIVE_UP -> skip }
    fi;
    /* Z2 had enough: leaves the queue, and gives back what it has. If the latch is not to be had: Z3 leaves by one store. */
    lock_stripe();
#if STOPS || defined(IMPATIENT)
    if
    :: late ->
too_late:
       late = false;
       leave_queue(PLACE)
    :: else ->
       leave_queue(PLACE);
       settle();
       unlock(STRIPE(at))
    fi;
#else
    leave_queue(PLACE);
    settle();
    unlock(STRIPE(at));
#endif
#if NODES == 2
    if
    :: at == 1 -> uncount(0, IX); look_and_tell(0)
    :: else
    fi;
#endif
    goto nothing;

have:
    /* H1 write down what is held, H2 then nothing is wanted. (H2 is finish(): neither between the steps of a path, nor for
     * a path that was taken at once, nor after a wait was given up. There `want` stays what it was.) */
    write_record(held, at + 1)
    if
#if NODES == 2
    :: atomic { plan == PLAN_PATH && at == 0 -> at = 1; mode = X; goto take }
#endif
    :: else
    fi;
    write_record(want, 0)
#if NODES == 2
    goto giving_back;
have_at_once:
    write_record(held, at + 1)
giving_back:
#endif
#ifdef BREAK_RECORD_CLEARED_FIRST
    write_record(held, 0)
#endif
    if
#if NODES == 2
    :: d_step { plan == PLAN_PATH -> tally[TALLY(0, MINE, 0, IX)]--; HOLDS(0, id) = 0; CHANGED };
       give_back_x();
       look_and_tell(0)
#endif
    :: d_step { plan == PLAN_X && QUEUED(at) -> MUST(node[at].holder == me + 1, word_lost); node[at].holder = 0; HOLDS(at, id) = 0; CHANGED };
       tell_queue()
    :: d_step { plan == PLAN_X && !QUEUED(at) -> MUST(node[at].holder == me + 1, word_lost); node[at].holder = 0; HOLDS(at, id) = 0; CHANGED }
    :: atomic { plan == PLAN_IX || plan == PLAN_S -> uncount(at, mode) };
       look_and_tell(0)
    fi;
#if (PLAN0 | PLAN1 | PLAN2) & PLAN_LOOK
    goto nothing;
look:
    watch();
#endif
nothing:
    atomic {
      write_record(held, 0)
      plan = 0;
      at = 0;
      mode = 0;
      if
      :: round < ROUNDS
      :: else -> leave()
      fi
    }
    od;
#ifdef LEAVES
    atomic { slot[MY] = WORD(DEAD, generation); CHANGED };
#ifdef BREAK_LEAVER_COLLECTS
    if
    :: id == 0 ->
       d_step { v = MY; dead = slot[MY] };
       c = me;
       collect_record();
       c = MINE;
       wipe_lanes();
       free_slot()
    :: else
    fi;
#endif
    d_step { alive[MY] = false; ended[id] = true; forget() }
#endif
  } unless {
#if STOPS
    d_step { gone[id] || frozen[id] -> forget() }
#else
    d_step { gone[id] -> forget() }
#endif
  }
}

/* SIGKILL. Each configuration kills as often as it says, unless all have ended: that nothing goes wrong with fewer
 * deaths is for the configuration with fewer deaths to say. */
#ifndef VICTIMS
#define VICTIMS 7
#endif
#if STOPS
#define FROZEN(a) frozen[a]
#else
#define FROZEN(a) false
#endif
#define MAY_DIE(a) (alive[JANITOR] && deaths < DEATHS && (VICTIMS >> a & 1) && !gone[a] && !ended[a] && !FROZEN(a))
inline kill(a) {
  gone[a] = true; alive[slot_of_actor[a]] = false; deaths++; CHANGED; HOLDS(0, a) = 0;
#if NODES == 2
  HOLDS(1, a) = 0
#endif
}
#if DEATHS
active proctype Killer() {
end_nobody_left:
  do
  :: d_step { MAY_DIE(0) -> kill(0) }
  :: d_step { MAY_DIE(1) -> kill(1) }
#if SLOTS > 2
  :: d_step { MAY_DIE(2) -> kill(2) }
#elif LATE
  :: d_step { MAY_DIE(2) && slot_of_actor[2] != JANITOR -> kill(2) }
#endif
  od
}
#endif

/* SIGSTOP, and never SIGCONT: to go on after a while is nothing but to be slow. */
#if STOPS
#ifndef STOPPABLE
#define STOPPABLE 7
#endif
#define MAY_STOP(a) (alive[JANITOR] && stops < STOPS && (STOPPABLE >> a & 1) && !gone[a] && !ended[a] && !frozen[a])
inline stop(a) { frozen[a] = true; stopped[slot_of_actor[a]] = true; stops++; CHANGED }
active proctype Stopper() {
end_nobody_left_to_stop:
  do
  :: d_step { MAY_STOP(0) -> stop(0) }
  :: d_step { MAY_STOP(1) -> stop(1) }
#if SLOTS > 2
  :: d_step { MAY_STOP(2) -> stop(2) }
#endif
  od
}
#endif

/* When all is quiet, everything is collected, and nothing is left of the dead or of anybody. */
#define QUIET(a) (gone[a] || ended[a] || FROZEN(a))
#if SLOTS == 2
#define FIRST_QUIET (QUIET(0) && QUIET(1))
#else
#define FIRST_QUIET (QUIET(0) && QUIET(1) && QUIET(2))
#endif
#if LATE
#define ALL_QUIET (FIRST_QUIET && QUIET(SLOTS))
#else
#define ALL_QUIET FIRST_QUIET
#endif
#define JANITOR_LOOKS (!NOBODY_GONE || !NO_GARBAGE)

#ifdef OLD_COLLECT
#define AT_COLLECTING(k) false
#else
#define AT_COLLECTING(k) STOPPED_REF(latch[COLLECTING(k)])
#endif
#define KEPT_BY_STOPPED(k) (AT_COLLECTING(k) || waiting[k] != 0 && STOPPED_REF(latch[STRIPE(waiting[k] - 1)]))

proctype Janitor() {
  byte id, me, generation, at;
  byte ix, s, j, counted, need, i, k, w, o, q, l, v, dead, untold, back;
  byte mode; bool blocked, late, over, left, kept; /* mode, blocked: not used */
#if LATE
  byte my = JANITOR, mine_in = JANITOR, c;
#endif
  me = JANITOR;
end_not_quiet:
  do
#ifdef JANITOR_NOW
  :: JANITOR_LOOKS -> watch()
  :: ALL_QUIET && !JANITOR_LOOKS -> break
#else
  :: ALL_QUIET -> watch(); break
#endif
  od;
#if LATE
  /* What the newcomer left to be collected with its own is collected when it is gone. */
  if
  :: ended[SLOTS] -> alive[slot_of_actor[SLOTS]] = false
  :: else
  fi;
  watch();
#endif
#if STOPS
  /* While somebody is stopped, all the dead are collected, but for the one that it was collecting itself, and for those who
   * wait in a queue whose latch it has. Then it is killed. */
  k = 0;
  d_step {
    k = 0;
    do
    :: k < SLOTS -> MUST(STATE(slot[k]) != DEAD || KEPT_BY_STOPPED(k), stopped_keeps_dead); k++
    :: else -> break
    od;
    k = 0;
    do
    :: k < SLOTS ->
       if
       :: frozen[k] -> frozen[k] = false; stopped[k] = false; gone[k] = true; alive[k] = false; HOLDS(0, k) = 0
       :: else
       fi;
       k++
    :: else -> break
    od;
    k = 0
  };
#ifdef STOPPED_ONLY
  goto end_enough;
#endif
  watch();
#endif
  atomic {
    k = 0;
    do
    :: k < SLOTS -> MUST(STATE(slot[k]) != DEAD, slot_left); MUST(latch[COLLECTING(k)] == 0 || !NAMES_LIVE(latch[COLLECTING(k)]), latch_left); k++
    :: else -> break
    od;
    k = 0;
    do
    :: k < MEMORIES ->
       MUST(LIVE_RECORD(k) || want[k] == 0 && held[k] == 0, record_left);
       MUST(waiting[k] == 0, waiter_left);
#if LATE
       MUST(record_of[k] == 0 || LIVE_RECORD(k), record_left);
       MUST(lanes_of[k] == 0 || LIVE_LANES(k), lanes_left);
#endif
       q = 0;
       do
       :: q < NODES * LANES * 2 ->
          MUST(LIVE_LANES(k) || TALLY_OF(k, q) == 0, tally_left);
#if LANES == 2
          if
          :: q % 4 == 0 || q % 4 == 1 -> w = TALLY_OF(k, q) + TALLY_OF(k, q + 2); MUST(w == 0, tally_left)
          :: else
          fi;
#else
          MUST(TALLY_OF(k, q) == 0, tally_left);
#endif
          q++
       :: else -> break
       od;
       k++
    :: else -> break
    od;
    k = 0;
    do
    :: k < NODES ->
       MUST(node[k].holder == 0, word_left);
#ifndef IMPATIENT
       MUST(!node[k].queued, queued_left);
#endif
       MUST(latch[STRIPE(k)] == 0, latch_left);
       k++
    :: else -> break
    od
  };
end_enough:
  skip
}

init {
  atomic {
    byte id = 0;
    do
    :: id <= SLOTS ->
       slot[id] = WORD(LIVE, 0);
       alive[id] = true;
#if LATE
       record_of[id] = (id < SLOTS -> REF(id, 0) : 0);
       lanes_of[id] = record_of[id];
#endif
       id++
    :: else -> break
    od;
    id = 0;
    do
    :: id < ACTORS ->
       slot_of_actor[id] = id;
#if ROUNDS == 1
       choose(uses[id]);
#endif
       run Process(id);
       id++
    :: else -> id = 0; break
    od;
    run Janitor()
  }
}
