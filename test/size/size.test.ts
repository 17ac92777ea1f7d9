import { expect, test } from 'vitest'
import { pageOf, type Results } from '../../size/page.ts'
import { crowd, fleet, year } from '../../size/scenarios.ts'
import { readProjectFile } from '../tidy/project.ts'

test('a hand-over is one request and one message, however many wait', async () => {
  for (const waiters of [10, 400]) {
    const result = await crowd({ waiters, processes: 5, handOvers: 10 })
    expect(result.requestsPerHandOver).toBeGreaterThan(0.85)
    expect(result.requestsPerHandOver).toBeLessThan(1.15)
    expect(result.messagesPerHandOver).toBe(1)
    expect(result.left).toBe(0)
  }
})

test('a process that waits asks every two seconds, however many waiters it has', async () => {
  for (const waiters of [10, 400]) {
    const { requestsPerProcessSecond } = await crowd({ waiters, processes: 5, handOvers: 1 })
    expect(requestsPerProcessSecond).toBeGreaterThan(0.4)
    expect(requestsPerProcessSecond).toBeLessThan(0.6)
  }
})

test('processes over a cluster whose slots move lose no lease, and leave nothing behind', async () => {
  const { handOvers, lostLeases, left } = await fleet({ processes: 40, masters: 4, seconds: 15 })
  expect(handOvers).toBeGreaterThan(20)
  expect({ lostLeases, left }).toEqual({ lostLeases: 0, left: 0 })
})

test('each process sends one server as many requests, however many processes there are, and none is redirected', async () => {
  for (const processes of [20, 200]) {
    const result = await fleet({ processes, masters: 1, seconds: 30 })
    expect(result.requestsPerProcessSecond).toBeGreaterThan(0.2)
    expect(result.requestsPerProcessSecond).toBeLessThan(0.4)
    expect(result).toMatchObject({ movedSlots: 0, redirects: 0, lostLeases: 0, left: 0 })
  }
})

test('a day of a busy key leaves nothing behind', async () => {
  const { handOvers, newKeys, months, left } = await year({ days: 1, everySeconds: 300 })
  expect({ handOvers, newKeys, left }).toEqual({ handOvers: 576, newKeys: 288, left: 0 })
  expect(months.map(({ rooms, scheduled }) => rooms + scheduled)).toEqual(Array(12).fill(0))
})

test('the page says what the results say', () => {
  const results = JSON.parse(readProjectFile('size/results.json')) as Results
  expect(readProjectFile('docs/size.md')).toBe(pageOf(results))
})

test('the results show what a large system costs', () => {
  const { crowds, fleets, year: whole } = JSON.parse(readProjectFile('size/results.json')) as Results
  for (const one of crowds) {
    expect(one.requestsPerHandOver).toBeLessThan(1.15)
    expect(one.messagesPerHandOver).toBe(1)
    expect(one.left).toBe(0)
  }
  for (const one of fleets) {
    expect(one.requestsPerProcessSecond).toBeLessThan(0.35)
    expect([one.lostLeases, one.left]).toEqual([0, 0])
  }
  expect(whole.left).toBe(0)
  expect(whole.months.at(-1)?.heapMiB).toBeLessThan(1.1 * (whole.months[0]?.heapMiB ?? 0))
})
