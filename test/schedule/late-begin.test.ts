import { expect, onTestFinished, test } from 'vitest'
import type { Store } from '../../src/contract/index.ts'
import { createLocks } from '../../src/index.ts'
import {
  createSchedule,
  type ScheduledJobOptions,
  type ScheduledRun,
  scheduleEvents,
} from '../../src/schedule/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { block } from '../engine/block.ts'
import { methodsOf } from '../engine/methods-of.ts'
import { until } from '../servers/until.ts'
import { Stage } from './stage.ts'

/** Longer than a busy machine keeps this process from a renewal. */
const TTL = 4000

/** How far a slow clock is behind. */
const SLOW_MS = 4 * 60_000

/** The way to the store, in fake time. */
const NETWORK_MS = 5

/** One process of a fleet that runs a job each second. */
function member(store: Store, work: (run: ScheduledRun) => unknown, options: ScheduledJobOptions = {}) {
  const locks = createLocks(store, { ttl: TTL })
  const errors: unknown[] = []
  const schedule = createSchedule(locks, { onError: (error) => errors.push(error) })
  onTestFinished(async () => {
    await schedule.stop({ grace: 0 })
    await locks.close()
  })
  const job = schedule.add('job', '* * * * * *', options, work)
  schedule.start()
  return { schedule, job, errors }
}

test.each(['retry', 'skip'] as const)(
  'a tick whose lease ended before its work began has not run: it runs once all the same (afterCrash: %s)',
  async (afterCrash) => {
    const shared = memoryStore()
    let blocks = 2
    const store: Store = {
      ...methodsOf(shared),
      acquire(ticket, atMs) {
        const answer = shared.acquire(ticket, atMs)
        if (ticket.key.endsWith('#begun') && blocks-- > 0) block(TTL + 200)
        return answer
      },
    }
    const runs: ScheduledRun[] = []
    let late = 0
    const work = (run: ScheduledRun) => {
      if (run.lease.remainingMs === 0) late += 1
      runs.push(run)
    }
    const members = [0, 1].map(() => member(store, work, { afterCrash }))
    await until('the blocks are over and the job goes on', () => blocks <= 0 && runs.length >= 3)
    expect(late).toBe(0)
    const ticks = runs.map(({ scheduledAt }) => scheduledAt.toISOString())
    expect(ticks).toEqual([...new Set(ticks)])
    expect(runs.map(({ attempt }) => attempt)).toEqual(runs.map(() => 1))
    const told = members.flatMap(({ errors }) => errors)
    expect(told.filter((error) => !String(error).includes('is over'))).toEqual([])
  },
)

test('a process that has lost the job does not give up a tick that another process runs', async () => {
  const shared = memoryStore()
  let letBegin = () => {}
  const mayBegin = new Promise<void>((resolve) => {
    letBegin = resolve
  })
  let isFrozen = false
  let asksToBegin = false
  // The requests of this process stand still once it has the job. One of them comes through in the end.
  const frozen: Store = {
    ...methodsOf(shared),
    acquire(ticket, atMs) {
      if (!ticket.key.endsWith('#begun')) return shared.acquire(ticket, atMs)
      isFrozen = true
      return mayBegin.then(() => {
        isFrozen = false
        asksToBegin = true
        return shared.acquire(ticket)
      })
    },
    renew: (tickets, atMs) => (isFrozen ? new Promise(() => {}) : shared.renew(tickets, atMs)),
  }
  const one = member(frozen, () => {}, { afterCrash: 'skip', overlap: 'queue' })
  await until('it has the job', () => isFrozen)
  let end = () => {}
  const working = new Promise<void>((resolve) => {
    end = resolve
  })
  const runs: ScheduledRun[] = []
  const other = member(shared, async (run) => {
    runs.push(run)
    await working
  })
  await until('the other one has the job', () => runs.length > 0)
  letBegin()
  await until('the first one has asked', () => asksToBegin)
  await until('the first one knows that it has lost the job', () => one.errors.length > 0)
  expect(String(one.errors[0])).toContain('is over')
  expect((await other.job.status()).last).toBeUndefined()
  end()
})

test.each([
  { ttl: undefined, lockDelay: 0 },
  { ttl: '20s', lockDelay: 0 },
  { ttl: '5m', lockDelay: 0 },
  { ttl: undefined, lockDelay: '2m' },
])(
  'a tick whose process dies between the lock and the begin mark is run by the next holder (ttl $ttl, lockDelay $lockDelay)',
  async ({ ttl, lockDelay }) => {
    const stage = new Stage('2027-01-15T02:59:00Z')
    const members = ['one', 'two', 'three'].map((name) => {
      const member = stage.member(name, { defaults: { lockDelay } })
      member.schedule.add('job', '0 3 * * *', { ttl }, stage.work(member))
      member.schedule.start()
      return member
    })
    const dead: string[] = []
    for (const { name, store } of members) {
      const acquire = store.acquire.bind(store)
      store.acquire = async (ticket) => {
        await stage.pass(NETWORK_MS)
        if (dead.length === 0 && ticket.key.endsWith('#begun')) {
          dead.push(name)
          store.always('lose request')
        }
        return acquire(ticket)
      }
    }
    await stage.clock.advance(20 * 60_000)
    expect(dead).toHaveLength(1)
    expect(stage.ticks).toEqual(['2027-01-15T03:00:00.000Z'])
    expect(stage.record[0]).not.toContain(`${dead[0]} `)
  },
)

test.each([0, 1000])(
  'ticks run once, though the lock stays taken for longer than the store remembers them (run of %i ms)',
  async (forMs) => {
    const stage = new Stage('2027-01-15T02:59:30Z')
    for (const name of ['one', 'two']) {
      const member = stage.member(name)
      member.schedule.add('job', '* * * * *', { minHold: '950s', ttl: '15m' }, stage.work(member, forMs))
      member.schedule.start()
    }
    await stage.clock.advance(40 * 60_000)
    expect(stage.ticks.map((tick) => tick.slice(11, 16))).toEqual(['03:00', '03:16', '03:32'])
  },
)

test.each([1000, 60_000, 960_000])(
  'the same with `queue`, where the last tick of a run (%i ms) runs after it',
  async (forMs) => {
    const stage = new Stage('2027-01-15T02:59:30Z')
    for (const name of ['one', 'two', 'three']) {
      const member = stage.member(name)
      const options = { minHold: 1_230_000, overlap: 'queue' } as const
      member.schedule.add('job', '* * * * *', options, stage.work(member, forMs))
      member.schedule.start()
    }
    await stage.clock.advance(150 * 60_000)
    expect(stage.ticks.length).toBeGreaterThan(4)
    expect(stage.ticks).toEqual([...new Set(stage.ticks)])
  },
)

test('a tick that was told as missed is not run, though its process died and the lock was withheld', async () => {
  const missed: number[] = []
  onTestFinished(scheduleEvents.on('missed', ({ count }) => missed.push(count)))
  const stage = new Stage('2027-01-15T02:59:00Z')
  const starts = (name: string, aheadMs: number) => {
    const member = stage.member(name, { aheadMs, defaults: { lockDelay: '2m' } })
    member.schedule.add('job', '0 3 * * *', stage.work(member))
    member.schedule.start()
    return member
  }
  const slow = [starts('one', -SLOW_MS), starts('two', -SLOW_MS)]
  let hasDied = false
  for (const { store } of slow) {
    const acquire = store.acquire.bind(store)
    store.acquire = async (ticket) => {
      await stage.pass(NETWORK_MS)
      if (!hasDied && ticket.key.endsWith('#begun')) {
        hasDied = true
        store.always('lose request')
      }
      return acquire(ticket)
    }
  }
  await stage.clock.advance(2 * 60_000)
  starts('three', 0)
  await stage.clock.advance(10 * 60_000)
  expect(hasDied).toBe(true)
  expect([stage.ticks, missed]).toEqual([[], [1]])
})
