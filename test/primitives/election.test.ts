import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { createLocks, type Election, type Locks } from '../../src/index.ts'
import { settled } from '../engine/fake-clock.ts'
import { errorOf, outcomeOf, realScene, scene } from '../engine/scene.ts'
import { startMasters } from '../stores/redlock/masters.ts'
import { campaign, Office, observer } from './office.ts'

describe('an election', () => {
  test('has one leader at a time, in the order of the campaigns, under rising fences', async () => {
    const { locks, other, clock } = scene()
    const offices = [new Office(), new Office(), new Office()]
    const campaigns = offices.map((office, index) =>
      campaign((index === 1 ? other.locks : locks).election('k'), office),
    )
    await settled()
    expect(offices.map(({ inside }) => inside)).toEqual([1, 0, 0])
    offices[0]?.finish('first')
    expect(await clock.until(campaigns[0]?.over ?? Promise.reject())).toBe('first')
    await clock.untilTrue(() => offices[1]?.inside === 1)
    offices[1]?.finish('second')
    await clock.untilTrue(() => offices[2]?.inside === 1)
    const fences = offices.map(({ term }) => term.fence)
    expect([...fences].sort()).toEqual(fences)
    offices[2]?.finish('third')
    await clock.advance(5000)
  })

  test('shows the leader, and its announcement', async () => {
    const { locks, other, clock } = scene()
    const office = new Office()
    expect(await other.locks.election('k').leader()).toBeNull()
    const running = campaign(locks.election('k'), office, { value: 'http://10.0.0.1:8080' })
    await settled()
    expect(await other.locks.election('k').leader()).toEqual({
      fence: office.term.fence,
      value: 'http://10.0.0.1:8080',
      owner: { label: 'test' },
    })
    running.end()
    await clock.advance(100)
    expect(await other.locks.election('k').leader()).toBeNull()
    await clock.advance(5000)
  })

  test('knows without a request whether it leads, and asks who waits', async () => {
    const { locks, other, clock, store } = scene()
    const [mine, theirs] = [locks.election('k'), other.locks.election('k')]
    const [office, rival] = [new Office(false), new Office()]
    expect([mine.isLeader(), await mine.candidates()]).toEqual([false, []])
    const running = campaign(mine, office, { value: 'mine' })
    await settled()
    const rivals = campaign(theirs, rival, { value: 'theirs' })
    await clock.advance(1000)
    const asked = store.sent.length
    expect([mine.isLeader(), theirs.isLeader(), locks.election('k').isLeader()]).toEqual([true, false, false])
    expect(store.sent).toHaveLength(asked)
    expect(await mine.candidates()).toEqual([
      {
        ...{ id: expect.any(String), value: 'theirs', priority: 0, hasSteppedDown: false },
        ...{ owner: { label: 'test' }, waitedMs: expect.any(Number) },
      },
    ])
    // The lease is over although no timer has fired, and the work has not settled.
    store.always('fail')
    clock.block(40_000)
    expect(mine.isLeader()).toBe(false)
    await clock.untilTrue(() => theirs.isLeader())
    store.always('answer')
    office.finish('')
    rivals.end()
    running.end()
    await clock.advance(60_000)
    expect([mine.isLeader(), theirs.isLeader()]).toEqual([false, false])
  })

  test('is healthy until work goes on for too long after its term, also when it was asked to go', async () => {
    const { locks, other, clock } = scene()
    const election = locks.election('k')
    expect(election.isHealthy()).toBe(true)
    const office = new Office(false)
    const running = campaign(election, office, { ttl: '10s', grace: '5s' })
    await clock.advance(1000)
    expect(election.isHealthy({ tolerance: 0 })).toBe(true)
    await other.locks.evictAll('k', { reason: 'test' })
    await clock.untilTrue(() => office.term.lost.aborted)
    expect(election.isHealthy()).toBe(true)
    await clock.advance(29_000)
    expect([election.isHealthy(), election.isHealthy({ tolerance: '20s' })]).toEqual([true, false])
    await clock.advance(2000)
    expect(election.isHealthy()).toBe(false)
    expect(election.isHealthy({ tolerance: '1m' })).toBe(true)
    // It settles at last, and leads anew.
    office.finish('')
    await clock.untilTrue(() => election.isLeader())
    expect(election.isHealthy({ tolerance: 0 })).toBe(true)
    void election.resign()
    await clock.advance(4900)
    expect(election.isHealthy({ tolerance: 0 })).toBe(true)
    await clock.advance(1000)
    // The lease is not renewed any more, and another process leads as soon as it has run out.
    expect(election.isHealthy({ tolerance: 0 })).toBe(false)
    expect(election.isHealthy({ tolerance: '1s' })).toBe(true)
    running.end()
    office.finish('')
    await clock.advance(60_000)
    expect(election.isHealthy({ tolerance: 0 })).toBe(true)
    expect(() => election.isHealthy({ tolerance: 'soon' as '1s' })).toThrow('Expected `tolerance` to be')
  })

  test('does not take a key that begins like its own for its own', async () => {
    const { locks } = scene()
    const lease = await locks.acquire('kk')
    expect(await locks.election('k').leader()).toBeNull()
    await lease.release()
  })

  test('aborts the signal when the lease is lost, waits for the work to settle, and campaigns again', async () => {
    const { locks, other, clock } = scene()
    const office = new Office(false)
    const running = campaign(locks.election('k'), office)
    await settled()
    const first = office.term
    await other.locks.evictAll('k', { reason: 'test' })
    await clock.untilTrue(() => first.signal.aborted)
    expect(first.signal.reason).toMatchObject({
      code: 'lease-lost',
      reason: 'evicted',
      evictedBecause: 'test',
    })
    expect(() => first.assertHeld()).toThrow()
    await clock.advance(60_000)
    expect(office.terms).toHaveLength(1)
    office.finish('too late')
    await clock.untilTrue(() => office.terms.length === 2)
    expect(office.term.fence).toBeGreaterThan(first.fence)
    expect(office.most).toBe(1)
    running.end()
    await settled()
    office.finish('the end')
    await clock.advance(5000)
  })

  test('loses the leadership by its deadline when the store is away, and leads again when it is back', async () => {
    const { store, locks, other, clock } = scene()
    const office = new Office()
    const running = campaign(locks.election('k'), office, { ttl: '5s' })
    await settled()
    const before = office.term
    store.always('lose request')
    const rival = new Office()
    const rivals = campaign(other.locks.election('k'), rival, { ttl: '5s' })
    await clock.untilTrue(() => rival.inside === 1)
    expect(office.inside).toBe(0)
    expect(before.signal.reason).toMatchObject({ code: 'lease-lost', reason: 'expired' })
    store.always('answer')
    rivals.end()
    await clock.untilTrue(() => office.inside === 1)
    expect(office.term.fence).toBeGreaterThan(rival.term.fence)
    running.end()
    await clock.advance(10_000)
  })

  test('ends with the error of the work itself, and releases the key first', async () => {
    const { locks, other, clock } = scene()
    const office = new Office()
    const running = campaign(locks.election('k'), office)
    await settled()
    const broken = new Error('the work failed')
    office.fail(broken)
    expect(await errorOf(clock.until(running.over))).toBe(broken)
    const lease = await other.locks.tryAcquire('k')
    expect(lease).not.toBeNull()
    await lease?.release()
    await clock.advance(5000)
  })

  test('ends with the error of work that failed while it was asked to go', async () => {
    const { locks, clock } = scene()
    const office = new Office(false)
    const election = locks.election('k')
    const running = campaign(election, office)
    await settled()
    const resigned = election.resign()
    const broken = new Error('the clean-up failed')
    office.fail(broken)
    await clock.until(resigned)
    expect(await errorOf(clock.until(running.over))).toBe(broken)
    await clock.advance(5000)
  })

  test('rejects with the reason of its signal, after the work has settled and the key is free', async () => {
    const { locks, clock, rooms } = scene()
    const office = new Office(false)
    const running = campaign(locks.election('k'), office)
    await settled()
    running.end()
    await clock.advance(1000)
    expect(await outcomeOf(running.over)).toBe('pending')
    expect(office.term.signal.reason).toMatchObject({ code: 'step-down' })
    office.term.assertHeld()
    office.finish('done')
    expect(await errorOf(clock.until(running.over))).toMatchObject({ message: 'the test is over' })
    await clock.advance(100)
    expect(await rooms()).toEqual([])
  })

  test('ends a campaign that still waits', async () => {
    const { locks, other, clock } = scene()
    const lease = await other.locks.acquire('k')
    const running = campaign(locks.election('k'), new Office())
    await settled()
    running.end()
    expect(await errorOf(clock.until(running.over))).toMatchObject({ message: 'the test is over' })
    await lease.release()
    await clock.advance(5000)
  })

  test('ends with the locks', async () => {
    const { locks, engine, clock } = scene()
    const office = new Office()
    const running = campaign(locks.election('k'), office)
    await settled()
    await clock.until(locks.close())
    expect(await errorOf(clock.until(running.over))).toMatchObject({ code: 'closed' })
    expect(office.inside).toBe(0)
    expect(engine.waiting.length).toBe(0)
    await clock.advance(60_000)
  })

  test('is a deadlock inside of itself', async () => {
    const { locks } = realScene()
    const election = locks.election('k')
    const inner = election.campaign(() => election.campaign(() => 'inner'))
    expect(await errorOf(inner)).toMatchObject({ code: 'deadlock' })
    await settled()
  })
})

describe('stepping down', () => {
  test('by resign() lets the work settle, the next one lead, and campaigns again behind it', async () => {
    const { locks, other, clock } = scene()
    const [office, rival] = [new Office(), new Office()]
    const election = locks.election('k')
    const running = campaign(election, office)
    await settled()
    const rivals = campaign(other.locks.election('k'), rival)
    await settled()
    await clock.until(election.resign())
    expect(office.inside).toBe(0)
    await clock.untilTrue(() => rival.inside === 1)
    rivals.end()
    await clock.untilTrue(() => office.inside === 1)
    running.end()
    await clock.advance(5000)
  })

  test('by resign() is nothing when there is no leader', async () => {
    const { locks } = scene()
    await locks.election('k').resign()
  })

  test('by request of another process is heard at once, with its reason', async () => {
    const { locks, other, clock } = scene()
    const office = new Office()
    const running = campaign(locks.election('k'), office)
    await settled()
    const first = office.term
    expect(await other.locks.election('k').requestStepDown({ reason: 'deploy' })).toBe(true)
    await clock.untilTrue(() => first.signal.aborted, { withinMs: 100 })
    expect(first.signal.reason).toMatchObject({ code: 'step-down', key: 'k' })
    expect(first.signal.reason.message).toContain('deploy')
    await clock.untilTrue(() => office.terms.length === 2)
    running.end()
    await clock.advance(5000)
  })

  test('by request is `false` when there is no leader', async () => {
    const { locks } = scene()
    expect(await locks.election('k').requestStepDown({ reason: 'deploy' })).toBe(false)
  })

  test('is heard also by a leader that has not announced itself yet', async () => {
    const { locks, other, clock, store } = scene()
    const office = new Office()
    // The leadership is granted. The request for the mark is lost, and sent again later.
    store.next('acquire', 'answer', 'lose request')
    const running = campaign(locks.election('k'), office)
    await settled()
    const first = office.term
    const asked = other.locks.election('k').requestStepDown({ reason: 'deploy' })
    expect(await clock.until(asked, { withinMs: 4000 })).toBe(true)
    await clock.untilTrue(() => first.signal.aborted, { withinMs: 100 })
    running.end()
    await clock.advance(5000)
  })

  test('by request rejects when the leader cannot be told', async () => {
    const { locks, other, clock, store } = scene()
    const running = campaign(locks.election('k'), new Office(), { ttl: '1m' })
    store.always('lose request')
    await settled()
    const asked = other.locks.election('k').requestStepDown({ reason: 'deploy' })
    const began = clock.monotonicMs()
    expect(await errorOf(clock.until(asked))).toMatchObject({
      code: 'store-unavailable',
      key: 'k',
      message: expect.stringMatching(/^The leader of "k" could not be asked to step down within 10000 ms, /),
    })
    expect(clock.monotonicMs() - began).toBeGreaterThanOrEqual(10_000)
    store.always('answer')
    running.end()
    await clock.advance(70_000)
  })

  test('by request is `false` at once when a plain lock, or a term that is over, has the key', async () => {
    const { locks, other, clock } = scene()
    const asked = () => outcomeOf(other.locks.election('k').requestStepDown({ reason: 'deploy' }))
    const lease = await locks.acquire('k')
    expect(await asked()).toEqual({ value: false })
    await lease.release()
    const over = locks.election('k').campaign({ minHold: '1m' }, () => 'done')
    expect(await clock.until(over)).toBe('done')
    expect(await locks.peek('k')).toMatchObject({ holders: [{ state: 'leaving' }] })
    expect(await asked()).toEqual({ value: false })
    await clock.advance(60_000)
  })

  test('has a hard stop: work that does not settle is left behind, and another one leads', async () => {
    const { locks, other, clock } = scene()
    const [office, rival] = [new Office(false), new Office()]
    const running = campaign(locks.election('k'), office, { ttl: '5s', grace: '10s' })
    await settled()
    const rivals = campaign(other.locks.election('k'), rival, { ttl: '5s' })
    await settled()
    running.end()
    await clock.advance(9900)
    expect(rival.inside).toBe(0)
    office.term.assertHeld()
    await clock.untilTrue(() => rival.inside === 1, { withinMs: 5200 })
    expect(() => office.term.assertHeld()).toThrow()
    expect(await outcomeOf(running.over)).toBe('pending')
    office.finish('at last')
    expect(await errorOf(clock.until(running.over))).toMatchObject({ message: 'the test is over' })
    expect(await other.locks.election('k').leader()).toMatchObject({ fence: rival.term.fence })
    rivals.end()
    await clock.advance(10_000)
  })
})

describe('observing', () => {
  test('begins with the present leader, and tells every change in order', async () => {
    const here = scene()
    const { locks, other, clock } = here
    const { seen } = observer(here, other.locks.election('k'))
    await settled()
    expect(seen).toEqual([null])
    const offices = [new Office(), new Office(), new Office()]
    const running = offices.map((office, index) =>
      campaign(locks.election('k'), office, { value: String(index) }),
    )
    await clock.untilTrue(() => seen.length === 2)
    for (const [index, office] of offices.entries()) {
      await clock.untilTrue(() => office.inside === 1 && seen.at(-1)?.fence === office.term.fence)
      office.finish(String(index))
    }
    await clock.untilTrue(() => seen.at(-1) === null)
    expect(seen.map((leader) => leader?.value)).toEqual([undefined, '0', '1', '2', undefined])
    await Promise.all(running.map(({ over }) => over))
  })

  test('keeps changes for a slow reader that it has not taken yet', async () => {
    const { locks, other, clock } = scene()
    const changes = other.locks.election('k').observe()
    expect(await clock.until(changes.next())).toEqual({ done: false, value: null })
    const fences: bigint[] = []
    for (let round = 0; round < 5; round += 1) {
      const office = new Office()
      const running = campaign(locks.election('k'), office)
      await clock.advance(3000)
      fences.push(office.term.fence)
      running.end()
      await clock.advance(3000)
    }
    const seen: (bigint | null)[] = []
    while (seen.length < 10) {
      const { value } = await clock.until(changes.next())
      seen.push(value === undefined ? -1n : (value?.fence ?? null))
    }
    expect(seen).toEqual(fences.flatMap((fence) => [fence, null]))
    await clock.until(changes.return())
    await clock.advance(5000)
  })

  test('asks nothing while a leader leads, except to keep its place', async () => {
    const here = scene()
    const { locks, other, clock, store } = here
    const office = new Office()
    const running = campaign(other.locks.election('k'), office)
    await settled()
    const { seen } = observer(here, locks.election('k'))
    await clock.advance(10_000)
    expect(seen).toHaveLength(1)
    const before = store.sent.length
    await clock.advance(60_000)
    // One request every two seconds keeps its place in the queue, as for every waiter.
    expect(store.sent.length - before).toBeLessThanOrEqual(35)
    running.end()
    await clock.advance(5000)
  })

  test('tells nothing while the store is away, and then the changes of the meantime', async () => {
    const here = scene()
    const { locks, other, clock, store } = here
    const { seen } = observer(here, locks.election('k'))
    await clock.advance(100)
    store.always('fail')
    const office = new Office()
    const running = campaign(other.locks.election('k'), office)
    await clock.advance(30_000)
    expect(seen).toEqual([null])
    store.always('answer')
    await clock.untilTrue(() => seen.length === 2)
    expect(seen[1]?.fence).toBe(office.term.fence)
    running.end()
    await clock.advance(5000)
  })

  test.each([
    ['was asked to go', (election: Election) => election.requestStepDown({ reason: 'deploy' })],
    [
      'lost all of its mark to an operator',
      (_: Election, locks: Locks) => locks.evictAll('k#leader', { reason: 'deploy' }),
    ],
  ])('goes on when the leader %s', async (_, ask) => {
    const here = scene()
    const { locks, other, clock } = here
    const [office, rival] = [new Office(), new Office()]
    const running = campaign(locks.election('k'), office)
    await settled()
    const rivals = campaign(locks.election('k'), rival)
    const { seen } = observer(here, other.locks.election('k'))
    await clock.untilTrue(() => seen.length === 1)
    await clock.advance(1000)
    await ask(other.locks.election('k'), other.locks)
    await clock.untilTrue(() => rival.inside === 1)
    await clock.untilTrue(() => seen.at(-1)?.fence === rival.term.fence)
    running.end()
    rivals.end()
    await clock.advance(10_000)
  })

  test('tells leaders from one another also where the store was told to do without fences', async () => {
    await using masters = await startMasters(3)
    await using locks = createLocks(masters.store({ fences: false }))
    const changes = locks.election('k').observe()
    expect(await changes.next()).toMatchObject({ value: null })
    const [first, second] = [new Office(), new Office()]
    const running = [first, second].map((office, at) =>
      campaign(locks.election('k'), office, { value: String(at) }),
    )
    expect(await changes.next()).toMatchObject({ value: { value: '0', fence: 0n } })
    first.finish('')
    expect(await changes.next()).toMatchObject({ value: { value: '1', fence: 0n } })
    second.finish('')
    await Promise.all(running.map(({ over }) => over))
    await changes.return()
  })

  test('ends with the locks, and by its signal', async () => {
    const { locks, other, clock } = scene()
    const end = new AbortController()
    const aborted = locks.election('k').observe({ signal: end.signal })
    const closed = other.locks.election('k').observe()
    await clock.until(Promise.all([aborted.next(), closed.next()]))
    end.abort()
    expect(await clock.until(aborted.next())).toEqual({ done: true, value: undefined })
    const next = errorOf(closed.next())
    await clock.until(other.locks.close())
    expect(await clock.until(next)).toMatchObject({ code: 'closed' })
    expect(await locks.election('k').observe({ signal: end.signal }).next()).toMatchObject({ done: true })
  })
})

test.each<[string, (election: Election) => Promise<unknown>]>([
  ['Expected the last argument to be a function', (election) => election.campaign('work' as never)],
  ['Expected the options to be among', (election) => election.campaign({ renew: false } as object, () => {})],
  [
    'Expected `value` to be a text of at most 1000',
    (election) => election.campaign({ value: 'v'.repeat(1001) }, () => {}),
  ],
  ['Expected `grace` to be a duration', (election) => election.campaign({ grace: 'soon' }, () => {})],
  ['Expected `onError` to be a function', (election) => election.campaign({ onError: 1 as never }, () => {})],
  ['Expected `reason` to be a text', (election) => election.requestStepDown({ reason: '' })],
])('says what is wrong: %s', async (message, call) => {
  const { locks } = realScene()
  const error = await errorOf(call(locks.election('k')))
  expect(error).toMatchObject({ code: 'invalid-argument' })
  expect(error.message).toContain(message)
})

test('says what is wrong with the key of an election', () => {
  const { locks } = realScene()
  expect(() => locks.election('')).toThrow('Expected `key` to be a string with at least one character')
  expect(() => locks.election('k'.repeat(1024))).toThrow(
    'Expected `key` to have at most 1017 characters, got 1024.',
  )
})

test('a campaign goes on when its `onError` throws, whatever it throws', async () => {
  const { store, locks, clock } = scene()
  const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
  onTestFinished(() => warned.mockRestore())
  store.always('refuse', ['acquire'])
  const running = [
    locks.election('k').campaign(
      {
        onError: () => {
          throw Object.create(null)
        },
      },
      () => 'led',
    ),
    locks.election('l').campaign({ onError: () => Promise.reject(Object.create(null)) }, () => 'led'),
  ]
  await clock.advance(5000)
  expect(warned.mock.calls.length).toBeGreaterThanOrEqual(2)
  store.always('answer')
  expect(await clock.until(Promise.all(running))).toEqual(['led', 'led'])
  await clock.advance(5000)
})

test('a campaign that the store refuses ends, or tells its `onError` and goes on if it has one', async () => {
  const { store, locks, clock } = scene()
  store.always('refuse', ['acquire'])
  expect(await errorOf(clock.until(locks.election('k').campaign(() => 'led')))).toMatchObject({
    code: 'store-refused',
  })
  const told: unknown[] = []
  const running = locks.election('k').campaign({ onError: (error) => told.push(error) }, () => 'led')
  await clock.advance(5000)
  expect(told.length).toBeGreaterThanOrEqual(2)
  store.always('answer')
  expect(await clock.until(running)).toBe('led')
  await clock.advance(5000)
})

test.each(['closed', 'aborted'] as const)(
  'a campaign that the store has refused ends at once when it is %s',
  async (how) => {
    const { engine, store, locks, clock } = scene()
    store.always('refuse', ['acquire'])
    const end = new AbortController()
    const told: unknown[] = []
    const options = { signal: end.signal, onError: (error: unknown) => told.push(error) }
    const running = locks.election('k').campaign(options, () => 'led')
    await clock.untilTrue(() => told.length === 4)
    const closed = how === 'closed' ? locks.close() : end.abort(new Error('enough'))
    expect(await outcomeOf(running)).toMatchObject({
      error: how === 'closed' ? { code: 'closed', key: 'k' } : { message: 'enough' },
    })
    expect(engine.onlookers.size).toBe(0)
    await closed
  },
)

test('a campaign whose `onError` closes the locks ends at once', async () => {
  const { store, locks } = scene()
  store.always('refuse', ['acquire'])
  let closed: Promise<void> | undefined
  const onError = () => {
    closed = locks.close()
  }
  const running = locks.election('k').campaign({ onError }, () => 'led')
  expect(await outcomeOf(running)).toMatchObject({ error: { code: 'closed', key: 'k' } })
  await closed
})
