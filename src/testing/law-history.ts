import { type Ticket, UNLIMITED } from '../contract/store.ts'
import type { Share } from '../law/law.ts'
import type { Random } from './random.ts'

/** Some tickets, and what happens to them in which order. Plain values, so that a part of a history is one, too. */
export interface History {
  readonly cast: readonly Role[]
  readonly steps: readonly Step[]
}

/** A ticket before it has a key and an id: the same history can then be played many times. */
export type Role = Omit<Ticket, 'key' | 'id'> & { readonly room: number }

type TicketTerms = Pick<Role, 'ttlMs' | 'acceptMs' | 'patienceMs' | 'minHoldMs' | 'lockDelayMs'>

/** Roles and rooms are named by their number. */
export type Step =
  | CallStep
  // All in one tick, so that a store may send them together; each in another room, because their order is no promise.
  | { readonly verb: 'together'; readonly calls: readonly CallStep[] }
  | { readonly verb: 'pass'; readonly ms: number }
  // The store's clock is set back, just after every room was cleared of what had expired: what is not cleared yet lives
  // again in some stores and not in others, and either is right.
  | { readonly verb: 'setBack'; readonly ms: number }

export type CallStep =
  | { readonly verb: 'acquire'; readonly role: number }
  | { readonly verb: 'renew'; readonly roles: readonly number[]; readonly ttlMs: number | undefined }
  | { readonly verb: 'release'; readonly role: number; readonly cancel: boolean }
  | { readonly verb: 'evict'; readonly room: number; readonly role: number | undefined }

export const ROOMS = 3

/**
 * A random history. With `time`, terms are short and time passes, often exactly to the edge of a term; without, terms
 * are so long that nothing expires. With `setsBack`, the clock is also set back in some.
 */
export function drawHistory(
  random: Random,
  options: { readonly steps: number; readonly time: boolean; readonly setsBack: boolean },
): History {
  const setsBack = options.setsBack && random.chance(0.3)
  // Long terms show what a store that keeps rooms for some seconds longer makes of those that have to be kept. Where the
  // clock is set back, no tombstone and no lock-delay may end, as stores clear them away when they like.
  const scale = setsBack ? 1 : random.pick([1, 1, 1, 100])
  const drawn = drawCast(random, options.time ? scale : undefined)
  const cast = setsBack ? drawn.map((role) => ({ ...role, lockDelayMs: 0 })) : drawn
  const steps: Step[] = random.chance(0.5) ? drawQueue(random, cast) : []
  // As long as somebody is remembered: that very millisecond is where a `<` differs from a `<=`.
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

/** `scale`: of the terms, where time passes. */
function drawCast(random: Random, scale: number | undefined): readonly Role[] {
  const shares = random.pick(PALETTES)
  const plain = shares === MUTEXES && random.chance(0.5)
  const drawTerms = (name: string): Omit<Role, 'room'> => ({
    ...random.pick(shares),
    ...(scale === undefined ? longTerms(random) : shortTerms(random, scale)),
    ...(plain ? WITHOUT_EXTRAS : {}),
    owner: `{"role":"${name}"}`,
  })
  // The tickets of one process are usually on the same terms, and a store may send these together.
  const common = random.chance(0.3) ? drawTerms('any') : undefined
  return Array.from({ length: random.between(3, 9) }, (_, index) => ({
    ...(common ?? drawTerms(nameOf(index))),
    room: index === 0 ? 0 : random.pick([0, 0, 0, 0, 1, 2]),
  }))
}

/** One line per step, for people who look for the difference. */
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

/** Which roles a step names. */
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
// What nearly every room is, and what stores take short cuts for.
const MUTEXES: readonly Share[] = [MUTEX]
const WITHOUT_EXTRAS = { minHoldMs: 0, lockDelayMs: 0 } as const
// Of everything a little, and of one kind enough for what shows only among many of them.
const PALETTES: readonly (readonly Share[])[] = [
  [MUTEX, MUTEX, READER, ...PERMITS],
  [MUTEX, READER, READER],
  PERMITS,
  MUTEXES,
]

// Round terms and steps of time meet at the same millisecond often, which is where a `<` differs from a `<=`.
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
 * Everybody in the first room asks, and some time later the first of them releases: by chance alone a queue is rarely
 * long enough for somebody in it to be forgotten while others wait before and behind.
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
  // Most calls are about somebody who has asked lately: the others are unknown to the store, or long gone.
  const lately = earlier.slice(-8).flatMap((step) => (step.verb === 'acquire' ? [step.role] : []))
  const role = lately.length > 0 && random.chance(0.7) ? random.pick(lately) : anybody
  if (verb === 'release') return { verb, role, cancel: random.chance(0.1) }
  if (verb === 'renew') {
    const roles = cast.map((_, index) => index).filter((index) => index === role || random.chance(0.2))
    return { verb, roles, ttlMs: random.chance(0.2) ? random.pick(cast).ttlMs : undefined }
  }
  return { verb, room: cast[role]?.room ?? 0, role: random.chance(0.2) ? undefined : role }
}

// Evictions are rare, because most of them end the story of a ticket.
const VERBS = [
  ...Array<'acquire'>(9).fill('acquire'),
  ...Array<'release'>(4).fill('release'),
  ...Array<'renew'>(2).fill('renew'),
  'evict' as const,
]
