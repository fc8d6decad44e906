/* The lock protocol of src/engine, for several processes that may be killed between any two instructions.
 *
 * Every step that stands alone below is one load, one store or one compare-and-swap of shared memory, and is named
 * (F1, L1, ...) so that the code can refer to it. `atomic` and `d_step` join such an access with what is local to its
 * process, or with ghosts. What is checked, what is left out and how the steps map to the code: README.md.
 *
 * A configuration is a set of -D options; model/check has them all:
 *   SLOTS        processes from the beginning, one slot each             LATE   one more, that takes a slot that is free
 *   PLAN0...     which plans process 0... chooses from, see below        ROUNDS how many locks each takes in turn
 *   LANES        lanes a process has (1 or 2)                            DEATHS how many are killed
 *   GIVES_UP     bits: which processes may give up a wait                NO_TIMEOUT a waiter sleeps until it is told
 *   LEAVES       who ends gives its slot back                            VICTIMS  bits: who may be killed
 *   JANITOR_NOW  the janitor works beside the others, not only at the end
 *   BREAK_...    a mistake, which must be found
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

/* Plans: one node in a mode, or the parent (node 0) by intention and the child (node 1) in X. */
#define PLAN_IX 1
#define PLAN_S 2
#define PLAN_X 4
#define PLAN_PATH 8
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
#ifndef PLAN3
#define PLAN3 PLAN_ANY
#endif
#define MAY(p) ((id == 0 -> PLAN0 : (id == 1 -> PLAN1 : (id == 2 -> PLAN2 : PLAN3))) & (p))

#define ACTORS (SLOTS + LATE)
#define JANITOR SLOTS       /* the janitor's slot: it holds nothing and is never killed */
#define COLLECTING NODES    /* the latch of who collects, after those of the nodes */

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
#define LIVE_WORD(ref) WORD(LIVE, ((ref) - 1) / (SLOTS + 1))
#ifdef BREAK_LATCH_NAMES_SLOT
#define NAMES_LIVE(ref) (STATE(slot[SLOT_OF(ref)]) == LIVE)
#define ME_IN_LATCH REF(me, 0)
#else
#define NAMES_LIVE(ref) (slot[SLOT_OF(ref)] == LIVE_WORD(ref))
#define ME_IN_LATCH REF(me, generation)
#endif

/* A node's word: all of these are one word and change in one step. */
typedef Node {
  byte holder; /* the record that holds it in X: 1 + slot, as each process has one */
  bool queued; /* somebody waits, or a decision is being made */
  bool marked; /* lanes may count somebody */
  bool sharing /* S is open and IX is not; otherwise the reverse */
};
Node node[NODES];
#define OPEN(n, m) (node[n].holder == 0 && !node[n].queued && node[n].marked && node[n].sharing == ((m) == S))
#define UNTOUCHED(n) (node[n].holder == 0 && !node[n].queued && !node[n].marked)

byte latch[NODES + 1]; /* a ref; 0: free */

/* How many hold the node in IX and S, by lane; modulo 256, as a lane may be below zero. */
#define TALLY(n, s, l, m) (((n) * SLOTS + (s)) * LANES + (l)) * 2 + (m) - IX
byte tally[NODES * SLOTS * LANES * 2];

/* A process has one record and one place in a queue. 1 + node, or 0. */
byte want[SLOTS];    /* the node being taken; written before its word is changed */
byte held[SLOTS];    /* the deepest node that is held; cleared after its word was */
byte waiting[SLOTS]; /* the node whose queue it stands in; one store joins or leaves */
byte wants[SLOTS];   /* in which mode */
byte key[SLOTS];     /* its place in the queue, the lowest first */
bool signalled[SLOTS];  /* "look again" */

/* --- the kernel, and ghosts -----------------------------------------------------------------------------------------*/

bool alive[SLOTS + 1]; /* the slot's byte is locked */
bool gone[ACTORS];     /* killed: does nothing any more */
bool ended[ACTORS];    /* ended by itself */
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
    :: k < ACTORS -> assert(k == id || !CONFLICT(HOLDS(n, k), m)); k++
    :: else -> break
    od;
    k = 0
  }
}

/* What the dead leave in records is read by collect only: without deaths it need not be written. */
#if DEATHS
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
          assert(!alive[s]);
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
#define IS_DEAD(ref) (!NAMES_LIVE(ref) || !alive[SLOT_OF(ref)])
inline lock(l) {
  do
  :: atomic { latch[l] == 0 -> latch[l] = ME_IN_LATCH; break }
#if LATE
  :: atomic { latch[l] != 0 && IS_DEAD(latch[l]) -> o = latch[l] };
     mark_dead(SLOT_OF(o));
     if
     :: !NAMES_LIVE(o) ->
        if
        :: atomic { latch[l] == o -> latch[l] = ME_IN_LATCH; o = 0; break }
        :: atomic { latch[l] != o -> o = 0 }
        fi
     :: else -> o = 0
     fi
#else
  :: d_step { latch[l] != 0 && LOOKS_GONE(SLOT_OF(latch[l])) -> slot[SLOT_OF(latch[l])] = WORD(DEAD, 0); CHANGED }
  :: atomic { latch[l] != 0 && !NAMES_LIVE(latch[l]) -> latch[l] = ME_IN_LATCH; break }
#endif
#ifdef BREAK_LATCH_OF_THE_LIVING
  :: atomic { latch[l] != 0 && latch[l] != ME_IN_LATCH -> latch[l] = ME_IN_LATCH; break }
#endif
  od
}

/* L5 */
inline unlock(l) {
#ifdef BREAK_LATCH_OF_THE_LIVING
  latch[l] = 0
#else
  d_step { assert(latch[l] == ME_IN_LATCH); latch[l] = 0 }
#endif
}

/* --- adding up ------------------------------------------------------------------------------------------------------*/

/* The tallies of a node are READS words in a row: slot by slot, lane by lane, IX and S. `need` says which modes. One's
 * own are not a step: nobody else writes them. Nor is one that the process never uses: it is zero. */
#define READS (SLOTS * LANES * 2)
#define READ_SLOT(j) ((j) / (LANES * 2))
#define NEED_IX 1
#define NEED_S 2
#define NEED(m) ((m) == X -> NEED_IX | NEED_S : ((m) == S -> NEED_IX : NEED_S))
#if ROUNDS == 1 && !LATE
#define USES_IX(j) (uses[READ_SLOT(j)] == PLAN_IX || uses[READ_SLOT(j)] == PLAN_PATH)
#define ALWAYS_ZERO(j) ((j) % 2 == 0 && !USES_IX(j) || (j) % 2 == 1 && uses[READ_SLOT(j)] != PLAN_S)
#else
#define ALWAYS_ZERO(j) false
#endif
#define NEEDED(j) (need >> ((j) % 2) & 1)
#define SKIPPED(j) (READ_SLOT(j) == me || !NEEDED(j) || ALWAYS_ZERO(j))

/* Inside a step: the own tallies, and on to the first of somebody else. `at` is the node. */
inline begin_to_add_up() {
  ix = 0;
  s = 0;
  counted = 0;
  j = 0;
  do
  :: j < READS ->
     if
     :: READ_SLOT(j) == me && NEEDED(j) && j % 2 == 0 -> ix = ix + tally[at * READS + j]
     :: READ_SLOT(j) == me && NEEDED(j) && j % 2 == 1 -> s = s + tally[at * READS + j]
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

#define WAITS(i) (waiting[i] == at + 1 && STATE(slot[i]) == LIVE)
#if SLOTS == 2
#define ANYBODY_WAITS (WAITS(0) || WAITS(1))
#else
#define ANYBODY_WAITS (WAITS(0) || WAITS(1) || WAITS(2))
#endif

/* Is the node held in X by somebody who lives, and is not this one? */
#define HELD_IN_X (node[at].holder != 0 && node[at].holder != me + 1 && STATE(slot[node[at].holder - 1]) == LIVE)

#define HELD_UP(m) ((m) == X && ix + s != 0 || (m) == S && ix != 0 || (m) == IX && s != 0)

inline signal_those_who_may_go() {
  d_step {
    k = 0;
    do
    :: k < SLOTS ->
       w = WAITS(k) && !HELD_UP(wants[k]);
       i = 0;
       do
       :: i < SLOTS -> w = w && !(WAITS(i) && key[i] < key[k] && CONFLICT(wants[i], wants[k])); i++
       :: else -> break
       od;
       if
       :: w -> signalled[k] = true
       :: else
       fi;
       k++
    :: else -> break
    od;
    k = 0; i = 0; w = 0;
    node[at].queued = true
  }
}

/* Inside a step: is anybody earlier in the queue in the way? */
inline look_at_queue() {
  blocked = HELD_UP(mode);
  k = 0;
  do
  :: k < SLOTS ->
     blocked = blocked || k != me && WAITS(k) && (waiting[me] == 0 || key[k] < key[me]) && CONFLICT(wants[k], mode);
     k++
  :: else -> break
  od;
  k = 0
}

/* Q1 is the process live? Q2 read its tally. Q3 after all of them: is everybody that was counted still live, and still
 * the same process? Otherwise again. What
 * follows from the sum, D4 or T3, is found in the same step.
 *
 * Q1 and Q2 are one step here, and so are the looks of Q3. Nothing is lost by that: if Q3 finds a process live, it was
 * live at its Q2, too; and the looks of Q3 that all succeed would have succeeded together, at the time of the first. */
#if LATE
#define COUNTED(j) (GENERATION(slot[READ_SLOT(j)]) == 0 -> 1 << READ_SLOT(j) : 16 << READ_SLOT(j))
#else
#define COUNTED(j) (1 << READ_SLOT(j))
#endif
#ifdef BREAK_SUM_UNVERIFIED
#define OTHER_NOW(i) false
#else
#define OTHER_NOW(i)                                                                                                   \
  (((counted >> (i) & 1) && slot[i] != WORD(LIVE, 0)) || ((counted >> (4 + (i)) & 1) && slot[i] != WORD(LIVE, 1)))
#endif
#if SLOTS == 2
#define SUM_STANDS (!OTHER_NOW(0) && !OTHER_NOW(1))
#else
#define SUM_STANDS (!OTHER_NOW(0) && !OTHER_NOW(1) && !OTHER_NOW(2))
#endif

inline add_up(deciding) {
  do
  :: d_step {
       j < READS ->
       if
       :: STATE(slot[READ_SLOT(j)]) == LIVE ->
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
       :: deciding -> look_at_queue()
       :: !deciding -> signal_those_who_may_go()
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
       :: k < SLOTS && WAITS(k) -> need = need | NEED(wants[k]); k++
       :: k < SLOTS && !WAITS(k) -> k++
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
  lock(at);
  settle();
  unlock(at)
}

/* --- recovery -------------------------------------------------------------------------------------------------------*/

#ifdef BREAK_TWO_COLLECT
#define lock_collecting skip
#define unlock_collecting skip
#else
#define lock_collecting lock(COLLECTING)
#define unlock_collecting unlock(COLLECTING)
#endif

#define TALLY_OF(v, q) tally[((q) / (LANES * 2)) * READS + (v) * LANES * 2 + (q) % (LANES * 2)]

/* C1 under the latch of the node that the record names: if the word names the record, clear it (read, and
 * compare-and-swap; one step while no slot is used twice, as only who has the latch touches the word of a dead holder).
 * C2 leave the queue. C3 settle. To write zero where there is zero is not a step, here and below. */
inline collect_node() {
  lock(at);
#if LATE
  if
  :: node[at].holder == v + 1 ->
     d_step {
       if
       :: node[at].holder == v + 1 -> node[at].holder = 0; CHANGED
       :: else
       fi
     }
  :: else
  fi;
#else
  if
  :: d_step { node[at].holder == v + 1 -> node[at].holder = 0; CHANGED }
  :: else
  fi;
#endif
  if
  :: atomic { waiting[v] == at + 1 -> leave_queue(v) }
  :: else
  fi;
  settle();
  atomic { unlock(at); at = 0 }
}

/* C7, one compare-and-swap: from exactly the word that was seen dead. */
inline free_slot() {
  d_step {
    if
    :: slot[v] == dead -> slot[v] = WORD(FREE, GENERATION(dead)); CHANGED
    :: else
    fi;
    dead = 0
  }
}

inline collect_memory() {
#ifndef BREAK_LANES_NOT_WIPED
  do
  :: d_step {
       q < NODES * LANES * 2 ->
       do
       :: q < NODES * LANES * 2 && TALLY_OF(v, q) == 0 -> q++
       :: else -> break
       od;
       if
       :: q < NODES * LANES * 2 -> TALLY_OF(v, q) = 0
       :: else
       fi
     }
  :: atomic { q == NODES * LANES * 2 -> q = 0; break }
  od;
#endif
  if
  :: d_step { want[v] != 0 -> want[v] = 0 }
  :: else
  fi;
  if
  :: d_step { held[v] != 0 -> held[v] = 0 }
  :: else
  fi;
#ifndef BREAK_SLOT_FREED_FIRST
  free_slot()
#endif
}

/* C0 one at a time. C1 to C3 see above, for both nodes that the record may name. C4 latches that name it, so that its slot
 * can be named again. C5 its tallies, one by one. C6 its record. C7 only now the slot. Whoever is killed in the middle
 * leaves a slot that is dead as before, and it is all done again. */
inline collect() {
  lock_collecting;
  if
  :: atomic { STATE(slot[v]) == DEAD -> dead = slot[v] };
#ifdef BREAK_SLOT_FREED_FIRST
     free_slot();
#endif
     if
     :: atomic { want[v] != 0 -> at = want[v] - 1 }; collect_node()
     :: else
     fi;
     if
     :: atomic { held[v] != 0 && held[v] != want[v] -> at = held[v] - 1 }; collect_node()
     :: else
     fi;
     do
     :: atomic { at < NODES && latch[at] != 0 && SLOT_OF(latch[at]) == v -> skip }; tell_queue()
     :: d_step { at < NODES && !(latch[at] != 0 && SLOT_OF(latch[at]) == v) -> at++ }
     :: atomic { at == NODES -> at = 0; break }
     od;
     collect_memory()
  :: else
  fi;
  unlock_collecting
}

/* Marks all who are gone, and collects what is dead. */
#define TO_COLLECT(i) (i != me && (LOOKS_GONE(i) || STATE(slot[i]) == DEAD))
#if SLOTS == 2
#define NOBODY_TO_COLLECT (!TO_COLLECT(0) && !TO_COLLECT(1))
#else
#define NOBODY_TO_COLLECT (!TO_COLLECT(0) && !TO_COLLECT(1) && !TO_COLLECT(2))
#endif
inline watch() {
  do
  :: atomic {
       !NOBODY_TO_COLLECT ->
       v = 0;
       do
       :: TO_COLLECT(v) -> break
       :: else -> v++
       od
     };
     mark_dead(v);
     collect();
     v = 0
  :: NOBODY_TO_COLLECT -> break
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
  :: d_step { tally[TALLY(n, me, 0, m)]--; HOLDS(n, id) = 0; CHANGED }
  :: d_step { tally[TALLY(n, me, 1, m)]--; HOLDS(n, id) = 0; CHANGED }
  fi
#else
  d_step { tally[TALLY(n, me, 0, m)]--; HOLDS(n, id) = 0; CHANGED }
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
  :: d_step { QUEUED(at) -> node[at].holder = 0; HOLDS(at, id) = 0; CHANGED };
     tell_queue()
  :: d_step { !QUEUED(at) -> node[at].holder = 0; HOLDS(at, id) = 0; CHANGED }
  fi
}

/* --- the other inlines of a process ---------------------------------------------------------------------------------*/

inline choose(plan) {
  if
  :: MAY(PLAN_IX) -> plan = PLAN_IX
  :: MAY(PLAN_S) -> plan = PLAN_S
  :: MAY(PLAN_X) -> plan = PLAN_X
  :: MAY(PLAN_PATH) -> plan = PLAN_PATH
  fi
}
#define MODE(plan) (plan == PLAN_IX -> IX : (plan == PLAN_S -> S : X))

/* In any lane; q is which. */
inline count(n, m) {
#if LANES == 2
  if
  :: d_step { tally[TALLY(n, me, 0, m)]++; q = 0 }
  :: d_step { tally[TALLY(n, me, 1, m)]++; q = 1 }
  fi
#else
  tally[TALLY(n, me, 0, m)]++
#endif
}

inline enqueue() {
  d_step {
    signalled[me] = false;
    if
    :: waiting[me] == 0 ->
       k = 0;
       do
       :: k < SLOTS && waiting[k] == at + 1 && key[k] > key[me] -> key[me] = key[k]; k++
       :: k < SLOTS && !(waiting[k] == at + 1 && key[k] > key[me]) -> k++
       :: else -> break
       od;
       k = 0;
       key[me]++;
       wants[me] = mode;
       waiting[me] = at + 1
    :: else
    fi
  }
}

/* Inside a step: all locals as at the beginning, so that states that differ in nothing else are one. */
inline forget() {
  me = 0; generation = 0; plan = 0; at = 0; mode = 0; ix = 0; s = 0; j = 0; counted = 0; need = 0; i = 0; k = 0; w = 0;
  o = 0; q = 0; v = 0; dead = 0; back = 0; blocked = false; mine = false; round = 0
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

/* --- a process ------------------------------------------------------------------------------------------------------*/

proctype Process(byte id) {
  byte me, generation;          /* its slot, and how often that was used before */
  byte round, plan, at, mode;   /* `at`: the node being taken or given back, `mode`: how */
  byte ix, s, j, counted, need; /* adding up */
  byte i, k, w, o, q, v, dead, back; /* passing */
  bool blocked, mine;
  {
#if LATE
    if
    :: atomic { id < SLOTS -> me = id }
    :: id == SLOTS -> /* N1 the byte of a free slot, N2 then its word, with a new generation */
end_no_slot:
       if
       :: d_step { STATE(slot[0]) == FREE && !alive[0] -> me = 0; alive[0] = true }
       :: d_step { STATE(slot[1]) == FREE && !alive[1] -> me = 1; alive[1] = true }
#if SLOTS > 2
       :: d_step { STATE(slot[2]) == FREE && !alive[2] -> me = 2; alive[2] = true }
#endif
       fi;
       d_step { slot_of_actor[id] = me; generation = 1; slot[me] = WORD(LIVE, 1) }
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
      :: plan != PLAN_PATH -> mode = MODE(plan); goto take
      :: else
      fi
    };

#if NODES == 2
    /* The whole path at once. A1 parent open? A2 count there. A3 write down the target. A4 take the target: one
     * compare-and-swap. A5 parent still open? Then all is held. A6 otherwise everything back, as G1 to G4. */
    if
    :: OPEN(0, IX) ->
       tally[TALLY(0, me, 0, IX)]++;
       write_record(want, 2)
       if
       :: d_step { UNTOUCHED(1) -> node[1].holder = me + 1; at = 1 };
          if
          :: atomic { OPEN(0, IX) -> granted(0, IX); granted(1, X); mode = X; goto have }
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
       :: OPEN(at, mode) -> atomic { tally[TALLY(at, me, 0, mode)]++; granted(at, mode); goto have }
       :: else
       fi
#else
       count(at, mode);
       if
       :: atomic { OPEN(at, mode) -> granted(at, mode); q = 0; goto have }
       :: else
       fi;
       d_step { tally[TALLY(at, me, q, mode)]--; q = 0; CHANGED }
#endif
    :: else
    fi;

    /* Under the latch. D1 shut the fast path. D2 is the node held in X by somebody who lives? D3 add up the lanes, and
     * (not a step: under the latch) D4 is anybody earlier in the queue in the way? */
latched:
    lock(at);
#ifdef BREAK_WANT_AFTER
    write_record(want, at + 1)
#endif
#ifndef BREAK_QUEUED_NOT_SET
    node[at].queued = true;
#endif
    if
    :: d_step { HELD_IN_X -> blocked = true }
    :: d_step { !HELD_IN_X -> need = NEED(mode); begin_to_add_up() };
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
         :: waiting[me] == 0 -> goto settling
         :: else
         fi
       }
    /* P2 shared: mark, then P3 count. */
    :: d_step { !blocked && mode != X -> node[at].marked = true; node[at].sharing = (mode == S) };
       atomic {
         count(at, mode);
         q = 0;
         granted(at, mode);
         mine = true;
         if
         :: waiting[me] == 0 -> goto settling
         :: else
         fi
       }
    fi;
    leave_queue(me); /* P4 */
settling:
    settle();
    atomic {
      unlock(at);
      if
      :: mine -> mine = false; goto have
      :: else
      fi
    };
    /* Z1 asleep. */
    if
    :: signalled[me] -> goto latched
#ifndef NO_TIMEOUT
    :: atomic { (looked >> me & 1) == 0 -> looked = looked | 1 << me; back = at; at = 0 };
       watch();
       atomic { at = back; back = 0; goto latched }
#endif
    :: atomic { (GIVES_UP >> id & 1) -> skip }
    fi;
    /* Z2 had enough: leaves the queue, and gives back what it has. */
    lock(at);
    atomic { leave_queue(me) };
    settle();
    unlock(at);
#if NODES == 2
    if
    :: at == 1 -> uncount(0, IX); look_and_tell(0)
    :: else
    fi;
#endif
    write_record(want, 0)
    goto nothing;

have:
    /* H1 write down what is held, H2 then nothing is wanted. */
    write_record(held, at + 1)
    write_record(want, 0)
#ifdef BREAK_RECORD_CLEARED_FIRST
    write_record(held, 0)
#endif
    if
#if NODES == 2
    :: atomic { plan == PLAN_PATH && at == 0 -> at = 1; mode = X; goto take }
    :: d_step { plan == PLAN_PATH && at == 1 -> tally[TALLY(0, me, 0, IX)]--; HOLDS(0, id) = 0; CHANGED };
       give_back_x();
       look_and_tell(0)
#endif
    :: d_step { plan == PLAN_X && QUEUED(at) -> node[at].holder = 0; HOLDS(at, id) = 0; CHANGED };
       tell_queue()
    :: d_step { plan == PLAN_X && !QUEUED(at) -> node[at].holder = 0; HOLDS(at, id) = 0; CHANGED }
    :: atomic { plan == PLAN_IX || plan == PLAN_S -> uncount(at, mode) };
       look_and_tell(0)
    fi;
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
    atomic { slot[me] = WORD(DEAD, generation); CHANGED };
#ifdef BREAK_LEAVER_COLLECTS
    d_step { v = me; dead = slot[me] };
    collect_memory();
#endif
    d_step { alive[me] = false; ended[id] = true; forget() }
#endif
  } unless {
    d_step { gone[id] -> forget() }
  }
}

/* SIGKILL. Each configuration kills as often as it says, unless all have ended: that nothing goes wrong with fewer
 * deaths is for the configuration with fewer deaths to say. */
#ifndef VICTIMS
#define VICTIMS 7
#endif
#define MAY_DIE(a) (deaths < DEATHS && (VICTIMS >> a & 1) && !gone[a] && !ended[a])
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
#endif
  od
}
#endif

/* When all is quiet, everything is collected, and nothing is left of the dead or of anybody. */
#define QUIET(a) (gone[a] || ended[a])
#if SLOTS == 2
#define FIRST_QUIET (QUIET(0) && QUIET(1))
#else
#define FIRST_QUIET (QUIET(0) && QUIET(1) && QUIET(2))
#endif
#if LATE
#define ALL_QUIET (FIRST_QUIET && ended[SLOTS])
#else
#define ALL_QUIET FIRST_QUIET
#endif
#define JANITOR_LOOKS (!NOBODY_TO_COLLECT)

proctype Janitor() {
  byte me, generation, at;
  byte ix, s, j, counted, need, i, k, w, o, q, v, dead;
  byte mode; bool blocked; /* not used */
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
  atomic {
    k = 0;
    do
    :: k < SLOTS ->
       assert(STATE(slot[k]) != DEAD);
       assert(STATE(slot[k]) == LIVE || want[k] == 0 && held[k] == 0);
       assert(waiting[k] == 0);
       q = 0;
       do
       :: q < NODES * LANES * 2 ->
          assert(STATE(slot[k]) == LIVE || TALLY_OF(k, q) == 0);
#if LANES == 2
          if
          :: q % 4 == 0 || q % 4 == 1 -> w = TALLY_OF(k, q) + TALLY_OF(k, q + 2); assert(w == 0)
          :: else
          fi;
#else
          assert(TALLY_OF(k, q) == 0);
#endif
          q++
       :: else -> break
       od;
       k++
    :: else -> break
    od;
    k = 0;
    do
    :: k < NODES -> assert(node[k].holder == 0 && !node[k].queued && latch[k] == 0); k++
    :: else -> break
    od;
    assert(latch[COLLECTING] == 0)
  }
}

init {
  atomic {
    byte id = 0;
    do
    :: id <= SLOTS -> slot[id] = WORD(LIVE, 0); alive[id] = true; id++
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
