import { seededRandom } from '../../src/testing/random.ts'
import { call } from './call.ts'
import { holdfast, type Implementation } from './implementation.ts'
import { drawPlan, type Family, type Fault, familyNames } from './plan.ts'
import { scheduleTroubles } from './troubles.ts'
import type { Violation } from './violation.ts'
import { closeLocks, join } from './workload.ts'
import { World } from './world.ts'

export interface History {
  readonly seed: string
  readonly world: World
  /** The mistake that a checker has found; `undefined` if there is none. */
  readonly violation: Violation | undefined
}

/** People read seeds, too: a seed is the family and a number. */
export function seedOf(family: Family, number: number): string {
  return `${family} ${number}`
}

/** Plays one history to its end: the same seed, the same history. */
export async function playHistory(seed: string, implementation: Implementation = holdfast): Promise<History> {
  const family = familyNames.find((name) => seed.startsWith(`${name} `))
  if (family === undefined)
    throw new RangeError(
      `Expected the seed to be a family and a number, as in "${seedOf('contention alone', 1)}"`,
    )
  const world = new World(seed, drawPlan(seededRandom(`${seed}/plan`), family), implementation)
  try {
    await play(world)
    return { seed, world, violation: undefined }
  } catch (error) {
    if (!(error instanceof Error) || error.name !== 'Violation') throw error
    return { seed, world, violation: error as Violation }
  }
}

async function play(world: World): Promise<void> {
  for (let index = 0; index < world.plan.processes; index += 1) join(world)
  scheduleTroubles(world)
  await world.advance(world.plan.stormMs)
  world.settle()
  await untilSettled(world)
  await findGhosts(world)
  world.granted.countLost(world.members)
  await serveEverybody(world)
  await leaveNothing(world)
}

/** Waits until every call of a living process has ended by itself. */
async function untilSettled(world: World): Promise<void> {
  const until = world.time.monotonicMs() + longest(world)
  while (world.time.monotonicMs() < until) {
    if (world.members.every(({ process, pending }) => !process.alive || pending.size === 0)) return
    await world.advance(1000)
  }
  for (const { name, process, pending } of world.members) {
    if (process.alive && pending.size > 0)
      world.report('liveness', `${name} still waits for ${[...pending].join(', ')}`)
  }
  await world.advance(0)
}

/** Checks that a ticket that is done has nothing in the store any more, although its ttl may be long. */
async function findGhosts(world: World): Promise<void> {
  await world.advance(GIVE_BACK_MS)
  const { storeWitness, plan, handedOn } = world
  // With these faults only the ttl ends some tickets. A store whose clock was set back keeps them for longer than a
  // process tries to release them.
  if (storeWitness.forgetful || world.setBackMs > 0) return
  if (plan.faults.has('duplicates') || plan.faults.has('store refuses')) return
  const unheard = UNHEARD.some((fault) => plan.faults.has(fault))
  const excused = (id: string): boolean => {
    const owner = world.members.find(({ name }) => id.startsWith(`${name}-`))
    // `close` releases what its process holds, but only for a limited time. The rest ends by its ttl.
    const closed = owner?.closed === true && (unheard || world.leaseWitness.lost.has(id))
    return closed || owner?.process.alive === false || handedOn.has(id)
  }
  for (const { key, holders, queue } of world.rooms()) {
    for (const { id, ...rest } of [...holders.filter(({ state }) => state !== 'leaving'), ...queue]) {
      if (excused(id)) continue
      const state = 'state' in rest ? rest.state : 'waiting'
      world.report('left behind', `${id} is ${state} on ${key}, and nobody is there`)
    }
  }
  await world.advance(0)
}

/** Checks that every process gets every key again. */
async function serveEverybody(world: World): Promise<void> {
  const probes = world.members
    .filter((member) => member.active)
    .flatMap((member) =>
      world.plan.keys.map(async ({ key }) => {
        let served = false
        await call(world, member, `probe ${key}`, {}, () =>
          member.locks.withLock(key, { ttl: 5000, wait: longest(world) }, async () => {
            served = true
          }),
        )
        if (!served) world.report('liveness', `${member.name} was not served on ${key}`)
      }),
    )
  await untilSettled(world)
  await Promise.all(probes)
}

async function leaveNothing(world: World): Promise<void> {
  for (const member of world.members) if (member.active) closeLocks(world, member)
  await world.advance(CLOSE_MS)
  for (const { name, process, engine, pending } of world.members) {
    if (!process.alive) continue
    if (pending.size > 0) world.report('liveness', `${name} still waits for ${[...pending].join(', ')}`)
    if (process.clock.timers > 0)
      world.report('left behind', `${name} is closed and has ${process.clock.timers} timers`)
    const { waiting, hearing } = engine.counts
    if (waiting + hearing > 0)
      world.report('left behind', `${name} is closed, ${waiting} wait in it and ${hearing} hear messages`)
  }
  await world.advance(longest(world))
  const rooms = world.rooms()
  if (rooms.length > 0)
    world.report('left behind', `The store still has ${JSON.stringify(rooms, replaceBigInt)}`)
  await world.advance(0)
}

/**
 * How long it takes until everything that dead processes left in the store is over, also one after the other on the
 * same key.
 */
function longest(world: World): number {
  return LONGEST_TERMS_MS + world.setBackMs
}

/** With these faults `close` may not reach the store in its time. */
const UNHEARD: readonly Fault[] = [
  'lost requests',
  'lost replies',
  'slow messages',
  'cuts',
  'pauses',
  'suspends',
  'store hangs',
  'store restarts',
  'store refuses',
]
/** The longest pause between two attempts to release a ticket. */
const GIVE_BACK_MS = 20_000
const CLOSE_MS = 10_000
const LONGEST_TERMS_MS = 300_000

function replaceBigInt(_name: string, value: unknown): unknown {
  return typeof value === 'bigint' ? `${value}` : value
}
