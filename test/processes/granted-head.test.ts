import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as pause } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { connect, type Lease, type Locks } from '../../src/index.ts'
import { shortestMs, undisturbed } from '../base/measured.ts'
import { bundled } from '../servers/bundled.ts'
import { namespacesMissing } from '../servers/namespaces.ts'
import { type Place, type PlaceOptions, places, sentinelPlace } from '../servers/places.ts'
import { until } from '../servers/until.ts'

const PROGRAM = await bundled(new URL('waiters-process.ts', import.meta.url))
const TTL_MS = 4000
/** The acceptance term for a ttl of three seconds or more, as in `engine/terms.ts`. */
const ACCEPT_MS = 3000
/** Several tries on a busy machine. */
const TRIES = { timeout: 300_000 }

/** Stores with a server whose messages are leases. test/stores/sqlite/messages has the same for processes on a file. */
const GRANTING = ['redis', 'sentinel', 'cluster', 'postgres']
/** Those of them that know at once when nobody receives a message. */
const SEEING_DEATH = ['redis', 'sentinel', 'postgres']

/** The process of `head` has the head of the queue just before its turn, and is gone when the turn comes. */
interface Scene {
  readonly head: ChildProcess
  /** No byte of the head gets through from now on. Only in a scene with `canCut`. */
  cut(): void
}

test.each(SEEING_DEATH)(
  '%s: a head that is killed just before its turn is passed at once',
  TRIES,
  async (store) => {
    const passedMs = await shortestMs(TTL_MS / 2, async () => (await handOverPast(store, killed)).tookMs)
    expect(passedMs).toBeLessThan(TTL_MS / 2)
  },
)

test(
  'cluster: a head that is killed just before its turn is offered the key and costs the acceptance term',
  TRIES,
  async () => {
    const { tookMs, states } = await undisturbed(isOffered, () => handOverPast('cluster', killed))
    expect(states).toEqual(['offered'])
    expect(tookMs).toBeGreaterThan(ACCEPT_MS / 2)
    expect(tookMs).toBeLessThan(1.5 * ACCEPT_MS)
  },
)

test.each(GRANTING)(
  '%s: a head that is frozen just before its turn costs its ttl, as a holder that is frozen just after',
  TRIES,
  async (store) => {
    const { tookMs, states } = await undisturbed(isHeldForTtl, () =>
      handOverPast(store, async ({ head }) => {
        await pause(500)
        head.send('freeze')
        await once(head, 'message')
      }),
    )
    expect(states).toEqual(['held'])
    expect(tookMs).toBeGreaterThan(TTL_MS / 2)
    expect(tookMs).toBeLessThan(TTL_MS + 3000)
  },
)

test.each(GRANTING)(
  '%s: a head that is cut off just before its turn costs its ttl, and stands in the queue again once it is back',
  TRIES,
  async (store) => {
    if (cannotCut(store)) return
    const { tookMs, lease, locks, states } = await undisturbed(isHeldForTtl, () =>
      handOverPast(store, cutOff, { canCut: true }),
    )
    expect(states).toEqual(['held'])
    expect(tookMs).toBeGreaterThan(TTL_MS / 2)
    expect(tookMs).toBeLessThan(TTL_MS + 3000)
    await standsInQueueAgain(locks, lease)
  },
)

// These stores offer the key, and the head has to confirm.

test(
  'redlock: a head that is cut off just before its turn costs the acceptance term, and stands in the queue again once it is back',
  TRIES,
  async () => {
    const { tookMs, lease, locks, states } = await undisturbed(isOffered, () =>
      handOverPast('redlock', cutOff, { canCut: true }),
    )
    expect(states).toEqual(['offered'])
    expect(tookMs).toBeGreaterThan(ACCEPT_MS / 2)
    expect(tookMs).toBeLessThan(1.5 * ACCEPT_MS)
    await standsInQueueAgain(locks, lease)
  },
)

// The key of the head vanishes with the lease of its process's waiters, which lasts for 2 s. Another process cannot see
// whether the head has confirmed, so the state says nothing.
test(
  'etcd: a head that is cut off just before its turn costs less than the acceptance term, and stands in the queue again once it is back',
  TRIES,
  async () => {
    const isWaitedFor = ({ tookMs, afterReleaseMs }: HandOver): boolean =>
      tookMs > ACCEPT_MS / 6 && afterReleaseMs < ACCEPT_MS
    const { tookMs, afterReleaseMs, lease, locks } = await undisturbed(isWaitedFor, () =>
      handOverPast('etcd', cutOff, { canCut: true }),
    )
    expect(tookMs).toBeGreaterThan(ACCEPT_MS / 6)
    expect(afterReleaseMs).toBeLessThan(ACCEPT_MS)
    await standsInQueueAgain(locks, lease)
  },
)

/** No proxy fits in front of servers that tell their addresses themselves. */
function cannotCut(store: string): boolean {
  const missing = store === 'cluster' || store === 'sentinel' ? namespacesMissing() : undefined
  if (missing !== undefined) console.log(`Not cutting any real network: ${missing}.`)
  return missing !== undefined
}

// No event tells when the subscription flows, or when the server has heard that the connections are closed. So the
// pauses are fixed times.
async function killed({ head }: Scene): Promise<void> {
  await pause(500)
  head.kill('SIGKILL')
  await once(head, 'exit')
  await pause(500)
}

async function cutOff({ cut }: Scene): Promise<void> {
  await pause(500)
  cut()
}

/** A head that the store has not heard of for its acceptance term is passed at once. */
function isHeldForTtl({ tookMs, states }: HandOver): boolean {
  return states?.join() === 'held' && tookMs < TTL_MS + 3000
}

function isOffered({ tookMs, states }: HandOver): boolean {
  return states?.join() === 'offered' && tookMs > ACCEPT_MS / 2 && tookMs < 1.5 * ACCEPT_MS
}

interface HandOver {
  readonly tookMs: number
  /** Without the time until the store has answered the release. */
  readonly afterReleaseMs: number
  /** In which state the head was admitted. */
  readonly states: readonly string[] | undefined
  readonly lease: Lease
  readonly locks: Locks
}

/** Measures how long the key is free until the next waiter works. */
async function handOverPast(
  store: string,
  end: (scene: Scene) => Promise<void>,
  options: PlaceOptions = {},
): Promise<HandOver> {
  const place = await startPlace(store, options)
  onTestFinished(() => place.close().then(() => {}))
  const [holding, living] = [await connectTo(place.url), await connectTo(place.url)]
  const holder = await holding.acquire('k')
  const head = startHead(place)
  await untilQueued(holding, 1)
  const waiting = living.acquire('k')
  await untilQueued(holding, 2)
  await end({ head, cut: () => place.through?.cut() })
  const startedAt = performance.now()
  await holder.release()
  const releasedAt = performance.now()
  const looking = roomOf(holding)
  const lease: Lease = await waiting
  const takenAt = performance.now()
  const states = (await looking)?.holders.map(({ state }) => state)
  place.through?.mend()
  onTestFinished(() => lease.release())
  return {
    tookMs: takenAt - startedAt,
    afterReleaseMs: takenAt - releasedAt,
    lease,
    states,
    locks: holding,
  }
}

function startPlace(store: string, options: PlaceOptions): Promise<Place> {
  if (store === 'sentinel') return sentinelPlace(options)
  // None of these stores keeps files.
  return (places[store] as (typeof places)[string])('', options)
}

function startHead({ url, through }: Place): ChildProcess {
  const program = [process.execPath, PROGRAM, through?.url ?? url, 'k', '1', String(TTL_MS)]
  const [command = '', ...args] = [...(through?.exec ?? []), ...program]
  const head = spawn(command, args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
  onTestFinished(() => {
    head.kill('SIGKILL')
  })
  return head
}

/** The head has learned that its turn is over, and waits behind this lease. */
async function standsInQueueAgain(locks: Locks, lease: Lease): Promise<void> {
  lease.assertHeld()
  await untilQueued(locks, 1)
  expect((await roomOf(locks))?.holders).toMatchObject([{ id: lease.id }])
}

async function connectTo(url: string): Promise<Locks> {
  const locks = await connect(url, { ttl: TTL_MS, wait: '1m' })
  onTestFinished(() => locks.close())
  return locks
}

async function roomOf(locks: Locks) {
  for await (const room of locks.inspect({ prefix: 'k' })) return room
  return undefined
}

async function untilQueued(locks: Locks, count: number): Promise<void> {
  await until(`${count} are in the queue`, async () => (await roomOf(locks))?.queue.length === count, {
    withinMs: 60_000,
  })
}
