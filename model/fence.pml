/*
 * The fence rule: max(last + 1, time of the store in us), for two keys whose rooms are dropped when they are idle.
 * docs/model.md maps every step to the code.
 *
 * The clock may be set back and forward at any time, and two grants may come in one us. The store may lose everything
 * whenever its clock shows more than every fence that it gave: a store that has lost its data, and whose clock was set back as well,
 * promises nothing. The search is bounded: the clock shows LAST_US at most, and there are GRANTS grants.
 */
#ifndef LAST_US
#define LAST_US 6
#endif
#ifndef GRANTS
#define GRANTS 6
#endif
#define KEYS 2

byte us = 1;            /* the store's clock */
bool open[KEYS];        /* the key has a room */
bool held[KEYS];
byte last[KEYS];        /* the last fence that the room gave */
byte floor;             /* the largest fence of all rooms that were dropped */
byte grants;
byte ground;            /* the largest fence at the last loss: the clock is not set back behind it */

byte highest[KEYS];     /* of all fences of the key, also those from before a loss */
bool repeated;          /* a fence was not above all earlier ones of its key */

inline grant(k) {
  if
  :: !open[k] -> open[k] = true; last[k] = floor
  :: else
  fi;
#if defined(PLANT_COUNTER)
  fence = last[k] + 1;
#elif defined(PLANT_TIME_ONLY)
  fence = us;
#else
  fence = (us > last[k] + 1 -> us : last[k] + 1);
#endif
  last[k] = fence; held[k] = true; grants++;
  repeated = (repeated || fence <= highest[k]);
  highest[k] = fence;
  fence = 0
}

inline drop_room(k) {
#ifndef PLANT_FLOOR_FORGOTTEN
  floor = (last[k] > floor -> last[k] : floor);
#endif
  open[k] = false; last[k] = 0
}

proctype Store() {
  byte fence;
end:
  do
  :: d_step { !held[0] && grants < GRANTS -> grant(0) }
  :: d_step { !held[1] && grants < GRANTS -> grant(1) }
  :: d_step { held[0] -> held[0] = false }                  /* a release, an expiry, or an eviction */
  :: d_step { held[1] -> held[1] = false }
  :: d_step { open[0] && !held[0] -> drop_room(0) }         /* an idle room */
  :: d_step { open[1] && !held[1] -> drop_room(1) }
  :: d_step { us > highest[0] && us > highest[1] ->         /* FLUSHALL, or a fail-over that lost writes */
       ground = us - 1; held[0] = false; held[1] = false; open[0] = false; open[1] = false; last[0] = 0; last[1] = 0; floor = 0 }
  od
}

proctype Clock() {
end:
  do
  :: d_step { us < LAST_US -> us++ }
  :: d_step { us > ground + 1 -> us-- }                     /* set back, by any number of steps */
  od
}

proctype Watch() {
end:
  do
#ifdef CHECK_fences
  :: d_step { repeated -> assert(!repeated) }
#endif
  :: false
  od
}

init { atomic { run Store(); run Clock(); run Watch() } }
