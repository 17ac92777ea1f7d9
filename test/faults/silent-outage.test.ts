import { describe, expect, test } from 'vitest'
import type { Store } from '../../src/contract/store.ts'
import { createLocks, type Lease, type Locks } from '../../src/index.ts'
import { until } from '../servers/until.ts'
import { silentPlaces } from './silent-outage-stores.ts'

/** `npm run faults:long` sets it: ten minutes of silence, which no run of all tests has time for. */
const isLong = process.env['HOLDFAST_LONG'] === '1'
/** Fifteen seconds are twice as long as a silent connection is kept and the next one may take to open. */
const SILENCE_MS = isLong ? 600_000 : 15_000
/** Only a process that never comes back takes this long. */
const BACK_WITHIN_MS = 45_000

describe.concurrent('after fifteen seconds of silence every process works again by itself, and is woken', () => {
  test.for(Object.entries(silentPlaces))('when %s', { timeout: SILENCE_MS + 225_000 }, async ([, start]) => {
    await using place = await start()
    const [holder, waiter] = [new Process(place.open()), new Process(place.open())]
    const processes = [holder, waiter]
    try {
      await untilWoken(holder, waiter)
      await untilWoken(waiter, holder)
      // The lease runs out inside the silence, and `again` is asked for while there is still some left.
      const lost = await holder.acquire('k', 9000)
      const next = waiter.acquire('k')
      await holder.untilQueued('k')

      await place.beSilent()
      const silentUntil = performance.now() + SILENCE_MS
      // The very first connection of this process meets the silence.
      const young = new Process(place.open())
      processes.push(young)
      const first = young.acquire('young')
      await until('the lease is lost', () => lost.state === 'lost')
      const again = holder.acquire('again')
      await until('the silence is over', () => performance.now() > silentUntil, {
        withinMs: 2 * SILENCE_MS,
      })
      await place.speak()

      for (const lease of await Promise.all([next, first, again])) await lease.release()
      await lost.release()
      for (const giver of processes) {
        for (const taker of processes) if (giver !== taker) await untilWoken(giver, taker)
      }
    } finally {
      await place.speak()
      await Promise.all(processes.map((each) => each.close()))
    }
  })
})

/** A store and a client of its own stand for a process here. */
class Process {
  readonly #store: Store
  readonly #locks: Locks
  readonly #woken = new Set<string>()

  constructor(store: Store) {
    const listen = store.listen?.bind(store)
    if (listen !== undefined) {
      store.listen = (onWake) =>
        listen((wake) => {
          if (wake.tag !== 'all') this.#woken.add(wake.id)
          onWake(wake)
        })
    }
    this.#store = store
    this.#locks = createLocks(store)
  }

  acquire(key: string, ttl = 60_000): Promise<Lease> {
    return this.#locks.acquire(key, { ttl, wait: SILENCE_MS + BACK_WITHIN_MS })
  }

  async untilQueued(key: string): Promise<void> {
    await until('somebody waits', async () => {
      const { rooms } = await this.#store.inspect({ prefix: key, cursor: undefined, count: 1 })
      return rooms[0]?.queue.length === 1
    })
  }

  /** Whether the waiter of this lease was woken. A waiter may find its offer by itself while the wake is on its way. */
  async wasWoken({ id }: Lease): Promise<boolean> {
    return until('the wake has come', () => this.#woken.has(id), { withinMs: 10_000 }).catch(() => false)
  }

  close(): Promise<void> {
    return this.#locks.close()
  }
}

/** From some moment on a wake reaches the waiter at every hand-over. */
async function untilWoken(giver: Process, taker: Process): Promise<void> {
  await until('a waiter is woken', () => handsOver(giver, taker), { withinMs: BACK_WITHIN_MS })
  expect(await handsOver(giver, taker)).toBe(true)
}

/** Whether the waiter was woken, and did not have to ask by itself. */
async function handsOver(giver: Process, taker: Process): Promise<boolean> {
  const given = await giver.acquire('handed over')
  const taking = taker.acquire('handed over')
  await giver.untilQueued('handed over')
  await given.release()
  const taken = await taking
  const wasWoken = await taker.wasWoken(taken)
  await taken.release()
  return wasWoken
}
