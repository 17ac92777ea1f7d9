import { setTimeout as sleep } from 'node:timers/promises'
import { beforeEach, expect, test, vi } from 'vitest'
import type { Ticket } from '../../../src/contract/store.ts'
import { StoreError } from '../../../src/errors.ts'
import { answers } from '../../../src/stores/postgres/answers.ts'
import { PostgresRenewals } from '../../../src/stores/postgres/renewals.ts'
import { statementsFor } from '../../../src/stores/postgres/statements.ts'
import { WaitGroups } from '../../../src/stores/wait-groups.ts'
import { ticket } from '../tickets.ts'

// What a call answers is scripted, because no server fails between two calls of one renewal when a test wants it to.
const AWAY = new StoreError('store-unavailable', 'away')
const REFUSED = new StoreError('store-refused', 'refused')
const DAMAGED = new StoreError('store-refused', 'damaged')
const HELD = 'h1700000000000000'
const QUEUED = 'q2000 1700000000000'
const statements = statementsFor('holdfast')

let groups: WaitGroups
/** What the next calls about groups answer: how many lines, or an error. */
let aboutGroups: ((names: readonly string[]) => readonly string[] | Promise<readonly string[]>)[]
let calls: string[]
let joins: number
let joinAnswered: Promise<void>
let renewals: PostgresRenewals
beforeEach(() => {
  groups = new WaitGroups('process', 4)
  aboutGroups = []
  calls = []
  joins = 0
  joinAnswered = Promise.resolve()
  renewals = new PostgresRenewals({
    groups,
    statements,
    async ask(statement, [, names = ''], count) {
      if (statement === statements.renew) return Array.from({ length: count }, () => HELD)
      if (statement === statements.joinGroup) {
        joins += 1
        await joinAnswered
        return Array.from({ length: count }, () => QUEUED)
      }
      calls.push(names)
      const asked = names.slice(1, -1).split(',')
      return (aboutGroups.shift() ?? (() => asked.map(() => QUEUED)))(asked)
    },
    read: (line) => answers.renew(line),
    isDamage: (error) => error === DAMAGED,
    isOverdue: () => false,
    takenOf: async () => new Set(),
  })
})

/** Waiters for a key that are a group. */
async function crowd(key: string): Promise<readonly Ticket[]> {
  const waiters = Array.from({ length: 8 }, () => ticket({ key }))
  for (const waiter of waiters) groups.waits(waiter)
  const told = await renewals.renew(waiters)
  expect(told.map(({ tag }) => tag)).toEqual(waiters.map(() => 'queued'))
  return waiters
}

/** Waiters whose question to join a group is under way until `answer` is called. */
async function joiningCrowd() {
  const waiters = Array.from({ length: 8 }, () => ticket({ key: 'a' }))
  for (const waiter of waiters) groups.waits(waiter)
  let answer = (): void => {}
  joinAnswered = new Promise((resolve) => (answer = resolve))
  const joining = renewals.renew(waiters)
  await vi.waitFor(() => expect(joins).toBe(1))
  return { waiters, joining, answer }
}

function fails(error: Error): () => never {
  return () => {
    throw error
  }
}

test('a lease keeps its answer if the server goes away before the question about a group is answered', async () => {
  const waiters = await crowd('a')
  aboutGroups = [fails(AWAY)]
  const told = await renewals.renew([ticket({ key: 'mine' }), ...waiters])
  expect([...told].map((answer) => answer?.tag)).toEqual(['held', ...waiters.map(() => undefined)])
  // Without a lease there is nothing to keep, and the error reaches the waiters.
  aboutGroups = [fails(AWAY)]
  await expect(renewals.renew(waiters)).rejects.toBe(AWAY)
})

test('a refused question about a group reaches the caller, also beside a lease', async () => {
  const waiters = await crowd('a')
  aboutGroups = [fails(REFUSED)]
  await expect(renewals.renew([ticket({ key: 'mine' }), ...waiters])).rejects.toBe(REFUSED)
})

test('a damaged room fails the questions about its own groups, and not those that share their call', async () => {
  const [damaged, sound] = [await crowd('damaged'), await crowd('sound')]
  const failing = (names: readonly string[]) => {
    if (names.includes('"process/1"')) throw DAMAGED
    return names.map(() => QUEUED)
  }
  aboutGroups = [failing, failing, failing]
  const [ofDamaged, ofSound] = await Promise.allSettled([renewals.renew(damaged), renewals.renew(sound)])
  expect(ofDamaged).toEqual({ status: 'rejected', reason: DAMAGED })
  expect(ofSound).toMatchObject({ status: 'fulfilled', value: sound.map(() => ({ tag: 'queued' })) })
  // Together, then each alone.
  expect(calls).toEqual(['{"process/1","process/2"}', '{"process/1"}', '{"process/2"}'])
})

test('a question about groups that hangs does not hold up the questions behind it', async () => {
  const [first, second] = [await crowd('a'), await crowd('b')]
  let answer: (lines: readonly string[]) => void = () => {}
  aboutGroups = [() => new Promise((resolve) => (answer = resolve))]
  const hangs = renewals.renew(first)
  await Promise.resolve()
  const behind = renewals.renew(second)
  await sleep(1100)
  // The engine asks again.
  const again = await renewals.renew(first)
  expect(again.map(({ tag }) => tag)).toEqual(first.map(() => 'queued'))
  expect((await behind).map(({ tag }) => tag)).toEqual(second.map(() => 'queued'))
  expect(calls).toEqual(['{"process/1"}', '{"process/2","process/1"}'])
  answer([QUEUED])
  expect((await hangs).map(({ tag }) => tag)).toEqual(first.map(() => 'queued'))
  // Then one call at a time again.
  await Promise.all([renewals.renew(first), renewals.renew(second)])
  expect(calls).toHaveLength(3)
})

test('waiters that join a group are asked about once until the server has answered', async () => {
  const { waiters, joining, answer } = await joiningCrowd()
  const again = renewals.renew([ticket({ key: 'mine' }), ...waiters.slice(0, 5)])
  answer()
  expect([...(await again)]).toEqual([
    { tag: 'held', fence: expect.any(BigInt) },
    ...waiters.slice(0, 5).map(() => undefined),
  ])
  expect((await joining).map(({ tag }) => tag)).toEqual(waiters.map(() => 'queued'))
  expect(joins).toBe(1)
})

test('waiters whose join hangs are asked about again after a second, over another connection', async () => {
  const { waiters, joining: hangs, answer } = await joiningCrowd()
  joinAnswered = Promise.resolve()
  await sleep(1100)
  expect((await renewals.renew(waiters)).map(({ tag }) => tag)).toEqual(waiters.map(() => 'queued'))
  expect(joins).toBe(2)
  answer()
  await hangs
})

test('waiters of a group that is over join another one once, however many renewals have found that out', async () => {
  const waiters = await crowd('a')
  joins = 0
  const over = () => ['-']
  aboutGroups = [over, over]
  const both = await Promise.all([renewals.renew(waiters), renewals.renew(waiters)])
  expect(joins).toBe(1)
  expect(both.map((told) => [...told].map((answer) => answer?.tag))).toEqual([
    waiters.map(() => 'queued'),
    waiters.map(() => undefined),
  ])
})
