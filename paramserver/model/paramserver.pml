/* SPDX-License-Identifier: Apache-2.0
 *
 * The protocol of the parameter server, one atomic step for each access to shared memory. README.md says how it is
 * checked, PROOF.md what that shows and what it leaves out.
 *
 * Sizes: LEARNERS and SHARDS (1 to 3), SEQ (the modulus of sequences: a power of two, 4 or more).
 * Parts: PUSH, PULL, or both. HOSTILE: learners may write any number into `published` and any pin.
 * OTHERS: any number of other learners, of which is left that a shard may have something of theirs to apply.
 * ONE_FINE, of PUSH alone: of learners and shards other than the first some steps are one; PROOF.md says why that is
 * enough.
 * LIVE: learners may stop for ever, crashes end at some time, and what makes progress is marked. CYCLES: only the mark.
 * AT_REST, of PUSH alone: where no shard can move, nobody waits for anybody.
 * TRACE: one printed line for each step; stores are visible at once; CRASHES crashes at most.
 * FAULT_*: deliberate faults, each described where it acts.
 */
#ifndef LEARNERS
#define LEARNERS 2
#endif
#ifndef SHARDS
#define SHARDS 2
#endif
#ifndef SEQ
#ifdef TRACE
#define SEQ 128
#else
#define SEQ 4
#endif
#endif

#ifndef PULL
#define BUFFERS 2 /* nothing is pinned, and a buffer is used again at once: the hardest case for records */
#elif defined(FAULT_FEW_BUFFERS) || defined(FAULT_SERVER_WAITS) /* one less than the design has */
#define BUFFERS (LEARNERS + 1)
#elif defined(OTHERS)
#define BUFFERS (LEARNERS + 3)
#else
#define BUFFERS (LEARNERS + 2)
#endif

#ifdef TRACE
#define LATE 0
#else
#define LATE 1
#endif

#define NONE 255 /* no buffer, or no gradient */
#define TORN 254 /* a payload of which only some words are new */
#define NEXT(q) (((q) + 1) % SEQ)
#define AHEAD(p, a) (((p) + SEQ - (a)) % SEQ) /* SEQ - 1 stands for all that makes no sense */

/* What a learner does next. */
#define IDLE 0
#define LOAD 1
#define WAIT 2
#define WRITE 3
#define PUBLISH 4
#define PULL_LOAD 5
#define PIN 6
#define CHECK 7
#define BAD 8
#define STOPPED 9
#define DEAD 10

/* What a shard does next. */
#define LOOK 0
#define CHOOSE 1
#define APPLY 2
#define RECORD 3
#define FLIP 4
#define DOWN 5

typedef Record {
  byte applied[LEARNERS]; /* 0 where the entry is of another incarnation: join() */
};

typedef Shard {
  byte current;
  Record record[BUFFERS];
  byte pc;
  byte whose;/* the learner whose gradient is applied */
  byte seq;  /* which gradient */
  bit mine;  /* it is of that learner's present incarnation */
  byte to;   /* the buffer that is written to */
  bit late;  /* not all stores to its weights are visible */
#ifdef PULL
  byte asked;  /* so many pins are read */
  byte pinned; /* a bit for each buffer that one of them names */
#endif
#ifdef PUSH
  byte chain[LEARNERS]; /* ghost: the last gradient that is in the current weights */
#endif
#ifdef FAULT_FLIP_FIRST
  byte from;
#endif
#ifdef FAULT_FLIP_RELAXED
  bit late_flip;
  byte flipped;
#endif
};

typedef Learner {
  byte pc;
  byte at;    /* the shard that it is busy with */
  byte held;  /* the buffer in the word that it loaded from `current` */
  bit moved;  /* `current` has changed since: versions never come back, so the words differ */
#ifdef PUSH
  byte next = 1; /* the sequence to push next */
  byte published;
  byte payload[2] = NONE; /* ghost: which gradient lies there */
  bit late_payload;
  bit late_publish;
  bit spoiled; /* ghost: it broke the rules, and nothing is promised for its gradients */
  bit fenced;
#ifdef FAULT_FENCE_FORGOTTEN
  bit known;
#endif
#endif
#ifdef PULL
  byte pin[SHARDS] = NONE;
  bit reading[SHARDS]; /* ghost: it may read the buffer that it has pinned */
#ifdef FAULT_PIN_RELAXED
  bit late_pin;
#endif
#endif
};

Shard shard[SHARDS];
Learner learner[LEARNERS];
hidden byte was_shard;
hidden byte was_buffer;
hidden byte is_buffer;
hidden byte was_learner;
hidden byte k;
hidden byte j;

#if defined(LIVE) || defined(CYCLES)
bit tick; /* the last step made progress, or was a crash */
#define PROGRESS(yes) tick = yes
#define CRASHED tick = 1
#ifdef LIVE
bit calm; /* no crash any more */
#define MAY_CRASH !calm
#else
#define MAY_CRASH true
#endif
#elif defined(TRACE)
#ifndef CRASHES
#define CRASHES 3
#endif
byte crashes = CRASHES;
byte luck = 9;
#define PROGRESS(yes) skip
#define MAY_CRASH (crashes > 0 && luck == 0)
#define CRASHED crashes--; luck = 9
#else
#define PROGRESS(yes) skip
#define MAY_CRASH true
#define CRASHED skip
#endif

#define me learner[l]
#define my shard[s]

#if SHARDS == 1
#define IN_ALL(what, l) what(0, l)
#elif SHARDS == 2
#define IN_ALL(what, l) (what(0, l) && what(1, l))
#else
#define IN_ALL(what, l) (what(0, l) && what(1, l) && what(2, l))
#endif
#if LEARNERS == 1
#define OF_ALL(what) what(0)
#elif LEARNERS == 2
#define OF_ALL(what) (what(0) && what(1))
#else
#define OF_ALL(what) (what(0) && what(1) && what(2))
#endif

#ifdef FAULT_REUSE /* a payload is written to without waiting */
#define ENOUGH(l, s, b) true
#else
#define ENOUGH(l, s, b) (AHEAD(learner[l].next, shard[s].record[b].applied[l]) <= 2)
#endif
#define ENOUGH_NOW(s, l) ENOUGH(l, s, shard[s].current)
#define WAITED(l) ENOUGH(l, learner[l].at, learner[l].held)

/* Whose waits and payload are explored, for which shards, and whose records. */
#ifdef ONE_FINE
#define FINE_SHARDS 1
#define IS_FINE(l) (l == 0)
#define MAY_WRITE(l) (learner[l].pc == (IS_FINE(l) -> WRITE : IDLE) && IN_ALL(ENOUGH_NOW, l))
#else
#define FINE_SHARDS SHARDS
#define IS_FINE(l) true
#define MAY_WRITE(l) (learner[l].pc == WRITE)
#endif

#ifdef FAULT_WAIT_UNCHECKED
#define BELIEVES(l) true
#else
#define BELIEVES(l) !learner[l].moved
#endif
#define LOADED(l, s, b) (learner[l].pc == WAIT && learner[l].at == s && learner[l].held == b && BELIEVES(l))
#if LEARNERS == 1
#define LOADED_BY_OTHERS(s, b)
#elif LEARNERS == 2
#define LOADED_BY_OTHERS(s, b) || LOADED(1, s, b)
#else
#define LOADED_BY_OTHERS(s, b) || LOADED(1, s, b) || LOADED(2, s, b)
#endif

#ifdef FAULT_WAIT_UNCHECKED /* `current` is not loaded again after the record */
#define UNSURE(l) !WAITED(l)
#else
#define UNSURE(l) learner[l].moved
#endif

/* Exact, and saves states: a record that is not current, not in use and not loaded is written before it is read. */
inline forget_record(s, b) {
#if defined(PUSH) && !defined(FAULT_FLIP_FIRST)
  if
  :: b != shard[s].current && !(shard[s].pc == FLIP && shard[s].to == b) &&
     !(LOADED(0, s, b) LOADED_BY_OTHERS(s, b)) ->
    for (j : 0 .. LEARNERS - 1) { shard[s].record[b].applied[j] = 0 }
  :: else
  fi
#else
  skip
#endif
}

/* ---- A learner ---- */

inline next_shard(l, shards, again, then) {
  learner[l].at++;
  learner[l].pc = again;
  if
  :: learner[l].at == shards -> learner[l].at = 0; learner[l].pc = then
  :: else
  fi
}

active [LEARNERS] proctype Learners() {
  byte l = _pid;
end:
  do
#ifdef PUSH
  :: d_step { IS_FINE(l) && (me.pc == IDLE || me.pc == LOAD) ->
      printf("learner %d load %d %d\n", l, me.at, shard[me.at].current);
      me.held = shard[me.at].current;
      me.moved = 0;
      me.pc = WAIT;
      PROGRESS(0)
    }
  /* Reads the record and loads `current` again; where too little is applied, it sleeps until `current` moves. */
  :: d_step { me.pc == WAIT && (me.moved || WAITED(l)) ->
      was_shard = me.at;
      was_buffer = me.held;
      if
      :: UNSURE(l) -> printf("learner %d wait %d again\n", l, me.at); me.pc = LOAD
      :: else ->
        assert(ENOUGH(l, me.at, shard[me.at].current));
        printf("learner %d wait %d done\n", l, me.at);
        next_shard(l, FINE_SHARDS, LOAD, WRITE)
      fi;
      me.held = 0;
      me.moved = 0;
      forget_record(was_shard, was_buffer);
      PROGRESS(0)
    }
  :: d_step { MAY_WRITE(l) && !me.late_payload ->
      printf("learner %d write %d\n", l, me.next);
      if
      :: IS_FINE(l) ->
        me.payload[me.next % 2] = (LATE -> TORN : me.next);
        me.late_payload = LATE
      :: else
      fi;
      me.pc = PUBLISH;
      PROGRESS(0)
    }
  :: d_step { me.pc == PUBLISH && !me.late_publish ->
      printf("learner %d publish %d\n", l, me.next);
      me.late_publish = LATE;
      me.published = (LATE -> me.published : me.next);
      me.next = NEXT(me.next);
      me.pc = IDLE;
      PROGRESS(1)
    }
#endif
#ifdef PULL
  :: d_step { (me.pc == IDLE || me.pc == PULL_LOAD) ->
      printf("learner %d pull %d %d\n", l, me.at, shard[me.at].current);
      me.reading[me.at] = 0;
      me.held = shard[me.at].current;
      me.moved = 0;
      me.pc = PIN;
      PROGRESS(0)
    }
  :: d_step { me.pc == PIN ->
      printf("learner %d pin %d %d\n", l, me.at, me.held);
#ifdef FAULT_PIN_RELAXED /* the pin may lie in a store buffer while `current` is loaded again */
      me.late_pin = 1;
#else
      me.pin[me.at] = me.held;
#endif
      me.pc = CHECK;
      PROGRESS(0)
    }
  :: d_step { me.pc == CHECK ->
      if
#ifndef FAULT_PIN_UNCHECKED /* `current` is not loaded again after the pin */
      :: me.moved -> printf("learner %d check %d again\n", l, me.at); me.pc = PULL_LOAD; PROGRESS(0)
#endif
      :: else ->
        assert(!((shard[me.at].late || shard[me.at].pc == RECORD) && shard[me.at].to == me.held)); /* is whole */
        printf("learner %d check %d held\n", l, me.at);
        me.reading[me.at] = 1;
        next_shard(l, SHARDS, PULL_LOAD, IDLE);
        PROGRESS(1)
      fi;
#ifndef FAULT_PIN_RELAXED
      me.held = 0;
#endif
      me.moved = 0
    }
#endif
  /* Stores become visible: the payload's at any time, the number's after those of its own payload. */
#ifdef PUSH
  :: d_step { me.late_payload ->
      if
      :: me.pc == PUBLISH -> me.payload[me.next % 2] = me.next
      :: else -> me.payload[(me.next + 1) % 2] = (me.next + SEQ - 1) % SEQ
      fi;
      me.late_payload = 0;
      PROGRESS(0)
    }
#ifdef FAULT_PUBLISH_RELAXED /* the number is not stored with release */
  :: d_step { me.late_publish ->
#else
  :: d_step { me.late_publish && (!me.late_payload || me.pc == PUBLISH) ->
#endif
      me.published = (me.next + SEQ - 1) % SEQ;
      me.late_publish = 0;
      PROGRESS(0)
    }
#endif
#ifdef FAULT_PIN_RELAXED
  :: d_step { me.late_pin -> me.pin[0] = me.held; me.late_pin = 0 }
#endif
  od
}

/* ---- A thread of the server: one shard ---- */

#ifdef FAULT_FLIP_RELAXED /* the new `current` may lie in a store buffer while pins are read */
#define SEEN (my.late_flip -> my.flipped : my.current)
#define FLIP_READY (!my.late && !my.late_flip)
#elif defined(FAULT_WEIGHTS_LATE) /* no fence after non-temporal stores */
#define SEEN my.current
#define FLIP_READY true
#elif defined(FAULT_SERVER_WAITS) && defined(PUSH) /* for the learner to ask for what is applied */
#define SEEN my.current
#define FLIP_READY (learner[my.whose].pc == WAIT)
#else
#define SEEN my.current
#define FLIP_READY (!my.late)
#endif

#ifdef FAULT_FLIP_FIRST /* `current` names a buffer whose record is not written yet */
#define FROM my.from
#define SAVE_FROM my.from = my.current
#define AFTER_APPLY FLIP
#define AFTER_RECORD LOOK
#define AFTER_FLIP RECORD
#else
#define FROM my.current
#define SAVE_FROM skip
#ifdef ONE_FINE
#define AFTER_APPLY (s < FINE_SHARDS -> RECORD : FLIP)
#else
#define AFTER_APPLY RECORD
#endif
#define AFTER_RECORD FLIP
#define AFTER_FLIP LOOK
#endif

#ifdef FAULT_FENCE_FORGOTTEN /* a server that starts knows nothing of earlier fences */
#define FENCED(l) learner[l].known
#else
#define FENCED(l) learner[l].fenced
#endif

/* The payload that is read is the gradient that is to be applied. */
#define INTACT(s) \
  (!shard[s].mine || !IS_FINE(shard[s].whose) || learner[shard[s].whose].spoiled || \
   learner[shard[s].whose].payload[shard[s].seq % 2] == shard[s].seq)
#define A(s, l) shard[s].record[shard[s].current].applied[l]
#define DUE(s, l) AHEAD(learner[l].published, A(s, l))

inline forget(s) {
  was_buffer = shard[s].to;
  shard[s].pc = LOOK;
  shard[s].whose = 0;
  shard[s].seq = 0;
  shard[s].mine = 0;
  shard[s].to = 0;
  shard[s].late = 0;
#ifdef PULL
  shard[s].asked = 0;
  shard[s].pinned = 0;
#endif
  forget_record(s, was_buffer)
}

/* Exact, and saves states: buffers are alike. So the current one is always called 0, and has exchanged names with the
 * one before. */
#if (defined(ONE_FINE) && !defined(FAULT_WAIT_UNCHECKED)) || \
    (defined(PULL) && !defined(PUSH) && !defined(FAULT_FLIP_RELAXED))
#define RENAME(n) n = (n == is_buffer -> 0 : (n == 0 -> is_buffer : n))
#else
#define RENAME(n) skip
#endif

/* Whoever has loaded `current` sees another word now. */
inline becomes_current(s, b) {
  is_buffer = b;
  was_buffer = shard[s].current;
  shard[s].current = b;
  RENAME(shard[s].current);
  RENAME(shard[s].to);
  RENAME(was_buffer);
  for (k : 0 .. LEARNERS - 1) {
#ifdef PULL
    RENAME(learner[k].pin[s]);
#endif
#ifdef ONE_FINE
    shard[s].record[shard[s].current].applied[k] = shard[s].record[is_buffer].applied[k];
#endif
    if
    :: learner[k].at == s && (learner[k].pc == WAIT || learner[k].pc == PIN || learner[k].pc == CHECK) ->
      learner[k].moved = 1;
      RENAME(learner[k].held);
#ifndef FAULT_WAIT_UNCHECKED
      learner[k].held = (learner[k].pc == WAIT -> 0 : learner[k].held) /* exact: that record is not read any more */
#endif
    :: else
    fi
  }
  forget_record(s, was_buffer)
}

/* Exact, and saves states: only differences of sequences count, and the last bit, which chooses a payload. So two is
 * taken from all numbers of a learner when shard 0 has applied two more; one, where there is no payload. */
#define PERIOD(l) (IS_FINE(l) -> 2 : 1)
#define LESS(n) n = (n < SEQ -> (n + SEQ - PERIOD(l)) % SEQ : n)
inline renumber(l) {
#if defined(PUSH) && !defined(WHOLE_RANGE) && !defined(TRACE)
  if
  :: l < LEARNERS && shard[0].chain[l] >= PERIOD(l) ->
    learner[l].next = (learner[l].pc == DEAD || learner[l].pc == BAD -> 0 : (learner[l].next + SEQ - PERIOD(l)) % SEQ);
    LESS(learner[l].published);
    LESS(learner[l].payload[0]);
    LESS(learner[l].payload[1]);
    for (k : 0 .. SHARDS - 1) {
      LESS(shard[k].chain[l]);
      shard[k].seq = (shard[k].pc != LOOK && shard[k].whose == l ->
        (shard[k].seq + SEQ - PERIOD(l)) % SEQ : shard[k].seq);
      for (was_buffer : 0 .. BUFFERS - 1) {
        LESS(shard[k].record[was_buffer].applied[l]);
        forget_record(k, was_buffer)
      }
    }
  :: else
  fi
#else
  skip
#endif
}

#ifndef PUSH /* what the gradients are is no matter to readers: there may be one at any time */
#define LOOK_AT(l)
#else
#define LOOK_AT(l) \
  :: d_step { my.pc == LOOK && !FENCED(l) && DUE(s, l) != 0 -> \
      PROGRESS(0); \
      if \
      :: DUE(s, l) > 2 -> \
        assert(learner[l].spoiled); \
        printf("shard %d fence %d\n", s, l); \
        learner[l].fenced = 1; \
        FENCED(l) = 1; \
        PROGRESS(1) \
      :: else -> \
        assert(!learner[l].fenced); \
        my.whose = l; \
        my.seq = NEXT(A(s, l)); \
        my.mine = 1; \
        printf("shard %d look %d %d\n", s, l, my.seq); \
        START_CHOOSING \
      fi \
    }
#endif
#ifdef PULL
#define START_CHOOSING my.pc = CHOOSE
#else
/* One step to look and to begin to read the payload: what happens to it between the two shows at its end. */
#define START_CHOOSING my.to = 1 - my.current; my.pc = AFTER_APPLY; assert(INTACT(s)); SAVE_FROM
#endif

#ifdef TRACE /* it is noticed at once */
#define NOTICED_LATE (learner[my.asked].pc != DEAD)
#else
#define NOTICED_LATE true
#endif
#define TAKEN (my.pinned | (1 << SEEN))
#ifdef TRACE /* the lowest, so that a program can do the same */
#define FREE(b) (!(TAKEN & (1 << b)) && (TAKEN & ((1 << b) - 1)) == (1 << b) - 1)
#else
#define FREE(b) (!(TAKEN & (1 << b)))
#endif
#define TAKE(b) \
  :: d_step { my.pc == CHOOSE && my.asked == LEARNERS && FREE(b) -> \
      printf("shard %d choose %d\n", s, b); \
      my.to = b; \
      my.asked = 0; \
      my.pinned = 0; \
      my.pc = APPLY; \
      PROGRESS(0) \
    }

inline write_record(s) {
  printf("shard %d record %d\n", s, my.to);
#ifdef PUSH
  /* The payload did not change while it was read. */
  assert(INTACT(s));
  for (k : 0 .. LEARNERS - 1) {
    my.record[my.to].applied[k] = my.record[FROM].applied[k]
  }
  if
  :: my.whose < LEARNERS -> my.record[my.to].applied[my.whose] = my.seq
  :: else
  fi
#endif
}

active [SHARDS] proctype Shards() {
  byte s = _pid - LEARNERS;
end:
  do
  LOOK_AT(0)
#if LEARNERS > 1
  LOOK_AT(1)
#endif
#if LEARNERS > 2
  LOOK_AT(2)
#endif
#if !defined(PUSH) || defined(OTHERS)
  :: d_step { my.pc == LOOK -> my.whose = LEARNERS; START_CHOOSING; PROGRESS(0) }
#endif
#ifdef PULL
  /* The server notices a death at some time, and then leaves out the pin. */
  :: d_step { my.pc == CHOOSE && my.asked < LEARNERS && learner[my.asked].pc == DEAD -> my.asked++; PROGRESS(0) }
  :: d_step { my.pc == CHOOSE && my.asked < LEARNERS && NOTICED_LATE ->
      printf("shard %d read-pin %d\n", s, my.asked);
      if
      :: learner[my.asked].pin[s] != NONE -> my.pinned = my.pinned | (1 << learner[my.asked].pin[s])
      :: else
      fi;
      my.asked++;
      PROGRESS(0)
    }
  TAKE(0)
  TAKE(1)
#if BUFFERS > 2
  TAKE(2)
#endif
#if BUFFERS > 3
  TAKE(3)
#endif
#if BUFFERS > 4
  TAKE(4)
#endif
  :: d_step { my.pc == CHOOSE && my.asked == LEARNERS && TAKEN == (1 << BUFFERS) - 1 ->
#ifdef FAULT_SERVER_WAITS /* reads the pins again until a learner has moved its own */
      my.asked = 0;
      my.pinned = 0;
      PROGRESS(0)
#else
      assert(false) /* there is always a free buffer */
#endif
    }
#endif
#ifdef PULL
  :: d_step { my.pc == APPLY ->
      printf("shard %d apply %d %d\n", s, my.whose, my.seq);
      for (k : 0 .. LEARNERS - 1) {
        assert(!(learner[k].reading[s] && learner[k].pin[s] == my.to)) /* nobody reads what is written to */
      }
#ifdef PUSH
      assert(INTACT(s));
#endif
      my.late = LATE;
      SAVE_FROM;
      my.pc = AFTER_APPLY;
      PROGRESS(0)
    }
#endif
  :: d_step { my.pc == RECORD ->
      write_record(s);
      my.pc = AFTER_RECORD;
      PROGRESS(0)
    }
  :: d_step { my.pc == FLIP && FLIP_READY ->
#ifdef ONE_FINE
      if
      :: s >= FINE_SHARDS -> write_record(s)
      :: else
      fi;
#endif
      printf("shard %d flip %d\n", s, my.to);
#ifdef FAULT_FLIP_RELAXED
      my.late_flip = 1;
      my.flipped = my.to;
#else
      becomes_current(s, my.to);
#endif
#ifdef PUSH
      /* Each gradient once, and in order. */
      assert(!my.mine || learner[my.whose].spoiled || my.seq == NEXT(my.chain[my.whose]));
      if
      :: my.mine -> my.chain[my.whose] = my.seq
      :: else
      fi;
#endif
#if defined(FAULT_FLIP_FIRST)
      my.pc = RECORD;
#elif defined(FAULT_WEIGHTS_LATE)
      my.pc = LOOK;
#else
      was_learner = my.whose;
      forget(s);
      renumber(was_learner);
#endif
      PROGRESS(1)
    }
#ifdef PULL
  :: d_step { my.late -> my.late = 0; PROGRESS(0) }
#endif
#ifdef FAULT_FLIP_RELAXED
  :: d_step { my.late_flip -> becomes_current(s, my.flipped); my.late_flip = 0 }
#endif
  od
}

/* ---- What happens to processes ---- */

inline clear_learner(l) {
  was_shard = learner[l].at;
  was_buffer = learner[l].held;
  learner[l].at = 0;
  learner[l].held = 0;
  learner[l].moved = 0;
#ifdef PUSH
  /* What was stored and is not visible yet is lost; where it is visible, that happened before. */
  learner[l].late_payload = 0;
  learner[l].late_publish = 0;
  learner[l].next = 0;
#endif
#ifdef PULL
  for (j : 0 .. SHARDS - 1) { learner[l].reading[j] = 0 }
#ifdef FAULT_PIN_RELAXED
  learner[l].late_pin = 0;
#endif
#endif
}

#ifdef TRACE
#define SERVED (shard[0].pc != DOWN)
#else
#define SERVED true
#endif
#ifdef FAULT_DROP_EARLY /* a dead learner's slot goes before all shards have applied what it had published */
#define DRAINED(s, l) true
#else
#define DRAINED(s, l) (DUE(s, l) == 0)
#endif
#ifdef PUSH
#define DROPPABLE(l) (learner[l].fenced || IN_ALL(DRAINED, l))
#else
#define DROPPABLE(l) true
#endif

/* The slot of the dead is dropped, and a new incarnation has a new one. */
inline join(l) {
  learner[l].pc = IDLE;
#ifdef PUSH
  for (k : 0 .. SHARDS - 1) {
    assert(learner[l].spoiled || shard[k].chain[l] == learner[l].published); /* nothing published is lost */
#ifndef FAULT_INCARNATION
    /* Records still say what was applied of an earlier incarnation, and whoever compares incarnations reads 0. */
    for (j : 0 .. BUFFERS - 1) { shard[k].record[j].applied[l] = 0 }
    shard[k].mine = (shard[k].whose == l -> 0 : shard[k].mine);
    shard[k].seq = (shard[k].whose == l -> 0 : shard[k].seq); /* of an earlier incarnation: its entry will read as 0 */
#endif
    shard[k].chain[l] = 0;
  }
  learner[l].next = 1;
  learner[l].published = 0;
  learner[l].payload[0] = NONE;
  learner[l].payload[1] = NONE;
  learner[l].spoiled = 0;
  learner[l].fenced = 0;
  FENCED(l) = 0;
#endif
#ifdef PULL
  for (j : 0 .. SHARDS - 1) { learner[l].pin[j] = NONE }
#endif
}

/* A learner that breaks the rules goes on to break them. */
inline spoil(l, n) {
  clear_learner(l);
  learner[l].pc = BAD;
  forget_record(was_shard, was_buffer);
#ifdef PUSH
  learner[l].published = (learner[l].published + n) % SEQ;
  learner[l].spoiled = 1;
#endif
#ifdef PULL
  for (j : 0 .. SHARDS - 1) { learner[l].pin[j] = n }
#endif
}

#define DIE(l) \
  :: d_step { MAY_CRASH && learner[l].pc < STOPPED -> \
      printf("learner %d die\n", l); \
      clear_learner(l); \
      learner[l].pc = DEAD; \
      forget_record(was_shard, was_buffer); \
      CRASHED \
    } \
  :: d_step { learner[l].pc == DEAD && SERVED && DROPPABLE(l) -> \
      printf("learner %d join\n", l); \
      join(l); \
      CRASHED_JOIN \
    }
#if defined(LIVE) || defined(CYCLES)
#define CRASHED_JOIN tick = 1
#else
#define CRASHED_JOIN skip
#endif
#ifdef LIVE
#define STOP(l) \
  :: d_step { learner[l].pc < STOPPED -> \
      learner[l].pc = STOPPED; \
      was_shard = learner[l].at; \
      was_buffer = learner[l].held; \
      forget_record(was_shard, was_buffer); \
      tick = 1 \
    }
#else
#define STOP(l)
#endif
#ifdef HOSTILE
#define SPOIL(l, n) :: d_step { MAY_CRASH && learner[l].pc < STOPPED -> spoil(l, n); CRASHED }
#else
#define SPOIL(l, n)
#endif
#define FATE(l) DIE(l) STOP(l) SPOIL(l, 1) SPOIL(l, 2) SPOIL(l, 3)

active proctype Fate() {
end:
  do
  FATE(0)
#if LEARNERS > 1
  FATE(1)
#endif
#if LEARNERS > 2
  FATE(2)
#endif
  /* All threads of the server end, and a new server starts from the memory. Between the two no shard takes a step,
   * which is as if none were scheduled, so that one step is enough unless the two are to be printed. */
  :: d_step { MAY_CRASH && shard[0].pc != DOWN ->
      printf("server die\n");
      for (k : 0 .. SHARDS - 1) {
        forget(k);
#ifdef FAULT_FLIP_RELAXED
        shard[k].late_flip = 0;
#endif
#ifdef TRACE
        shard[k].pc = DOWN
#endif
      }
#ifdef FAULT_FENCE_FORGOTTEN
      for (k : 0 .. LEARNERS - 1) { learner[k].known = 0 }
#endif
      CRASHED
    }
#ifdef TRACE
  :: d_step { shard[0].pc == DOWN ->
      printf("server start\n");
      for (k : 0 .. SHARDS - 1) { shard[k].pc = LOOK }
    }
  :: d_step { luck > 0 -> luck-- }
#endif
#ifdef LIVE
  :: d_step { !calm -> calm = 1; tick = 1 }
  /* Nothing can move: that is right only where every learner has stopped or is dead, and nothing is left to apply. */
  :: atomic { timeout ->
      tick = 1;
      for (k : 0 .. LEARNERS - 1) {
        assert(learner[k].pc == STOPPED || learner[k].pc == BAD);
        for (j : 0 .. SHARDS - 1) {
          assert(shard[j].pc == LOOK);
#ifdef PUSH
          assert(learner[k].fenced || DUE(j, k) == 0)
#endif
        }
      }
    } -> break
#endif
  od
}

#ifdef AT_REST
#define STANDS(s, l) (!enabled(LEARNERS + s))
#define IS_SEEN(l) (!learner[l].late_payload && !learner[l].late_publish)
#define IS_APPLIED(s, l) (DUE(s, l) == 0)
#define CAN_MOVE(l) (enabled(l) || (learner[l].pc == DEAD && DROPPABLE(l)))
#define IS_WELL(l) (learner[l].fenced || (IN_ALL(IS_APPLIED, l) && (CAN_MOVE(l) || learner[l].pc == BAD)))
never { /* whoever takes no step any more, all others come to rest only with everything applied, and can go on */
  do
  :: assert(!IN_ALL(STANDS, 0) || !OF_ALL(IS_SEEN) || OF_ALL(IS_WELL))
  od
}
#elif defined(LIVE) || defined(CYCLES)
never { /* at some time the last step that makes progress is over, though steps go on */
  do
  :: true
  :: !tick -> break
  od;
accept:
  do
  :: !tick
  od
}
#endif
