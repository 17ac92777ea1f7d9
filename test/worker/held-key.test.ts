import { describe, expect, test } from 'vitest'
import type { Timer } from '../../src/contract/clock.ts'
import { Engine } from '../../src/engine/engine.ts'
import { nextTicketId } from '../../src/engine/ids.ts'
import { Locks } from '../../src/primitives/locks.ts'
import { parseSettings, TAKES } from '../../src/primitives/options.ts'
import { createLockWorker, type LockWorkerOptions } from '../../src/worker/index.ts'
import type { FakeClock } from '../engine/fake-clock.ts'
import { outcomeOf, scene } from '../engine/scene.ts'
import { Open } from './rehearsal.ts'

// The worker over real locks, which are really renewed, lost and released. Only time is played.
function workerOn(locks: Locks, clock: FakeClock, options: Partial<LockWorkerOptions> = {}) {
  const calls: string[] = []
  const errors: { error: unknown; during: string }[] = []
  const worker = createLockWorker(locks, 'k', {
    start: () => {
      calls.push('start')
    },
    stop: (reason) => {
      calls.push(reason)
    },
    onError: (error, { during }) => errors.push({ error, during }),
    clock: {
      setTimeout: (fire, delayMs) => clock.startTimer(delayMs, fire),
      clearTimeout: (timer: never) => (timer as Timer | undefined)?.stop(),
    },
    ...options,
  })
  const reaches = (state: string) => clock.untilTrue(() => worker.state === state)
  return { worker, calls, errors, reaches }
}

test('the work of a term is started once, however often its lease is renewed', async () => {
  const { locks, other, clock } = scene()
  const { worker, calls, reaches } = workerOn(locks, clock, { ttl: '30s' })
  let renewals = 0
  locks.on('renewed', () => {
    renewals += 1
  })
  worker.start()
  await reaches('working')
  await clock.advance(3_600_000)
  expect(renewals).toBeGreaterThan(300)
  expect(await other.locks.tryAcquire('k')).toBeNull()
  expect([worker.state, calls]).toEqual(['working', ['start']])
  await clock.until(worker.stop())
  expect(calls).toEqual(['start', 'stopped'])
})

test('renews its key also over locks that do not renew by default', async () => {
  const { store, other, clock } = scene()
  const context = {
    engine: new Engine(store, { clock, chance: () => 0.5 }),
    owner: '{}',
    nextId: nextTicketId,
  }
  const locks = new Locks(context, parseSettings({ ttl: '1s', renew: false }, TAKES.locks))
  const { worker, calls, errors, reaches } = workerOn(locks, clock)
  const holder = await other.locks.acquire('k')
  worker.start()
  await reaches('waiting')
  await holder.release()
  await reaches('working')
  await clock.advance(60_000)
  expect([worker.state, calls, errors]).toEqual(['working', ['start'], []])
  await clock.until(worker.stop())
})

test.each([
  ['is evicted', 'evicted'],
  ['runs out', 'expired'],
])(
  'a key that %s while the work is being stopped: the loss is told, the work is not ended twice, and the next holder keeps its key',
  async (_, reason) => {
    const { store, locks, other, clock } = scene()
    const stopping = new Open()
    const { worker, calls, errors, reaches } = workerOn(locks, clock, {
      ttl: '5s',
      grace: '1m',
      stop: (why) => {
        calls.push(why)
        return stopping.promise
      },
    })
    worker.start()
    await reaches('working')
    const stopped = worker.stop()
    await clock.untilTrue(() => calls.includes('stopped'))
    if (reason === 'evicted') await other.locks.evict('k', worker.lease?.id ?? '', { reason: 'maintenance' })
    else store.always('lose request')
    const next = await clock.until(other.locks.acquire('k', { wait: '20s' }))
    await clock.untilTrue(() => errors.length > 0)
    expect(errors).toMatchObject([{ during: 'hold', error: { code: 'lease-lost', reason } }])
    expect(worker.state).toBe('stopping')
    store.always('answer')
    stopping.resolve()
    await clock.until(stopped)
    expect(calls).toEqual(['start', 'stopped'])
    await clock.advance(20_000)
    expect((await other.locks.inspect().next()).value?.holders).toMatchObject([{ id: next.id }])
    await next.release()
  },
)

describe('the terms of the key', () => {
  test('`maxHold` frees the key of a start that never settles', async () => {
    const { locks, other, clock } = scene()
    const { worker, errors, reaches } = workerOn(locks, clock, {
      start: () => new Promise(() => {}),
      ttl: '30s',
      maxHold: '1m',
      grace: '10s',
    })
    worker.start()
    await reaches('starting')
    const next = other.locks.acquire('k', { wait: Number.POSITIVE_INFINITY })
    await clock.advance(59_000)
    expect([worker.state, await outcomeOf(next)]).toEqual(['starting', 'pending'])
    const lease = await clock.until(next, { withinMs: 32_000 })
    await reaches('overdue')
    expect(errors).toMatchObject([
      { during: 'hold', error: { code: 'lease-lost', reason: 'expired' } },
      { during: 'stop', error: { code: 'task-failed' } },
    ])
    // No call waits for the start any more.
    await clock.until(worker.stop())
    await lease.release()
  })

  test('`minHold` keeps the key taken after the worker has stopped', async () => {
    const { locks, other, clock } = scene()
    const { worker, reaches } = workerOn(locks, clock, { minHold: '20s' })
    worker.start()
    await reaches('working')
    await clock.until(worker.stop())
    await clock.advance(18_000)
    expect(await other.locks.tryAcquire('k')).toBeNull()
    await clock.advance(2000)
    const lease = await other.locks.tryAcquire('k')
    expect(lease).not.toBeNull()
    await lease?.release()
  })

  test('`ttl` and `lockDelay` are what a crash costs the next worker', async () => {
    const { store, locks, other, clock } = scene()
    const { worker, calls, reaches } = workerOn(locks, clock, { ttl: '5s', lockDelay: '15s' })
    worker.start()
    await reaches('working')
    store.always('lose request')
    const cutAt = clock.monotonicMs()
    const lease = await clock.until(other.locks.acquire('k', { wait: '1m' }))
    expect(clock.monotonicMs() - cutAt).toBeGreaterThan(18_000)
    expect(clock.monotonicMs() - cutAt).toBeLessThan(22_000)
    expect(calls).toEqual(['start', 'lost'])
    store.always('answer')
    await lease.release()
    await clock.until(worker.stop())
    await clock.advance(60_000)
  })
})
