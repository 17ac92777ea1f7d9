import { describe, expect, test } from 'vitest'
import { createActor } from 'xstate'
import { ClosedError, InvalidArgumentError, StoreError } from '../../src/index.ts'
import { lockWorkerMachine } from '../../src/worker/machine/index.ts'
import { Open, PlayedLease, Rehearsal, turn } from './rehearsal.ts'

const away = () => new StoreError('store-unavailable', 'away')

test.each(['grace', 'backoff', 'maxBackoff'] as const)(
  'a wrong %s is an error of the machine from its beginning, and not only once it holds a lock',
  (name) => {
    const input = {
      lock: { tryAcquire: async () => null, acquire: () => new Promise<never>(() => {}) },
      start: () => {},
      stop: () => {},
      grace: '10s',
      backoff: '1s',
      maxBackoff: '30s',
      chance: Math.random,
    }
    const { status, error } = createActor(lockWorkerMachine, {
      input: { ...input, [name]: 'soon' },
    }).getSnapshot()
    expect(status).toBe('error')
    expect(error).toBeInstanceOf(InvalidArgumentError)
    expect(String(error)).toContain(`Expected \`${name}\` to be a duration`)
  },
)

test('the machine is called by its own name', () => {
  expect(lockWorkerMachine.id).toBe('lockWorker')
})

describe('while it has no lock, the machine', () => {
  test('asks once, and starts the work when the lock is free', async () => {
    const played = new Rehearsal()
    expect(played.value).toBe('idle')
    played.begin()
    expect(played.value).toBe('trying')
    const lease = await played.grant()
    expect(played.asks.map(({ verb }) => verb)).toEqual(['tryAcquire'])
    expect(played.start.lease).toBe(lease)
    expect(played.work).toMatchObject({ work: 'starting' })
    played.start.resolve()
    await turn()
    expect(played.work).toEqual({ lease: { kept: 'held' }, work: 'running', term: 'lasting' })
  })

  test('waits in the queue when the lock is taken, and asks no more however long that takes', async () => {
    const played = new Rehearsal()
    played.begin()
    played.ask.resolve(null)
    await turn()
    expect(played.value).toBe('waiting')
    await played.pass(86_400_000)
    expect(played.asks.map(({ verb }) => verb)).toEqual(['tryAcquire', 'acquire'])
    await played.grant()
    expect(played.starts).toHaveLength(1)
  })

  test('pauses longer after each failure in a row, and begins anew once work has run', async () => {
    const played = new Rehearsal({ backoff: 1000, maxBackoff: 5000 })
    played.begin()
    for (const pauseMs of [1000, 2000, 4000, 5000, 5000]) {
      await played.refuse(away())
      expect(played.value).toBe('pausing')
      await played.pass(pauseMs - 1)
      expect(played.value).toBe('pausing')
      await played.pass(1)
      expect(played.value).toBe('trying')
    }
    expect(played.troubles).toHaveLength(5)
    expect(played.troubles[0]).toMatchObject({ during: 'acquire', error: { code: 'store-unavailable' } })
    const lease = await played.grant()
    played.start.resolve()
    await turn()
    lease.lose()
    played.stop.resolve()
    await turn()
    await played.pass(1000)
    expect(played.value).toBe('trying')
  })

  test('spreads a pause over its upper half', async () => {
    const played = new Rehearsal({ backoff: 1000 })
    played.chance = 0
    played.begin()
    await played.refuse(away())
    await played.pass(499)
    expect(played.value).toBe('pausing')
    await played.pass(1)
    expect(played.value).toBe('trying')
  })

  test('pauses when the wait in the queue fails, too', async () => {
    const played = new Rehearsal()
    played.begin()
    played.ask.resolve(null)
    await turn()
    await played.refuse(new StoreError('store-refused', 'no permission'))
    expect(played.value).toBe('pausing')
    expect(played.troubles).toMatchObject([{ during: 'acquire', error: { code: 'store-refused' } }])
  })

  test.each(['trying', 'waiting', 'pausing', 'idle'])(
    'stops at once while %s, and waits no more',
    async (state) => {
      const played = new Rehearsal()
      if (state !== 'idle') played.begin()
      if (state === 'waiting') played.ask.resolve(null)
      if (state === 'pausing') played.ask.reject(away())
      await turn()
      expect(played.value).toBe(state)
      played.end()
      expect(played.value).toBe('stopped')
      for (const ask of played.asks) expect(ask.signal.aborted).toBe(true)
      await played.pass(86_400_000)
      expect(played.starts).toEqual([])
      expect(played.asks.length).toBe({ trying: 1, waiting: 2, pausing: 1, idle: 0 }[state])
    },
  )

  test.each(['before', 'after'])('gives back a lease that is granted just %s it is stopped', async (when) => {
    const played = new Rehearsal()
    played.begin()
    const lease = new PlayedLease()
    if (when === 'before') played.ask.resolve(lease)
    played.end()
    if (when === 'after') played.ask.resolve(lease)
    await turn()
    expect(played.value).toBe('stopped')
    expect(lease.released).toBe(1)
    expect(played.starts).toEqual([])
  })

  test('stops without a word when the locks are closed, and with one when the request makes no sense', async () => {
    const closed = new Rehearsal()
    closed.begin()
    await closed.refuse(new ClosedError('closed'))
    expect(closed.value).toBe('stopped')
    expect(closed.troubles).toEqual([])
    const senseless = new Rehearsal()
    senseless.begin()
    await senseless.refuse(new InvalidArgumentError('no key'))
    expect(senseless.value).toBe('stopped')
    expect(senseless.troubles).toMatchObject([{ during: 'acquire', error: { code: 'invalid-argument' } }])
  })
})

describe('while it holds the lock, the machine', () => {
  test('starts the work once, however often the lease is renewed', async () => {
    const played = new Rehearsal()
    await played.startedWork()
    for (let minutes = 0; minutes < 60; minutes += 1) await played.pass(60_000)
    expect(played.starts).toHaveLength(1)
    expect(played.work).toEqual({ lease: { kept: 'held' }, work: 'running', term: 'lasting' })
  })

  test('shows jeopardy, and that it is over, without touching the work', async () => {
    const played = new Rehearsal()
    const lease = await played.startedWork()
    lease.state = 'jeopardy'
    await played.pass(1000)
    expect(played.work).toEqual({ lease: { kept: 'jeopardy' }, work: 'running', term: 'lasting' })
    await played.pass(1000)
    lease.state = 'held'
    await played.pass(1000)
    expect(played.work).toEqual({ lease: { kept: 'held' }, work: 'running', term: 'lasting' })
    expect([played.starts.length, played.stops.length]).toEqual([1, 0])
  })

  test('ends the work when the lease is lost, and tries again after a pause', async () => {
    const played = new Rehearsal()
    const lease = await played.startedWork()
    const loss = new Error('its time is over')
    lease.lose(loss)
    expect(played.start.term.signal.reason).toBe(loss)
    expect(played.stop).toMatchObject({ reason: 'lost', lease })
    expect(played.troubles).toMatchObject([{ during: 'hold', error: loss }])
    await played.pass(5000)
    expect(played.asks).toHaveLength(1)
    played.stop.resolve()
    await turn()
    expect(played.value).toBe('pausing')
    // A late answer may have kept the lease alive in the store, so the machine releases it.
    expect(lease.released).toBe(1)
    await played.pass(1000)
    expect(played.value).toBe('trying')
  })

  test('does not even start under a lease that is lost already', async () => {
    const played = new Rehearsal()
    played.begin()
    const lease = new PlayedLease()
    lease.lose()
    await played.grant(lease)
    expect(played.value).toBe('pausing')
    expect(played.starts).toEqual([])
    expect(played.stops).toEqual([])
  })

  test('takes a lease that another caller has released for a lost one', async () => {
    const played = new Rehearsal()
    const lease = await played.startedWork()
    lease.state = 'released'
    await played.pass(1000)
    expect(played.stop.reason).toBe('lost')
    expect(played.troubles).toMatchObject([
      { during: 'hold', error: { code: 'lease-lost', reason: 'released' } },
    ])
  })

  test.each([
    [
      'throws',
      (played: Rehearsal) => {
        played.refusal = new Error('no')
      },
    ],
    ['rejects', () => {}],
  ])(
    'gives the lock back when start %s, and tries again after a pause, without stop',
    async (how, prepare) => {
      const played = new Rehearsal()
      prepare(played)
      played.begin()
      const lease = await played.grant()
      if (how === 'rejects') {
        const { signal } = played.start.term
        played.start.reject(new Error('no'))
        await turn()
        // The signal tells the work that the start had begun by then.
        expect(signal.reason).toMatchObject({ message: 'no' })
      }
      expect(lease.released).toBe(1)
      expect(played.value).toBe('pausing')
      expect(played.stops).toEqual([])
      expect(played.troubles).toMatchObject([{ during: 'start', error: { message: 'no' } }])
      played.refusal = undefined
      await played.pass(1000)
      await played.grant()
      expect(played.value).toHaveProperty('working')
    },
  )

  test('stops the work that reports a failure, gives the lock back, and tries again after a pause', async () => {
    const played = new Rehearsal()
    const lease = await played.startedWork()
    const { fail, signal } = played.start.term
    fail(new Error('disk full'))
    fail(new Error('once more'))
    expect(signal.reason).toMatchObject({ message: 'disk full' })
    expect(played.stops.map(({ reason }) => reason)).toEqual(['failed'])
    expect(lease.released).toBe(0)
    played.stop.resolve()
    await turn()
    expect(lease.released).toBe(1)
    await played.pass(1000)
    await played.grant()
    played.start.resolve()
    await turn()
    // A failure of the work of the term before.
    fail(new Error('late'))
    expect(played.work).toMatchObject({ work: 'running', term: 'lasting' })
    expect(played.troubles).toMatchObject([{ during: 'work', error: { message: 'disk full' } }])
  })

  test('ends the work before it gives the lock back when it is stopped, and is stopped after that', async () => {
    const played = new Rehearsal()
    const lease = await played.startedWork()
    played.end()
    played.end()
    expect(played.start.term.signal.reason).toMatchObject({ code: 'closed' })
    expect(played.stops.map(({ reason }) => reason)).toEqual(['stopped'])
    expect(lease.released).toBe(0)
    played.stop.resolve()
    await turn()
    expect(lease.released).toBe(1)
    expect(played.value).toBe('stopped')
    expect(played.troubles).toEqual([])
  })

  test('is stopped when the locks are closed under it, and says that the lease was lost by that', async () => {
    const played = new Rehearsal()
    const lease = await played.startedWork()
    lease.lose(new ClosedError('closed'))
    expect(played.stop.reason).toBe('lost')
    played.stop.resolve()
    await turn()
    expect(played.value).toBe('stopped')
  })
})

describe('when the end comes at an unlucky moment, the machine', () => {
  test.each(['trying', 'waiting'])(
    'that is stopped while %s is at its end when its place is given back',
    async (state) => {
      const left = new Open()
      const played = new Rehearsal({ left: () => left.promise })
      played.begin()
      if (state === 'waiting') played.ask.resolve(null)
      await turn()
      expect(played.value).toBe(state)
      played.end()
      expect(played.ask.signal.aborted).toBe(true)
      expect(played.value).toBe('leaving')
      played.end()
      left.resolve()
      await turn()
      expect(played.value).toBe('stopped')
      expect(played.starts).toEqual([])
    },
  )

  test.each(['never', 'with an error'])(
    'is at its end soon also when its place in the queue is given back %s',
    async (how) => {
      const left = () => (how === 'never' ? new Promise(() => {}) : Promise.reject(new Error('away')))
      const played = new Rehearsal({ left })
      played.begin()
      await turn()
      played.end()
      await turn()
      await played.pass(how === 'never' ? 4999 : 0)
      expect(played.value).toBe(how === 'never' ? 'leaving' : 'stopped')
      await played.pass(how === 'never' ? 1 : 0)
      expect(played.value).toBe('stopped')
    },
  )

  test.each(['lost', 'stopped'])(
    'that is %s while it starts waits for the start, and then ends the work',
    async (reason) => {
      const played = new Rehearsal()
      played.begin()
      const lease = await played.grant()
      if (reason === 'lost') lease.lose()
      else played.end()
      expect(played.start.term.signal.aborted).toBe(true)
      await played.pass(9000)
      expect(played.stops).toEqual([])
      played.start.resolve()
      await turn()
      expect(played.stops.map(({ reason }) => reason)).toEqual([reason])
      played.stop.resolve()
      await turn()
      expect(played.value).toBe(reason === 'lost' ? 'pausing' : 'stopped')
    },
  )

  test('takes a start that rejects because its signal aborted for obedience, and not for a failure', async () => {
    const played = new Rehearsal()
    played.begin()
    await played.grant()
    played.end()
    played.start.reject(new DOMException('This operation was aborted', 'AbortError'))
    await turn()
    expect(played.value).toBe('stopped')
    expect(played.stops).toEqual([])
    expect(played.troubles).toEqual([])
  })

  test('reports a loss in the middle of stopping, and does not end the work a second time', async () => {
    const played = new Rehearsal()
    const lease = await played.startedWork()
    played.end()
    lease.lose(new Error('too late'))
    expect(played.work).toEqual({ lease: 'over', work: 'stopping', term: 'ending' })
    expect(played.stops.map(({ reason }) => reason)).toEqual(['stopped'])
    expect(played.troubles).toMatchObject([{ during: 'hold', error: { message: 'too late' } }])
    played.stop.resolve()
    await turn()
    expect(played.value).toBe('stopped')
  })

  test('that is stopped while it ends the work after a loss tries no more', async () => {
    const played = new Rehearsal()
    const lease = await played.startedWork()
    lease.lose()
    played.end()
    expect(played.stops.map(({ reason }) => reason)).toEqual(['lost'])
    played.stop.resolve()
    await turn()
    expect(played.value).toBe('stopped')
  })

  test('that is stopped while it releases tries no more', async () => {
    const played = new Rehearsal()
    const lease = await played.startedWork()
    lease.releasing = new Promise(() => {})
    lease.lose()
    played.stop.resolve()
    await turn()
    expect(played.value).toBe('releasing')
    played.end()
    expect(played.value).toBe('releasing')
    // A lock that never answers does not keep the machine waiting.
    await played.pass(5000)
    expect(played.value).toBe('stopped')
  })

  test('reports a stop that throws, and gives the lock back all the same', async () => {
    const played = new Rehearsal()
    const lease = await played.startedWork()
    played.end()
    played.stop.reject(new Error('stuck'))
    await turn()
    expect(played.troubles).toMatchObject([{ during: 'stop', error: { message: 'stuck' } }])
    expect(lease.released).toBe(1)
    expect(played.value).toBe('stopped')
  })

  test('goes on when the release throws: the lock runs out by itself', async () => {
    const played = new Rehearsal()
    const lease = await played.startedWork()
    lease.releasing = Promise.reject(new Error('away'))
    lease.lose()
    played.stop.resolve()
    await turn()
    expect(played.value).toBe('pausing')
  })
})

describe('when the work does not end in time, the machine', () => {
  test('reports that, and lets the lock run out instead of giving it to the next worker', async () => {
    const played = new Rehearsal({ grace: 10_000 })
    const lease = await played.startedWork()
    played.end()
    await played.pass(9999)
    expect(played.work).toMatchObject({ term: 'ending' })
    expect(lease.detached).toBe(0)
    await played.pass(1)
    expect(played.work).toEqual({ lease: 'over', work: 'stopping', term: 'overdue' })
    expect([lease.detached, lease.released]).toEqual([1, 0])
    expect(played.troubles).toMatchObject([{ during: 'stop', error: { code: 'task-failed' } }])
    played.stop.reject(new Error('late'))
    await turn()
    expect(played.value).toBe('stopped')
    expect(played.troubles).toMatchObject([{}, { during: 'stop', error: { message: 'late' } }])
  })

  test('starts nothing again before that work has ended after all, and starts it then', async () => {
    const played = new Rehearsal({ grace: 10_000 })
    const lease = await played.startedWork()
    lease.lose()
    await played.pass(10_000)
    expect(played.work).toEqual({ lease: 'over', work: 'stopping', term: 'overdue' })
    expect(played.troubles).toMatchObject([
      { during: 'hold' },
      { during: 'stop', error: { code: 'task-failed' } },
    ])
    for (let hours = 0; hours < 24; hours += 1) await played.pass(3_600_000)
    expect(played.asks).toHaveLength(1)
    played.stop.resolve()
    await turn()
    await played.pass(1000)
    expect(played.value).toBe('trying')
  })

  test('waits for a start that hangs in the same way, and ends the work that it has started', async () => {
    const played = new Rehearsal({ grace: 10_000 })
    played.begin()
    const lease = await played.grant()
    lease.lose()
    await played.pass(10_000)
    expect(played.work).toEqual({ lease: 'over', work: 'starting', term: 'overdue' })
    played.start.resolve()
    await turn()
    expect(played.stop.reason).toBe('lost')
    expect(played.asks).toHaveLength(1)
    played.stop.resolve()
    await turn()
    await played.pass(1000)
    expect(played.value).toBe('trying')
  })

  test('tries no more when it is stopped meanwhile, and still ends work that starts too late', async () => {
    const played = new Rehearsal({ grace: 10_000 })
    played.begin()
    const lease = await played.grant()
    lease.lose()
    await played.pass(10_000)
    played.end()
    expect(played.work).toMatchObject({ term: 'overdue' })
    played.start.resolve()
    await turn()
    expect(played.stops.map(({ reason }) => reason)).toEqual(['lost'])
    played.stop.resolve()
    await turn()
    expect(played.value).toBe('stopped')
  })

  test('gives back a lock that cannot be let run out', async () => {
    const played = new Rehearsal({ grace: 10_000 })
    let released = 0
    const release = () => {
      released += 1
    }
    played.begin()
    played.ask.resolve({ signal: new AbortController().signal, release })
    await turn()
    played.start.resolve()
    await turn()
    played.end()
    expect(released).toBe(0)
    await played.pass(10_000)
    expect(released).toBe(1)
  })
})
