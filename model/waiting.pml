/*
 * How long anybody waits. The same room as in room.pml, in a timely world: an answer or a message arrives within the tick or is lost, a
 * living client has its turn in each tick, and it holds for WORK ticks at most. LOSSES messages get lost, and CRASHES clients are killed
 * or freeze for ever. A killed client has no subscription any more; a frozen one seems to listen. docs/model.md maps every step to
 * the code.
 *
 * Time passes only after all turns of a tick. So every endless run has endless ticks, and no fairness has to be assumed. A client takes
 * a new ticket after each release. Each #ifdef PLANT_... is a planted error, which the checker must find.
 */

#ifndef N
#define N 3
#endif
#ifndef TTL
#define TTL 3
#endif
#ifndef ACCEPT
#define ACCEPT 2
#endif
#ifndef PATIENCE
#define PATIENCE 3
#endif
#ifndef WORK
#define WORK 1
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef BOUND
#define BOUND 6
#endif

#define TOLD(c)    message[c] = GRANTED; wasted = (wasted || dead[c] >= ACCEPT)
#define HINTED(c)  message[c] = HINT; wasted = (wasted || (lapse && dead[c] >= ACCEPT))
#define LISTENS(c) (client[c] != KILLED)
#include "law.pml"

mtype = { IDLE, ASKING, WAITING, HOLDING, RELEASING, KILLED, FROZEN };
mtype = { HINT, GRANTED };

mtype client[N] = IDLE;
mtype message[N];  /* 0: there is none */
bool busy[N];      /* the client has had its turn in this tick */
byte lease[N];     /* age of the lease */
byte work[N];      /* ticks since the client got the lease */
byte dead[N];      /* ticks since the client died */
bool wasted;       /* a lease or an offer went to a client that had been dead for the acceptance term, although the store could know */
byte idle;         /* ticks in a row in which somebody waited and nobody worked */
byte losses = LOSSES;
byte crashes = CRASHES;

#define waits(c)  (client[c] == ASKING || client[c] == WAITING)
#define works(c) (client[c] == HOLDING)
#define lives(c)  (waits(c) || client[c] == HOLDING || client[c] == RELEASING)
#ifdef ONLY_WAITERS_CRASH
#define may_crash(c) waits(c)
#else
#define may_crash(c) lives(c)
#endif
#ifdef PLANT_NEVER_ASK_AGAIN
#define may_ask(c) (!busy[c] && (client[c] == ASKING || client[c] == HOLDING))
#define ready(c)  (message[c] == 0 && (busy[c] || client[c] == WAITING || !lives(c)) && !(client[c] == HOLDING && work[c] == WORK))
#else
#define may_ask(c) (!busy[c] && (waits(c) || client[c] == HOLDING))
#define ready(c)  (message[c] == 0 && (busy[c] || !lives(c)) && !(client[c] == HOLDING && work[c] == WORK))
#endif

/* A request and its answer. `heard`: the answer arrives. */
inline exchange(c, heard) {
  ask(c, client[c] != ASKING, reply);
  busy[c] = true;
  if
  :: !heard
  :: heard && reply == HELD ->
     if :: client[c] != HOLDING -> client[c] = HOLDING; work[c] = 0 :: else fi;
     lease[c] = 0
  :: heard && reply == QUEUED -> client[c] = WAITING
  :: heard && reply == GONE && client[c] == HOLDING -> client[c] = RELEASING; busy[c] = false; lease[c] = 0; work[c] = 0
  :: heard && reply == GONE && client[c] != HOLDING -> client[c] = ASKING; busy[c] = false
  fi;
  reply = 0; i = 0; head = 0; lapsed = false; lapse = false
}

/* A release: it may get lost, or its answer. Then it is sent again in the next tick. */
inline let_go(c, arrives, heard) {
  if
  :: arrives -> give_back(c, false)
  :: else
  fi;
  message[c] = 0; busy[c] = true; lease[c] = 0; work[c] = 0;
  client[c] = (heard -> IDLE : RELEASING);
  i = 0; head = 0; lapsed = false; lapse = false
}

proctype Client(byte c) {
  byte i, head;
  bool lapsed, lapse;
  mtype reply;
  do
  :: d_step { client[c] == IDLE && !busy[c] -> client[c] = ASKING }
  :: d_step { may_ask(c) -> exchange(c, true) }
  :: d_step { may_ask(c) && losses > 0 -> losses--; busy[c] = true }
  :: d_step { may_ask(c) && losses > 0 -> losses--; exchange(c, false) }
  :: d_step { message[c] == GRANTED && client[c] == WAITING -> message[c] = 0; client[c] = HOLDING; lease[c] = 0; work[c] = 0 }
  :: d_step { message[c] != 0 && !(message[c] == GRANTED && client[c] == WAITING) -> message[c] = 0; if :: waits(c) -> busy[c] = false :: else fi }
  :: d_step { message[c] != 0 && losses > 0 -> losses--; message[c] = 0 }
  :: d_step { client[c] == HOLDING || (client[c] == RELEASING && !busy[c]) -> let_go(c, true, true) }
  :: d_step { (client[c] == HOLDING || (client[c] == RELEASING && !busy[c])) && losses > 0 -> losses--; let_go(c, false, false) }
  :: d_step { (client[c] == HOLDING || (client[c] == RELEASING && !busy[c])) && losses > 0 -> losses--; let_go(c, true, false) }
  :: d_step { may_crash(c) && crashes > 0 -> crashes--; client[c] = KILLED; message[c] = 0; busy[c] = false; lease[c] = 0; work[c] = 0 }
  :: d_step { may_crash(c) && crashes > 0 -> crashes--; client[c] = FROZEN; message[c] = 0; busy[c] = false; lease[c] = 0; work[c] = 0 }
  :: d_step { message[c] != 0 && (client[c] == FROZEN || client[c] == KILLED) -> message[c] = 0 }
  od
}

proctype Clock() {
  byte c;
  do
  :: d_step { all(ready) ->
       for (c : 0 .. N - 1) {
         busy[c] = false;
         if :: left[c] > 0 -> left[c]-- :: else fi;
         if :: client[c] == HOLDING -> lease[c]++; work[c]++ :: else fi;
         if :: client[c] == HOLDING && lease[c] == TTL -> client[c] = RELEASING; lease[c] = 0; work[c] = 0 :: else fi;
#ifdef CHECK_unheard
         if :: (client[c] == KILLED || client[c] == FROZEN) && dead[c] < ACCEPT -> dead[c]++ :: else fi
#endif
       };
#ifdef CHECK_handover
       idle = (any(waits) && !any(works) -> idle + 1 : 0);
#endif
       c = 0 }
  od
}

proctype Watch() {
  do
#ifdef CHECK_wake
  :: d_step { nempty(queue) && !any(holds) -> assert(empty(queue)) }
#endif
#ifdef CHECK_unheard
  :: d_step { wasted -> assert(!wasted) }
#endif
#ifdef CHECK_handover
  :: d_step { idle > BOUND -> assert(idle <= BOUND) }
#endif
  :: false
  od
}

init {
  byte c;
  atomic {
    for (c : 0 .. N - 1) { run Client(c) };
    run Clock(); run Watch(); c = 0
  }
}
/* The last ticket: of equal ones it is the one that a queue without order would starve. */
#ifdef CHECK_served
#define waiting (waits(N - 1))
ltl served { [] (waiting -> <> !waiting) }
#endif
