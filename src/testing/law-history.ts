import { type Ticket, UNLIMITED } from '../contract/store.ts'
import type { Share } from '../law/law.ts'
import type { Random } from './random.ts'

/** Some tickets, and the steps that happen to them in order. Plain values, so that some of the steps are a history, too. */
export interface History {
  readonly cast: readonly Role[]
  readonly steps: readonly Step[]
}

/** A ticket without key and id, so that the same history can be played many times. */
export type Role = Omit<Ticket, 'key' | 'id'> & { readonly room: number }

type TicketTerms = Pick<Role, 'ttlMs' | 'acceptMs' | 'patienceMs' | 'minHoldMs' | 'lockDelayMs'>

/** `role` and `room` are indexes. */
export type Step =
  | CallStep
  // All calls in one tick, so that a store may batch them. Each is in another room, because their order is no promise.
  | { readonly verb: 'together'; readonly calls: readonly CallStep[] }
  | { readonly verb: 'pass'; readonly ms: number }
  // Sets the store's clock back, just after every room was cleared of expired tickets. An expired ticket that is not
  // cleared yet would come back to life in some stores and not in others, and both are correct.
  | { readonly verb: 'setBack'; readonly ms: number }

export type CallStep =
  | { readonly verb: 'acquire'; readonly role: number }
  | { readonly verb: 'renew'; readonly roles: readonly number[]; readonly ttlMs: number | undefined }
  | { readonly verb: 'release'; readonly role: number; readonly cancel: boolean }
  | { readonly verb: 'evict'; readonly room: number; readonly role: number | undefined }

export const ROOMS = 3

/**
 * Draws a random history. With `time`, terms are short and time passes, often exactly to the end of a term. Without it, terms
 * are so long that nothing expires. With `setsBack`, some histories also set the clock back.
 */
export function drawHistory(
  random: Random,
  options: { readonly steps: number; readonly time: boolean; readonly setsBack: boolean },
): History {
  const setsBack = options.setsBack && random.chance(0.3)
  // A store may keep rooms for some seconds after their end. Terms above that (scale 100) test how it treats them. If the
  // clock is set back, no tombstone and no lock-delay may end, because stores clear these at different times.
  const scale = setsBack ? 1 : random.pick([1, 1, 1, 100])
  const drawn = drawCast(random, options.time ? scale : undefined)
  const cast = setsBack ? drawn.map((role) => ({ ...role, lockDelayMs: 0 })) : drawn
  const steps: Step[] = random.chance(0.5) ? drawQueue(random, cast) : []
  // Exactly the patience of a ticket: a `<` and a `<=` differ only at that millisecond.
  if (options.time && steps.length > 0)
    steps.splice(-1, 0, { verb: 'pass', ms: Math.max(1, random.pick(cast).patienceMs) })
  while (steps.length < options.steps) {
    if (setsBack && random.chance(0.1)) steps.push({ verb: 'setBack', ms: random.pick(PASSES_MS) })
    else if (setsBack && random.chance(0.3)) steps.push({ verb: 'pass', ms: random.pick(PASSES_MS) })
    else if (options.time && !setsBack && random.chance(0.3)) steps.push(drawPass(random, scale))
    else steps.push(random.chance(0.2) ? drawTogether(random, cast, steps) : drawCall(random, cast, steps))
  }
  return { cast, steps }
}

/** `scale` multiplies the terms. `undefined`: no time passes, so terms are long. */
function drawCast(random: Random, scale: number | undefined): readonly Role[] {
  const shares = random.pick(PALETTES)
  const plain = shares === MUTEXES && random.chance(0.5)
  const drawTerms = (name: string): Omit<Role, 'room'> => ({
    ...random.pick(shares),
    ...(scale === undefined ? longTerms(random) : shortTerms(random, scale)),
    ...(plain ? WITHOUT_EXTRAS : {}),
    owner: `{"role":"${name}"}`,
  })
  // The tickets of one process usually have the same terms, and a store may batch those.
  const common = random.chance(0.3) ? drawTerms('any') : undefined
  return Array.from({ length: random.between(3, 9) }, (_, index) => ({
    ...(common ?? drawTerms(nameOf(index))),
    room: index === 0 ? 0 : random.pick([0, 0, 0, 0, 1, 2]),
  }))
}

/** The line of a step in the message of a failure. */
export function describeStep(step: Step): string {
  switch (step.verb) {
    case 'acquire':
      return `acquire ${nameOf(step.role)}`
    case 'renew':
      return `renew ${step.roles.map(nameOf).join(' ')}${step.ttlMs === undefined ? '' : ` with ttl ${step.ttlMs}`}`
    case 'release':
      return `${step.cancel ? 'cancel' : 'release'} ${nameOf(step.role)}`
    case 'evict':
      return `evict ${step.role === undefined ? `everybody in room ${step.room}` : nameOf(step.role)}`
    case 'together':
      return `in one tick: ${step.calls.map(describeStep).join(', ')}`
    case 'pass':
      return `${step.ms} ms pass`
    case 'setBack':
      return `the clock is set back by ${step.ms} ms`
    default:
      return step satisfies never
  }
}

export function describeRole(role: Role, index: number): string {
  const { room, units, limit, ttlMs, acceptMs, patienceMs, minHoldMs, lockDelayMs } = role
  const share = `${units} of ${limit === UNLIMITED ? 'unlimited' : limit}`
  const extras = `${minHoldMs > 0 ? `, min hold ${minHoldMs}` : ''}${lockDelayMs > 0 ? `, lock-delay ${lockDelayMs}` : ''}`
  return `${nameOf(index)}: room ${room}, ${share}, ttl ${ttlMs}, accept ${acceptMs}, patience ${patienceMs}${extras}`
}

/** The roles that a step names. */
export function rolesOf(step: Step): readonly number[] {
  if (step.verb === 'renew') return step.roles
  if (step.verb === 'together') return step.calls.flatMap(rolesOf)
  if (step.verb === 'pass' || step.verb === 'setBack') return []
  return step.role === undefined ? [] : [step.role]
}

export function nameOf(role: number): string {
  return String.fromCharCode(97 + role)
}

const MUTEX: Share = { units: 1, limit: 1 }
const READER: Share = { units: 1, limit: UNLIMITED }
const PERMITS: readonly Share[] = [
  { units: 1, limit: 2 },
  { units: 1, limit: 3 },
  { units: 2, limit: 3 },
  { units: 3, limit: 3 },
  { units: 3, limit: 5 },
]
// Nearly every real room has only mutexes, and stores have a fast path for them.
const MUTEXES: readonly Share[] = [MUTEX]
const WITHOUT_EXTRAS = { minHoldMs: 0, lockDelayMs: 0 } as const
// One palette has all kinds. The others have one kind each, for mistakes that show only among many of the same kind.
const PALETTES: readonly (readonly Share[])[] = [
  [MUTEX, MUTEX, READER, ...PERMITS],
  [MUTEX, READER, READER],
  PERMITS,
  MUTEXES,
]

// Round terms and round pauses often end at the same millisecond: only there a `<` differs from a `<=`.
const TERMS_MS = [20, 30, 50, 100, 100, 300] as const
const PASSES_MS = [1, 1, 9, 10, 10, 20, 30, 50, 100, 300] as const
const LONG_TERMS_MS = [60_000, 120_000, 240_000] as const
const TOMBSTONE_PASS_MS = 60_000

function shortTerms(random: Random, scale: number): TicketTerms {
  const pick = (choice: readonly number[]): number => scale * random.pick(choice)
  const ttlMs = pick(TERMS_MS)
  return {
    ttlMs,
    acceptMs: Math.min(ttlMs, pick([10, 20, 30, 100])),
    patienceMs: pick([0, 30, 50, 100, 1_000, 1_000]),
    minHoldMs: pick([0, 0, 0, 20, 70]),
    lockDelayMs: pick([0, 0, 0, 30, 60]),
  }
}

function longTerms(random: Random): TicketTerms {
  const ttlMs = random.pick(LONG_TERMS_MS)
  return {
    ttlMs,
    acceptMs: Math.min(ttlMs, random.pick(LONG_TERMS_MS)),
    patienceMs: random.pick([0, 900_000, 900_000, 900_000]),
    minHoldMs: random.pick([0, 0, 0, 0, 0, 240_000]),
    lockDelayMs: 0,
  }
}

function drawPass(random: Random, scale: number): Step {
  return { verb: 'pass', ms: random.chance(0.03) ? TOMBSTONE_PASS_MS : scale * random.pick(PASSES_MS) }
}

/**
 * Every role of the first room asks, and later the first one releases. By chance alone a queue is rarely so long that a
 * waiter is forgotten between others that still wait.
 */
function drawQueue(random: Random, cast: readonly Role[]): Step[] {
  const queue = cast.flatMap(({ room }, role) => (room === 0 ? [{ verb: 'acquire', role } as const] : []))
  return [...queue, { verb: 'release', role: 0, cancel: random.chance(0.1) }]
}

function drawTogether(random: Random, cast: readonly Role[], earlier: readonly Step[]): Step {
  const calls: CallStep[] = []
  const rooms = new Set<number | undefined>()
  for (let tries = 0; tries < 3 * ROOMS; tries += 1) {
    const call = drawCall(random, cast, earlier)
    if (call.verb !== 'acquire' && call.verb !== 'release') continue
    const room = cast[call.role]?.room
    if (rooms.has(room)) continue
    rooms.add(room)
    calls.push(call)
  }
  return { verb: 'together', calls }
}

function drawCall(random: Random, cast: readonly Role[], earlier: readonly Step[]): CallStep {
  const anybody = random.between(0, cast.length - 1)
  const verb = random.pick(VERBS)
  if (verb === 'acquire') return { verb, role: anybody }
  // Most calls are about a role that has asked lately. The store does not know the others, or has dropped them.
  const lately = earlier.slice(-8).flatMap((step) => (step.verb === 'acquire' ? [step.role] : []))
  const role = lately.length > 0 && random.chance(0.7) ? random.pick(lately) : anybody
  if (verb === 'release') return { verb, role, cancel: random.chance(0.1) }
  if (verb === 'renew') {
    const roles = cast.map((_, index) => index).filter((index) => index === role || random.chance(0.2))
    return { verb, roles, ttlMs: random.chance(0.2) ? random.pick(cast).ttlMs : undefined }
  }
  return { verb, room: cast[role]?.room ?? 0, role: random.chance(0.2) ? undefined : role }
}

// Evictions are rare, because after most of them no call of the ticket has an effect.
const VERBS = [
  ...Array<'acquire'>(9).fill('acquire'),
  ...Array<'release'>(4).fill('release'),
  ...Array<'renew'>(2).fill('renew'),
  'evict' as const,
]
