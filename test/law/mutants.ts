import type { Detector, Mutant } from './mutation.ts'

type Mistake = readonly [name: string, find: string, replace: string, missedBy?: readonly Detector[]]

function mistakesIn(file: Mutant['file'], mistakes: readonly Mistake[]): readonly Mutant[] {
  return mistakes.map(([name, find, replace, missedBy = []]) => ({ name, file, find, replace, missedBy }))
}

// A conformance case does not see a store's clock to the millisecond, and does not wait a minute.
const CLOCK: readonly Detector[] = ['conformance']
// The rules are about the law, and not about how a store keeps a room or shows it.
const STORE: readonly Detector[] = ['rules']
// No case can bring about on a running clock that one call both admits and evicts a ticket.
const SAME_CALL: readonly Detector[] = ['conformance']
// In every history a process listens, and also in some conformance case that runs at the same time.
const UNREACHED: readonly Detector[] = ['comparison', 'conformance']
// A history is played to one view, and it always listens. Its rooms fit on one page.
const SURFACE: readonly Detector[] = ['rules', 'comparison']

// The conformance suite meets it on a lone key, which the store keeps without a room.
const LONE: readonly Detector[] = ['conformance']

const togetherness = mistakesIn('law.ts', [
  ['the limit of the newcomer is ignored', 'Math.min(this.#limit, share.limit)', 'this.#limit'],
  ['the limit of the holders is ignored', 'Math.min(this.#limit, share.limit)', 'share.limit'],
  ['one unit too many is admitted', '<= Math.min(this.#limit', '<= 1 + Math.min(this.#limit'],
  ['one unit too few is admitted', '<= Math.min(this.#limit', '< Math.min(this.#limit'],
  ['every ticket counts as one unit', 'this.#units += share.units', 'this.#units += 1'],
  ['the units of a leaver are not given back', 'this.#units -= share.units', ''],
  ['the smallest limit outlives its holder', 'this.#smallest > 0', 'this.#smallest >= 0'],
  [
    'the limits of those who stay are forgotten',
    'for (let one = left.first; one !== undefined; one = one.next) this.#count(one.value.ticket.limit)',
    '',
    LONE,
  ],
])

const order = mistakesIn('room.ts', [
  ['a newcomer overtakes the queue', 'room.queue.size === 0 && admits(', 'admits('],
  [
    'a ticket behind the head is admitted when it fits',
    'waiter.ticket, time)) break',
    'waiter.ticket, time)) continue',
  ],
  [
    'the last is admitted first',
    'for (let entry = room.queue.first; entry !== undefined; entry = entry.next) {\n    const { id, value: waiter } = entry',
    'for (const [id, waiter] of [...room.queue].reverse()) {',
  ],
  [
    'one is admitted where two may be',
    'deliver(holder, time) : hint(id))\n    }',
    'deliver(holder, time) : hint(id))\n    }\n    break',
  ],
  [
    'asking again costs the place',
    'waiter.heardAt = time.ms\n',
    'if (room.queue.delete(ticket.id)) room.queue.set(ticket.id, waiter)\n  waiter.heardAt = time.ms\n',
  ],
  ['a known ticket queues again', 'if (known !== undefined) return { answer: known, wakes }', ''],
  ['a ticket that never waits is queued', 'ticket.patienceMs === 0', 'ticket.patienceMs < 0'],
  ['the tickets ahead are miscounted', 'let ahead = 0', 'let ahead = 1'],
])

const remembering = mistakesIn('room.ts', [
  ['a forgotten waiter is admitted', 'waiter.rememberedUntil <= time.ms', 'waiter.rememberedUntil < 0'],
  [
    'a waiter is remembered one moment too long',
    'waiter.rememberedUntil <= time.ms',
    'waiter.rememberedUntil < time.ms',
    CLOCK,
  ],
  [
    'asking again does not count as being heard of',
    'waiter.rememberedUntil = time.ms + ticket.patienceMs\n',
    '',
  ],
  ['asking again does not break the silence', 'waiter.heardAt = time.ms\n', '', CLOCK],
  ['each of the dead costs an acceptance term', 'if (lapsed) dropSilent(room, time)', ''],
  [
    'the silent lose their place at any expiry',
    "else if (holder.state === 'offered') lapsed = true",
    'else lapsed = true',
    CLOCK,
  ],
  ['a lapsed offer takes one waiter too few', 'if (heardAt + ticket.acceptMs > time.ms) return', 'return'],
  [
    'a waiter counts as silent one moment too soon',
    'heardAt + ticket.acceptMs > time.ms) return',
    'heardAt + ticket.acceptMs - 1 > time.ms) return',
    ['conformance', 'comparison'],
  ],
  [
    'a waiter counts as silent one moment too late',
    'heardAt + ticket.acceptMs > time.ms) return',
    'heardAt + ticket.acceptMs >= time.ms) return',
    // The comparison finds it, because the terms and pauses of its histories are round numbers.
    [...STORE, 'conformance'],
  ],
  [
    'a lapsed offer takes the silent behind the living along',
    'if (heardAt + ticket.acceptMs > time.ms) return',
    'if (heardAt + ticket.acceptMs > time.ms) continue',
  ],
  ['a lapsed offer takes the living along', 'if (heardAt + ticket.acceptMs > time.ms) return', ''],
  [
    'a late waiter is forgotten before it is heard',
    'remember(room, ticket, time)\n  const wakes = settle(room, time, ticket.id)\n  const known',
    'const wakes = settle(room, time, ticket.id)\n  remember(room, ticket, time)\n  const known',
  ],
  [
    'renew does not count as being heard of',
    'remember(room, ticket, time)\n  const wakes = settle(room, time, ticket.id)\n  return',
    'const wakes = settle(room, time, ticket.id)\n  return',
  ],
])

const expiry = mistakesIn('room.ts', [
  [
    'a holder holds one moment too long',
    'if (holder.expiresAt <= time.ms) {',
    'if (holder.expiresAt < time.ms) {',
    CLOCK,
  ],
  [
    'a room looks for expiry one moment too late',
    'if (room.nextExpiry <= time.ms) expire(room, time)\n  let',
    'if (room.nextExpiry < time.ms) expire(room, time)\n  let',
    CLOCK,
  ],
  [
    'a new holder is not looked out for',
    'room.nextExpiry = Math.min(room.nextExpiry, holder.expiresAt)\n  return holder',
    'return holder',
  ],
  [
    'the end of a minimum hold is not looked out for',
    'room.nextExpiry = Math.min(room.nextExpiry, holder.expiresAt)\n  } else drop',
    '} else drop',
  ],
  [
    'after one expiry the next is not looked out for',
    'else next = Math.min(next, holder.expiresAt)',
    '',
    LONE,
  ],
  ['the acceptance term is the ttl', 'time.ms + ticket.acceptMs', 'time.ms + ticket.ttlMs'],
  ['a renewal does not move the expiry', 'holder.expiresAt, time.ms + ticket.ttlMs', 'holder.expiresAt'],
  [
    'a late request ends a hold sooner',
    'holder.expiresAt, time.ms + ticket.ttlMs',
    'time.ms + ticket.ttlMs',
    LONE,
  ],
  ['an offer is not confirmed by asking', "holder.state = 'held'", ''],
  [
    'a release does not settle first',
    'const before = settle(room, time)\n  const was',
    'const before = NOBODY\n  const was',
  ],
  [
    'an eviction does not settle first',
    'const before = settle(room, time)\n  const waiting',
    'const before = NOBODY\n  const waiting',
  ],
  [
    'a renewal does not settle first',
    'const wakes = settle(room, time, ticket.id)\n  return',
    'const wakes = NOBODY\n  return',
  ],
])

const fences = [
  ...mistakesIn('room.ts', [
    ['two fences of one microsecond are the same', 'Math.max(room.lastFence + 1, time.us)', 'time.us'],
    ['fences do not follow the time', 'Math.max(room.lastFence + 1, time.us)', 'room.lastFence + 1', LONE],
    ['the last fence is not kept', 'room.lastFence = fence', ''],
    [
      'every answer has a new fence',
      'fence: BigInt(holder.fence) }\n}',
      'fence: BigInt((room.lastFence += 1)) }\n}',
    ],
  ]),
  ...mistakesIn('memory-store.ts', [
    [
      'a key that was empty starts low',
      'this.#rooms.open(key, this.#fenceFloor)',
      'this.#rooms.open(key, 0)',
      // The room that was left last is still in the store, and knows its last fence.
      [...STORE, 'conformance'],
    ],
  ]),
]

const releases = [
  ...mistakesIn('room.ts', [
    ['a release admits no waiter', "was === 'unknown' ? NOBODY : settle(room, time)", 'NOBODY'],
    [
      'an eviction admits no waiter',
      '[...before, ...settle(room, time)]\n  const hinted',
      '[...before]\n  const hinted',
    ],
    ['a cancel leaves no tombstone', 'if (request.cancel) bury', 'if (request.id === undefined) bury'],
    [
      'every release leaves a tombstone',
      'if (request.cancel) bury',
      'if (request.id !== undefined) bury',
      LONE,
    ],
    [
      'tombstones are not read',
      'const tombstone = room.tombstones.get(ticket.id)',
      'const tombstone = undefined',
    ],
    ['a cancel is soon forgotten', 'time.ms + TOMBSTONE_MS, evicted: false', 'time.ms + 10, evicted: false'],
    ['an eviction is soon forgotten', 'time.ms + TOMBSTONE_MS, evicted: true', 'time.ms + 10, evicted: true'],
    ['tombstones stay too long', 'else next = Math.min(next, tombstone.until)', '', CLOCK],
    ['a renewal brings a ticket back', '?? GONE, wakes', '?? acquire(room, ticket, time).answer, wakes'],
    [
      'an eviction looks like a cancel',
      'evicted: true, reason: request.reason',
      "evicted: false, reason: ''",
    ],
    [
      'an eviction of those that wait takes a holder, too',
      'request.onlyIfWaiting === true ? waiting : ',
      '',
      // No history asks for it.
      [...STORE, 'comparison'],
    ],
    ['the reason of an eviction is lost', 'reason: request.reason', "reason: ''"],
  ]),
  ...mistakesIn('memory-store.ts', [
    ['a cancel that comes first is lost', 'if (!request.cancel) return', 'return', STORE],
  ]),
]

const delays = mistakesIn('room.ts', [
  [
    'no minimum hold is one until now',
    'ticket.minHoldMs > 0 ? time.ms + ticket.minHoldMs : 0',
    'time.ms + ticket.minHoldMs',
    CLOCK,
  ],
  ['no lock-delay is one until now', "state === 'held' && lockDelayMs > 0", "state === 'held'", CLOCK],
  ['a minimum hold is ignored', 'if (holder.holdUntil > time.ms) {', 'if (holder.holdUntil < 0) {'],
  [
    'a minimum hold begins with each renewal',
    "if (holder.state === 'offered') {",
    "if (holder.state !== '') {",
  ],
  ['a minimum hold begins with the offer', 'holdUntil: 0 }', 'holdUntil: time.ms + ticket.minHoldMs }'],
  ['a short ttl cuts the minimum hold', 'ticket.ttlMs, holder.holdUntil)', 'ticket.ttlMs)'],
  ['a ticket that was released comes back', "holder.state === 'leaving' ? GONE : confirm", 'confirm'],
  [
    'a ticket that was released is released again',
    "holder === undefined || holder.state === 'leaving'",
    'holder === undefined',
  ],
  [
    'a lock-delay follows a release',
    '} else drop(room, id, holder)\n  return',
    '} else { drop(room, id, holder); delay(room, holder, time.ms) }\n  return',
  ],
  [
    'a lock-delay follows an evicted offer',
    "if (state === 'held' && lockDelayMs > 0)",
    'if (lockDelayMs > 0)',
  ],
  [
    'no lock-delay follows an expiry',
    "if (holder.state === 'held') delay(room, holder, holder.expiresAt)",
    "if (holder.state === 'held') {}",
  ],
  ['no lock-delay follows an eviction', 'delay(room, holder, time.ms)', ''],
  [
    'a lock-delay begins with the next call instead of the expiry',
    'delay(room, holder, holder.expiresAt)',
    'delay(room, holder, time.ms)',
  ],
  ['a lock-delay closes nothing', 'return room.closedUntil <= time.ms && ', 'return '],
  [
    'a lock-delay lasts one moment too long',
    'return room.closedUntil <= time.ms &&',
    'return room.closedUntil < time.ms &&',
    CLOCK,
  ],
  [
    'a short lock-delay ends a long one',
    'Math.max(room.closedUntil, from + lockDelayMs)',
    'from + lockDelayMs',
  ],
])

const wakes = [
  ...mistakesIn('room.ts', [
    [
      'no admitted waiter is woken',
      'wakes.push(isReached(room, waiter, time) ? deliver(holder, time) : hint(id))',
      '',
    ],
    ['the asker is woken, too', 'if (id !== asking) {', "if (id !== '') {"],
    ['the evicted are not woken', 'evicted.filter((id) => !hinted.has(id)).map(hint)', '[]'],
    ['the evicted are woken twice', 'evicted.filter((id) => !hinted.has(id)).map', 'evicted.map', SAME_CALL],
    [
      'a ticket that is granted the key and evicted hears of the grant only',
      "tag === 'ticket' ? [id] : []",
      '[id]',
      SAME_CALL,
    ],
    ['a message that reaches no process is a lease', ' && room.reaches(ticket.id)', '', UNREACHED],
    [
      'a message to a waiter that was not heard of is a lease',
      'isPlain && heardAt + ticket.acceptMs > time.ms',
      'isPlain',
    ],
    [
      'a waiter is heard of one moment too long',
      'isPlain && heardAt + ticket.acceptMs > time.ms',
      'isPlain && heardAt + ticket.acceptMs >= time.ms',
      CLOCK,
    ],
    ['a minimum hold begins with a message', 'ticket.minHoldMs === 0 && ', ''],
    ['a lock-delay may follow a message', ' && ticket.lockDelayMs === 0', ''],
    ['a message names a later time', 'fence, storeMs: time.ms }', 'fence, storeMs: time.ms + 1 }', CLOCK],
    [
      'a lease by message lasts for the acceptance term',
      'const { fence } = confirm(holder, holder.ticket, time)',
      "holder.state = 'held'\n  const fence = BigInt(holder.fence)",
    ],
    ['no message is a lease', 'isReached(room, waiter, time) ? deliver(holder, time) : hint(id)', 'hint(id)'],
    [
      'an answer names an earlier time',
      'storeMs: time.ms }\n}\n\nfunction remember',
      'storeMs: time.ms - 1 }\n}\n\nfunction remember',
      CLOCK,
    ],
    [
      'no waiter watches the expiry',
      'Math.ceil(Math.min(staying, Math.max(leastMs, untilChange(room, time))))',
      'Math.ceil(staying)',
    ],
    [
      'every waiter watches nothing but the expiry',
      'Math.ceil(Math.min(staying, Math.max(leastMs, untilChange(room, time))))',
      'untilChange(room, time)',
      ['conformance'],
    ],
    ['the head watches no better than the others', 'room.queue.first?.id === ticket.id ? 0 : ', ''],
    ['only the head watches the expiry', ': ticket.acceptMs / 6', ': staying'],
    [
      'the last expiry is watched, not the first',
      'change = Math.min(change, entry.value.expiresAt)',
      'change = change === Number.POSITIVE_INFINITY ? entry.value.expiresAt : Math.max(change, entry.value.expiresAt)',
    ],
    [
      'the end of a lock-delay is not watched',
      'room.closedUntil > time.ms ? room.closedUntil : Number.POSITIVE_INFINITY',
      'Number.POSITIVE_INFINITY',
    ],
    ['a waiter asks when it is forgotten', 'ticket.patienceMs / 3', 'ticket.patienceMs'],
    ['a waiter asks when its offer is over', '(ticket.acceptMs * 2) / 3', 'ticket.acceptMs * 2'],
  ]),
  ...mistakesIn('memory-store.ts', [
    ['wakes are not delivered', 'onWake(wake)', '{}', STORE],
    ['listening never ends', 'this.#listeners.delete(onWake)', '', SURFACE],
  ]),
]

const views = [
  ...mistakesIn('view.ts', [
    [
      'the view shows holders that have expired',
      '.filter(([, holder]) => holder.expiresAt > time.ms)',
      '',
      STORE,
    ],
    [
      'the view shows waiters that are forgotten',
      '.filter(([, waiter]) => waiter.rememberedUntil > time.ms)',
      '',
      STORE,
    ],
    [
      'the view shows no lock-delay',
      'closedMs: Math.max(0, closedUntil(room, time) - time.ms)',
      'closedMs: 0',
      STORE,
    ],
  ]),
  ...mistakesIn('room.ts', [
    ['a room with a tombstone counts as idle', 'room.tombstones.size === 0 && ', ''],
    ['a closed room counts as idle', ' && room.closedUntil <= time.ms\n', '\n'],
    [
      'a room with a queue counts as idle',
      'if (entry.value.rememberedUntil + LATE_MS > time.ms) return false',
      ';',
    ],
  ]),
  ...mistakesIn('memory-store.ts', [
    ['a prefix is found anywhere', 'key.startsWith(prefix)', 'key.includes(prefix)', SURFACE],
    ['a page begins with the end of the last', 'key > cursor', 'key >= cursor', SURFACE],
    [
      'the first page is the last',
      'next: keys.length > page.length ? page.at(-1) : undefined',
      'next: undefined',
      SURFACE,
    ],
  ]),
]

const lone = mistakesIn('lone.ts', [
  ['waiters are left out of what is kept of a key', 'queue.size > 0 || ', '', STORE],
  ['tombstones are left out of what is kept of a key', 'tombstones.size > 0 || ', '', STORE],
  ['a lock-delay is left out of what is kept of a key', ' || closedUntil !== 0', '', STORE],
  [
    'the last fence is left out of what is kept of a key',
    ' && holder.fence === lastFence',
    '',
    // No case looks for the fence after a holder that came later and left first.
    [...STORE, 'conformance'],
  ],
  ['a lone holder holds for ever', '&& lone.expiresAt > ms) {', ') {', STORE],
  [
    'a lone holder is taken for any other',
    'if (holder.id !== ticket.id) {',
    'if (lone.expiresAt < 0) {',
    STORE,
  ],
  [
    'whoever does not wait is refused beside a lone reader',
    'ticket.patienceMs > 0 || !isExclusive(holder)',
    'ticket.patienceMs > 0',
    STORE,
  ],
  [
    'whoever would wait is refused',
    'ticket.patienceMs > 0 || !isExclusive(holder)',
    '!isExclusive(holder)',
    STORE,
  ],
  [
    'a lone holder has just expired for all others',
    'Math.ceil(lone.expiresAt - ms))',
    '0)',
    [...STORE, 'conformance'],
  ],
  [
    'a renewal of any ticket is that of the lone holder',
    'if (holder.id !== ticket.id) return isQueued(lone, ticket.id) ? undefined : GONE',
    '',
    STORE,
  ],
  [
    'anybody releases for a lone holder',
    'if (holder.id !== id) return isQueued(lone, id) ? undefined : UNKNOWN',
    '',
    STORE,
  ],
  ['a lone holder gets the time for its fence', 'Math.max(lone.fence + 1, us)', 'us', STORE],
  ['a lone holder is set back by a shorter ttl', 'Math.max(lone.expiresAt, ms + ttlMs)', 'ms + ttlMs', STORE],
  [
    'the lock-delay of a lone holder is lost',
    'minHoldMs === 0 && lockDelayMs === 0',
    'minHoldMs === 0',
    STORE,
  ],
  [
    'the minimum hold of a lone holder is lost',
    'minHoldMs === 0 && lockDelayMs === 0',
    'lockDelayMs === 0',
    STORE,
  ],
])

/** The mistakes that people make in a lock, one at a time. */
export const mutants: readonly Mutant[] = [
  ...togetherness,
  ...order,
  ...remembering,
  ...expiry,
  ...fences,
  ...releases,
  ...delays,
  ...wakes,
  ...views,
  ...lone,
]
