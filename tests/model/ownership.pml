/*
 * Who may write: the ownership and commit protocol of one partition with one execution, for the model checker Spin.
 *
 * Two owners (shards), one Redis. Anybody may be slow for any time between two steps: that is the zombie, an owner that
 * was frozen past its deadline. Time is ticks of about three seconds; a lease lasts three, its holder believes in it for two.
 * The execution has STEPS steps. Commit number n records the result of step n-1 and declares step n; the last one ends it.
 *
 * docs/model.md tells in words what is modelled and what is not; tests/model/check.py runs all of it.
 * A fault that a person could make in the product is one macro (-D...): each must give a counterexample.
 */

#ifndef STEPS
#define STEPS 2         /* steps of the execution */
#endif
#ifndef SLOW
#define SLOW 3          /* ticks that pass although somebody has not renewed yet */
#endif
#ifndef CRASHES
#define CRASHES 1       /* deaths of a shard */
#endif
#ifndef RESETS
#define RESETS 1        /* broken connections: a reply is lost, or a request comes late */
#endif
#ifndef RELEASES
#define RELEASES 0      /* clean handovers */
#endif
#ifndef LOSSES
#define LOSSES 0        /* times that Redis forgets its last second */
#endif
#ifndef FOREIGN
#define FOREIGN 0       /* writes of somebody who holds no lease */
#endif

#define END   (STEPS + 1)
#define TTL   3
#define TRUST 2         /* ticks for which a holder acts, from the sending of its request */

/* ---- Redis: the row, the lease, the counts; and the copy of them that is on its disk. ---- */
typedef Store {
  byte rev; byte cid; byte prog; byte res[3]; byte by;  /* by: the epoch that wrote it last (seen by the checks only) */
  byte own; byte ep; byte ttl;                          /* lease: who (0: nobody), under which grant, for how long */
  byte epoch; bool released;                            /* the last grant; whether it was given back */
  byte seq;
};
Store db, disk;
byte marked;            /* 0: nothing on disk that could be lost to; else its age in ticks, plus 1 */
bool lost;              /* Redis has forgotten something */

/* ---- The owners. ---- */
typedef Owner {
  byte inc;             /* incarnation: tells who it is; another one after a crash */
  bool held; byte ep; byte until;       /* Holdings: what Leases says, read by all threads */
  byte known;           /* SeqBook */
  bool suspect;         /* a write was fenced: renew now */
  bool dropping;        /* Drop is on its way to the actor */
  byte giving; byte gave;               /* the grant that is to be given back, and the last one that was */
  byte lq; byte lq_left; byte lq_seq; byte lq_ep; bool lq_lost; bool lq_settles;   /* the request of Leases */
  byte mem;             /* NONE, ACTOR, or KEPT: it has left memory, and is remembered for a while (Afterlife) */
  byte grant;           /* under which it was loaded */
  byte prog; byte rev; byte res[3];     /* its checkpoint */
  byte age;             /* ticks since it has left */
  bool follows;         /* the effects of a decision wait for its acknowledgement */
  byte todo;            /* the step that may begin */
  bool compare;         /* the Healer has to look */
  byte fk; byte fph; byte frev; byte fnext; byte fcid; byte fstep; byte fep; byte fsaid; byte fseq;  /* the write in flight */
  byte acked;           /* how far this grant's acknowledged commits go (seen by the checks only) */
};
Owner o[2];

/* A request on a connection that broke: Redis may still read it, at any time. */
typedef Request { byte kind; byte inc; byte ep; byte rev; byte next; byte cid; byte step; byte prog; byte res[3]; };
Request stray;

byte top;               /* the highest epoch ever granted; the clock in ms is beyond it at the next grant */
byte recorded;          /* bits: steps whose result Redis has ever had */
byte slow = SLOW, crashes = CRASHES, resets = RESETS, releases = RELEASES, losses = LOSSES, foreign = FOREIGN;

#define NONE 0
#define ACTOR 1
#define KEPT 2
#define COMMIT 1        /* kinds of write */
#define RESUME 2        /* a commit that only says: interrupted, and begun again */
#define RESTORE 3       /* of who is in memory */
#define REVIVE 4        /* of who is remembered */
#define SENT 1          /* phases of a write */
#define ANSWERED 2
#define FENCED_OUT 3
#ifdef NOT_SENT_AGAIN
#define AGAIN 4
#else
#define AGAIN SENT
#endif
#define OK 1            /* answers */
#define DUP 2
#define FENCED 3
#define OLDER 4         /* CONFLICT: the stored revision is lower than expected, or there is no row */
#define NEWER 5         /* CONFLICT: it is not */
#define GRANTED 1       /* answers to Leases */
#define RENEWED 2
#define GONE 3

#define ME o[me]
#define MINE (db.own == ME.inc && db.ep == ME.ep)
#define STILL (MINE && ME.held && ME.grant == ME.ep)    /* and what is in memory was loaded under that grant */
#define SAME_CONTENT (db.prog == ME.prog && db.res[1] == ME.res[1] && db.res[2] == ME.res[2])

/* The next revision. No two grants write the same one, and who was granted later writes the higher one. */
inline next_revision() {
  ME.fnext = ME.rev + 1;
  if
#ifndef REVISIONS_COUNT_ONLY
  :: ME.fnext < 8 * ME.ep -> ME.fnext = 8 * ME.ep
#endif
  :: else
  fi
}

byte id;
/* A commit id that nothing refers to any more. */
inline fresh() {
  id = 1;
  do
  :: id == db.cid || id == disk.cid || id == stray.cid || id == o[0].fcid || id == o[1].fcid -> id++
  :: else -> break
  od
}

/* ---- commit.lua and restore.lua ---- */
#ifdef DUP_TELLS_NO_COUNT
#define COUNT 0
#else
#define COUNT db.seq
#endif

inline write(kind_, inc_, ep_, rev_, next_, cid_, step_, prog_, r1_, r2_, said_, seq_) {
  if
#ifdef NO_LEASE_CHECK
  :: false -> skip
#else
  :: db.own != inc_ || db.ep != ep_ -> said_ = FENCED
#endif
  :: else ->
    if
    :: kind_ <= RESUME && db.cid == cid_ -> said_ = DUP; seq_ = COUNT
    :: kind_ >= RESTORE && db.rev == next_ && db.cid == cid_ -> said_ = DUP; seq_ = COUNT
#ifdef NO_REV_CHECK
    :: false -> skip
#else
    :: kind_ <= RESUME && db.cid != cid_ && db.rev < rev_ -> said_ = OLDER
    :: kind_ <= RESUME && db.cid != cid_ && db.rev > rev_ -> said_ = NEWER
#endif
#ifndef RESTORE_OVERWRITES
    :: kind_ >= RESTORE && db.rev >= next_ && !(db.rev == next_ && db.cid == cid_) -> said_ = NEWER
#endif
    :: else ->
      /* Two epochs never both commit: what is in the row was written in the order of the grants. */
      assert(ep_ >= db.by);
      if
      :: kind_ == COMMIT ->
        /* A commit is applied at most once, and only to what it was decided upon. */
        assert(db.prog + 1 == prog_);
        if
        :: step_ == 1 -> db.res[1] = r1_
        :: step_ == 2 -> db.res[2] = r2_
        :: else
        fi;
        if
        :: step_ -> recorded = recorded | (1 << step_)
        :: else
        fi
      :: kind_ == RESUME -> assert(db.prog == prog_)
      :: else ->
        /* Only what Redis has lost is written back: nobody else's write is overwritten. */
        assert(lost);
        db.res[1] = r1_; db.res[2] = r2_
      fi;
      db.rev = next_; db.prog = prog_; db.cid = cid_; db.by = ep_; db.seq++;
      said_ = OK; seq_ = db.seq
    fi
  fi
}

/* ---- actors/execution.py ---- */
inline send(kind_, step_) {
  ME.fk = kind_; ME.fph = SENT; ME.fstep = step_; ME.frev = ME.rev; ME.fep = ME.ep;
  next_revision();
  fresh();
  ME.fcid = id
}

inline no_write() {
  ME.fk = 0; ME.fph = 0; ME.fstep = 0; ME.frev = 0; ME.fnext = 0; ME.fcid = 0; ME.fep = 0; ME.fsaid = 0; ME.fseq = 0
}

inline strays() {
  stray.kind = ME.fk; stray.inc = ME.inc; stray.ep = ME.fep; stray.rev = ME.frev; stray.next = ME.fnext; stray.cid = ME.fcid;
  stray.step = ME.fstep; stray.prog = ME.prog; stray.res[1] = ME.res[1]; stray.res[2] = ME.res[2]
}

/* The actor is gone. What the Mirror has of it may still come to Redis, late. */
inline forget(late_) {
  if
    :: late_ && ME.fph == SENT && stray.kind == 0 -> strays()
  :: else
  fi;
  ME.mem = NONE; ME.grant = 0; ME.prog = 0; ME.rev = 0; ME.res[1] = 0; ME.res[2] = 0; ME.age = 0;
  ME.follows = false; ME.todo = 0; ME.compare = false;
  no_write()
}

#ifdef BELIEVES_LAPSED_LEASE
#define MAY_ACT ME.held
#else
#define MAY_ACT (ME.held && ME.until > 0)
#endif
#ifdef ANY_GRANT
#define OURS ME.held            /* whichever grant there is now */
#else
#define OURS (ME.held && ME.grant == ME.ep)
#endif

inline begin_body() {
  printf("%d: begins the body of step %d\n", me, ME.todo);
  /* A step starts only after its declaration is acknowledged. */
  assert(ME.acked >= ME.todo);
  assert(lost || db.prog >= ME.todo);
  /* A recorded step never runs again; if Redis forgot a second: never where it was acknowledged. */
  assert(lost || !(recorded & (1 << ME.todo)));
  assert(ME.acked <= ME.todo);
  /* Nobody begins a step while another one holds the lease. */
  assert(lost || db.own == 0 || db.own == ME.inc)
}

inline acknowledged() {
  ME.rev = ME.fnext;
  printf("%d: revision %d is acknowledged (progress %d)\n", me, ME.rev, ME.prog);
  if
  :: ME.fseq > ME.known -> ME.known = ME.fseq
  :: else
  fi;
  no_write();
  if
  :: ME.held && ME.grant == ME.ep -> ME.acked = ME.prog
  :: else
  fi;
  /* What memory and Redis both call the same revision is the same; so a healed row equals memory. */
  assert(!STILL || db.rev != ME.rev || SAME_CONTENT);
  if
  :: ME.follows && ME.prog < END -> ME.todo = ME.prog
  #ifdef FORGETS_WHO_ENDED
  :: ME.follows && ME.prog == END -> forget(false)
#else
  :: ME.follows && ME.prog == END -> ME.mem = KEPT; ME.age = 0
#endif
  :: else
  fi;
  ME.follows = false
}

#ifdef LOADS_ON_LAPSED_LEASE
#define LOADS true
#else
#define LOADS (ME.until > 0)
#endif

proctype Actor(byte me) {
  do
  /* Dispatcher: load. */
  :: d_step { ME.held && ME.mem == NONE && !ME.dropping && ME.fk == 0 && db.prog < END && LOADS ->
    /* An acknowledged result is never lost while its owner lives and holds the partition. */
    assert(db.prog >= ME.acked);
    printf("%d: loads the row: revision %d, progress %d\n", me, db.rev, db.prog);
    ME.mem = ACTOR; ME.grant = ME.ep; ME.prog = db.prog; ME.rev = db.rev; ME.res[1] = db.res[1]; ME.res[2] = db.res[2];
    ME.acked = db.prog;
    ME.follows = true;
    if
    :: db.prog == 0 -> ME.prog = 1; send(COMMIT, 0)
    :: else -> send(RESUME, 0)
    fi
  }

  /* Runner: the lease is looked at again immediately before the body. Its result may be recorded much later. */
  :: d_step { ME.todo && ME.mem == ACTOR && ME.fk == 0 && OURS && MAY_ACT ->
    begin_body();
    ME.res[ME.todo] = me + 1; ME.prog = ME.todo + 1; ME.todo = 0;
    ME.follows = true;
    send(COMMIT, ME.prog - 1)
  }
#ifdef STARTS_BEFORE_ACK
  :: d_step { ME.fk && ME.follows && ME.prog < END && OURS && MAY_ACT -> ME.todo = ME.prog; begin_body(); ME.todo = 0 }
#endif

  /* Mirror: Redis runs the script. */
  :: d_step { ME.fph == SENT ->
    write(ME.fk, ME.inc, ME.fep, ME.frev, ME.fnext, ME.fcid, ME.fstep, ME.prog, ME.res[1], ME.res[2], ME.fsaid, ME.fseq);
    ME.fph = ANSWERED;
    printf("%d: Redis gets its write of revision %d (progress %d): answer %d; the row is now at revision %d\n", me, ME.fnext, ME.prog, ME.fsaid, db.rev)
  }
  /* The connection breaks: the answer is lost, or the request is read later; it is sent again. */
  :: d_step { ME.fph == ANSWERED && resets -> resets--; ME.fph = AGAIN; ME.fsaid = 0; ME.fseq = 0; printf("%d: the answer to its write is lost, it is sent again\n", me) }
  :: d_step { ME.fph == SENT && resets && stray.kind == 0 -> resets--; strays(); printf("%d: its connection breaks, its write is sent again (and may be read twice)\n", me) }

  /* The answer. */
  :: d_step { ME.fph == ANSWERED && ME.mem == ACTOR ->
    if
    :: ME.fsaid == FENCED ->
#ifdef FENCED_IGNORED
      acknowledged()
#else
      printf("%d: is fenced, and asks for its lease\n", me); ME.fph = FENCED_OUT; ME.suspect = true
#endif
    :: ME.fsaid == OK || ME.fsaid == DUP -> acknowledged()
    :: ME.fsaid == OLDER ->
#ifdef NEVER_HEALED
      forget(false)
#else
      if
      :: OURS -> printf("%d: CONFLICT with an older row: restores it\n", me); send(RESTORE, 0)
      :: else -> forget(false)
      fi
#endif
    :: ME.fsaid == NEWER ->
#ifdef ALWAYS_HEALED
      send(RESTORE, 0); ME.fnext = db.rev + 1
#else
      printf("%d: CONFLICT with a newer row: drops its memory\n", me); forget(false)
#endif
    fi
  }
  :: d_step { ME.fph == ANSWERED && ME.mem == KEPT ->
    if
    :: ME.fsaid == FENCED -> ME.fph = FENCED_OUT; ME.suspect = true
    :: ME.fsaid == OK || ME.fsaid == DUP ->
      no_write();
      ME.age = 0;
      assert(!STILL || db.rev != ME.rev || SAME_CONTENT)
    :: else -> forget(false)
    fi
  }

  /* Healer. */
  :: d_step { ME.compare && ME.fk == 0 && ME.mem ->
    ME.compare = false;
    if
    :: ME.mem == ACTOR && db.rev < ME.rev && OURS -> send(RESTORE, 0)
    :: ME.mem == KEPT && db.rev < ME.rev && ME.held -> send(REVIVE, 0); ME.fnext = ME.rev
    :: else
    fi
  }

  /* The partition was lost: Drop has come. */
  :: d_step { ME.dropping -> printf("%d: drops its memory, as the partition was lost\n", me); forget(true); ME.dropping = false }
  od
}

/* ---- actors/leases.py ---- */
#ifdef EPOCH_COUNTS_ONLY
#define NEXT_EPOCH (db.epoch + 1)
#else
#define NEXT_EPOCH (top + 1)    /* max(stored + 1, now in ms) */
#endif
#ifdef COUNTS_FROM_REPLY
#define UNTIL TRUST
#else
#define UNTIL ME.lq_left
#endif

inline no_request() {
  ME.lq = 0; ME.lq_left = 0; ME.lq_seq = 0; ME.lq_ep = 0; ME.lq_lost = false; ME.lq_settles = false
}

/* Mirror.lease_checked: what was fenced is sent again under the lease that is ours, else forgotten. */
inline checked() {
  ME.suspect = false;
  if
  :: ME.fph == FENCED_OUT && ME.held && ME.fep == ME.ep -> ME.fph = SENT; ME.fsaid = 0
  :: ME.fph == FENCED_OUT && !(ME.held && ME.fep == ME.ep) -> no_write()
  :: else
  fi
}

#ifdef LOSS_UNNOTICED
#define NOTICED false
#else
#define NOTICED (ME.mem != NONE)
#endif

proctype Leases(byte me) {
  do
  /* lease_renew.lua: asked and executed; its answer may come late, or never. */
  :: d_step { ME.held && ME.lq == 0 && (ME.until < TRUST || ME.suspect) ->
    ME.lq_left = TRUST; ME.lq_lost = (db.seq < ME.known);
    ME.lq_settles = (ME.mem == KEPT && ME.age == 2);
    if
    :: MINE -> db.ttl = TTL; ME.lq = RENEWED
    :: !MINE && db.own == 0 && db.epoch == ME.ep && !db.released ->
      db.own = ME.inc; db.ep = ME.ep; db.ttl = TTL; ME.lq = RENEWED
    :: !MINE && db.epoch < ME.ep && (db.own == 0 || db.ep < ME.ep) ->
      db.own = ME.inc; db.ep = ME.ep; db.ttl = TTL; db.epoch = ME.ep; db.released = false; ME.lq = RENEWED
    :: else -> ME.lq = GONE
    fi;
    ME.lq_seq = db.seq;
    printf("%d: asks to renew epoch %d: %d (2: yes, 3: gone)\n", me, ME.ep, ME.lq)
  }
  :: d_step { ME.lq == RENEWED ->
    ME.until = UNTIL;
    printf("%d: hears that its lease is renewed, for %d ticks\n", me, UNTIL);
    if
    :: ME.lq_lost -> printf("%d: Redis has lost writes, it compares\n", me); ME.known = ME.lq_seq; ME.compare = NOTICED
    :: else ->
      if
      :: ME.lq_seq > ME.known -> ME.known = ME.lq_seq
      :: else
      fi;
      if
      :: ME.lq_settles && ME.mem == KEPT && ME.age == 2 && ME.fk == 0 && !ME.compare -> forget(false)
      :: else
      fi
    fi;
    checked();
    no_request()
  }
  :: d_step { ME.lq == GONE ->
    printf("%d: hears that epoch %d is not its own any more\n", me, ME.ep);
    ME.held = false; ME.until = 0; ME.ep = 0; ME.known = 0;
    ME.dropping = true; ME.acked = 0;
    checked();
    no_request()
  }

  /* lease_acquire.lua: asked when it is free, or said to be ours: a grant whose answer was lost. */
  :: d_step { !ME.held && ME.lq == 0 && !ME.giving && (db.own == 0 || db.own == ME.inc) && db.prog < END ->
    ME.lq_left = TRUST;
    if
    :: db.own == 0 ->
      /* No epoch is granted twice: receivers may take it for a fencing token. */
      assert(NEXT_EPOCH > top);
      db.epoch = NEXT_EPOCH; db.released = false; db.own = ME.inc; db.ep = db.epoch; top = db.epoch
    :: else ->
      if
      :: db.epoch != db.ep -> db.epoch = db.ep; db.released = false
      :: else
      fi
    fi;
    db.ttl = TTL;
    ME.lq = GRANTED; ME.lq_ep = db.ep; ME.lq_seq = db.seq;
    printf("%d: is granted epoch %d\n", me, db.ep)
  }
  :: d_step { ME.lq == GRANTED ->
    printf("%d: hears of its grant\n", me);
    if
#ifndef TAKES_BACK_WHAT_IT_GAVE
    :: ME.lq_ep <= ME.gave -> ME.giving = ME.lq_ep /* Redis has forgotten that it was given back: once more */
#endif
    :: else -> ME.held = true; ME.ep = ME.lq_ep; ME.until = UNTIL; ME.known = ME.lq_seq; ME.acked = 0
    fi;
    no_request()
  }

  /* A reply of Redis is lost. */
  :: d_step { ME.lq && resets -> printf("%d: the answer about its lease is lost\n", me); resets--; no_request() }

  /* lease_release.lua, after all that is in memory has left it. */
  :: d_step { ME.held && releases && ME.lq == 0 && ME.fk == 0 && !ME.dropping ->
    releases--;
    printf("%d: lets epoch %d go, all has left memory\n", me, ME.ep);
    ME.giving = ME.ep; ME.gave = ME.ep; ME.held = false; ME.until = 0; ME.ep = 0; ME.known = 0; ME.acked = 0;
    forget(false)
  }
  :: d_step { ME.giving ->
    printf("%d: gives epoch %d back\n", me, ME.giving);
    if
    :: db.own == ME.inc && db.ep == ME.giving -> db.own = 0; db.ep = 0; db.ttl = 0; db.epoch = ME.giving; db.released = true
    :: else
    fi;
    ME.giving = 0
  }
  od
}

/* ---- What happens to them. ---- */
#define FRESH(i) (o[i].lq == 0 && !o[i].dropping && !o[i].suspect && (!o[i].held || o[i].until == TRUST))

inline wear(what) {
  if
  :: what > 0 -> what--
  :: else
  fi
}

inline lapse(it) {
  wear(it.ttl);
  if
  :: it.ttl == 0 -> it.own = 0; it.ep = 0
  :: else
  fi
}

inline copy(to, from) {
  to.rev = from.rev; to.cid = from.cid; to.prog = from.prog; to.res[1] = from.res[1]; to.res[2] = from.res[2];
  to.by = from.by; to.own = from.own; to.ep = from.ep; to.ttl = from.ttl; to.epoch = from.epoch;
  to.released = from.released; to.seq = from.seq
}

inline no_disk() {
  marked = 0;
  disk.rev = 0; disk.cid = 0; disk.prog = 0; disk.res[1] = 0; disk.res[2] = 0; disk.by = 0; disk.own = 0; disk.ep = 0;
  disk.ttl = 0; disk.epoch = 0; disk.released = false; disk.seq = 0
}

inline tick() {
  printf("-- three seconds pass\n");
  lapse(db); lapse(disk);
  wear(o[0].until); wear(o[1].until); wear(o[0].lq_left); wear(o[1].lq_left);
  for (i : 0 .. 1) {
    if
    :: o[i].mem == KEPT && o[i].age < 2 -> o[i].age++
    :: else
    fi
  }
  if
  :: marked == 2 -> no_disk(); losses-- /* it chose another second to forget */
  :: marked == 1 -> marked = 2
  :: else
  fi
}

proctype Time() {
  byte i;
  do
  :: d_step { FRESH(0) && FRESH(1) && (db.own || marked) -> tick(); i = 0 }
  :: d_step { !(FRESH(0) && FRESH(1)) && slow -> slow--; tick(); i = 0 }
  od
}

proctype Faults() {
  byte me;
  do
  /* Redis saves; later it may come back as it was then. An expired lease does not come back: its end is a time of day. */
  :: d_step { losses && !marked -> printf("-- Redis saves what it has (revision %d, epoch %d)\n", db.rev, db.epoch); copy(disk, db); marked = 1 }
  :: d_step { losses && marked -> losses--; lost = true; copy(db, disk); no_disk();
    printf("-- Redis dies, and is back with revision %d, epoch %d, its lease of %d\n", db.rev, db.epoch, db.own) }
  /* A shard dies, and another one comes with its name; its parent frees the lease, or nobody does. */
  :: atomic { crashes ->
    crashes--;
    if
    :: me = 0
    :: me = 1
    fi;
    d_step {
      printf("-- shard %d dies\n", me);
      forget(true);
      ME.held = false; ME.ep = 0; ME.until = 0; ME.known = 0; ME.suspect = false; ME.dropping = false; ME.giving = 0; ME.gave = 0; ME.acked = 0;
      no_request()
    };
    if
    :: db.own == ME.inc -> db.own = 0; db.ep = 0; db.ttl = 0
    :: skip
    fi;
    ME.inc = ME.inc + 2;
    me = 0
  }
  :: d_step { foreign && db.prog < END ->
    foreign--;
    fresh();
    db.rev++; db.cid = id;
    printf("-- somebody without a lease writes revision %d\n", db.rev)
  }
  /* A request of a broken connection arrives. */
  :: d_step { stray.kind ->
    write(stray.kind, stray.inc, stray.ep, stray.rev, stray.next, stray.cid, stray.step, stray.prog, stray.res[1], stray.res[2], stray.kind, stray.rev);
    printf("-- Redis reads a write of a broken connection: answer %d\n", stray.kind);
    stray.kind = 0; stray.inc = 0; stray.ep = 0; stray.rev = 0; stray.next = 0; stray.cid = 0; stray.step = 0; stray.prog = 0;
    stray.res[1] = 0; stray.res[2] = 0
  }
  :: d_step { stray.kind -> /* or it never does */
    stray.kind = 0; stray.inc = 0; stray.ep = 0; stray.rev = 0; stray.next = 0; stray.cid = 0; stray.step = 0; stray.prog = 0;
    stray.res[1] = 0; stray.res[2] = 0
  }
  od
}

init {
  atomic {
    db.rev = 1; o[0].inc = 1; o[1].inc = 2;
    /* The first grant is behind us: it does not matter who of the two has it. */
    db.own = 1; db.ep = 1; db.ttl = TTL; db.epoch = 1; top = 1;
    o[0].held = true; o[0].ep = 1; o[0].until = TRUST;
    run Actor(0); run Actor(1); run Leases(0); run Leases(1); run Time(); run Faults()
  }
}

#ifdef GOES_ON
/* However often that happens: once the faults are over, the execution comes to its end, and Redis keeps that. */
ltl goes_on { <>[] (db.prog == END) }
#endif
