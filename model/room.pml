/*
 * One room, its tickets, and the network between them. docs/model.md maps every step to the code.
 *
 * A step of the store is atomic. Everything else interleaves freely: a request and its answer may be late or lost, a request for the
 * key may arrive after later ones, a message may be late or lost, and a client may stop for any time between two steps.
 *
 * Time is a tick that all clocks share, and it passes whenever it likes. The model keeps ages and remaining times, because only
 * differences of instants enter the code. An age stops at TTL: beyond it a lease is over, whatever the age is.
 *
 * Every client has one ticket and uses it once. Each #ifdef PLANT_... is a planted error, which the checker must find.
 */

#ifndef N
#define N 2
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

#define TOLD(c)   message[c] = true; granted[c] = 0
#define HINTED(c) message[c] = false; granted[c] = 0
#define LISTENS(c) listens
#include "law.pml"

mtype = { IDLE, ASKING, WAITING, HOLDING, OVER };  /* a client */
mtype = { NONE, ACQUIRE, RENEW };                  /* a request; the release has a place of its own */

mtype client[N] = IDLE;
mtype call[N] = NONE;  /* the request that the client waits for, or its answer: HELD, QUEUED or GONE */
byte asked[N];         /* its age, counted from before it was sent: `askedAt` */
byte way[N];           /* of the answer QUEUED: the age that the request had when the store answered */
bool late[N];          /* an older request for the key may still arrive; nobody hears its answer */
bool release[N];       /* a release is on its way, again and again until it is answered */
bool message[N];       /* a message that is the lease is on its way */
byte granted[N];       /* its age: of the grant that it tells */
byte trip[N];          /* of the last answer QUEUED that the client heard: its `way` */
byte lease[N];         /* age of the lease, as the client counts it */
#ifdef PLANT_TRIP_FORGOTTEN
byte back[N];          /* of that answer: how long it was on its way back */
#endif

#if N == 2
#define holders (holds(0) + holds(1))
#else
#define holders (holds(0) + holds(1) + holds(2))
#endif
#define belief_is_true(c) (!believes(c) || state[c] == HELD)
#define is_buried(c) (client[c] != OVER || release[c] || state[c] == OUT)
#define believes(c) (client[c] == HOLDING && lease[c] < TTL)

inline send(c, verb) { call[c] = verb; asked[c] = 0; way[c] = 0 }
inline forget(c)     { call[c] = NONE; asked[c] = 0; way[c] = 0 }

inline tidy() { reply = NONE; i = 0; head = 0; lapsed = false; lapse = false; listens = false }

/* ---- The store answers. `taken`: it knows that the process of the head listens. ---- */

inline answer(c, taken) {
  listens = taken;
  ask(c, call[c] == RENEW, reply);
  call[c] = reply;
  if
  :: reply == QUEUED -> way[c] = asked[c]
  :: reply == GONE -> asked[c] = 0
  :: else
  fi;
  tidy()
}

/* Its answer is lost. */
inline answer_late(c, taken) {
  listens = taken;
  ask(c, false, reply);
  late[c] = false;
  tidy()
}

/* `heard`: the answer arrives. A release whose answer is lost is carried out again. */
inline take_back(c, taken, heard) {
  listens = taken;
  give_back(c, late[c]);
  message[c] = false; granted[c] = 0;
  release[c] = !heard;
  tidy()
}

/* ---- The client hears: src/engine. A late answer never shortens what an earlier one gave. ---- */

inline hear(c) {
  if
  :: client[c] == HOLDING && call[c] == HELD -> lease[c] = (asked[c] < lease[c] -> asked[c] : lease[c])
  :: client[c] == HOLDING && call[c] != HELD -> lease[c] = TTL
  :: client[c] != HOLDING && call[c] == HELD && asked[c] < TTL ->
     client[c] = HOLDING; trip[c] = 0;
#ifdef PLANT_COUNT_FROM_ANSWER
     lease[c] = 0
#else
     lease[c] = asked[c]
#endif
  :: client[c] != HOLDING && call[c] == QUEUED ->
     client[c] = WAITING; trip[c] = way[c];
#ifdef PLANT_TRIP_FORGOTTEN
     back[c] = asked[c] - way[c]
#endif
  :: else -> client[c] = ASKING; trip[c] = 0
  fi;
  forget(c)
}

/* The lease counts from A + (G - T): see grantedAt. A lease of which nothing is left is not used. */
inline hear_message(c) {
  if
#ifdef PLANT_BELIEVE_AFTER_LEAVING
  :: (client[c] == WAITING || client[c] == OVER) && trip[c] + granted[c] < TTL ->
#else
  :: client[c] == WAITING && trip[c] + granted[c] < TTL ->
#endif
     client[c] = HOLDING;
#if defined(PLANT_COUNT_FROM_MESSAGE)
     lease[c] = 0;
#elif defined(PLANT_TRIP_FORGOTTEN)
     lease[c] = (granted[c] > back[c] -> granted[c] - back[c] : 0);
#else
     lease[c] = trip[c] + granted[c];
#endif
     trip[c] = 0; forget(c)
  :: else
  fi;
  message[c] = false; granted[c] = 0
}

#define on_its_way(c) (call[c] == ACQUIRE || call[c] == RENEW)
#define answered(c)   (call[c] == HELD || call[c] == QUEUED || call[c] == GONE)

proctype Ticket(byte c) {
  byte i, head;
  bool lapsed, lapse, listens;
  mtype reply = NONE;
  do
  /* the store */
  :: d_step { on_its_way(c) -> answer(c, true) }
  :: d_step { on_its_way(c) -> answer(c, false) }
  :: d_step { late[c] -> answer_late(c, true) }
  :: d_step { late[c] -> answer_late(c, false) }
  :: d_step { release[c] -> take_back(c, true, true) }
  :: d_step { release[c] -> take_back(c, false, true) }
  :: d_step { release[c] -> take_back(c, true, false) }
  :: d_step { release[c] -> take_back(c, false, false) }
  /* the client */
  :: d_step { client[c] == IDLE -> client[c] = ASKING; send(c, ACQUIRE) }
  :: d_step { client[c] == ASKING -> late[c] = (late[c] || call[c] == ACQUIRE); send(c, ACQUIRE) }
  :: d_step { client[c] == WAITING && call[c] != RENEW -> send(c, RENEW) }
  :: d_step { client[c] == HOLDING && lease[c] < TTL && call[c] != RENEW -> send(c, RENEW) }
  :: d_step { answered(c) -> hear(c) }
  :: d_step { message[c] -> hear_message(c) }
  :: d_step { client[c] == ASKING || client[c] == WAITING || client[c] == HOLDING ->
       late[c] = (late[c] || call[c] == ACQUIRE); forget(c); client[c] = OVER; release[c] = true; trip[c] = 0; lease[c] = 0 }
  od
}

#define older(age) age = (age < TTL -> age + 1 : TTL)

proctype Clock() {
  byte c;
  do
  :: d_step {
       for (c : 0 .. N - 1) {
         if :: left[c] > 0 -> left[c]-- :: else fi;
         if :: on_its_way(c) || call[c] == HELD -> older(asked[c]) :: else fi;
#ifdef PLANT_TRIP_FORGOTTEN
         if :: call[c] == QUEUED -> older(asked[c]) :: else fi;
#endif
         if :: message[c] -> granted[c]++ :: else fi;
         if :: granted[c] == TTL -> message[c] = false; granted[c] = 0 :: else fi;
         if
         :: client[c] == HOLDING && lease[c] < TTL - 1 -> lease[c]++
         :: client[c] == HOLDING && lease[c] >= TTL - 1 -> lease[c] = TTL; forget(c)
         :: else
         fi
       };
       c = 0 }
  od
}

proctype Watch() {
  byte c;
  do
#ifdef CHECK_exclusion
  :: d_step { holders > 1 -> assert(holders <= 1) }
#endif
#ifdef CHECK_belief
  :: d_step { !all(belief_is_true) -> assert(all(belief_is_true)) }
#endif
#ifdef CHECK_wake
  :: d_step { nempty(queue) && !any(holds) -> assert(empty(queue)) }
#endif
#ifdef CHECK_buried
  :: d_step { !all(is_buried) -> assert(all(is_buried)) }
#endif
  :: false
  od
}

init {
  byte c;
  atomic {
    for (c : 0 .. N - 1) { run Ticket(c) };
    run Clock(); run Watch(); c = 0
  }
}
