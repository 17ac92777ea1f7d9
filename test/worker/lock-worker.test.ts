import { AsyncLocalStorage } from 'node:async_hooks'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { SimulatedClock } from 'xstate'
import { ClosedError, createLocks, InvalidArgumentError, type Locks } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import {
  createLockWorker,
  type LockWorkerOptions,
  type StopReason,
  type WorkerState,
} from '../../src/worker/index.ts'
import { HOSTILE_VALUES } from '../base/hostile-values.ts'
import { block } from '../engine/block.ts'
import { until } from '../servers/until.ts'
import { Open } from './rehearsal.ts'

let locks: Locks

beforeEach(() => {
  locks = createLocks(memoryStore(), { ttl: '5s', wait: 50 })
})
afterEach(() => locks.close())

function workerOf(options: Partial<LockWorkerOptions> = {}) {
  const fences: bigint[] = []
  const reasons: StopReason[] = []
  const errors: { error: unknown; during: string }[] = []
  const worker = createLockWorker(locks, 'k', {
    start: (lease) => {
      fences.push(lease.fence)
    },
    stop: (reason) => {
      reasons.push(reason)
    },
    onError: (error, { during }) => errors.push({ error, during }),
    backoff: 20,
    ...options,
  })
  const states: WorkerState[] = []
  worker.subscribe(({ to }) => states.push(to))
  const reaches = (state: WorkerState) => until(`it is ${state}`, () => worker.state === state)
  return { worker, fences, reasons, errors, states, reaches }
}

describe('a lock worker', () => {
  test('shows each of its states, in order, and the lease that it holds', async () => {
    const { worker, states, reaches, fences, reasons } = workerOf()
    expect([worker.key, worker.state, worker.lease]).toEqual(['k', 'idle', undefined])
    worker.start()
    await reaches('working')
    expect(worker.lease?.fence).toBe(fences[0])
    expect(worker.lease?.state).toBe('held')
    await worker.stop()
    expect(states).toEqual(['trying', 'starting', 'working', 'stopping', 'releasing', 'stopped'])
    expect([worker.lease, reasons]).toEqual([undefined, ['stopped']])
    expect(await locks.tryAcquire('k')).not.toBeNull()
  })

  test('waits in the queue behind another worker, and takes over as soon as that worker is stopped', async () => {
    const first = workerOf()
    const second = workerOf()
    first.worker.start()
    await first.reaches('working')
    second.worker.start()
    await second.reaches('waiting')
    await first.worker.stop()
    await second.reaches('working')
    expect(second.fences[0]).toBeGreaterThan(first.fences[0] ?? 0n)
    await second.worker.stop()
    expect(second.states.slice(0, 4)).toEqual(['trying', 'waiting', 'starting', 'working'])
  })

  test('takes no part in the lock in whose callback it was started', async () => {
    const patient = { wait: '10s' }
    const { worker, reaches, errors } = workerOf({ start: () => locks.withLock('boot', patient, () => {}) })
    const otherHolds = new Open()
    const workerWaits = new Open()
    const other = locks.withLock('k', async () => {
      otherHolds.resolve()
      await workerWaits.promise
      // The worker waits for this key, but the holder of `boot` does not wait for the worker.
      await locks.withLock('boot', patient, () => {})
    })
    await otherHolds.promise
    await locks.withLock('boot', patient, async () => {
      worker.start()
      await reaches('waiting')
      workerWaits.resolve()
      await until('the other one waits, too', async () => (await locks.peek('boot'))?.queue.length === 1)
    })
    await other
    await reaches('working')
    await worker.stop()
    expect(errors).toEqual([])
  })

  test('works outside of the async context of the code that said that the work failed', async () => {
    const context = new AsyncLocalStorage<string>()
    const seen: unknown[] = []
    const see = (what: string) => seen.push([what, context.getStore()])
    const { worker, reaches } = workerOf({
      start: (_, { fail }) => {
        see('start')
        if (seen.length === 1) setImmediate(() => context.run('a request', () => fail(new Error('broke'))))
      },
      stop: (reason) => {
        see(reason)
      },
    })
    worker.start()
    await until('it has started again', () => seen.length === 3)
    await reaches('working')
    expect(seen).toEqual(['start', 'failed', 'start'].map((what) => [what, undefined]))
    await worker.stop()
  })

  test('tells of a deadlock if its work waits at its end for a lock of the caller of stop()', async () => {
    const patient = { wait: '1h' }
    const { worker, reaches, errors } = workerOf({ stop: () => locks.withLock('boot', patient, () => {}) })
    worker.start()
    await reaches('working')
    await locks.withLock('boot', () => worker.stop())
    expect(errors).toMatchObject([{ during: 'stop', error: { code: 'deadlock' } }])
  })

  test('may lock in its work what the caller of start() holds', async () => {
    const patient = { wait: '10s' }
    const { worker, reaches, errors } = workerOf({ start: () => locks.withLock('boot', patient, () => {}) })
    await locks.withLock('boot', async () => {
      worker.start()
      await until('its work waits', async () => (await locks.peek('boot'))?.queue.length === 1)
    })
    await reaches('working')
    await worker.stop()
    expect(errors).toEqual([])
  })

  test('waits however long it takes, whatever the default wait of the locks is', async () => {
    const holder = await locks.acquire('k')
    const { worker, reaches, errors, states } = workerOf()
    worker.start()
    await reaches('waiting')
    await expect(locks.acquire('k', { wait: 200 })).rejects.toMatchObject({ code: 'acquire-timeout' })
    expect([worker.state, errors]).toEqual(['waiting', []])
    await holder.release()
    await reaches('working')
    expect(states).toEqual(['trying', 'waiting', 'starting', 'working'])
    await worker.stop()
  })

  test('ends its work when the key is taken away from it, and takes the key again after a pause', async () => {
    const { worker, states, reasons, errors, fences, reaches } = workerOf()
    worker.start()
    await reaches('working')
    await locks.evict('k', worker.lease?.id ?? '', { reason: 'maintenance' })
    await until('it has started again', () => fences.length === 2)
    expect(reasons).toEqual(['lost'])
    expect(errors).toMatchObject([{ during: 'hold', error: { code: 'lease-lost', reason: 'evicted' } }])
    expect(states.slice(3, 8)).toEqual(['stopping', 'releasing', 'pausing', 'trying', 'starting'])
    await worker.stop()
  })

  test('is started once, however often `start` is called, and not again after it was stopped', async () => {
    const { worker, fences, reaches } = workerOf()
    worker.start()
    worker.start()
    await reaches('working')
    worker.start()
    const stopping = worker.stop()
    expect(worker.state).toBe('stopping')
    expect(() => worker.start()).toThrow(expect.objectContaining({ code: 'closed', key: 'k' }))
    await stopping
    expect(() => worker.start()).toThrow(expect.objectContaining({ code: 'closed', key: 'k' }))
    expect(fences).toHaveLength(1)
  })

  test('may be stopped any number of times, also before it was started', async () => {
    const working = workerOf()
    working.worker.start()
    await working.reaches('working')
    await Promise.all([working.worker.stop(), working.worker.stop(), working.worker[Symbol.asyncDispose]()])
    await working.worker.stop()
    expect(working.reasons).toEqual(['stopped'])
    const idle = workerOf()
    await idle.worker.stop()
    expect([idle.worker.state, idle.reasons]).toEqual(['stopped', []])
  })

  test.each(['trying', 'waiting', 'starting'] as const)(
    'that is stopped while %s leaves nothing behind',
    async (state) => {
      const others = state === 'waiting' ? await locks.acquire('k') : undefined
      const starting = new Open()
      const { worker, reaches, reasons } = workerOf({ start: () => starting.promise })
      worker.start()
      // The key is free, so one turn of the event loop later the worker would not be trying any more.
      if (state !== 'trying') await reaches(state)
      expect(worker.state).toBe(state)
      const stopped = worker.stop()
      if (state === 'starting') starting.resolve()
      await stopped
      expect(reasons).toEqual(state === 'starting' ? ['stopped'] : [])
      await others?.release()
      await until('nothing is left', async () => (await locks.inspect().next()).done)
      expect(await locks.tryAcquire('k')).not.toBeNull()
    },
  )

  test.each(['start', 'work'])(
    'whose %s blocks the event loop for longer than the lease ends it, and tries again',
    async (what) => {
      // Longer than a busy machine keeps this process from a renewal.
      const ttl = 4000
      const first = workerOf({
        ttl,
        start: () => {
          if (what === 'start' && first.reasons.length === 0) block(ttl + 500)
        },
      })
      const second = workerOf({ ttl })
      first.worker.start()
      if (what === 'work') {
        await first.reaches('working')
        block(ttl + 500)
      }
      second.worker.start()
      await until('the first was told', () => first.reasons.length > 0)
      expect(first.reasons).toEqual(['lost'])
      expect(first.errors).toMatchObject([
        { during: 'hold', error: { code: 'lease-lost', reason: 'expired' } },
      ])
      await second.reaches('working')
      await first.reaches('waiting')
      await Promise.all([first.worker.stop(), second.worker.stop()])
    },
  )

  test('is stopped by the end of its locks, after it has ended its work', async () => {
    const { worker, reaches, reasons, errors } = workerOf()
    worker.start()
    await reaches('working')
    await locks.close()
    await reaches('stopped')
    expect(reasons).toEqual(['lost'])
    expect(errors).toMatchObject([{ during: 'hold', error: { code: 'closed' } }])
    const waiting = workerOf()
    waiting.worker.start()
    await waiting.reaches('stopped')
    expect(waiting.errors).toEqual([])
  })

  test('waits for work that does not end no longer than its grace, and lets the key run out', async () => {
    const clock = new SimulatedClock()
    const stop = new Open()
    const { worker, reaches, errors, states } = workerOf({
      clock,
      grace: '10s',
      stop: () => stop.promise,
    })
    worker.start()
    await reaches('working')
    const lease = worker.lease
    const stopped = worker.stop()
    clock.increment(10_000)
    await stopped
    expect(worker.state).toBe('overdue')
    expect(errors).toMatchObject([{ during: 'stop', error: { code: 'task-failed' } }])
    expect(lease?.state).toBe('released')
    // No other ticket gets the key before the lease's time is over.
    expect(await locks.tryAcquire('k')).toBeNull()
    await worker.stop()
    stop.resolve()
    await reaches('stopped')
    expect(states.slice(-4)).toEqual(['stopping', 'overdue', 'releasing', 'stopped'])
  })

  test('waits for nothing longer than its grace when its own start awaits its end', async () => {
    const clock = new SimulatedClock()
    const { worker, reaches } = workerOf({ clock, start: () => worker.stop() })
    worker.start()
    await reaches('stopping')
    clock.increment(10_000)
    await reaches('stopped')
  })

  test('goes on when a listener or its own error handler throws, and warns of it', async () => {
    const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    try {
      const { worker, reaches, states } = workerOf({
        start: () => {
          throw new Error('no')
        },
        onError: () => {
          throw new Error('neither')
        },
      })
      const ends = worker.subscribe(() => {
        throw new Error('listener')
      })
      worker.start()
      await reaches('pausing')
      ends()
      await until('it has tried again', () => states.filter((state) => state === 'trying').length === 2)
      await worker.stop()
      const said = warn.mock.calls.map(([message, options]) => [message, (options as { code: string }).code])
      expect(said).toContainEqual(['`onError` of a worker itself failed.', 'HOLDFAST_WORKER'])
      expect(said).toContainEqual(['A listener of the worker on "k" failed.', 'HOLDFAST_WORKER'])
    } finally {
      warn.mockRestore()
    }
  })

  test.each(HOSTILE_VALUES)(
    'goes on where its work and its listeners throw or reject with %s',
    async (_, make) => {
      const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
      try {
        const hostile = (): never => {
          throw make()
        }
        for (const thrown of [hostile, async () => hostile()]) {
          let starts = 0
          const { worker } = workerOf({
            start: (_lease, { fail }) => {
              starts += 1
              if (starts === 1) return thrown()
              return fail(make())
            },
            stop: thrown,
            onError: thrown,
          })
          worker.subscribe(thrown)
          worker.start()
          await until('it has tried three times', () => starts === 3)
          await worker.stop()
          expect(worker.state).toBe('stopped')
        }
      } finally {
        warn.mockRestore()
      }
    },
  )

  test('goes on where its work fails with the error of something else that is closed', async () => {
    let starts = 0
    const { worker } = workerOf({
      start: (_lease, { fail }) => {
        starts += 1
        if (starts === 1) setImmediate(fail, new ClosedError('The queue is stopped.'))
      },
    })
    worker.start()
    await until('it has started again', () => starts === 2)
    await worker.stop()
  })

  test('warns of what went wrong when it has no error handler', async () => {
    const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    try {
      const { worker, reaches } = workerOf({
        onError: undefined,
        start: () => Promise.reject(new Error('no')),
      })
      worker.start()
      await reaches('pausing')
      await worker.stop()
      expect(warn.mock.calls).toEqual([
        [
          'The worker on "k" could not start its work. See `onError`.',
          expect.objectContaining({ detail: expect.stringContaining('no') }),
        ],
      ])
    } finally {
      warn.mockRestore()
    }
  })

  test('warns that it is stopped when its locks are closed, or refuse its options', async () => {
    const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    try {
      const closed = workerOf({ onError: undefined })
      closed.worker.start()
      await closed.reaches('working')
      await locks.close()
      await closed.reaches('stopped')
      locks = createLocks(memoryStore())
      vi.spyOn(locks, 'tryAcquire').mockRejectedValue(new InvalidArgumentError('The ttl is too long.'))
      const refused = workerOf({ onError: undefined })
      refused.worker.start()
      await refused.reaches('stopped')
      expect(warn.mock.calls.map(([message]) => message)).toEqual([
        'The worker on "k" lost its key. It is stopped. See `onError`.',
        'The worker on "k" could not ask for its key. It is stopped. See `onError`.',
      ])
    } finally {
      warn.mockRestore()
    }
  })

  test('warns of its work alone when that throws because something of its own is closed', async () => {
    const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    try {
      const { worker, reaches } = workerOf({
        onError: undefined,
        start: () => Promise.reject(new ClosedError('The queue of the work is stopped.')),
      })
      worker.start()
      await reaches('pausing')
      expect(warn.mock.calls.map(([message]) => message)).toEqual([
        'The worker on "k" could not start its work. See `onError`.',
      ])
      await worker.stop()
    } finally {
      warn.mockRestore()
    }
  })
})

describe('a lock worker refuses in one sentence', () => {
  const start = () => {}
  const stop = () => {}
  const of = (options: unknown) => createLockWorker(locks, 'k', options as LockWorkerOptions)

  test.each<[string, () => unknown, RegExp]>([
    [
      'locks that are none',
      () => createLockWorker({} as Locks, 'k', { start, stop }),
      /^Expected `locks` to be what/,
    ],
    [
      'a key that is none',
      () => createLockWorker(locks, '', { start, stop }),
      /^Expected `key` to be a string/,
    ],
    ['no options', () => of(undefined), /^Expected the options to be an object, got undefined\.$/],
    ['no start', () => of({ stop }), /^Expected `start` to be a function, got undefined\.$/],
    ['no stop', () => of({ start }), /^Expected `stop` to be a function, got undefined\.$/],
    [
      'a misspelt option',
      () => of({ start, stop, tll: 1 }),
      /^Expected the options to be among .*, got `tll`\.$/,
    ],
    [
      'a ttl that is none',
      () => of({ start, stop, ttl: 'soon' }),
      /^Expected `ttl` to be a duration from 50 ms/,
    ],
    [
      'no pause at all',
      () => of({ start, stop, backoff: 0 }),
      /^Expected `backoff` to be a duration from 10 ms/,
    ],
    [
      'a longest pause that is shorter',
      () => of({ start, stop, backoff: '1m', maxBackoff: '1s' }),
      /^Expected `maxBackoff` to be at least as long as `backoff` \(60000 ms\), got "1s"\.$/,
    ],
    ['an endless stop', () => of({ start, stop, grace: Infinity }), /^Expected `grace` to be a duration/],
    [
      'a handler that is none',
      () => of({ start, stop, onError: 'log' }),
      /^Expected `onError` to be a function/,
    ],
    [
      'a clock that is none',
      () => of({ start, stop, clock: {} }),
      /^Expected `clock.setTimeout` to be a function/,
    ],
    [
      'a listener that is none',
      () => of({ start, stop }).subscribe('log' as never),
      /^Expected `listener` to be a function, got "log"\.$/,
    ],
    [
      'a signal that cannot be listened to',
      () => of({ start, stop }).stopOn(['SIGKILL'] as never),
      /^Expected `signals` to be a list of SIGTERM, .*, got "SIGKILL"\.$/,
    ],
    [
      'no signal',
      () => of({ start, stop }).stopOn([]),
      /^Expected `signals` to be a list of .*, got none\.$/,
    ],
  ])('%s', (_, call, message) => {
    expect(call).toThrow(message)
    expect(call).toThrow(expect.objectContaining({ code: 'invalid-argument' }))
  })
})
