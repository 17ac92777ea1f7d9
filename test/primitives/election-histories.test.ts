import { expect, test } from 'vitest'
import type { RoomPage } from '../../src/contract/store.ts'
import { isHoldfastError, type Leader, type Leadership } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { seededRandom } from '../../src/testing/random.ts'
import { FakeClock, settled } from '../engine/fake-clock.ts'
import { startProcess } from '../engine/scene.ts'
import { ScriptedStore } from '../engine/scripted-store.ts'

const TTL_MS = 3000
const FATES = ['answer', 'answer', 'answer', 'fail', 'fail late', 'lose request', 'lose reply'] as const

/** One process that campaigns. Chance decides how it settles when it is asked to resign. */
class Candidate {
  readonly store: ScriptedStore
  readonly locks: ReturnType<typeof startProcess>['locks']
  readonly engine: ReturnType<typeof startProcess>['engine']
  readonly end = new AbortController()
  readonly election: ReturnType<typeof this.locks.election>
  term: Leadership | undefined
  /** `undefined`: all elections of this history go by the queue. */
  priority: number | undefined
  over: Promise<unknown> = Promise.resolve()

  /** The fences that were taken by force. A process may not have heard of that, and only its fence stops it. */
  readonly evicted: ReadonlySet<bigint>

  constructor(real: ReturnType<typeof memoryStore>, clock: FakeClock, evicted: ReadonlySet<bigint>) {
    this.evicted = evicted
    this.store = new ScriptedStore(real)
    const { locks, engine } = startProcess(this.store, clock)
    this.locks = locks
    this.engine = engine
    this.election = locks.election('k')
  }

  get leads(): boolean {
    return this.term !== undefined && !this.evicted.has(this.term.fence) && this.term.remainingMs > 0
  }
}

test.each(Array.from({ length: 60 }, (_, seed) => seed))(
  'whatever happens, one leads at most, fences rise, observers see them in order, and nothing is left behind (seed %i)',
  async (seed) => {
    const random = seededRandom(`election ${seed}`)
    const clock = new FakeClock()
    const real = memoryStore({ now: clock.storeTime })
    const evicted = new Set<bigint>()
    const evict = real.evict.bind(real)
    real.evict = (request) => {
      // The eviction would also let in the next one, and take the key from it at once.
      if (request.reason === 'chance') void real.release({ key: 'k', id: '', cancel: false })
      const page = real.inspect({ prefix: 'k', exact: true, cursor: undefined, count: 1 }) as RoomPage
      // Nobody but this test may take the key from a leader.
      if (request.reason === 'chance')
        for (const { fence } of page.rooms[0]?.holders ?? []) evicted.add(fence)
      return evict(request)
    }
    const candidates = Array.from({ length: 3 }, () => new Candidate(real, clock, evicted))
    const witness = startProcess(new ScriptedStore(real), clock)
    const seen: (Leader | null)[] = []
    const watching = new AbortController()
    const observing = (async () => {
      const changes = witness.locks.election('k').observe({ signal: watching.signal })
      for await (const leader of changes) seen.push(leader)
    })()
    let lastFence = 0n
    let terms = 0
    for (const candidate of candidates) {
      if (seed % 2 === 1) candidate.priority = random.between(0, 2)
      const preference =
        candidate.priority === undefined ? {} : { priority: candidate.priority, yieldAfter: 1000 }
      const work = async (term: Leadership) => {
        expect(candidates.filter(({ leads }) => leads)).toEqual([])
        expect(candidate.term).toBeUndefined()
        expect(term.fence).toBeGreaterThan(lastFence)
        lastFence = term.fence
        terms += 1
        candidate.term = term
        const settlesMs = random.chance(0.25) ? 60_000 : random.between(0, 1500)
        await aborted(term.signal)
        await Promise.race([
          aborted(term.lost),
          new Promise<void>((resolve) => clock.startTimer(settlesMs, resolve)),
        ])
        candidate.term = undefined
        if (random.chance(0.5)) throw term.signal.reason
      }
      candidate.over = candidate.election
        .campaign({ ttl: TTL_MS, grace: 2000, signal: candidate.end.signal, ...preference }, work)
        .then(
          () => 'returned',
          (error: unknown) => error,
        )
    }
    for (let step = 0; step < 40; step += 1) {
      const candidate = random.pick(candidates)
      const action = random.between(0, 9)
      if (action < 5) candidate.store.always(random.pick(FATES))
      else if (action === 5) void candidate.election.resign()
      else if (action === 6) {
        // It rejects if the leader of this moment is out of reach for too long.
        witness.locks
          .election('k')
          .requestStepDown({ reason: 'it is asked to' })
          .catch((error) => {
            if (!isHoldfastError(error, 'store-unavailable')) throw error
          })
      } else if (action === 7) {
        void witness.locks.evictAll('k', { reason: 'chance' })
      } else if (action === 8) clock.block(random.between(0, TTL_MS * 2))
      await clock.advance(random.between(1, 1500))
      expect(candidates.filter(({ leads }) => leads).length).toBeLessThanOrEqual(1)
    }
    for (const { store } of candidates) store.always('answer')
    await clock.untilTrue(() => candidates.some(({ leads }) => leads), { withinMs: 30_000 })
    const leader = () => candidates.find(({ leads }) => leads)?.term?.fence
    await clock.untilTrue(() => leader() !== undefined && seen.at(-1)?.fence === leader(), {
      withinMs: 10_000,
    })
    expect(terms).toBeGreaterThanOrEqual(2)
    // Now nothing disturbs them, and the best of those that nobody wanted to go leads and stays.
    if (seed % 2 === 1) {
      await clock.advance(200_000)
      const last = terms
      await clock.advance(60_000)
      expect(terms).toBe(last)
      const waiting = await witness.locks.election('k').candidates()
      const best = Math.max(...waiting.map((one) => (one.hasSteppedDown ? -1 : one.priority)))
      expect(candidates.find(({ leads }) => leads)?.priority).toBeGreaterThanOrEqual(best)
    }

    const ends = new Error('the end')
    for (const { end } of candidates) end.abort(ends)
    expect(await clock.until(Promise.all(candidates.map(({ over }) => over)))).toEqual([ends, ends, ends])
    watching.abort()
    await clock.until(observing)
    const fences = seen.flatMap((one) => (one === null ? [] : [one.fence]))
    expect(fences).toEqual([...new Set(fences)].sort((a, b) => (a < b ? -1 : 1)))
    await clock.advance(120_000)
    await settled()
    const rooms = await real.inspect({ prefix: '', cursor: undefined, count: 100 })
    expect(rooms.rooms).toEqual([])
    for (const { engine } of [...candidates, witness]) expect(engine.waiting).toEqual([])
    expect(clock.timers.keepingAlive).toBe(0)
  },
)

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve()
    else signal.addEventListener('abort', () => resolve(), { once: true })
  })
}
