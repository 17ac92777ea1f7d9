import { expect, test } from 'vitest'
import {
  type AcquireAnswer,
  type Answer,
  type EvictRequest,
  type InspectRequest,
  type ReleaseAnswer,
  type ReleaseRequest,
  type RenewAnswer,
  type RoomPage,
  type Store,
  type Ticket,
  UNLIMITED,
  type Wake,
} from '../../src/contract/store.ts'
import { createLocks, isHoldfastError } from '../../src/index.ts'
import { mayStandTogether } from '../../src/law/law.ts'
import type { Locks } from '../../src/primitives/locks.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { type Random, seededRandom } from '../../src/testing/random.ts'

/**
 * Random tasks take nested locks, and some leases without a callback. Each task has a `Locks` object of its own on one store, so the
 * room of a key shows whose tickets hold and wait. Whenever a task is told of a deadlock, the rooms are looked at, which know
 * more than the process: the call must have been in vain.
 */
const KEYS = ['mutex', 'files', 'pool', 'rooms'] as const

type Key = (typeof KEYS)[number]

test.each([1, 2, 3, 4])(
  'in memory every deadlock is told, and nothing else (seeds from %i000)',
  async (thousand) => {
    let told = 0
    for (let seed = thousand * 1000; seed < thousand * 1000 + 150; seed += 1) {
      const store = memoryStore()
      told += await play(seed, store, {
        wait: Number.POSITIVE_INFINITY,
        atDeadlock: (task, _, ticket) => {
          // The ticket has left already. It was the last one in its queue.
          const rooms = roomsOf(store)
          expect(stuckIn(withLast(rooms, task, ticket)), `seed ${seed}`).toContain(task)
          // Whoever closes a circle is told at once. So without this call nobody is stuck.
          expect(stuckIn(rooms), `seed ${seed}`).toEqual(new Set())
        },
      })
    }
    expect(told).toBeGreaterThan(20)
  },
)

test.each([1, 2])(
  'at a store that answers later no other call is refused (seeds from %i000)',
  async (thousand) => {
    let told = 0
    for (let seed = thousand * 1000; seed < thousand * 1000 + 60; seed += 1) {
      const store = new SlowStore(memoryStore(), seededRandom(seed))
      told += await play(seed, store, {
        wait: 150,
        atDeadlock: (task, id) => {
          expect(stuckIn(store.seenAtRelease.get(id) ?? []), `seed ${seed}`).toContain(task)
        },
      })
    }
    expect(told).toBeGreaterThan(10)
  },
)

interface Step {
  readonly key: Key
  readonly units: number
  readonly limit: number
  /** Holds the key while the work runs. */
  readonly hold: (locks: Locks, work: () => Promise<void>) => Promise<void>
  /** Takes the key without a callback. */
  readonly acquire: (locks: Locks) => Promise<{ release(): Promise<void> }>
}

function stepOn(key: Key, random: Random): Step {
  if (key === 'mutex') {
    const [hold, acquire]: [Step['hold'], Step['acquire']] = [
      (locks, work) => locks.withLock(key, work),
      (locks) => locks.acquire(key),
    ]
    return { key, units: 1, limit: 1, hold, acquire }
  }
  if (key === 'files' && random.chance(0.7)) {
    return {
      key,
      units: 1,
      limit: UNLIMITED,
      hold: (locks, work) => locks.readWrite(key).read(work),
      acquire: (locks) => locks.readWrite(key).acquireRead(),
    }
  }
  if (key === 'files') {
    return {
      key,
      units: 1,
      limit: 1,
      hold: (locks, work) => locks.readWrite(key).write(work),
      acquire: (locks) => locks.readWrite(key).acquireWrite(),
    }
  }
  // Not all agree about the number of permits.
  const limit = random.pick([2, 3, 3])
  const units = random.between(1, limit)
  return {
    key,
    units,
    limit,
    hold: (locks, work) => locks.semaphore(key, limit).withPermits({ units }, work),
    acquire: (locks) => locks.semaphore(key, limit).acquire({ units }),
  }
}

function stepsOf(random: Random): readonly Step[] {
  const left: Key[] = [...KEYS]
  return Array.from({ length: random.between(2, 3) }, () => {
    const key = random.pick(left)
    left.splice(left.indexOf(key), 1)
    return stepOn(key, random)
  })
}

async function nest({ locks, asks, random }: Task, [step, ...inner]: readonly Step[]): Promise<void> {
  if (step === undefined) return
  asks(step)
  await step.hold(locks, async () => {
    await turns(random)
    await nest({ locks, asks, random }, inner)
    await turns(random)
  })
}

async function standOutside({ locks, asks, random }: Task, step: Step): Promise<void> {
  asks(step)
  const lease = await step.acquire(locks)
  await turns(random)
  await lease.release()
}

async function turns(random: Random): Promise<void> {
  for (let count = random.between(0, 4); count > 0; count -= 1) await new Promise((go) => setImmediate(go))
}

interface Task {
  readonly locks: Locks
  readonly random: Random
  /** Called before each request. */
  readonly asks: (step: Step) => void
}

interface Rules {
  readonly wait: number
  readonly atDeadlock: (task: string, id: string, step: Step) => void
}

/** Returns how many tasks were told of a deadlock. All others come to their end, or their `wait` does. */
async function play(seed: number, store: Store, { wait, atDeadlock }: Rules): Promise<number> {
  const random = seededRandom(seed)
  let told = 0
  const failures: unknown[] = []
  const run = async (name: string): Promise<Locks> => {
    const locks = createLocks(store, { label: name, wait })
    let step: Step | undefined
    locks.on('withdrawn', ({ id, reason }) => {
      if (reason !== 'deadlock') return
      told += 1
      try {
        atDeadlock(name, id, step as Step)
      } catch (error) {
        failures.push(error)
      }
    })
    const task: Task = {
      locks,
      random,
      asks: (next) => {
        step = next
      },
    }
    const steps = stepsOf(random)
    const isOutside = random.chance(0.25)
    await turns(random)
    try {
      await (isOutside ? standOutside(task, steps[0] as Step) : nest(task, steps))
    } catch (error) {
      const isTooLate = Number.isFinite(wait) && isHoldfastError(error, 'acquire-timeout')
      if (!isHoldfastError(error, 'deadlock') && !isTooLate) failures.push(error)
    }
    return locks
  }
  const names = Array.from({ length: random.between(3, 6) }, (_, index) => `task ${index}`)
  const all = await Promise.all(names.map(run))
  expect(failures, `seed ${seed}`).toEqual([])
  for (const locks of all) await locks.close()
  return told
}

/** What can be seen in the rooms: a ticket is that of the task whose label it has. */
interface SeenTicket {
  readonly owner: string
  readonly units: number
  readonly limit: number
}

interface SeenRoom {
  readonly key: string
  readonly holders: readonly SeenTicket[]
  readonly queue: readonly SeenTicket[]
}

function roomsOf(store: Store): readonly SeenRoom[] {
  const page = store.inspect({ prefix: '', cursor: undefined, count: 1000 })
  return (page as RoomPage).rooms
}

function withLast(
  rooms: readonly SeenRoom[],
  task: string,
  { key, units, limit }: Step,
): readonly SeenRoom[] {
  const last = { owner: JSON.stringify({ label: task }), units, limit }
  return rooms.map((room) => (room.key === key ? { ...room, queue: [...room.queue, last] } : room))
}

/** The tasks that wait for ever, if each other task comes to its end. Written as plainly as can be. */
function stuckIn(rooms: readonly SeenRoom[]): ReadonlySet<string> {
  const stuck = new Set(rooms.flatMap(({ queue }) => queue.map(taskOf)))
  for (let before = -1; before !== stuck.size; ) {
    before = stuck.size
    for (const { holders, queue } of rooms) {
      const staying = holders.filter((holder) => stuck.has(taskOf(holder)))
      for (const ticket of queue) {
        if (!mayStandTogether([...staying, ticket])) break
        stuck.delete(taskOf(ticket))
      }
    }
  }
  return stuck
}

function taskOf({ owner }: SeenTicket): string {
  return (JSON.parse(owner) as { label: string }).label
}

/** Requests and answers take their time. */
class SlowStore implements Store {
  readonly name = 'slow'
  /** The rooms as they were before the release of each ticket. */
  readonly seenAtRelease = new Map<string, readonly SeenRoom[]>()
  readonly #store: Store
  readonly #random: Random

  constructor(store: Store, random: Random) {
    this.#store = store
    this.#random = random
  }

  acquire(ticket: Ticket): Promise<AcquireAnswer> {
    return this.#slowly(() => this.#store.acquire(ticket))
  }

  renew(tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
    return this.#slowly(() => this.#store.renew(tickets))
  }

  async release(request: ReleaseRequest): Promise<ReleaseAnswer> {
    this.seenAtRelease.set(request.id, roomsOf(this.#store))
    return this.#slowly(() => this.#store.release(request))
  }

  async listen(onWake: (wake: Wake) => void): Promise<() => void> {
    return (await this.#store.listen?.(onWake)) ?? (() => {})
  }

  inspect(request: InspectRequest): Answer<RoomPage> {
    return this.#store.inspect(request)
  }

  evict(request: EvictRequest): Answer<readonly string[]> {
    return this.#store.evict(request)
  }

  close(): Promise<void> {
    return this.#store.close()
  }

  async #slowly<T>(act: () => Answer<T>): Promise<T> {
    await turns(this.#random)
    const answer = await act()
    await turns(this.#random)
    return answer
  }
}
