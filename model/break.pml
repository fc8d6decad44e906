/* Locks that an operator takes away ("break"), while their owners extend, release and take again, and while nodes are
 * recycled for other keys. Nobody is killed here but breakers: a breaker stores nothing after its one compare-and-swap
 * that anybody needs. Steps have the names of locks.pml where they are the same; B1 to B6 are the breaker's, K1 and K2
 * those of an effective count, U1 to U3 those of reusing a node, X1 to X4 those of an extension. README.md maps them to
 * the code.
 *
 * Three nodes: P and Q, which stay what they are, and N, which is first a child of P (key 0). Whoever wants a child of
 * Q (key 1) recycles N if nobody uses it, and the other way round.
 *
 * Options; model/check has the configurations:
 *   PLAN0..2     what actor 0.. chooses from, see below        ROUNDS   how many locks each takes in turn
 *   EXTENDS      bits: who may extend what it holds             BREAKERS how many break key 0 (target P/N)
 *   KILLED       bits: breakers that may be killed              LASTS    actor 0 lets go only when all others have ended, and
 *                actor 2 tries only when all breakers have ended: it must succeed if the lock was broken
 *   READY        breakers and actor 2 begin when actors 0 and 1 both hold N in S
 *   RECORDS      how many records breakers look at              ENTRIES  how many broken locks can be listed
 *   TARGET       what is broken: 2 (P/N) or 1 (Q)               UPGRADES an extension may also be N in X instead of S
 *   EXCLUSION_ONLY  only two holders are looked for             AT_ONCE  P and Q were shared before; paths in X may be taken at
 *                once                                           DOOMS    a lock is also broken while it is extended
 *   OLD_...      a step as it was before, BREAK_... a mistake; each must be found
 */
#ifndef RECORDS
#define RECORDS ACTORS
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef BREAKERS
#define BREAKERS 1
#endif
#ifndef EXTENDS
#define EXTENDS 0
#endif
#ifndef KILLED
#define KILLED 0
#endif
#ifndef TARGET
#define TARGET 2
#endif
#ifndef ACTORS
#define ACTORS 3
#endif

/* Plans: bits. A path is the parent by intention and N, as its child, in X or S. */
#define PLAN_PX 1  /* P/N in X */
#define PLAN_PS 2  /* P/N in S */
#define PLAN_QX 4  /* Q/N in X */
#define PLAN_QS 8  /* Q/N in S */
#define PLAN_S 16  /* Q in S */
#define PLAN_X 32  /* Q in X */
#define PLAN_NO 64 /* nothing */
#define PLAN_PX_OR_PS (PLAN_PX | PLAN_PS)
#define PLAN_PX_OR_QX (PLAN_PX | PLAN_QX)
#ifndef PLAN0
#define PLAN0 PLAN_PX
#endif
#ifndef PLAN1
#define PLAN1 PLAN_NO
#endif
#ifndef PLAN2
#define PLAN2 PLAN_NO
#endif
#define MAY(p) ((id == 0 -> PLAN0 : (id == 1 -> PLAN1 : PLAN2)) & (p))

/* What is checked has a name, which spin prints: model/check knows which check must fail. */
#define MUST(condition, otherwise) assert((condition) || otherwise)
hidden byte two_holders, latch_lost, recycled_in_use, still_in_the_way, wrong_lock, wrong_node, break_lost, tally_left, word_left,
  latch_left, record_left; /* never set */

#define NONE 7
#define P 0
#define Q 1
#define N 2

#define IX 1
#define S 2
#define X 3
#define CONFLICT(a, b) ((a) != 0 && (b) != 0 && ((a) == X || (b) == X || (a) != (b)))

/* --- shared memory -------------------------------------------------------------------------------------------------*/

/* A node's word. Only N's generation ever changes. */
typedef Node {
  byte holder; /* 1 + the record that holds it in X */
  bool queued;
  bool marked;
  bool sharing;
  bool unused;
  byte generation
};
Node node[3];
byte key_of_n;    /* what N is: 0 a child of P, 1 a child of Q; this is its text, and its parent */
#define PARENT_OF_N key_of_n
byte latch[3];    /* 1 + who; nobody dies with one */
byte index_latch;

#define TALLY(n, a, m) tally[((n) * ACTORS + (a)) * 2 + (m) - IX]
byte tally[3 * ACTORS * 2];

/* A record's word is generation | changes | state. With DOOMS an extend makes it `changing`, and a breaker `doomed`. */
#define FREE 0
#define TAKING 1
#define HELD 2
#define BROKEN 3
#define CHANGING 4
#define DOOMED 5
#define WORD(g, c, s) ((s) | (c) << 3 | (g) << 5)
#define STATE(w) ((w) & 7)
#define GENERATION(w) ((w) >> 5)
#define CHANGES(w) ((w) >> 3 & 3)
#ifdef DOOMS
#define BEING_EXTENDED CHANGING
#define IS_EXTENDED(w) (STATE(w) == CHANGING || STATE(w) == DOOMED)
#else
#define BEING_EXTENDED TAKING
#define IS_EXTENDED(w) false
#endif
byte record[ACTORS];
#define WITH(w, s) WORD(GENERATION(w), CHANGES(w), s)
#if defined(OLD_BREAK) || defined(BREAK_CHANGES_NOT_COUNTED)
#define CHANGED_ONCE(w, s) WITH(w, s)
#else
#define CHANGED_ONCE(w, s) WORD(GENERATION(w), CHANGES(w) + 1, s)
#endif
byte at_node[ACTORS];   /* one path: the deepest node, NONE if nothing */
byte at_parent[ACTORS]; /* one path: its parent; NONE if it has none */
byte at_mode[ACTORS];   /* one path: the mode of the deepest */
bool listed[ACTORS];    /* extended: the steps are listed, at_node and at_parent among them */
byte at_q[ACTORS];      /* listed: also Q, in S */
#ifdef DOOMS
bool q_new[ACTORS];     /* Q was asked for by the extend that is under way */
bool doomed[ACTORS];    /* ghost: a breaker has doomed the lock */
#define Q_IS_NEW(r) q_new[r]
#else
#define Q_IS_NEW(r) false
#endif

/* Which locks are broken, or about to be. An entry is in use as long as its record is that lock: names a record and a
 * generation, 0 nobody. */
#ifndef ENTRIES
#define ENTRIES 1
#endif
byte entry[ENTRIES];
#define ENTRY(r, w) ((r) + 1 | GENERATION(w) << 4)
#define NAMED(e) (((e) & 15) - 1)
#define NAMES(e, w) ((e) >> 4 == GENERATION(w))
#ifdef BREAK_ENTRY_OF_THE_HELD
#define ENTRY_FREE(e) ((e) == 0 || !(NAMES(e, record[NAMED(e)]) && STATE(record[NAMED(e)]) == BROKEN))
#else
#define ENTRY_FREE(e) ((e) == 0 || !(NAMES(e, record[NAMED(e)]) && STATE(record[NAMED(e)]) != FREE))
#endif

/* --- ghosts ---------------------------------------------------------------------------------------------------------*/

bool ended[ACTORS];
bool breaker_ended[BREAKERS + 1];
bool breaker_gone[BREAKERS + 1];
bool no_room;
bool was_broken; /* the lock of actor 0 */
byte holds[3 * ACTORS];
byte holds_key[ACTORS]; /* while N is held: as which key */
#define HOLDS(n, a) holds[(n) * ACTORS + (a)]

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

#define ALL_SHARE (HOLDS(N, 0) == S && HOLDS(N, 1) == S)
#define BREAKER_DONE(b) (breaker_ended[b] || breaker_gone[b])
#if BREAKERS == 2
#define BREAKERS_DONE (BREAKER_DONE(0) && BREAKER_DONE(1))
#elif BREAKERS == 1
#define BREAKERS_DONE BREAKER_DONE(0)
#else
#define BREAKERS_DONE true
#endif

/* --- deciding -------------------------------------------------------------------------------------------------------*/

inline lock(n) { atomic { latch[n] == 0 -> latch[n] = 1 + id } }
inline unlock(n) { d_step { MUST(latch[n] == 1 + id, latch_lost); latch[n] = 0 } }

#define OPEN(n, m) (node[n].holder == 0 && !node[n].queued && !node[n].unused && node[n].marked && node[n].sharing == ((m) == S))
#define UNTOUCHED(n) (node[n].holder == 0 && !node[n].queued && !node[n].unused && !node[n].marked)

/* D2 a word that names a broken record is as good as free. */
#ifdef OLD_BREAK
#define IN_X(n) (node[n].holder != 0 && node[n].holder != id + 1)
#else
#define IN_X(n) (node[n].holder != 0 && node[n].holder != id + 1 && STATE(record[node[n].holder - 1]) != BROKEN)
#endif

/* Q1, Q2: the lanes of the others, one after another; `ix`, `s` is the raw sum. */
inline add_up(n) {
  do
  :: d_step { j < ACTORS && j == id -> j++ }
  :: d_step { j < ACTORS && j != id -> ix = ix + TALLY(n, j, IX); s = s + TALLY(n, j, S); j++ }
  :: atomic { j == ACTORS -> j = 0; break }
  od
}

/* Does the broken record r hold node n in S? The same walk that a breaker makes. */
#define COUNTS_S(r, n) (STATE(record[r]) == BROKEN && (at_node[r] == n && at_mode[r] == S || listed[r] && n == Q && at_q[r] == S))

/* K1 an entry. K2 is its lock broken, and does it hold the node in S? (Word, walk, word again: one step, because while
 * the word says `broken` the S holds of the record do not change.) Then it does not count; each record once. */
inline subtract_broken(n) {
#ifdef OLD_BREAK
  skip
#else
  do
  :: d_step { j < ENTRIES && entry[j] == 0 -> j++ }
  :: atomic { j < ENTRIES && entry[j] != 0 -> w = entry[j] }; /* K1 */
     d_step {
       if
       :: NAMES(w, record[NAMED(w)]) && COUNTS_S(NAMED(w), n) && !(seen >> NAMED(w) & 1) -> /* K2 */
          s--;
#ifndef BREAK_SUBTRACTED_TWICE
          seen = seen | 1 << NAMED(w)
#endif
       :: else
       fi;
       w = 0;
       j++
     }
  :: atomic { j == ENTRIES -> j = 0; seen = 0; break }
  od
#endif
}

/* Is everything empty, at this instant? For the mark only. */
#define NOBODY(n, a) (a == id || TALLY(n, a, IX) == 0 && TALLY(n, a, S) == 0)
#if ACTORS == 3
#define LANES_EMPTY(n) (NOBODY(n, 0) && NOBODY(n, 1) && NOBODY(n, 2))
#else
#define LANES_EMPTY(n) (NOBODY(n, 0) && NOBODY(n, 1))
#endif

/* P1. The mark goes if the lanes were seen empty; I3 is about the lanes as they are, whatever of them counts. */
inline take_x(n) {
  atomic {
    if
    :: !raw || LANES_EMPTY(n) -> node[n].marked = false; node[n].sharing = false
    :: skip
    fi;
    node[n].holder = id + 1;
    got = true;
    granted(n, X)
  }
}

/* What the flags alone tell. They change under the latch only. */
#define NOBODY_SHARES_AGAINST(n, m) (!node[n].marked || (m) == S && node[n].sharing || (m) == IX && !node[n].sharing)

/* Under the latch, and in no other way if the record holds the node already: in the mode `own`. The generation is
 * compared, and D1 done, in the step that takes the latch: nobody sees them apart. */
#define FRESH(n, g) (node[n].generation == g && !node[n].unused)
inline decide(n, m, g, own) {
  if
  :: atomic { latch[n] == 0 && FRESH(n, g) -> latch[n] = 1 + id; node[n].queued = true }; /* L1, D1 */
     if
     :: IN_X(n)
     :: else ->
        if
        :: NOBODY_SHARES_AGAINST(n, m)
        :: else ->
           add_up(n);
           raw = ix + s != 0;
           subtract_broken(n)
        fi;
        if
        :: d_step { m == X && ix + s == 0 && own -> TALLY(n, id, S)-- };
           take_x(n)
        :: atomic { m == X && ix + s == 0 && !own -> skip };
           take_x(n)
        :: d_step { m == S && ix == 0 || m == IX && s == 0 -> node[n].holder = 0; node[n].marked = true; node[n].sharing = (m == S) }; /* P2 */
           atomic { TALLY(n, id, m)++; got = true; granted(n, m) } /* P3 */
        :: atomic { m == X && ix + s != 0 || m == S && ix != 0 || m == IX && s != 0 -> skip }
        fi;
        d_step { ix = 0; s = 0; raw = false }
     fi;
     d_step { node[n].queued = false; latch[n] = 0 } /* T4, L5 */
  :: atomic { latch[n] == 0 && !FRESH(n, g) -> skip }
  fi
}

/* Takes node n in mode m; n == N only as the key it was found with (generation g). `got` says whether. There are no
 * queues here: who is in conflict gives up. */
inline take(n, m, g) {
  if
  :: atomic { m == X && UNTOUCHED(n) && node[n].generation == g -> node[n].holder = id + 1; got = true; granted(n, X) } /* F2 */
  :: m != X && OPEN(n, m) && node[n].generation == g -> /* F3 */
     TALLY(n, id, m)++; /* F4 */
     if
     :: atomic { OPEN(n, m) && node[n].generation == g -> got = true; granted(n, m) } /* F5 */
     :: else -> TALLY(n, id, m)-- /* F6 */
     fi
  :: else -> decide(n, m, g, 0)
  fi
}

/* --- nodes ----------------------------------------------------------------------------------------------------------*/

/* Finds the child of p, or makes it of N: U1 under the index latch and the node's, shut. U2 nobody there: a new
 * generation, unused. U3 another key, and a new generation again. `g` is NONE if N is in use. */
inline find_child(p) {
  if
  :: d_step { key_of_n == p && !node[N].unused -> g = node[N].generation }
  :: else ->
     atomic { index_latch == 0 -> index_latch = 1 + id };
     if
     :: d_step { key_of_n == p && !node[N].unused -> g = node[N].generation }
     :: atomic { !(key_of_n == p && !node[N].unused) && (node[N].holder != 0 || node[N].queued) -> g = NONE }
     :: else ->
        if
        :: atomic { latch[N] != 0 || node[N].holder != 0 -> g = NONE } /* or the latch is not to be had at once */
        :: d_step { latch[N] == 0 && node[N].holder == 0 -> latch[N] = 1 + id; node[N].queued = true }; /* U1 */
           add_up(N);
           if
           :: d_step { ix + s != 0 -> node[N].queued = false; latch[N] = 0; g = NONE; ix = 0; s = 0 }
           :: d_step {
                ix + s == 0 ->
                MUST(node[N].holder == 0, recycled_in_use);
                node[N].generation++; node[N].unused = true; node[N].queued = false; node[N].marked = false; node[N].sharing = false;
                latch[N] = 0 /* U2 */
              }
           fi
        fi;
        if
        :: g == NONE
        :: else ->
           key_of_n = p;
           d_step { node[N].generation++; node[N].unused = false; g = node[N].generation } /* U3 */
        fi
     fi;
     index_latch = 0
  fi
}

/* --- giving back ----------------------------------------------------------------------------------------------------*/

inline uncount(n, m) { d_step { TALLY(n, id, m)--; HOLDS(n, id) = 0 } } /* G1 */

/* G4: if it still names this record. */
inline give_back_x(n) {
  d_step {
    if
    :: node[n].holder == id + 1 -> node[n].holder = 0; HOLDS(n, id) = 0
    :: else
    fi
  }
}

#ifdef OLD_BREAK
#define LEFT_TO_BREAKER broken
#else
#define LEFT_TO_BREAKER false
#endif

/* Gives back everything. A broken lock leaves `broken` before anything that is counted is subtracted. One path in X does not change the record's word first: there the node's word decides. */
inline release() {
  if
  :: STATE(record[id]) == HELD && !listed[id] && at_mode[id] == X
  :: d_step { STATE(record[id]) == HELD && (listed[id] || at_mode[id] != X) -> record[id] = WITH(record[id], TAKING) }
  :: atomic { STATE(record[id]) == BROKEN -> broken = true };
     if
     :: at_mode[id] == X -> give_back_x(at_node[id]); d_step { at_node[id] = NONE; at_mode[id] = 0 }
     :: else
     fi;
#if !defined(OLD_BREAK) && !defined(BREAK_SUBTRACTED_FIRST)
     record[id] = WITH(record[id], TAKING)
#endif
  fi;
  /* G1: intentions, S, X. */
  if
#if defined(OLD_BREAK) || defined(OLD_PARENT_OF_NODE)
  :: atomic { at_parent[id] != NONE -> i = (listed[id] -> at_parent[id] : PARENT_OF_N) };
     uncount(i, IX)
#else
  :: at_parent[id] != NONE -> uncount(at_parent[id], IX)
#endif
  :: else
  fi;
  if
  :: at_mode[id] == S && !LEFT_TO_BREAKER -> uncount(at_node[id], S)
  :: at_mode[id] == X -> give_back_x(at_node[id])
  :: else
  fi;
  if
  :: at_q[id] == S && !LEFT_TO_BREAKER -> uncount(Q, S)
  :: else
  fi;
  at_node[id] = NONE;
  d_step {
#ifdef DOOMS
    doomed[id] = false; q_new[id] = false;
#endif
    i = 0; broken = false; listed[id] = false; at_q[id] = 0; at_parent[id] = NONE; at_mode[id] = 0;
    record[id] = WORD(GENERATION(record[id]), 0, FREE)
  }
}

/* Inside the compare-and-swap: from now on the record's X and S are nobody's. */
inline not_its_own(r) {
  HOLDS(N, r) = 0;
  if
  :: HOLDS(Q, r) == S || HOLDS(Q, r) == X -> HOLDS(Q, r) = 0
  :: else
  fi
}

/* An extend has ended, well or not. With DOOMS: if a breaker has doomed the lock meanwhile, it is broken from here on. */
inline end_change(word) {
#ifdef DOOMS
  if
#ifdef BREAK_DOOM_OVERWRITTEN
  :: d_step { STATE(record[id]) == CHANGING || STATE(record[id]) == DOOMED -> record[id] = word; MUST(!doomed[id], break_lost) }
#else
  :: d_step { STATE(record[id]) == CHANGING -> record[id] = word; MUST(!doomed[id], break_lost) }
  :: d_step { STATE(record[id]) == DOOMED -> record[id] = WITH(record[id], BROKEN); not_its_own(id) }
#endif
  fi
#else
  record[id] = word
#endif
}

/* --- an actor -------------------------------------------------------------------------------------------------------*/

/* The whole path at once: N was found as the child of p, with this word. A1 its parent is read, and is it open? A2 count
 * there. A4 take N, if it still has the word that was found: then it still has that parent. A5 parent still open? A6
 * otherwise everything back. */
#ifdef BREAK_AT_ONCE_WITHOUT_GENERATION
#define SAME_NODE(g) true
#else
#define SAME_NODE(g) (node[N].generation == g)
#endif
inline take_at_once(p) {
  if
  :: atomic { key_of_n == p && UNTOUCHED(N) -> g = node[N].generation };
     if
     :: atomic { OPEN(PARENT_OF_N, IX) -> i = PARENT_OF_N };
        TALLY(i, id, IX)++;
        if
        :: d_step { UNTOUCHED(N) && SAME_NODE(g) -> node[N].holder = id + 1 };
           if
           :: d_step {
                OPEN(i, IX) ->
                MUST(key_of_n == p && i == p, wrong_node);
                at_parent[id] = i; at_node[id] = N; at_mode[id] = X; holds_key[id] = p;
                got = true
              };
              atomic { granted(i, IX); granted(N, X) }
           :: else -> give_back_x(N); uncount(i, IX)
           fi
        :: else -> uncount(i, IX)
        fi
     :: else
     fi
  :: else
  fi;
  atomic { g = 0; i = 0 }
}

#define ON_Q(plan) (plan == PLAN_S || plan == PLAN_X)
#define PARENT(plan) (plan == PLAN_PX || plan == PLAN_PS -> P : Q)
#define MODE(plan) (plan == PLAN_PX || plan == PLAN_QX || plan == PLAN_X -> X : S)

inline choose() {
  if
  :: MAY(PLAN_PX) -> plan = PLAN_PX
  :: MAY(PLAN_PS) -> plan = PLAN_PS
  :: MAY(PLAN_QX) -> plan = PLAN_QX
  :: MAY(PLAN_QS) -> plan = PLAN_QS
  :: MAY(PLAN_S) -> plan = PLAN_S
  :: MAY(PLAN_X) -> plan = PLAN_X
  :: MAY(PLAN_NO) -> plan = PLAN_NO
  fi
}

proctype Actor(byte id) {
  byte round, plan, g, ix, s, i, j, k, w, seen;
  bool got, raw, broken;
#ifdef LASTS
  if
  :: id == ACTORS - 1 -> BREAKERS_DONE
  :: else
  fi;
#endif
#ifdef READY
  if
  :: id == ACTORS - 1 ->
end_not_ready:
     ALL_SHARE
  :: else
  fi;
#endif
  do
  :: round < ROUNDS ->
     atomic { choose(); round++ };
     if
     :: plan == PLAN_NO -> goto next
     :: else
     fi;
     /* A lock begins: another generation. */
     record[id] = WORD(GENERATION(record[id]) + 1, 0, TAKING);
     if
#ifdef AT_ONCE
     :: !ON_Q(plan) && MODE(plan) == X -> take_at_once(PARENT(plan));
        if
        :: got
        :: else -> goto nothing
        fi
#endif
     :: ON_Q(plan) ->
        take(Q, MODE(plan), 0);
        if
        :: got -> d_step { at_node[id] = Q; at_mode[id] = MODE(plan) }
        :: else -> goto nothing
        fi
     :: !ON_Q(plan) ->
        take(PARENT(plan), IX, 0);
        if
        :: got -> d_step { at_parent[id] = PARENT(plan); got = false }
        :: else -> goto nothing
        fi;
        find_child(PARENT(plan));
        if
        :: d_step { g == NONE -> got = false; g = 0 }
        :: g != NONE -> take(N, MODE(plan), g)
        fi;
        if
        :: got -> d_step { MUST(key_of_n == PARENT(plan), wrong_node); at_node[id] = N; at_mode[id] = MODE(plan); holds_key[id] = PARENT(plan); g = 0 }
        :: else ->
           uncount(PARENT(plan), IX);
           d_step { at_parent[id] = NONE; g = 0 };
           goto nothing
        fi
     fi;
     record[id] = WITH(record[id], HELD); /* H2 */

     /* X1 leave `held`, or find it lost. X2 list the steps. X3 take Q in S, or N in X instead of S, and write it down. X4
      * either it is held now, as another lock; or the extension failed: undo, and it is the same lock again. An upgrade
      * may stay, if the latch is not to be had. */
     if
     :: EXTENDS >> id & 1 ->
        if
        :: d_step { STATE(record[id]) == HELD -> record[id] = CHANGED_ONCE(record[id], BEING_EXTENDED) };
           listed[id] = true;
           got = false;
           if
           :: take(Q, S, 0);
              if
#ifdef DOOMS
              :: got -> d_step { at_q[id] = S; q_new[id] = true } /* one word */
#else
              :: got -> at_q[id] = S
#endif
              :: else
              fi
#ifdef UPGRADES
           :: at_mode[id] == S ->
              g = node[N].generation;
              decide(N, X, g, true);
              g = 0;
              if
              :: got -> at_mode[id] = X
              :: else
              fi
#endif
           fi;
           if
#ifdef DOOMS
           :: got -> q_new[id] = false; end_change(WORD(GENERATION(record[id]) + 1, 0, HELD))
#else
           :: got -> record[id] = WORD(GENERATION(record[id]) + 1, 0, HELD)
#endif
           :: got && at_q[id] == S ->
              uncount(Q, S);
#ifdef DOOMS
              d_step { at_q[id] = 0; q_new[id] = false };
#else
              at_q[id] = 0;
#endif
              end_change(WITH(record[id], HELD))
#ifdef UPGRADES
           :: got && at_q[id] == 0 ->
              at_mode[id] = S;
              if
              :: d_step { latch[N] == 0 -> latch[N] = 1 + id; node[N].queued = true };
                 d_step { node[N].marked = true; node[N].sharing = true };
                 TALLY(N, id, S)++;
                 d_step { HOLDS(N, id) = S; if :: node[N].holder == id + 1 -> node[N].holder = 0 :: else fi };
                 d_step { node[N].queued = false; latch[N] = 0 }
              :: at_mode[id] = X
              fi;
              end_change(WITH(record[id], HELD))
#endif
           :: !got -> end_change(WITH(record[id], HELD))
           fi
        :: STATE(record[id]) == BROKEN
        fi
     :: true
     fi;
#ifdef LASTS
     if
     :: id == 0 -> ended[1] && ended[ACTORS - 1] && BREAKERS_DONE
     :: else
     fi;
#endif
     release();
     goto next;
nothing:
#ifdef LASTS
     /* Whoever comes when the lock is broken, and finds nobody else, gets what it wants. */
     MUST(id != ACTORS - 1 || !was_broken || no_room, still_in_the_way);
#endif
     record[id] = WORD(GENERATION(record[id]), 0, FREE);
next:
     atomic { plan = 0; got = false }
  :: atomic { else -> ended[id] = true; round = 0; break }
  od
}

/* --- breaking -------------------------------------------------------------------------------------------------------*/

#if TARGET == 2
#define ASKED(r) (at_node[r] == N)
#else
#define ASKED(r) (at_node[r] == Q || at_q[r] == S && !Q_IS_NEW(r))
#endif

inline right_lock(r) {
#ifdef EXCLUSION_ONLY
#elif TARGET == 2
  MUST(HOLDS(N, r) == 0 || holds_key[r] == 0, wrong_lock);
#else
  MUST(at_node[r] == Q || at_q[r] == S || at_node[r] == NONE, wrong_lock); /* NONE: it is just being released */
#endif
  if
  :: r == 0 -> was_broken = true
  :: else
  fi
}

inline taken_away(r) { right_lock(r); not_its_own(r) }

/* B5 lists the lock: it is there already, or one compare-and-swap of an entry that was seen free. If that fails: the next
 * entry. */
inline list_broken() {
  do
  :: atomic { !looking && e < ENTRIES && entry[e] == ENTRY(r, w) -> break }
  :: d_step { !looking && e < ENTRIES && entry[e] != ENTRY(r, w) -> e++ }
  :: atomic {
       looking || e == ENTRIES ->
       if
       :: !looking -> looking = true; e = 0
       :: else
       fi;
       do
       :: e < ENTRIES ->
          if
          :: ENTRY_FREE(entry[e]) -> break
          :: else -> e++
          fi
       :: else -> no_room = true; goto done
       od;
       seen = entry[e]
     };
     if
     :: d_step { entry[e] == seen -> entry[e] = ENTRY(r, w) }; break
     :: atomic { entry[e] != seen -> e++; looking = true } /* the next one */
     fi
  od
}

proctype Breaker(byte b) {
  byte id = ACTORS; /* in latches */
  byte g, r, w, e, seen, mode;
  bool q, looking;
  {
#ifdef READY
    skip;
end_not_ready:
    ALL_SHARE;
#endif
    /* B1 look the target up: node and generation. */
#if TARGET == 2
    if
    :: d_step { key_of_n == P && !node[N].unused -> g = node[N].generation }
    :: else -> goto done
    fi;
#endif
    do
    :: r < RECORDS ->
       /* B2 the record's word. B3 what does it hold? (One step with B2: while the word is the same, it is the same.) */
again:
       w = record[r];
       if
       :: d_step { (STATE(w) == HELD || IS_EXTENDED(w)) && ASKED(r) -> mode = at_mode[r]; q = listed[r] && at_q[r] == S };
#ifdef OLD_BREAK
          if
          :: d_step { record[r] == w -> record[r] = WITH(w, BROKEN); taken_away(r); w = WITH(w, BROKEN) };
             if
             :: mode == S -> TALLY(N, r, S)--
             :: else ->
                lock(N);
                node[N].queued = true;
                if
                :: d_step { record[r] == w && node[N].holder == r + 1 -> node[N].holder = 0 }
                :: else
                fi;
                node[N].queued = false;
                unlock(N)
             fi;
             if
             :: q -> TALLY(Q, r, S)--
             :: else
             fi
          :: else
          fi
#else
          /* B4 is the node still the one that was looked up and, in X, this lock's? */
          if
#ifdef BREAK_NODE_NOT_CHECKED
          :: true ->
#elif TARGET == 2
          :: node[N].generation == g && (mode != X || node[N].holder == r + 1) ->
#else
          :: node[Q].generation == g && (q || mode != X || node[Q].holder == r + 1) ->
#endif
#ifndef BREAK_LISTED_AFTERWARDS
             if
             :: mode == S || q || IS_EXTENDED(w) -> list_broken()
             :: else
             fi;
#endif
             /* B6 one compare-and-swap. If it fails: again. One that is doomed already stays so until its owner ends the
              * extend. */
             if
             :: d_step { record[r] == w && STATE(w) == HELD -> record[r] = WITH(w, BROKEN); taken_away(r) };
#ifdef BREAK_LISTED_AFTERWARDS
                if
                :: mode == S || q -> list_broken()
                :: else
                fi
#endif
#ifdef DOOMS
             :: d_step { record[r] == w && STATE(w) != HELD -> record[r] = WITH(w, DOOMED); doomed[r] = true; right_lock(r) }
#endif
             :: d_step { record[r] != w -> w = 0; e = 0; looking = false; seen = 0; mode = 0; q = false }; goto again
             fi
          :: else
          fi
#endif
       :: else
       fi;
       atomic { w = 0; e = 0; looking = false; seen = 0; mode = 0; q = false; r++ }
    :: else -> break
    od;
done:
    atomic { breaker_ended[b] = true; g = 0; r = 0; w = 0; e = 0; looking = false; seen = 0; mode = 0; q = false }
  } unless {
    d_step { breaker_gone[b] -> g = 0; r = 0; w = 0; e = 0; looking = false; seen = 0; mode = 0; q = false }
  }
}

#if KILLED
active proctype Killer() {
end_killer:
  do
  :: d_step { (KILLED & 1) && !breaker_ended[0] && !breaker_gone[0] -> breaker_gone[0] = true }
#if BREAKERS == 2
  :: d_step { (KILLED & 2) && !breaker_ended[1] && !breaker_gone[1] -> breaker_gone[1] = true }
#endif
  od
}
#endif

#define ALL_ENDED (ended[0] && ended[1] && (ACTORS == 2 || ended[ACTORS - 1]) && BREAKERS_DONE)

init {
  byte i;
  atomic {
#ifdef AT_ONCE
    node[P].marked = true;
    node[Q].marked = true;
#endif
    do
    :: i < ACTORS -> at_node[i] = NONE; at_parent[i] = NONE; run Actor(i); i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < BREAKERS -> run Breaker(i); i++
    :: else -> break
    od;
    i = 0
  };
#ifdef READY
end_not_ready:
#endif
  ALL_ENDED;
#ifndef EXCLUSION_ONLY
  d_step {
    do
    :: i < 3 * ACTORS * 2 -> MUST(tally[i] == 0, tally_left); i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < 3 -> MUST(node[i].holder == 0, word_left); MUST(!node[i].queued && latch[i] == 0, latch_left); i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < ACTORS -> MUST(STATE(record[i]) == FREE, record_left); i++
    :: else -> break
    od;
    i = 0
  }
#endif
}
