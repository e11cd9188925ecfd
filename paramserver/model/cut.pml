/* SPDX-License-Identifier: Apache-2.0
 *
 * A cut for a checkpoint: each shard pins a version in which it has applied the same gradients as all the others, and
 * goes on. Payloads and pins of weights are left out, because paramserver.pml shows them: the last two gradients of a
 * learner stay readable until every shard has applied them, and the buffer of a pinned version is not written to. What
 * is added is the state beside the weights (momentum, variance), of which STATES lie in memory for each shard.
 *
 * A server may be killed at any step. Of the next one each shard comes to know the members at a time of its own, and
 * until then sees none: it has nothing to apply, to report or to wait for.
 *
 * FAULT_NOT_HELD: a shard goes on to apply between its report and the target. FAULT_TWO_STATES: the state of version v
 * always lies in state[v % 2]. FAULT_CUT_EARLY: a cut begins before all shards know the members. FAULT_CUT_KEPT: a
 * server that takes over goes on with the cut of the one before.
 */
#ifndef LEARNERS
#define LEARNERS 2
#endif
#ifndef SHARDS
#define SHARDS 2
#endif
#ifndef GRADIENTS
#define GRADIENTS 3 /* of each learner */
#endif
#ifndef CUTS
#define CUTS 2
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#define NONE 255

#ifdef FAULT_TWO_STATES
#define SPARE(s, i) (i == 1 - current[s])
#define STATES 2
#else
#define SPARE(s, i) (i != current[s] && i != saved[s])
#define STATES 3
#endif

/* What a shard does for a cut. */
#define FREE 0
#define HELD 1    /* it has reported what it has applied, and applies nothing */
#define LEVEL 2   /* it applies what the target names, and nothing else */
#define PINNED 3

/* What the thread that cuts does. */
#define NO_CUT 0
#define ASKING 1
#define AIMED 2

typedef Vector {
  byte of_learner[LEARNERS];
};

byte published[LEARNERS];
bit fenced[LEARNERS];
Vector applied[SHARDS];
Vector target;         /* while it asks, the largest of what was reported */
Vector at_pin[SHARDS]; /* ghost: what the pinned version has applied */
byte mode[SHARDS];
bit knows[SHARDS];     /* the members, of the server that runs */
bit told;              /* one of the reports was of members */
byte cutter;
byte current[SHARDS];  /* the state of the current version */
byte to[SHARDS] = NONE;    /* the state that is written to */
byte whose[SHARDS];
byte saved[SHARDS] = NONE; /* the state that the cut has pinned */
byte cuts = CUTS;
byte crashes = CRASHES;
hidden byte k;
hidden byte j;

#define ROOM(s, l) (published[l] < applied[s].of_learner[l] + 2)
#if SHARDS == 2
#define ROOM_IN_ALL(l) (ROOM(0, l) && ROOM(1, l))
#define ALL(m) (mode[0] == m && mode[1] == m)
#define ALL_KNOW (knows[0] && knows[1])
#else
#define ROOM_IN_ALL(l) (ROOM(0, l) && ROOM(1, l) && ROOM(2, l))
#define ALL(m) (mode[0] == m && mode[1] == m && mode[2] == m)
#define ALL_KNOW (knows[0] && knows[1] && knows[2])
#endif
#ifdef FAULT_CUT_EARLY
#define MAY_CUT true
#else
#define MAY_CUT ALL_KNOW
#endif

active [LEARNERS] proctype Learners() {
  byte l = _pid;
end:
  do
  :: d_step { published[l] < GRADIENTS && ROOM_IN_ALL(l) -> published[l]++ }
  od
}

#define SHORT(s, l) (!fenced[l] && applied[s].of_learner[l] < target.of_learner[l])
#if LEARNERS == 2
#define ANY_SHORT(s) (SHORT(s, 0) || SHORT(s, 1))
#else
#define ANY_SHORT(s) (SHORT(s, 0) || SHORT(s, 1) || SHORT(s, 2))
#endif
/* Who may be in the target and is not known yet is waited for. */
#define LEVELLED(s) (knows[s] -> !ANY_SHORT(s) : !told)
#ifdef FAULT_NOT_HELD
#define MAY_APPLY(s, l) (mode[s] != LEVEL || SHORT(s, l))
#else
#define MAY_APPLY(s, l) (mode[s] != HELD && (mode[s] != LEVEL || SHORT(s, l)))
#endif
#define TAKE(l, i) \
  :: d_step { to[s] == NONE && knows[s] && !fenced[l] && MAY_APPLY(s, l) && applied[s].of_learner[l] < published[l] && \
      SPARE(s, i) -> \
      assert(i != saved[s]); /* a saver reads it */ \
      to[s] = i; \
      whose[s] = l \
    }
#if STATES == 3
#define TAKE_ANY(l) TAKE(l, 0) TAKE(l, 1) TAKE(l, 2)
#else
#define TAKE_ANY(l) TAKE(l, 0) TAKE(l, 1)
#endif

active [SHARDS] proctype Shards() {
  byte s = _pid - LEARNERS;
end:
  do
  TAKE_ANY(0)
  TAKE_ANY(1)
#if LEARNERS > 2
  TAKE_ANY(2)
#endif
  :: d_step { to[s] != NONE ->
      applied[s].of_learner[whose[s]]++;
      current[s] = to[s];
      to[s] = NONE;
      whose[s] = 0
    }
  :: d_step { !knows[s] -> knows[s] = 1 }
  /* Between two updates. The report and the hold are one: under the cutter's lock. */
  :: d_step { to[s] == NONE && cutter == ASKING && mode[s] == FREE ->
      told = told || knows[s];
      for (k : 0 .. LEARNERS - 1) {
        if
        :: knows[s] && applied[s].of_learner[k] > target.of_learner[k] ->
          target.of_learner[k] = applied[s].of_learner[k]
        :: else
        fi
      }
      mode[s] = HELD
    }
  :: d_step { to[s] == NONE && cutter == AIMED && mode[s] == HELD -> mode[s] = LEVEL }
  :: d_step { to[s] == NONE && mode[s] == LEVEL && LEVELLED(s) ->
      for (k : 0 .. LEARNERS - 1) { at_pin[s].of_learner[k] = applied[s].of_learner[k] }
      saved[s] = current[s];
      mode[s] = PINNED
    }
  od
}

inline leave_cut(s) {
  mode[s] = FREE;
  saved[s] = NONE;
  for (j : 0 .. LEARNERS - 1) { at_pin[s].of_learner[j] = 0 }
}

inline end_cut() {
  for (j : 0 .. LEARNERS - 1) { target.of_learner[j] = 0 }
  told = 0;
  cutter = NO_CUT
}

active proctype Server() {
end:
  do
  :: d_step { cutter == NO_CUT && cuts > 0 && MAY_CUT -> cuts--; cutter = ASKING }
  :: d_step { cutter == ASKING && ALL(HELD) -> cutter = AIMED }
  :: d_step { cutter == AIMED && ALL(PINNED) ->
      for (k : 1 .. SHARDS - 1) {
        for (j : 0 .. LEARNERS - 1) {
          assert(fenced[j] || at_pin[k].of_learner[j] == at_pin[0].of_learner[j]) /* one cut through all shards */
        }
      }
      for (k : 0 .. SHARDS - 1) { leave_cut(k) }
      end_cut()
    }
  /* All threads end, and a new server starts from the memory: the cut is lost, and so is what was not flipped. */
  :: d_step { crashes > 0 ->
      for (k : 0 .. SHARDS - 1) {
        to[k] = NONE;
        whose[k] = 0;
        knows[k] = 0;
        leave_cut(k)
      }
#ifndef FAULT_CUT_KEPT
      end_cut();
#endif
      crashes--
    }
  :: d_step { !fenced[0] -> fenced[0] = 1 }
  :: atomic { timeout -> assert(cutter == NO_CUT && ALL(FREE)) } -> break
  od
}
