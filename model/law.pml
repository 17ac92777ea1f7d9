/*
 * A room: the state of one key in a store, as src/law/room.ts describes it, for tickets that exclude each other.
 * docs/model.md maps every step to the code. The models that include this file define:
 *   TOLD(c)     a message that is the lease is sent to ticket c
 *   HINTED(c)   a message that is a hint is sent to ticket c
 *   LISTENS(c)  the store knows that the process of ticket c takes a message
 *
 * A step of the store is atomic, as one script of Redis or one statement of PostgreSQL is.
 */

#if N == 2
#define all(holds_for) (holds_for(0) && holds_for(1))
#define any(holds_for) (holds_for(0) || holds_for(1))
#elif N == 3
#define all(holds_for) (holds_for(0) && holds_for(1) && holds_for(2))
#define any(holds_for) (holds_for(0) || holds_for(1) || holds_for(2))
#else
#define all(holds_for) (holds_for(0) && holds_for(1) && holds_for(2) && holds_for(3))
#define any(holds_for) (holds_for(0) || holds_for(1) || holds_for(2) || holds_for(3))
#endif

mtype = { OUT, QUEUED, OFFERED, HELD };  /* a ticket in the room; these are also the answers of the store */
mtype = { GONE };                        /* an answer: the ticket neither holds nor waits */

mtype state[N] = OUT;
byte left[N];        /* ticks that are left: of a lease or an offer, or until a silent waiter is dropped */
bool tombstone[N];
chan queue = [N] of { byte };

#define holds(c)        (state[c] == OFFERED || state[c] == HELD)
#define heard_lately(c) (left[c] > PATIENCE - ACCEPT)

inline drop(c) { state[c] = OUT; left[c] = 0 }
inline confirm(c) { state[c] = HELD; left[c] = TTL }

/* `lapse`: an offer has ended. */
inline expire() {
  lapsed = false;
  for (i : 0 .. N - 1) {
    if
    :: holds(i) && left[i] == 0 -> lapsed = (lapsed || state[i] == OFFERED); drop(i)
    :: else
    fi
  }
  lapse = lapsed;
  /* The waiters behind it that were silent for the acceptance term go with it. */
#ifdef PLANT_DEAD_ONE_BY_ONE
  lapsed = false;
#endif
  do
  :: lapsed && nempty(queue) ->
     queue?<head>;
     if
     :: heard_lately(head) -> lapsed = false
     :: else -> queue?head; drop(head)
     fi
  :: lapsed && empty(queue) -> lapsed = false
  :: !lapsed -> break
  od
}

/* Where the process of the waiter listens, and was heard of lately, the message is the lease. */
inline deliver(c) {
  if
#ifdef PLANT_GRANT_UNHEARD
  :: LISTENS(c) ->
#else
  :: LISTENS(c) && heard_lately(c) ->
#endif
     confirm(c); TOLD(c)
  :: else -> state[c] = OFFERED; left[c] = ACCEPT; HINTED(c)
  fi
}

inline settle(asking) {
  expire();
  do
  :: nempty(queue) && !any(holds) ->
     queue?head;
     if
     :: left[head] == 0 -> drop(head)
     :: left[head] > 0 && head == asking -> state[head] = OFFERED
     :: else -> deliver(head)
     fi
  :: else -> break
  od
}

/* The verb decides only what happens to a ticket that the room does not know. */
inline ask(c, renews, reply) {
  if
  :: state[c] == QUEUED -> left[c] = PATIENCE
  :: else
  fi;
  settle(c);
  if
  :: holds(c) -> confirm(c); reply = HELD
  :: state[c] == QUEUED -> reply = QUEUED
  :: state[c] == OUT && tombstone[c] -> reply = GONE
#ifdef PLANT_RENEWAL_REVIVES
  :: state[c] == OUT && !tombstone[c] && renews -> confirm(c); reply = HELD
#else
  :: state[c] == OUT && !tombstone[c] && renews -> reply = GONE
#endif
  :: else ->
     if
     :: empty(queue) && !any(holds) -> confirm(c); reply = HELD
#ifdef PLANT_NO_ORDER
     :: else -> queue!!c; state[c] = QUEUED; left[c] = PATIENCE; reply = QUEUED
#else
     :: else -> queue!c; state[c] = QUEUED; left[c] = PATIENCE; reply = QUEUED
#endif
     fi
  fi
}

inline give_back(c, cancel) {
  settle(N);
  if
  :: state[c] == QUEUED -> queue??eval(c)
  :: else
  fi;
  drop(c);
#ifndef PLANT_NO_TOMBSTONE
  tombstone[c] = cancel;
#endif
#ifndef PLANT_NO_SECOND_SETTLE
  settle(N)
#endif
}
