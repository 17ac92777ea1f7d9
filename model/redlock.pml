/*
 * The vote of several Redis masters: rules 1, 2 and 4 in src/stores/redlock/quorum.ts, and of rule 3 that a claim needs the vote.
 * docs/model.md maps every step to the code.
 *
 * A request may arrive at any time of its round, again and again, and its answer may be lost. Claims are as free. RESTARTS servers
 * lose everything, at any moment, and are back at once. Their votes count for no new holder for MEMORY ticks (`maxTtl`), and a holder
 * may ask for them again. A ticket without a vote asks again: the queues of the servers are the subject of room.pml.
 *
 * Each #ifdef PLANT_... is a planted error, which the checker must find.
 */

#ifndef TTL
#define TTL 2
#endif
#ifndef MEMORY
#ifdef PLANT_SHORT_MEMORY
#define MEMORY (TTL - 1)
#else
#define MEMORY TTL
#endif
#endif
#ifndef RESTARTS
#define RESTARTS 2
#endif
#define SERVERS 3
#ifdef CHECK_buried
#define CLIENTS 1  /* the leavings of one client do not depend on the others */
#else
#define CLIENTS 2
#endif
#define NOBODY CLIENTS
#ifdef PLANT_MINORITY
#define MAJORITY 1
#else
#define MAJORITY 2
#endif

mtype = { IDLE, ASKING, CLAIMING, HOLDING, OVER };

/* The servers. */
byte vote[SERVERS] = NOBODY;
byte left[SERVERS];       /* ticks until the vote ends */
byte restarts = RESTARTS;
byte forgetful[SERVERS];  /* ticks until its votes count */

/* Bit m of each is about server m. */
byte tombstone[CLIENTS];
#ifdef CHECK_buried
byte release[CLIENTS];    /* the server has not answered the release */
byte unanswered[CLIENTS]; /* a request for a vote was sent, and not answered */
byte late[CLIENTS];       /* such a request is still on its way, and its client has left */
#define sent(c, m)      unanswered[c] = unanswered[c] | bit(m)
#define was_heard(c, m) unanswered[c] = unanswered[c] & ~bit(m)
#else
#define sent(c, m)      skip
#define was_heard(c, m) skip
#endif

/* The clients. */
mtype client[CLIENTS] = IDLE;
byte votes[CLIENTS];      /* servers that gave a vote that counts, in this round */
byte claims[CLIENTS];     /* servers that accepted the claim of the fence */
bool round[CLIENTS];      /* a round is open */
byte asked[CLIENTS];      /* its age, counted from before its first request: `askedAt` */
byte lease[CLIENTS];      /* age of the lease */

#define bit(m)        (1 << (m))
#define count(set)    (((set) & 1) + (((set) >> 1) & 1) + (((set) >> 2) & 1))
#define believes(c)   (client[c] == HOLDING && lease[c] < TTL)
#define has_vote(c)   (vote[0] == c || vote[1] == c || vote[2] == c)
#define is_gone(c)    (client[c] != OVER || release[c] != 0 || !has_vote(c))
#define older(age)    age = (age < TTL -> age + 1 : TTL)

inline give_vote(c, m) {
  vote[m] = c; left[m] = TTL
}

/* A request for a vote, or a renewal: it may arrive again and again while its round goes on, and its answer may be lost. */
inline request(c, m, heard) {
  if
  :: heard -> was_heard(c, m)
  :: else -> sent(c, m)
  fi;
  if
  :: (vote[m] == NOBODY || vote[m] == c) && (tombstone[c] & bit(m)) == 0 ->
     give_vote(c, m);
     if
     :: heard && (client[c] == HOLDING || forgetful[m] == 0) -> votes[c] = votes[c] | bit(m)
     :: else
     fi
  :: else
  fi
}

/* A claim of the fence: accepted while the ticket has the vote, and the server remembers everything. */
inline claim(c, m) {
  if
  :: vote[m] == c && forgetful[m] == 0 -> claims[c] = claims[c] | bit(m)
  :: else
  fi
}

#ifdef CHECK_buried
inline late_request(c, m) {
  late[c] = late[c] & ~bit(m);
  if
  :: (vote[m] == NOBODY || vote[m] == c) && (tombstone[c] & bit(m)) == 0 -> give_vote(c, m)
  :: else
  fi
}

inline release_at(c, m) {
  release[c] = release[c] & ~bit(m);
#if defined(CHECK_buried) && !defined(PLANT_NO_TOMBSTONE)
  if :: (unanswered[c] & bit(m)) != 0 -> tombstone[c] = tombstone[c] | bit(m) :: else fi;
#endif
  if :: vote[m] == c -> vote[m] = NOBODY; left[m] = 0 :: else fi
}
#endif

inline restart(m) {
  vote[m] = NOBODY; left[m] = 0;
#ifndef PLANT_VOTES_AT_ONCE
  forgetful[m] = MEMORY;
#endif
  tombstone[0] = tombstone[0] & ~bit(m)
}

inline begin_round(c) {
#ifndef PLANT_OLD_ANSWERS
  votes[c] = 0;
#endif
  claims[c] = 0; asked[c] = 0; round[c] = true
}

inline end_round(c) { round[c] = false; asked[c] = 0; votes[c] = 0; claims[c] = 0 }

inline hold_lease(c) {
#ifdef PLANT_COUNT_FROM_ANSWER
  lease[c] = 0;
#else
  lease[c] = asked[c];
#endif
  client[c] = HOLDING; end_round(c)
}

inline leave(c) {
#ifdef PLANT_RELEASE_SOME
  release[c] = votes[c];
#else
  release[c] = 7;
#endif
#ifdef CHECK_buried
  late[c] = unanswered[c];
#endif
  client[c] = OVER; lease[c] = 0; end_round(c)
}

#ifdef PLANT_NO_CLAIM
#define elected(c) (client[c] == ASKING && count(votes[c]) >= MAJORITY)
#else
#define elected(c) (client[c] == CLAIMING && count(claims[c]) >= MAJORITY)
#endif
#ifdef PLANT_HEAL_TOO_LATE
#define may_renew(c) (client[c] == HOLDING)
#else
#define may_renew(c) (client[c] == HOLDING && lease[c] < TTL)
#endif

proctype Client(byte c) {
  do
  :: d_step { client[c] == IDLE -> client[c] = ASKING; begin_round(c) }
  :: d_step { client[c] == ASKING && votes[c] != 0 || client[c] == CLAIMING -> client[c] = ASKING; begin_round(c) }
  :: d_step { client[c] == ASKING && count(votes[c]) >= MAJORITY -> client[c] = CLAIMING; votes[c] = 0 }
  :: d_step { elected(c) && asked[c] < TTL -> hold_lease(c) }
  :: d_step { may_renew(c) && (!round[c] || asked[c] > 0) -> begin_round(c) }
  :: d_step { may_renew(c) && round[c] && count(votes[c]) >= MAJORITY && asked[c] < TTL -> hold_lease(c) }
#ifdef CHECK_buried
  :: d_step { client[c] == ASKING || client[c] == CLAIMING || client[c] == HOLDING -> leave(c) }
#endif
  od
}

#define asks(c) (round[c] && client[c] != CLAIMING)

proctype Server(byte c; byte m) {
  do
  :: d_step { asks(c) -> request(c, m, true) }
  :: d_step { asks(c) -> request(c, m, false) }
  :: d_step { client[c] == CLAIMING -> claim(c, m) }
#ifdef CHECK_buried
  :: d_step { (late[c] & bit(m)) != 0 -> late_request(c, m) }
#endif
#ifdef CHECK_buried
  :: d_step { (release[c] & bit(m)) != 0 -> release_at(c, m) }
#endif
  od
}

proctype World() {
  byte m;
  do
  :: d_step {
       for (m : 0 .. SERVERS - 1) {
         if :: left[m] == 1 -> left[m] = 0; vote[m] = NOBODY :: left[m] > 1 -> left[m]-- :: else fi;
         if :: forgetful[m] > 0 -> forgetful[m]-- :: else fi
       };
       for (m : 0 .. CLIENTS - 1) {
         if :: round[m] -> older(asked[m]) :: else fi;
         if :: client[m] == HOLDING -> older(lease[m]) :: else fi;
#ifndef PLANT_HEAL_TOO_LATE
         if :: client[m] == HOLDING && lease[m] == TTL -> end_round(m) :: else fi
#endif
       };
       m = 0 }
  :: d_step { restarts > 0 -> restarts--; restart(0) }
  :: d_step { restarts > 0 -> restarts--; restart(1) }
  :: d_step { restarts > 0 -> restarts--; restart(2) }
  od
}

proctype Watch() {
  do
#ifdef CHECK_exclusion
  :: d_step { believes(0) && believes(1) -> assert(!(believes(0) && believes(1))) }
#endif
#ifdef CHECK_buried
  :: d_step { !is_gone(0) -> assert(is_gone(0)) }
#endif
  :: false
  od
}

init {
  byte c, m;
  atomic {
    for (c : 0 .. CLIENTS - 1) {
      run Client(c);
      for (m : 0 .. SERVERS - 1) { run Server(c, m) }
    };
    run World(); run Watch(); c = 0; m = 0
  }
}
