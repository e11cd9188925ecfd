/* SPDX-License-Identifier: Apache-2.0
 *
 * Who sleeps is woken: one shard, and learners that wait for it. Of a push only the order of its accesses is left.
 *
 * A shard sleeps in a read of its bell (an eventfd for each learner, in one epoll), which remembers that it was rung. A
 * learner sleeps in FUTEX_WAIT on `current`, which compares the word with what the learner has seen.
 *
 * FAULT_*: deliberate faults, each described where it acts.
 */
#ifndef LEARNERS
#define LEARNERS 2
#endif

#ifndef WINDOW
#define WINDOW 2 /* so many gradients may be published and not applied; 1 where steps are synchronous */
#endif

/* Of a learner. */
#define SEE 0
#define PUBLISH 1
#define RING 2
#define SET_WAITING 3
#define SEE_AGAIN 4
#define GO_TO_SLEEP 5
#define ASLEEP 6
#define STOPPED 7

/* Of the shard. */
#define LOOK 0
#define FLIP 1
#define WAKE 2
#define SET_SLEEPING 3
#define LOOK_AGAIN 4
#define WAIT_FOR_BELL 5
#define START 6
#define ENTER_WAIT 7

typedef Learner {
  byte pc;
  byte ahead;       /* published and not applied, as memory says it */
  bit moved;        /* `current` is not what it has seen */
  bit waiting;
  bit late_publish;
  bit unrung;       /* ghost: between publishing and ringing */
};

Learner learner[LEARNERS];
byte pc = START;
byte whose;
bit sleeping;
bit bell;
bit late_flip;
bit calm; /* nobody stops or crashes any more */
hidden byte k;

#define me learner[l]
#define UNAPPLIED(l) (learner[l].ahead + learner[l].late_publish)

active [LEARNERS] proctype Learners() {
  byte l = _pid;
end:
  do
  :: d_step { me.pc == SEE ->
      me.moved = 0;
      if
      :: UNAPPLIED(l) < WINDOW -> me.pc = PUBLISH
      :: else -> me.pc = SET_WAITING
      fi
    }
#ifdef FAULT_PUBLISH_UNFENCED /* the number may lie in a store buffer while the shard's word is read */
  :: d_step { me.pc == PUBLISH && !me.late_publish -> me.late_publish = 1; me.unrung = 1; me.pc = RING }
  :: d_step { me.late_publish -> me.late_publish = 0; me.ahead++ }
#else
  :: d_step { me.pc == PUBLISH -> me.ahead++; me.unrung = 1; me.pc = RING }
#endif
#ifdef FAULT_BELL_FORGETS /* a FUTEX_WAKE on a word that learners cannot write: heard only by one that sleeps already */
  :: d_step { me.pc == RING -> bell = (sleeping && pc == WAIT_FOR_BELL -> 1 : bell); me.unrung = 0; me.pc = SEE }
#else
  :: d_step { me.pc == RING -> bell = (sleeping -> 1 : bell); me.unrung = 0; me.pc = SEE }
#endif
  :: d_step { me.pc == SET_WAITING -> me.waiting = 1; me.pc = SEE_AGAIN }
#ifdef FAULT_CURRENT_UNCHECKED /* neither the learner nor the kernel looks at `current` again */
  :: d_step { me.pc == SEE_AGAIN -> me.pc = ASLEEP }
#else
  :: d_step { me.pc == SEE_AGAIN && me.moved -> me.waiting = 0; me.pc = SEE }
  :: d_step { me.pc == SEE_AGAIN && !me.moved -> me.pc = GO_TO_SLEEP }
  :: d_step { me.pc == GO_TO_SLEEP && me.moved -> me.waiting = 0; me.pc = SEE }
  :: d_step { me.pc == GO_TO_SLEEP && !me.moved -> me.pc = ASLEEP }
#endif
  :: d_step { me.pc < STOPPED && !calm -> me.pc = STOPPED; me.moved = 0 }
  od
}

inline move() {
  learner[whose].ahead--;
  for (k : 0 .. LEARNERS - 1) { learner[k].moved = (learner[k].pc >= SET_WAITING && learner[k].pc < STOPPED) }
  whose = 0
}

inline wake() {
  for (k : 0 .. LEARNERS - 1) {
    if
    :: learner[k].waiting && learner[k].pc == ASLEEP ->
      learner[k].waiting = 0;
      learner[k].pc = SEE;
      learner[k].moved = 0
    :: else
    fi
  }
}

#if LEARNERS == 1
#define NOTHING_DUE (learner[0].ahead == 0)
#elif LEARNERS == 2
#define NOTHING_DUE (learner[0].ahead == 0 && learner[1].ahead == 0)
#else
#define NOTHING_DUE (learner[0].ahead == 0 && learner[1].ahead == 0 && learner[2].ahead == 0)
#endif
#define LOOK_AT(l) :: d_step { pc == LOOK && !late_flip && learner[l].ahead > 0 -> whose = l; pc = FLIP }

active proctype Shard() {
end:
  do
  LOOK_AT(0)
#if LEARNERS > 1
  LOOK_AT(1)
#endif
#if LEARNERS > 2
  LOOK_AT(2)
#endif
#ifdef FAULT_FLIP_UNFENCED /* the new `current` may lie in a store buffer while `waiting` is read */
  :: d_step { pc == FLIP -> late_flip = 1; pc = WAKE }
  :: d_step { late_flip -> move(); late_flip = 0 }
#else
  :: d_step { pc == FLIP -> move(); pc = WAKE }
#endif
  :: d_step { pc == WAKE -> wake(); pc = LOOK }
  :: d_step { pc == LOOK && !late_flip && NOTHING_DUE -> pc = SET_SLEEPING }
  :: d_step { pc == SET_SLEEPING -> sleeping = 1; pc = LOOK_AGAIN }
#ifdef FAULT_SLEEP_UNCHECKED /* no look after it has said that it sleeps */
  :: d_step { pc == LOOK_AGAIN -> pc = ENTER_WAIT }
#else
  :: d_step { pc == LOOK_AGAIN && !NOTHING_DUE -> sleeping = 0; pc = LOOK }
  :: d_step { pc == LOOK_AGAIN && NOTHING_DUE -> pc = ENTER_WAIT }
#endif
  :: d_step { pc == ENTER_WAIT -> pc = WAIT_FOR_BELL }
  :: d_step { pc == WAIT_FOR_BELL && bell -> bell = 0; sleeping = 0; pc = LOOK }
  /* The server dies, and another starts; what waited for the first may never have been woken. */
  :: d_step { !calm && pc != START -> pc = START; whose = (late_flip -> whose : 0) }
  :: d_step { pc == START && !late_flip ->
      sleeping = 0;
      bell = 0;
#ifndef FAULT_START_SILENT /* a server that starts wakes nobody */
      wake();
#endif
      pc = LOOK
    }
  od
}

active proctype Watch() {
end:
  do
  :: d_step { !calm -> calm = 1 }
  /* Nothing can move: all learners have stopped, and only where one did so before it rang is something left. */
  :: atomic { timeout ->
      for (k : 0 .. LEARNERS - 1) {
        assert(learner[k].pc == STOPPED);
        assert(learner[k].ahead == 0 || learner[k].unrung)
      }
      assert(pc == WAIT_FOR_BELL)
    } -> break
  od
}
