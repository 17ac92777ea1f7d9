import { AsyncLocalStorage } from 'node:async_hooks'
import { afterEach, expect, test } from 'vitest'
import { ClaimLoop, type Demand } from '../../src/jobs/claim-loop.ts'
import type { JobFacts } from '../../src/jobs/job.ts'
import type { JobTables } from '../../src/jobs/job-tables.ts'
import type { ClaimRequest, ClaimResult } from '../../src/jobs/statements.ts'
import type { JobWakes } from '../../src/jobs/wakes.ts'
import { until } from '../servers/until.ts'

const loops: ClaimLoop[] = []

afterEach(() => {
  for (const loop of loops.splice(0)) void loop.stop({ isOver: () => true, pause: async () => {} })
})

const HOUR_MS = 3_600_000
const NOTHING: ClaimResult = { jobs: [], againMs: null, isLimited: false, earlierRuns: false }

/**
 * A claim loop whose claims the test answers. With real tables a test cannot choose the point of a claim at which a
 * place becomes free.
 */
function openLoop(answer: (request: ClaimRequest, position: number) => ClaimResult, pollMs = HOUR_MS) {
  const requests: ClaimRequest[] = []
  const taken: JobFacts[] = []
  const errors: unknown[] = []
  const demand: { now: Demand } = { now: { places: 1, ahead: 0 } }
  const tables = {
    claim: async (request: ClaimRequest) => {
      requests.push(request)
      await new Promise(setImmediate)
      return answer(request, requests.length)
    },
  }
  const loop = new ClaimLoop({
    tables: tables as unknown as JobTables,
    wakes: { probe: () => {} } as unknown as JobWakes,
    names: ['a'],
    worker: 'w',
    ttlMs: HOUR_MS,
    pollMs,
    demand: () => demand.now,
    known: () => [],
    take: (jobs) => taken.push(...jobs),
    onError: (error) => errors.push(error),
  })
  loops.push(loop)
  loop.start()
  return { loop, requests, taken, errors, demand }
}

function failsFirst(_: ClaimRequest, position: number): ClaimResult {
  if (position === 1) throw new Error('The connection was lost.')
  return NOTHING
}

const FULL: Demand = { places: 0, ahead: 0 }
const job = (id: string) => ({ id, name: 'a' }) as JobFacts

test('the jobs of a claim whose answer was lost are asked for also when no place is free', async () => {
  const { requests, taken, errors, demand } = openLoop((_, position) => {
    if (position === 1) throw new Error('The connection was lost.')
    return position === 2
      ? { jobs: [job('1')], againMs: null, isLimited: false, earlierRuns: false }
      : NOTHING
  })
  demand.now = FULL
  await until('it has them', () => taken.length > 0)
  expect(taken).toEqual([job('1')])
  expect(errors).toHaveLength(1)
  expect(requests[1]).toMatchObject({ limit: 0, ahead: 0, known: [] })
})

test.each(['a freed place', 'a wake', 'a settlement'])(
  'after a failed claim and its repetition without a free place, %s leads to a claim at once',
  async (what) => {
    const { loop, requests, demand } = openLoop(failsFirst)
    demand.now = FULL
    await until('it has asked again', () => requests.length === 2)
    await new Promise(setImmediate)
    demand.now = { places: 1, ahead: 0 }
    if (what === 'a wake') loop.wake()
    else if (what === 'a freed place') loop.claimSoon()
    else {
      const claim = loop.piggyback(1)
      expect(claim?.request).toMatchObject({ limit: 1 })
      return
    }
    await until('it claims', () => requests.length === 3)
    expect(requests[2]).toMatchObject({ limit: 1 })
  },
)

test('a place that becomes free without a message is found by the poll, however many polls found none', async () => {
  const { requests, demand } = openLoop(() => NOTHING, 20)
  await until('the first claim is sent', () => requests.length === 1)
  demand.now = FULL
  const polledUntil = performance.now() + 200
  await until('some polls are over', () => performance.now() > polledUntil)
  const before = requests.length
  demand.now = { places: 1, ahead: 0 }
  await until('it claims', () => requests.length > before)
})

test('while the statement of a lost claim runs, it claims as usual and asks for the lost jobs now and then', async () => {
  let runs = true
  const { loop, requests, taken, demand } = openLoop(({ known }, position) => {
    if (position === 1) throw new Error('The connection was lost.')
    if (known === undefined) return { jobs: [job('other')], againMs: 0, isLimited: false, earlierRuns: false }
    return { jobs: runs ? [] : [job('lost')], againMs: null, isLimited: false, earlierRuns: runs }
  })
  await until('it has claimed others', () => taken.length >= 3)
  demand.now = FULL
  const before = requests.length
  await until('it has asked for the lost ones twice', () => requests.length >= before + 2)
  expect(requests.slice(-2)).toMatchObject([
    { limit: 0, known: [] },
    { limit: 0, known: [] },
  ])
  runs = false
  await until('it has them', () => taken.at(-1)?.id === 'lost')
  demand.now = { places: 1, ahead: 0 }
  loop.wake()
  expect(requests.at(-1)).toMatchObject({ limit: 1 })
  expect(requests.at(-1)?.known).toBeUndefined()
})

test('after its stop it claims nothing, and waits for the claim that was on its way', async () => {
  const { loop, requests, taken } = openLoop(() => ({
    jobs: [job('1')],
    againMs: 0,
    isLimited: false,
    earlierRuns: false,
  }))
  expect(requests).toHaveLength(1)
  let stopped = false
  const stopping = loop.stop({ isOver: () => false, pause: async () => {} }).then(() => {
    stopped = true
  })
  await null
  expect(stopped).toBe(false)
  await stopping
  expect(taken).toEqual([job('1')])
  loop.wake()
  loop.claimSoon()
  expect(loop.piggyback(1)).toBeUndefined()
  await new Promise(setImmediate)
  expect(requests).toHaveLength(1)
})

test('a message during a claim that a limit keeps from jobs is not forgotten', async () => {
  const { loop, requests } = openLoop((_, position) =>
    position === 1 ? { ...NOTHING, isLimited: true } : NOTHING,
  )
  // The name was resumed after the claim had read that it is paused.
  loop.wake()
  await until('it has claimed again', () => requests.length === 2)
})

test('no later claim runs in the async context of whoever started the loop or told it of a free place', async () => {
  const tenant = new AsyncLocalStorage<string>()
  const seen: unknown[] = []
  const answer = (): ClaimResult => {
    seen.push(tenant.getStore())
    return { ...NOTHING, againMs: 0 }
  }
  const { loop, demand } = tenant.run('of the caller', () => openLoop(answer, 20))
  demand.now = FULL
  await until('the first claim has its answer', () => seen.length === 1)
  await new Promise(setImmediate)
  demand.now = { places: 1, ahead: 0 }
  tenant.run('of a job', () => loop.claimSoon())
  await until('it claims', () => seen.length >= 2)
  demand.now = FULL
  const before = seen.length
  await new Promise(setImmediate)
  demand.now = { places: 1, ahead: 0 }
  await until('it polls', () => seen.length > before)
  expect(seen.slice(1)).toEqual(seen.slice(1).map(() => undefined))
})

test.each(['after', 'during'])(
  'the end of a job that its handler has settled, %s a claim that a limit keeps from jobs, leads to another claim',
  async (when) => {
    const { loop, requests } = openLoop((_, position) =>
      position === 1 ? { ...NOTHING, isLimited: true } : NOTHING,
    )
    if (when === 'after') {
      await new Promise(setImmediate)
      await new Promise(setImmediate)
    }
    loop.settledJobEnded()
    loop.claimSoon()
    await until('it has claimed again', () => requests.length === 2)
  },
)
