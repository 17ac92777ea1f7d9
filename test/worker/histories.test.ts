import fc from 'fast-check'
import { expect, test } from 'vitest'
import { StoreError } from '../../src/index.ts'
import { PlayedLease, Rehearsal, type Start, type Stop, turn } from './rehearsal.ts'

/** Everything that can happen to a worker, in any order. */
const happening: fc.Arbitrary<string | number> = fc.oneof(
  { weight: 12, arbitrary: fc.constant('as planned') },
  { weight: 3, arbitrary: fc.constantFrom('granted', 'started', 'ended') },
  { weight: 6, arbitrary: fc.constantFrom(20, 1000, 10_000, 60_000) },
  { weight: 6, arbitrary: fc.constantFrom('lost', 'work fails', 'jeopardy', 'held', 'released by somebody') },
  { weight: 3, arbitrary: fc.constantFrom('busy', 'unavailable', 'start fails', 'stop fails', 'start') },
  { weight: 1, arbitrary: fc.constantFrom('stop', 'start', 'start', 'start') },
)

test('whatever happens in whatever order, the work of two terms never overlaps, and no lease is left behind', async () => {
  let stops = 0
  await fc.assert(
    fc.asyncProperty(fc.array(happening, { maxLength: 150, size: 'max' }), async (history) => {
      const scene = new Scene()
      scene.played.begin()
      for (const event of history) {
        scene.happen(event)
        await turn()
        scene.check()
      }
      await scene.end()
      stops += scene.played.stops.length
    }),
    { numRuns: 300 },
  )
  // Each of the histories gets as far as to work and to end, several times.
  expect(stops).toBeGreaterThan(200)
})

class Scene {
  readonly played = new Rehearsal()
  readonly #leases: PlayedLease[] = []
  readonly #settledStarts = new Map<Start, 'succeeded' | 'failed'>()
  readonly #settledStops = new Set<Stop>()
  #startsSeen = 0

  happen(event: string | number): void {
    const { played } = this
    if (typeof event === 'number') return played.clock.increment(event)
    const lease = this.#leases.at(-1)
    const start = played.starts.at(-1)
    const stop = played.stops.at(-1)
    const ask = played.asks.at(-1)
    switch (event) {
      case 'as planned':
        return this.#goOn()
      case 'start':
        return played.begin()
      case 'stop':
        return played.end()
      case 'granted':
        return this.#grant()
      case 'busy':
        if (ask?.verb === 'tryAcquire') ask.resolve(null)
        return
      case 'unavailable':
        return ask?.reject(new StoreError('store-unavailable', 'away'))
      case 'started':
        return this.#settleStart(start, 'succeeded')
      case 'start fails':
        return this.#settleStart(start, 'failed')
      case 'ended':
        return this.#settleStop(stop, () => stop?.resolve())
      case 'stop fails':
        return this.#settleStop(stop, () => stop?.reject(new Error('stop')))
      case 'lost':
        return lease?.lose()
      case 'work fails':
        return start?.term.fail(new Error('work'))
      case 'jeopardy':
      case 'held':
        if (lease !== undefined && lease.state !== 'lost') lease.state = event
        return
      case 'released by somebody':
        if (lease !== undefined && lease.state !== 'lost') lease.state = 'released'
        return
      default:
        throw new Error(`Nothing is known of ${event}`)
    }
  }

  check(): void {
    const { starts, stops } = this.played
    // The work may have started once more, but only after all earlier work had ended.
    for (const start of starts.slice(this.#startsSeen)) {
      const before = starts.slice(0, starts.indexOf(start))
      expect(before.filter((earlier) => !this.#hasEnded(earlier))).toEqual([])
    }
    this.#startsSeen = starts.length
    for (const start of starts) {
      const ends = stops.filter(({ lease }) => lease === start.lease)
      expect(ends.length).toBeLessThanOrEqual(this.#settledStarts.get(start) === 'succeeded' ? 1 : 0)
    }
  }

  async end(): Promise<void> {
    const { played } = this
    played.end()
    for (let rounds = 0; rounds < 3; rounds += 1) {
      this.happen('started')
      await turn()
      this.happen('ended')
      await turn()
      await played.pass(60_000)
      this.check()
    }
    expect(played.value).toBe('stopped')
    for (const lease of this.#leases) expect(lease.released + lease.detached).toBeGreaterThan(0)
    for (const start of played.starts) expect(this.#hasEnded(start)).toBe(true)
  }

  /** Does the next step of a run in which nothing goes wrong. */
  #goOn(): void {
    const { value } = this.played.actor.getSnapshot()
    if (value === 'pausing') return this.played.clock.increment(60_000)
    if (value === 'trying' || value === 'waiting') return this.#grant()
    if (typeof value !== 'string' && value.working.work === 'starting') return this.happen('started')
    if (typeof value !== 'string' && value.working.work === 'stopping') return this.happen('ended')
  }

  /** Grants a lease. The ask may be over already: then the lease comes too late. */
  #grant(): void {
    const ask = this.played.asks.at(-1)
    if (ask === undefined || this.#granted.has(ask)) return
    this.#granted.add(ask)
    const lease = new PlayedLease()
    ask.resolve(lease)
    void ask.promise.then(
      (got) => got === lease && this.#leases.push(lease),
      () => {},
    )
  }

  readonly #granted = new Set<unknown>()

  #settleStart(start: Start | undefined, how: 'succeeded' | 'failed'): void {
    if (start === undefined || this.#settledStarts.has(start)) return
    this.#settledStarts.set(start, how)
    if (how === 'succeeded') start.resolve()
    else start.reject(new Error('start'))
  }

  #settleStop(stop: Stop | undefined, settle: () => void): void {
    if (stop === undefined || this.#settledStops.has(stop)) return
    this.#settledStops.add(stop)
    settle()
  }

  #hasEnded(start: Start): boolean {
    if (this.#settledStarts.get(start) === 'failed') return true
    return [...this.#settledStops].some(({ lease }) => lease === start.lease)
  }
}
