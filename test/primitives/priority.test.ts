import { describe, expect, test } from 'vitest'
import { type CampaignOptions, InvalidArgumentError } from '../../src/index.ts'
import { scene } from '../engine/scene.ts'
import { Letter } from '../engine/scripted-store.ts'
import { Fleet } from './office.ts'

describe('the candidate of the highest priority', () => {
  test('leads once it has waited for `yieldAfter`, and not before', async () => {
    const { fleet, clock, leader } = staff()
    fleet.join('a', { priority: 1 })
    await clock.advance(100)
    fleet.join('b', { priority: 2 })
    await clock.advance(4500)
    expect(leader()).toBe('a')
    await clock.untilTrue(() => leader() === 'b', { withinMs: 3000 })
    await clock.advance(60_000)
    expect(leader()).toBe('b')
    expect(fleet.terms()).toEqual(['a', 'b'])
    await fleet.end()
  })

  test('does not wait longer than it has to, and waits for ever if that is wanted', async () => {
    const { fleet, clock, leader } = staff()
    fleet.join('a', { priority: 1, yieldAfter: '300ms' })
    await clock.advance(2500)
    fleet.join('b', { priority: 2, yieldAfter: Number.POSITIVE_INFINITY })
    await clock.untilTrue(() => leader() === 'b', { withinMs: 2500 })
    fleet.join('c', { priority: 3 })
    await clock.advance(300_000)
    expect(leader()).toBe('b')
    fleet.leave('b')
    await clock.untilTrue(() => leader() === 'c', { withinMs: 3000 })
    await fleet.end()
  })

  test('is the next leader when the term ends, however many wait before it, and they keep their order', async () => {
    const { fleet, clock, leader } = staff()
    for (const [name, priority] of [
      ['a', 9],
      ['b', 1],
      ['c', undefined],
      ['d', 5],
      ['e', 5],
      ['f', 1],
    ] as const) {
      fleet.join(name, { priority })
      await clock.advance(50)
    }
    fleet.leave('a')
    await clock.untilTrue(() => leader() === 'd', { withinMs: 3000 })
    const waiting = (await fleet.election('a').candidates()).map(({ value, priority }) => [value, priority])
    expect(waiting).toEqual([
      ['e', 5],
      ['f', 1],
      ['b', 1],
      ['c', 0],
    ])
    fleet.office('d').finish('')
    await clock.untilTrue(() => leader() === 'e', { withinMs: 3000 })
    fleet.office('e').fail(new Error('its work has failed'))
    await clock.untilTrue(() => leader() === 'f', { withinMs: 3000 })
    await clock.advance(60_000)
    expect(fleet.terms()).toEqual(['a', 'd', 'e', 'f'])
    await fleet.end()
  })

  test('does not lead instead of one of the same priority, and costs nothing if nobody names one', async () => {
    const { fleet, clock, leader, store } = staff()
    fleet.join('a', { priority: 3 })
    await clock.advance(100)
    fleet.join('b', { priority: 3 })
    await clock.advance(120_000)
    expect(fleet.terms()).toEqual(['a'])
    fleet.leave('a')
    await clock.untilTrue(() => leader() === 'b')
    fleet.leave('b')
    await clock.advance(60_000)
    const before = store.sent.length
    fleet.join('c', {})
    fleet.join('d', {})
    await clock.advance(100_000)
    expect(store.sent.slice(before).filter(({ verb }) => verb === 'inspect')).toEqual([])
    expect(leader()).toBe('c')
    await fleet.end()
  })

  test('does not move the leadership while it comes and goes', async () => {
    const { fleet, clock } = staff()
    fleet.join('a', { priority: 1 })
    await clock.advance(100)
    for (let round = 0; round < 20; round += 1) {
      fleet.join('b', { priority: 2 })
      await clock.advance(3000)
      fleet.leave('b')
      await clock.advance(500)
    }
    expect(fleet.terms()).toEqual(['a'])
    await fleet.end()
  })

  test('leads after the leader has died, although another one was before it in the queue', async () => {
    const { fleet, clock, leader, store } = staff()
    fleet.join('a', { priority: 9 })
    await clock.advance(100)
    for (const [name, priority] of [
      ['b', 1],
      ['c', 2],
    ] as const) {
      fleet.join(name, { priority }, 'other')
      await clock.advance(50)
    }
    store.always('lose request')
    await clock.untilTrue(() => leader() === 'c', { withinMs: 40_000 })
    expect(fleet.terms()).toEqual(['a', 'b', 'c'])
    // What comes back is the best, and leads again. Its priority counts, because nobody wanted it to go.
    store.always('answer')
    await clock.untilTrue(() => leader() === 'a', { withinMs: 40_000 })
    await clock.advance(60_000)
    expect(fleet.terms()).toEqual(['a', 'b', 'c', 'a'])
    await fleet.end()
  })
})

describe('a leader that gives way', () => {
  test('gives the key to the next one in the queue if the better one dies in the meantime', async () => {
    const { fleet, clock, leader, store } = staff()
    fleet.join('a', { priority: 1, grace: '20s' }, 'other', false)
    await clock.advance(100)
    fleet.join('b', { priority: 2 })
    fleet.join('c', { priority: 1 }, 'other')
    await clock.untilTrue(() => fleet.office('a').term.signal.aborted)
    // The process of b is gone, and its ticket is still in the queue.
    store.always('lose request')
    store.wakes = false
    fleet.office('a').settle()
    await clock.untilTrue(() => leader() === 'c', { withinMs: 60_000 })
    expect(fleet.terms()).toEqual(['a', 'c'])
    store.always('answer')
    store.wakes = true
    await fleet.end()
  })

  test('is not asked again while its work settles, and loses its lease after its grace', async () => {
    const { fleet, clock, leader } = staff()
    fleet.join('a', { priority: 1, ttl: '6s', grace: '3s' }, 'here', false)
    await clock.advance(100)
    fleet.join('b', { priority: 2 })
    await clock.untilTrue(() => fleet.office('a').term.signal.aborted)
    expect(fleet.office('a').term.signal.reason).toMatchObject({ code: 'step-down' })
    await clock.untilTrue(() => fleet.office('a').term.lost.aborted, { withinMs: 3500 })
    await clock.untilTrue(() => leader() === 'b', { withinMs: 7000 })
    fleet.office('a').settle()
    await clock.advance(60_000)
    expect(fleet.terms()).toEqual(['a', 'b'])
    await fleet.end()
  })

  test('leads on while its store does not answer for a while, and then gives way', async () => {
    const { fleet, clock, leader, store } = staff()
    fleet.join('a', { priority: 1 })
    await clock.advance(100)
    fleet.join('b', { priority: 2 }, 'other')
    store.always('fail')
    await clock.advance(9000)
    expect(leader()).toBe('a')
    store.always('answer')
    await clock.untilTrue(() => leader() === 'b', { withinMs: 5000 })
    expect(fleet.terms()).toEqual(['a', 'b'])
    await fleet.end()
  })

  test('releases the key in time although nobody tells it who waits', async () => {
    const { fleet, clock, leader, store } = staff()
    fleet.join('a', { priority: 9 })
    await clock.advance(100)
    fleet.join('b', { priority: 1 }, 'other')
    fleet.join('c', { priority: 2 }, 'other')
    await clock.advance(100)
    store.next('inspect', 'lose request')
    fleet.leave('a')
    await clock.untilTrue(() => leader() === 'b', { withinMs: 3000 })
    // And b hands over to c.
    await clock.untilTrue(() => leader() === 'c', { withinMs: 8000 })
    await fleet.end()
  })

  test('takes the key from nobody if what it has sent arrives when another one leads', async () => {
    const { fleet, clock, leader, store } = staff()
    fleet.join('a', { priority: 9 })
    await clock.advance(100)
    fleet.join('b', { priority: 1, yieldAfter: '1h' }, 'other')
    await clock.advance(100)
    fleet.join('c', { priority: 2 }, 'other')
    await clock.advance(100)
    const late = new Letter()
    store.next('evict', late)
    fleet.leave('a')
    await clock.untilTrue(() => leader() === 'b', { withinMs: 5000 })
    late.arrive()
    await clock.advance(60_000)
    expect(fleet.terms()).toEqual(['a', 'b'])
    expect(leader()).toBe('b')
    await fleet.end()
  })

  test('has its turn again when the better one is gone', async () => {
    const { fleet, clock, leader } = staff()
    fleet.join('a', { priority: 2 })
    await clock.advance(100)
    fleet.join('b', { priority: 1 })
    await clock.advance(100)
    fleet.join('c', { priority: 3 })
    await clock.untilTrue(() => leader() === 'c')
    fleet.leave('c')
    await clock.untilTrue(() => leader() === 'a', { withinMs: 3000 })
    expect(fleet.terms()).toEqual(['a', 'c', 'a'])
    await fleet.end()
  })
})

describe('a leader that somebody wants to go', () => {
  test.each([
    ['resigns', (fleet: Fleet) => fleet.election('a').resign()],
    ['is asked to step down', (fleet: Fleet) => fleet.election('b').requestStepDown({ reason: 'it is ill' })],
    [
      'hands over',
      async (fleet: Fleet) => {
        const candidates = await fleet.election('a').candidates()
        await fleet.election('a').handTo(candidates.find(({ value }) => value === 'c')?.id ?? '')
      },
    ],
    ['is evicted', (_: Fleet, evict: () => Promise<unknown>) => evict()],
  ] as const)('%s: its priority does not count until it has led again', async (how, act) => {
    const { fleet, clock, leader, locks } = staff()
    fleet.join('a', { priority: 9 })
    await clock.advance(100)
    fleet.join('b', { priority: 1 })
    fleet.join('c', { priority: 1 })
    await clock.advance(100)
    await clock.until(act(fleet, () => locks.evictAll('k', { reason: 'it is ill' })))
    await clock.untilTrue(() => leader() !== '' && leader() !== 'a', { withinMs: 5000 })
    const next = leader()
    if (how === 'hands over') expect(next).toBe('c')
    await clock.advance(100_000)
    expect(leader()).toBe(next)
    const waits = (await fleet.election('a').candidates()).find(({ value }) => value === 'a')
    expect(waits).toMatchObject({ priority: 9, hasSteppedDown: true })
    // It leads again when the others are gone, and then its priority counts.
    for (const name of ['b', 'c']) fleet.leave(name)
    await clock.untilTrue(() => leader() === 'a', { withinMs: 5000 })
    fleet.join('d', { priority: 8 })
    await clock.advance(60_000)
    expect(leader()).toBe('a')
    await fleet.end()
  })
})

test('a priority is a whole number, and `yieldAfter` needs one', async () => {
  const { locks } = scene()
  const run = (options: object) => locks.election('k').campaign(options as CampaignOptions, () => {})
  for (const options of [
    { priority: 0.5 },
    { priority: '1' },
    { priority: 1_000_001 },
    { priority: null },
    { priority: 1, yieldAfter: -1 },
    { yieldAfter: '5s' },
  ])
    await expect(run(options)).rejects.toThrow(InvalidArgumentError)
  await expect(run({ yieldAfter: '5s' })).rejects.toThrow(
    'Expected `yieldAfter` to be left out without `priority`',
  )
})

test('what another program has written beside the key is no priority', async () => {
  const { fleet, clock, leader, locks, store } = staff()
  fleet.join('a', { priority: 1 })
  await clock.advance(100)
  const [holder] = (await locks.peek('k'))?.holders ?? []
  expect(holder).toBeDefined()
  for (const priority of [1e300, '9', null, { valueOf: 9 }]) {
    const owner = JSON.stringify({ candidate: `made up ${String(priority)}`, priority })
    const ticket = { key: 'k', id: owner, units: 1, limit: 1, ttlMs: 1000, acceptMs: 1000, owner }
    await store.real.acquire({ ...ticket, patienceMs: 60_000, minHoldMs: 0, lockDelayMs: 0 })
  }
  await clock.advance(30_000)
  expect(leader()).toBe('a')
  await locks.evictAll('k', { reason: 'the test is over' })
  await fleet.end()
})

function staff() {
  const { locks, other, clock, store } = scene()
  const fleet = new Fleet((place) => (place === 'here' ? locks : other.locks).election('k'))
  return {
    ...{ locks, clock, store },
    leader: () => fleet.leader,
    fleet: Object.assign(fleet, {
      end: async () => {
        const over = fleet.leaveAll()
        await clock.until(over)
        await clock.advance(120_000)
      },
    }),
  }
}
