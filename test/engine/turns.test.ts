import { describe, expect, test } from 'vitest'
import type { RenewAnswer, Ticket } from '../../src/contract/store.ts'
import type { Lease, Locks } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { boundStore } from '../stores/bound-store.ts'
import { FakeClock, settled } from './fake-clock.ts'
import { scene, startProcess } from './scene.ts'
import { Letter } from './scripted-store.ts'

const TTL = 30_000
const LEASES = 1200
/** As many as fit into a turn if each takes 0.1 ms, and the step that was begun. */
const MOST_IN_A_TURN = 20 + 16

/** A store that keeps the answers to renewals until it is told to send all of them at once. */
function withheldAnswers(chance?: () => number) {
  const clock = new FakeClock()
  const real = memoryStore({ now: clock.storeTime })
  const letters: { readonly ids: readonly string[]; send(): void; fail(error: Error): void }[] = []
  const evicted = new Set<string>()
  const answer = (tickets: readonly Ticket[]): RenewAnswer[] =>
    (real.renew(tickets) as readonly RenewAnswer[]).map((each, index) =>
      evicted.has(tickets[index]?.id as string) ? { tag: 'gone', evicted: true } : each,
    )
  const renew = (tickets: readonly Ticket[]) =>
    new Promise<RenewAnswer[]>((resolve, reject) => {
      const ids = tickets.map(({ id }) => id)
      letters.push({ ids, send: () => resolve(answer(tickets)), fail: reject })
    })
  const { engine, locks } = startProcess({ ...boundStore(real), renew }, clock, chance)
  return { clock, engine, locks, letters, evicted }
}

async function take(locks: Locks, { count = LEASES, ttl = TTL } = {}): Promise<Lease[]> {
  return Promise.all(Array.from({ length: count }, (_, index) => locks.acquire(`k${index}`, { ttl })))
}

/** A listener that takes its time. */
function listenSlowly(locks: Locks, clock: FakeClock, eachMs = 0.1): { readonly renewed: string[] } {
  const renewed: string[] = []
  locks.on('renewed', ({ id }) => {
    renewed.push(id)
    clock.block(eachMs)
  })
  return { renewed }
}

describe('the answers to many renewals that arrive together', () => {
  test('are told in several turns of the event loop, each of which ends soon', async () => {
    const { clock, locks, letters } = withheldAnswers()
    const leases = await take(locks)
    const { renewed } = listenSlowly(locks, clock)
    await clock.advance(TTL / 3)
    for (const { send } of letters) send()
    const perTurn: number[] = []
    await settled()
    for (let before = 0; before < renewed.length; await clock.advance(0)) {
      perTurn.push(renewed.length - before)
      before = renewed.length
    }
    expect(new Set(renewed).size).toBe(LEASES)
    expect(renewed).toHaveLength(LEASES)
    expect(Math.max(...perTurn)).toBeLessThanOrEqual(MOST_IN_A_TURN)
    await Promise.all(leases.map((lease) => lease.release()))
  })

  test('are told in one turn if that is quick', async () => {
    const { clock, locks, letters } = withheldAnswers()
    const leases = await take(locks)
    const { renewed } = listenSlowly(locks, clock, 0)
    await clock.advance(TTL / 3)
    for (const { send } of letters) send()
    await settled()
    expect(renewed).toHaveLength(LEASES)
    await Promise.all(leases.map((lease) => lease.release()))
  })

  test('and one that says that a lease is lost is told at once', async () => {
    const { clock, locks, letters, evicted } = withheldAnswers()
    const leases = await take(locks)
    const { renewed } = listenSlowly(locks, clock)
    await clock.advance(TTL / 3)
    const last = letters.at(-1)?.ids.at(-1) as string
    evicted.add(last)
    for (const { send } of letters) send()
    await settled()
    expect(renewed.length).toBeLessThanOrEqual(MOST_IN_A_TURN)
    expect(leases.filter(({ state }) => state === 'lost').map(({ id }) => id)).toEqual([last])
    await clock.advance(1000)
    expect(renewed).toHaveLength(LEASES - 1)
    await Promise.all(leases.map((lease) => lease.release()))
  })

  test('keep their leases, although the old deadlines come before all are told', async () => {
    const { clock, locks, letters } = withheldAnswers()
    const leases = await take(locks)
    const { renewed } = listenSlowly(locks, clock, 1)
    await clock.advance(TTL - 1000)
    const ids = new Set(letters.flatMap((letter) => letter.ids))
    expect(ids.size).toBe(LEASES)
    for (const { send } of letters) send()
    await settled()
    expect(renewed.length).toBeLessThan(LEASES)
    clock.block(1000)
    expect(leases.map((lease) => lease.assertHeld())).toHaveLength(LEASES)
    await clock.advance(5000)
    expect(leases.filter(({ state }) => state === 'lost')).toEqual([])
    await Promise.all(leases.map((lease) => lease.release()))
  })

  test('keep their leases also when the timer of the deadline fires first', async () => {
    const { clock, locks, letters } = withheldAnswers()
    const leases = await take(locks)
    const aborted = leases.filter(({ signal }) => signal.aborted)
    listenSlowly(locks, clock, 1)
    await clock.advance(TTL - 1000)
    for (const { send } of letters) send()
    await settled()
    clock.block(1000)
    await clock.advance(0)
    expect(aborted).toEqual([])
    expect(leases.filter(({ signal }) => signal.aborted)).toEqual([])
    await Promise.all(leases.map((lease) => lease.release()))
  })

  test('do not count for leases that are released meanwhile', async () => {
    const { clock, engine, locks, letters } = withheldAnswers()
    const leases = await take(locks)
    const { renewed } = listenSlowly(locks, clock)
    await clock.advance(TTL / 3)
    for (const { send } of letters) send()
    await settled()
    await Promise.all(leases.map((lease) => lease.release()))
    const before = renewed.length
    await clock.advance(TTL)
    expect(renewed).toHaveLength(before)
    expect(engine.counts).toEqual({ waiting: 0, hearing: 0, leases: 0, scheduled: 0 })
  })

  test('leave no timer behind when the locks are closed meanwhile', async () => {
    const { clock, locks, letters } = withheldAnswers()
    await take(locks)
    listenSlowly(locks, clock)
    await clock.advance(TTL / 3)
    for (const { send } of letters) send()
    await settled()
    await locks.close()
    await settled()
    expect(clock.timers.running).toBe(0)
  })

  test('say nothing if the requests fail: each lease is asked about again', async () => {
    const { clock, locks, letters } = withheldAnswers()
    const leases = await take(locks)
    await clock.advance(TTL / 3)
    const told: string[] = []
    locks.on('jeopardy', ({ id }) => {
      told.push(id)
      clock.block(0.1)
    })
    // More than half of the ttl has passed, so each lease is in jeopardy as soon as its failure is told.
    clock.block(TTL / 4)
    const first = letters.splice(0)
    for (const { fail } of first) fail(new Error('The connection was lost.'))
    await settled()
    expect(told.length).toBeLessThanOrEqual(MOST_IN_A_TURN)
    await clock.advance(2000)
    expect(new Set(told).size).toBe(LEASES)
    expect(new Set(letters.flatMap(({ ids }) => ids)).size).toBe(LEASES)
    for (const { send } of letters) send()
    await clock.advance(1000)
    expect(leases.filter(({ state }) => state !== 'held')).toEqual([])
    await Promise.all(leases.map((lease) => lease.release()))
  })

  test('do not have to be told at once because a lease ends that no answer can save', async () => {
    const { clock, locks, letters } = withheldAnswers()
    const leases = await take(locks)
    const ending = await locks.acquire('ends', { ttl: TTL / 3 + 500, renew: false })
    const { renewed } = listenSlowly(locks, clock)
    await clock.advance(TTL / 3)
    for (const { send } of letters) send()
    await settled()
    expect(renewed.length).toBeLessThanOrEqual(MOST_IN_A_TURN)
    clock.block(600)
    expect(() => ending.assertHeld()).toThrow('Its deadline passed')
    expect(ending.state).toBe('lost')
    expect(renewed.length).toBeLessThanOrEqual(MOST_IN_A_TURN)
    await clock.advance(1000)
    expect(renewed.length).toBeGreaterThanOrEqual(LEASES)
    await Promise.all(leases.map((lease) => lease.release()))
  })

  test('of failure, again and again, still share their requests', async () => {
    let turn = 0
    // Spread evenly.
    const { clock, locks, letters } = withheldAnswers(() => (turn++ * 0.618) % 1)
    const leases = await take(locks, { count: 400 })
    await clock.advance(TTL / 3)
    let requests = 0
    for (let second = 0; second < 15; second += 1) {
      for (let tenth = 0; tenth < 10; tenth += 1) {
        for (const { fail } of letters.splice(0)) {
          requests += 1
          fail(new Error('The connection was lost.'))
        }
        await clock.advance(100)
      }
    }
    // Without slack each lease would ask alone: 6,400 requests.
    expect(requests).toBeGreaterThan(15)
    expect(requests).toBeLessThan(600)
    for (const { send } of letters) send()
    await settled()
    await Promise.all(leases.map((lease) => lease.release()))
  })
})

/** From now on each look at the clock takes a while, as if the work between two looks did. */
function slowDown(clock: FakeClock, lookMs: number): () => void {
  const look = clock.monotonicMs.bind(clock)
  clock.monotonicMs = () => {
    clock.block(lookMs)
    return look()
  }
  return () => {
    clock.monotonicMs = look
  }
}

describe('a wake for all', () => {
  test('asks about very many in several turns, and about each', async () => {
    const { clock, locks, store } = scene()
    const leases = await take(locks)
    expect(leases[0]?.signal.aborted).toBe(false)
    await settled()
    const before = store.sent.length
    const asked = () =>
      new Set(store.sent.slice(before).flatMap(({ tickets }) => tickets.map(({ id }) => id)))
    const hurry = slowDown(clock, 0.5)
    store.wake({ tag: 'all' })
    await settled()
    expect(asked().size).toBeLessThan(LEASES / 2)
    await clock.advance(100)
    expect(asked().size).toBe(LEASES)
    hurry()
    await Promise.all(leases.map((lease) => lease.release()))
  })

  test('that comes again before all are woken counts for all once more', async () => {
    const { clock, locks, store } = scene()
    const leases = await take(locks, { ttl: 100 * TTL })
    expect(leases[0]?.signal.aborted).toBe(false)
    await settled()
    const hurry = slowDown(clock, 0.5)
    store.wake({ tag: 'all' })
    await clock.advance(1)
    const before = store.sent.length
    for (let times = 0; times < 10; times += 1) store.wake({ tag: 'all' })
    await clock.advance(200)
    const asked = store.sent.slice(before).flatMap(({ tickets }) => tickets.map(({ id }) => id))
    expect(new Set(asked).size).toBe(LEASES)
    expect(asked.length).toBeLessThan(3 * LEASES)
    hurry()
    await Promise.all(leases.map((lease) => lease.release()))
  })

  test('finds the eviction of a lease that was still a wait when it came', async () => {
    const { clock, locks, store, other } = scene()
    const held = await other.locks.acquire('mine')
    const grant = new Letter()
    const others = await take(other.locks, { count: 600 })
    const waits = others.map(({ key }) => locks.acquire(key, { ttl: TTL, wait: '10m' }))
    const mine = locks.acquire('mine', { ttl: TTL, wait: '10m' })
    await settled()
    store.wakes = false
    await held.release()
    store.next('renew', grant)
    const offered = store.missed.at(-1)
    if (offered?.tag !== 'granted') throw new Error('Expected a message that is a lease')
    store.wake({ tag: 'ticket', id: offered.id })
    await settled()
    grant.arrive()
    await other.engine.store.evict({ key: 'mine', id: offered.id, reason: 'a test' })
    const hurry = slowDown(clock, 0.5)
    // The message of the eviction was lost, and the subscription begins anew.
    grant.reply()
    store.wake({ tag: 'all' })
    const lease = await mine
    await clock.advance(500)
    hurry()
    expect(lease.state).toBe('lost')
    await Promise.all(others.map((one) => one.release()))
    store.wakes = true
    store.wake({ tag: 'all' })
    for (const wait of waits) await (await clock.until(wait)).release()
  })
})
