/*
 * The fences of several Redis masters (rule 3 in src/stores/redlock/quorum.ts): a ticket claims the largest fence of its votes on a
 * quorum. docs/model.md maps every step to the code.
 *
 * The model has no server that refuses a fence as too far ahead of its time, and no ticket that claims a lower fence than the largest of
 * its votes. Both come from clocks that do not agree.
 *
 * No time passes here. A vote may end at any moment, and a server may lose everything: fences have to rise however wrong the times
 * are. A server that lost its data goes on from its clock, which shows more than every fence before. The search is bounded: fences go
 * up to MOST.
 */
#ifndef MOST
#define MOST 3
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#define SERVERS 3
#define CLIENTS 2
#define NOBODY CLIENTS
#define MAJORITY 2

mtype = { IDLE, ASKING, CLAIMING, HOLDING };

/* The servers. */
byte vote[SERVERS] = NOBODY;
byte given[SERVERS];      /* the fence of the vote */
byte last[SERVERS];       /* the last fence of the server */
byte losses = LOSSES;

/* The clients. Bit m is about server m. */
mtype client[CLIENTS] = IDLE;
byte votes[CLIENTS];
byte claims[CLIENTS];
byte fence[CLIENTS];
byte before[CLIENTS];     /* the largest fence of a lease that was complete when the client began */
bool disordered;

#define bit(m)        (1 << (m))
#define count(set)    (((set) & 1) + (((set) >> 1) & 1) + (((set) >> 2) & 1))
#define max(a, b)     ((a) > (b) -> (a) : (b))
#define done(c)       (client[c] == HOLDING -> fence[c] : 0)

inline give_vote(c, m) {
  last[m]++; vote[m] = c; given[m] = last[m];
  votes[c] = votes[c] | bit(m); fence[c] = max(fence[c], given[m])
}

inline claim(c, m) {
  if
#ifdef PLANT_CLAIM_WITHOUT_VOTE
  :: fence[c] >= given[m] || vote[m] != c ->
#else
  :: vote[m] == c && fence[c] >= given[m] ->
#endif
     claims[c] = claims[c] | bit(m);
     if :: vote[m] == c -> given[m] = fence[c] :: else fi
#ifndef PLANT_CLAIM_NOT_KEPT
     ; last[m] = max(last[m], fence[c])
#endif
  :: vote[m] == c && fence[c] < given[m] -> fence[c] = given[m]; claims[c] = 0   /* too low: a higher one is claimed */
  :: else -> client[c] = ASKING; votes[c] = 0; claims[c] = 0; fence[c] = 0       /* the vote was lost */
  fi
}

inline complete(c) {
  client[c] = HOLDING;
  disordered = (disordered || fence[c] <= before[c] || fence[c] == done(1 - c));
  votes[c] = 0; claims[c] = 0
}

proctype Client(byte c) {
end:
  do
  :: d_step { client[c] == IDLE -> before[c] = done(1 - c); client[c] = ASKING }
  :: d_step { client[c] == ASKING && count(votes[c]) >= MAJORITY -> client[c] = CLAIMING }
#ifdef PLANT_NO_CLAIM
  :: d_step { client[c] == CLAIMING -> complete(c) }
#else
  :: d_step { client[c] == CLAIMING && count(claims[c]) >= MAJORITY -> complete(c) }
#endif
  od
}

proctype Server(byte m) {
end:
  do
  :: d_step { client[0] == ASKING && vote[m] == NOBODY && last[m] < MOST -> give_vote(0, m) }
  :: d_step { client[1] == ASKING && vote[m] == NOBODY && last[m] < MOST -> give_vote(1, m) }
  :: d_step { client[0] == CLAIMING && (claims[0] & bit(m)) == 0 -> claim(0, m) }
  :: d_step { client[1] == CLAIMING && (claims[1] & bit(m)) == 0 -> claim(1, m) }
  :: d_step { vote[m] != NOBODY -> vote[m] = NOBODY; given[m] = 0 }               /* released, expired, given back */
  :: d_step { losses > 0 -> losses--; vote[m] = NOBODY; given[m] = 0;
#ifdef PLANT_COUNTS_FROM_ZERO
       last[m] = 0
#else
       last[m] = max(max(last[0], last[1]), max(last[2], max(fence[0], fence[1])))
#endif
     }
  od
}

proctype Watch() {
end:
  do
#ifdef CHECK_order
  :: d_step { disordered -> assert(!disordered) }
#endif
  :: false
  od
}

init {
  byte m;
  atomic {
    run Client(0); run Client(1);
    for (m : 0 .. SERVERS - 1) { run Server(m) };
    run Watch(); m = 0
  }
}
