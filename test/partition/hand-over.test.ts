import { expect, onTestFinished, test, vi } from 'vitest'
import { HeldLease } from '../../src/engine/held-lease.ts'
import { until } from '../servers/until.ts'
import { Fleet } from './fleet.ts'

test.each([
  ['once grace is over', { movesAtOnce: 1, grace: 50 }],
  ['one after the other', { movesAtOnce: 1, grace: '10s' }],
  ['all at the same time', { movesAtOnce: 200, grace: '10s' }],
])('a partition looks at each of many leases a few times when it hands them over %s', async (_, options) => {
  const fleet = new Fleet(200)
  let stops = 0
  let end = () => {}
  const ended = new Promise<void>((resolve) => {
    end = resolve
  })
  const stop = () => {
    stops += 1
    if (options.grace === '10s' || stops === fleet.keys.length) end()
    return ended
  }
  const a = fleet.add('a', { ...options }, { stop })
  await fleet.settled([200])
  const looks = vi.spyOn(HeldLease.prototype, 'state', 'get')
  onTestFinished(() => looks.mockRestore())
  await a.stop()
  expect(stops).toBe(200)
  expect(looks.mock.calls.length).toBeLessThan(200 * 20)
})

test('a partition does not try again for a lost key that was still to be handed over', async () => {
  const fleet = new Fleet(2)
  const stopping: string[] = []
  let end = () => {}
  const ended = new Promise<void>((resolve) => {
    end = resolve
  })
  const stop = (key: string) => {
    stopping.push(key)
    return stopping.length === 1 ? ended : undefined
  }
  const a = fleet.add('a', { movesAtOnce: 1 }, { stop })
  await fleet.settled([2])
  const steps: string[] = []
  a.subscribe(({ key, to }) => key !== stopping[0] && steps.push(to))
  await a.setWeight(0)
  await until('one key is being handed over', () => stopping.length === 1)
  const [other] = fleet.keys.filter((key) => key !== stopping[0])
  await fleet.locks[0]?.evictAll(`fleet:${other}`, { reason: 'a test' })
  await until('the other is stopped', () => steps.includes('stopped'))
  expect(steps).toEqual(['stopping', 'releasing', 'pausing', 'stopped'])
  end()
})
