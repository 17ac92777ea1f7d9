import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { type Store, UNLIMITED } from '../../../src/contract/store.ts'
import { RedlockStore } from '../../../src/stores/redlock/redlock-store.ts'
import { type Random, seededRandom } from '../../../src/testing/random.ts'
import { releaseOf, ticket } from '../tickets.ts'
import { faultyLink } from './faulty-link.ts'
import { type Masters, startMasters } from './masters.ts'

const CLIENTS = 12
const ROUNDS = 60
const ENOUGH = CLIENTS * ROUNDS * 0.3

let masters: Masters
beforeAll(async () => {
  // The store warns of the faults of these tests, a hundred times.
  vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
  masters = await startMasters(5)
})
afterAll(async () => {
  vi.restoreAllMocks()
  await masters.close()
})

// No votes keep the clients of these tests apart, so the claim alone has to keep their fences apart.
describe('fences that a quorum has accepted are unique, and never lower than one that was complete before they began', () => {
  test('for readers that all hold at once, over servers that lose every eighth command or answer, and reorder the others', async () => {
    const seed = crypto.randomUUID()
    const takers = storesOver(seed).map((store) => async (): Promise<bigint> => {
      const mine = ticket({ key: 'readers', limit: UNLIMITED, patienceMs: 0 })
      const answer = await store.acquire(mine)
      // Some readers stay, and some are dropped. Both belong to the trial.
      if (answer.tag === 'held') void Promise.resolve(store.release(releaseOf(mine))).catch(() => {})
      return answer.tag === 'held' ? answer.fence : Promise.reject(new Error(answer.tag))
    })
    // One race is mostly enough. How many commands are lost is left to chance.
    let taken = 0
    for (let races = 0; races < 10 && taken <= ENOUGH; races += 1) {
      const history = await race(takers)
      taken += history.length
      expect(faultsOf(history), seed).toEqual({ duplicates: 0, inversions: 0 })
    }
    expect(taken, seed).toBeGreaterThan(ENOUGH)
  })

  test('for writers whose leases run out under their feet', async () => {
    const seed = crypto.randomUUID()
    const random = seededRandom(seed)
    // The leases become longer with each race, until this machine is fast enough to be granted one now and then.
    let ttlMs = 30
    const takers = storesOver(seed).map((store) => async (): Promise<bigint> => {
      const mine = ticket({ key: 'writers', ttlMs, acceptMs: ttlMs, patienceMs: 0 })
      await new Promise((resolve) => setTimeout(resolve, random.between(0, 60)))
      const answer = await store.acquire(mine)
      if (answer.tag === 'held' && random.chance(0.7)) {
        void Promise.resolve(store.release(releaseOf(mine))).catch(() => {})
      }
      return answer.tag === 'held' ? answer.fence : Promise.reject(new Error(answer.tag))
    })
    let taken = 0
    for (let races = 0; races < 10 && taken <= 20; races += 1) {
      const history = await race(takers)
      taken += history.length
      expect(faultsOf(history), seed).toEqual({ duplicates: 0, inversions: 0 })
      ttlMs *= 2
    }
    expect(taken, seed).toBeGreaterThan(20)
  })

  test('which the largest of as many counters, the usual substitute, is not', async () => {
    const seed = crypto.randomUUID()
    const takers = Array.from({ length: CLIENTS }, (_, client) => {
      const random = seededRandom(`${seed}/${client}`)
      const connections = links(random).map((link) => link.open(() => {}))
      return async (): Promise<bigint> => {
        const replies = connections.map((connection) =>
          connection.send('EVAL', ["return redis.call('INCR', KEYS[1])", '1', 'naive']),
        )
        return largestOf(replies)
      }
    })
    // One race nearly always shows both a duplicate and an inversion.
    const seen = { duplicates: 0, inversions: 0 }
    for (let races = 0; races < 20 && (seen.duplicates === 0 || seen.inversions === 0); races += 1) {
      const faults = faultsOf(await race(takers))
      seen.duplicates += faults.duplicates
      seen.inversions += faults.inversions
    }
    expect(seen.duplicates, seed).toBeGreaterThan(0)
    expect(seen.inversions, seed).toBeGreaterThan(0)
  })
})

/** Each client has a store of its own, as if it were another process. */
function storesOver(seed: string): readonly Store[] {
  return Array.from({ length: CLIENTS }, (_, client) => {
    const settings = { prefix: 'holdfast:', fences: true, maxTtlMs: 600_000 }
    return new RedlockStore(links(seededRandom(`${seed}/${client}`)), settings)
  })
}

function links(random: Random): ReturnType<typeof faultyLink>[] {
  return masters.urls.map((url) =>
    faultyLink(url, { random, delayMs: 4, lost: 0.06, unanswered: 0.06, code: 'OOM' }),
  )
}

/** Resolves with the largest reply as soon as three servers have answered. */
function largestOf(replies: readonly Promise<unknown>[]): Promise<bigint> {
  return new Promise((resolve, reject) => {
    const answers: number[] = []
    let failed = 0
    for (const reply of replies) {
      reply.then(
        (answer) => answers.push(Number(answer)) === 3 && resolve(BigInt(Math.max(...answers))),
        () => {
          failed += 1
          if (failed === 3) reject(new Error('no quorum'))
        },
      )
    }
  })
}

interface Taken {
  readonly beganAt: number
  readonly endedAt: number
  readonly fence: bigint
}

/** Lets all clients take fences at once, each again and again. Times are places in the order of events. */
async function race(takers: readonly (() => Promise<bigint>)[]): Promise<readonly Taken[]> {
  const history: Taken[] = []
  let events = 0
  await Promise.all(
    takers.map(async (take) => {
      for (let round = 0; round < ROUNDS; round += 1) {
        events += 1
        const beganAt = events
        try {
          const fence = await take()
          events += 1
          history.push({ beganAt, endedAt: events, fence })
        } catch {
          // The call got no fence.
        }
      }
    }),
  )
  return history
}

function faultsOf(history: readonly Taken[]): { readonly duplicates: number; readonly inversions: number } {
  const duplicates = history.length - new Set(history.map(({ fence }) => fence)).size
  const inversions = history.filter(({ beganAt, fence }) =>
    history.some((earlier) => earlier.endedAt < beganAt && earlier.fence >= fence),
  ).length
  return { duplicates, inversions }
}
