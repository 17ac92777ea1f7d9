import { AggregatorRegistry, Counter, type OpenMetricsContentType, Registry } from 'prom-client'
import { describe, expect, onTestFinished, test } from 'vitest'
import { createLocks, InvalidArgumentError } from '../../src/index.ts'
import { type MeasureOptions, measureLocks } from '../../src/observe/prometheus/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { scene } from '../engine/scene.ts'
import { until } from '../servers/until.ts'

const STORE = { store: 'scripted', group: 'invoice' }

describe('the metrics of locks', () => {
  test('time waits and holds by group, and count how requests ended', async () => {
    const { clock, locks, other } = scene()
    const { value } = measured({ locks })
    const first = await other.locks.acquire('invoice:1')
    const waiting = locks.acquire('invoice:1')
    await clock.advance(40)
    expect(await value('holdfast_waiting', STORE)).toBe(1)
    await first.release()
    const lease = await clock.until(waiting)
    expect(await value('holdfast_waiting', STORE)).toBe(0)
    expect(await value('holdfast_held', STORE)).toBe(1)
    await clock.advance(2000)
    expect(await locks.tryAcquire('invoice:1')).toBe(null)
    await lease.release()

    expect(await value('holdfast_held', STORE)).toBe(0)
    expect(await value('holdfast_queued_total', STORE)).toBe(1)
    expect(await value('holdfast_requests_total', { ...STORE, outcome: 'acquired' })).toBe(1)
    expect(await value('holdfast_requests_total', { ...STORE, outcome: 'busy' })).toBe(1)
    const wait = { ...STORE, outcome: 'acquired' }
    expect(await value('holdfast_wait_seconds_sum', wait)).toBeCloseTo(0.04)
    expect(await value('holdfast_wait_seconds_bucket', { ...wait, le: 0.01 })).toBe(0)
    expect(await value('holdfast_wait_seconds_bucket', { ...wait, le: 0.05 })).toBe(1)
    const hold = { ...STORE, outcome: 'released' }
    expect(await value('holdfast_hold_seconds_sum', hold)).toBeCloseTo(2)
    expect(await value('holdfast_hold_seconds_count', hold)).toBe(1)
    expect(await value('holdfast_hand_over_seconds_count', STORE)).toBe(1)
  })

  test('count what goes wrong: timeouts, withdrawals, jeopardies, losses by reason, evictions, store errors', async () => {
    const { clock, store, locks, other } = scene()
    const { value } = measured({ locks })
    const first = await other.locks.acquire('invoice:1')
    await expect(clock.until(locks.acquire('invoice:1', { wait: 1000 }))).rejects.toThrow()
    const aborted = locks.acquire('invoice:1', { signal: AbortSignal.abort() })
    await expect(aborted).rejects.toThrow()
    const caller = new AbortController()
    const withdrawn = locks.acquire('invoice:1', { signal: caller.signal })
    await clock.advance(10)
    caller.abort()
    await expect(withdrawn).rejects.toThrow()
    await first.release()
    const lease = await locks.acquire('invoice:2', { ttl: 3000 })
    store.always('fail', ['renew'])
    await clock.untilTrue(() => lease.state === 'lost')
    store.always('answer', ['renew'])
    const evicted = await locks.acquire('invoice:3', { ttl: 3000 })
    await other.locks.evict('invoice:3', evicted.id, { reason: 'a test' })
    await clock.untilTrue(() => evicted.state === 'lost')

    const outcomes = async (outcome: string) => value('holdfast_requests_total', { ...STORE, outcome })
    // A call that is aborted before its first question is no request.
    expect(await Promise.all(['acquired', 'timeout', 'aborted'].map(outcomes))).toEqual([2, 1, 1])
    const waits = { ...STORE, outcome: 'withdrawn' }
    expect(await value('holdfast_wait_seconds_sum', waits)).toBeCloseTo(0.01)
    expect(await value('holdfast_jeopardies_total', STORE)).toBe(1)
    expect(await value('holdfast_losses_total', { ...STORE, reason: 'expired' })).toBe(1)
    expect(await value('holdfast_losses_total', { ...STORE, reason: 'evicted' })).toBe(1)
    expect(await value('holdfast_evictions_total', { ...STORE, was: 'holder' })).toBe(1)
    expect(await value('holdfast_hold_seconds_count', { ...STORE, outcome: 'lost' })).toBe(2)
    const errors = { store: 'scripted', verb: 'renew', outcome: 'ambiguous' }
    expect(await value('holdfast_store_errors_total', errors)).toBeGreaterThan(0)
    expect(await value('holdfast_waiting', STORE)).toBe(0)
    expect(await value('holdfast_held', STORE)).toBe(0)
    // By then the store has forgotten the ticket that was never released.
    await clock.advance(3000)
  })

  test('begin with zero for everything that may go wrong, so that the first case is a rise', async () => {
    const { locks } = scene()
    const { value } = measured({ locks })
    await locks.withLock('invoice:1', () => {})
    expect(await value('holdfast_losses_total', { ...STORE, reason: 'expired' })).toBe(0)
    expect(await value('holdfast_jeopardies_total', STORE)).toBe(0)
    expect(await value('holdfast_requests_total', { ...STORE, outcome: 'timeout' })).toBe(0)
    const errors = { store: 'scripted', verb: 'renew', outcome: 'ambiguous' }
    expect(await value('holdfast_store_errors_total', errors)).toBe(0)
  })

  test('time renewals, and show the leader', async () => {
    const { clock, locks } = scene()
    const { value } = measured({ locks })
    const leading = { store: 'scripted', group: 'cron', election: 'cron' }
    const campaign = locks.election('cron').campaign(async () => {
      await clock.advance(20_000)
      expect(await value('holdfast_leading', leading)).toBe(1)
    })
    await clock.until(campaign)
    expect(await value('holdfast_leading', leading)).toBe(0)
    expect(await value('holdfast_renewal_seconds_count', { store: 'scripted' })).toBeGreaterThan(0)
  })

  test('show each election by itself, and a candidate that has never led', async () => {
    const { clock, locks, other } = scene()
    const { value } = measured({ locks })
    const first = await other.locks.acquire('cron:mails')
    const ending = new AbortController()
    const campaigns = ['cron:mails', 'cron:reports'].map((key) =>
      locks
        .election(key)
        .campaign(
          { signal: ending.signal },
          ({ signal }) => new Promise((resolve) => signal.addEventListener('abort', resolve)),
        ),
    )
    await clock.advance(1000)
    const labels = (election: string) => ({ store: 'scripted', group: 'cron', election })
    expect(await value('holdfast_leading', labels('cron:mails'))).toBe(0)
    expect(await value('holdfast_leading', labels('cron:reports'))).toBe(1)
    ending.abort()
    for (const ended of await clock.until(Promise.allSettled(campaigns)))
      expect(ended.status).toBe('rejected')
    await first.release()
  })

  test('show the elections that are too many in their own groups', async () => {
    const { clock, locks } = scene()
    const { value } = measured({ locks, maxGroups: 2 })
    for (const key of ['a:1', 'b:1', 'a:2', 'b:2'])
      await clock.until(locks.election(key).campaign(() => clock.advance(10)))
    for (const group of ['a', 'b'])
      expect(await value('holdfast_leading', { store: 'scripted', group, election: 'other' })).toBe(0)
  })

  test('show how long the oldest wait and the oldest hold have lasted until now', async () => {
    const locks = createLocks(memoryStore())
    const { value } = measured({ locks })
    const labels = { store: 'memory', group: 'invoice' }
    const held = [await locks.acquire('invoice:1'), await locks.acquire('invoice:2')]
    const waiting = locks.acquire('invoice:1')
    expect(await value('holdfast_oldest_hold_seconds', labels)).toBeLessThan(10)
    for (const name of ['hold', 'wait']) {
      const ages = async () => Number(await value(`holdfast_oldest_${name}_seconds`, labels)) > 0.02
      await until(`the ${name} is 20 ms old`, ages)
    }
    const before = Number(await value('holdfast_oldest_hold_seconds', labels))
    await held[1]?.release()
    // The older of the two is still there.
    expect(await value('holdfast_oldest_hold_seconds', labels)).toBeGreaterThanOrEqual(before)
    await held[0]?.release()
    expect(await value('holdfast_oldest_wait_seconds', labels)).toBe(0)
    await (await waiting).release()
    expect(await value('holdfast_oldest_hold_seconds', labels)).toBe(0)
    await locks.close()
  })

  test('are counted by a group of one’s own, and by `other` once there are too many', async () => {
    const { locks } = scene()
    const { registry } = measured({ locks, group: (key) => key.slice(-1), maxGroups: 3 })
    for (let index = 0; index < 200; index += 1) await locks.withLock(`key ${index}`, () => {})
    const groups = new Set<unknown>()
    for (const metric of await registry.getMetricsAsJSON())
      for (const { labels } of metric.values) if (labels['group'] !== undefined) groups.add(labels['group'])
    expect([...groups].sort()).toEqual(['0', '1', '2', 'other'])
  })

  test('are not counted by a group that comes later, and its failure does not end the process', async () => {
    const { locks } = scene()
    const later = async () => {
      throw new Error('no group')
    }
    const { registry } = measured({ locks, group: later as never })
    // An unhandled rejection would fail this file.
    expect(await locks.withLock('invoice:1', () => 1)).toBe(1)
    expect(await registry.metrics()).not.toContain('group="')
  })

  test('are at most so many for a registry, also if several locks are counted in it', async () => {
    const registry = new Registry()
    const all = [createLocks(memoryStore()), createLocks(memoryStore())]
    for (const [index, locks] of all.entries()) {
      measured({ registry, locks, maxGroups: 2 })
      for (const key of [1, 2, 3]) await locks.withLock(`${index}-${key}:x`, () => {})
      await locks.close()
    }
    const groups = new Set((await registry.metrics()).match(/group="[^"]*"/g))
    expect([...groups].sort()).toEqual(['group="0-1"', 'group="0-2"', 'group="other"'])
  })

  test('do not grow with the keys: ten thousand without a colon are fifty groups and the rest', async () => {
    const locks = createLocks(memoryStore())
    const { registry } = measured({ locks })
    for (let index = 0; index < 10_000; index += 1) await locks.withLock(`key ${index}`, () => {})
    const lines = (await registry.metrics()).split('\n').filter((line) => line.startsWith('holdfast_held{'))
    expect(lines).toHaveLength(51)
    await locks.close()
  })
})

describe('a registry', () => {
  test('is shared by several locks, each counted on its own', async () => {
    const registry = new Registry()
    const [one, other] = [createLocks(memoryStore()), createLocks(memoryStore())]
    const { value, stop } = measured({ locks: one, registry })
    const second = measured({ locks: other, registry })
    const labels = { store: 'memory', group: 'k' }
    const leases = [await one.acquire('k'), await other.acquire('k'), await other.acquire('k:2')]
    expect(await value('holdfast_held', labels)).toBe(3)
    // A collector that is stopped removes its own values, and leaves those of the others.
    second.stop()
    expect(await value('holdfast_held', labels)).toBe(1)
    for (const lease of leases) await lease.release()
    expect(await value('holdfast_held', labels)).toBe(0)
    expect(await value('holdfast_hold_seconds_count', { ...labels, outcome: 'released' })).toBe(1)
    stop()
    stop()
    expect(await registry.metrics()).not.toContain('holdfast')
    await one.close()
    await other.close()
  })

  test('has nothing of ours left after the last collector, and can be used again', async () => {
    const registry = new Registry()
    const own = new Counter({ name: 'mine_total', help: 'x', registers: [registry] })
    measured({ registry }).stop()
    expect(registry.getMetricsAsArray()).toEqual([own])
    measured({ registry }).stop()
  })

  test('that another library has cleared is used anew, whatever happens to collectors from before', async () => {
    const registry = new Registry()
    const { locks } = scene()
    const before = measured({ registry, locks })
    registry.clear()
    const { value, stop } = measured({ registry, locks })
    before.stop()
    await locks.withLock('invoice:1', () => {})
    expect(await value('holdfast_requests_total', { ...STORE, outcome: 'acquired' })).toBe(1)
    stop()
    expect(registry.getMetricsAsArray()).toEqual([])
  })

  test('whose metrics another library has reset goes on with the present values', async () => {
    const { locks } = scene()
    const { registry, value } = measured({ locks })
    const leases = [await locks.acquire('invoice:1'), await locks.acquire('invoice:2')]
    registry.resetMetrics()
    await leases[0]?.release()
    expect(await value('holdfast_held', STORE)).toBe(1)
    await leases[1]?.release()
    expect(await value('holdfast_held', STORE)).toBe(0)
  })

  test('of a cluster adds up what adds up, and of ages takes the oldest', async () => {
    const locks = createLocks(memoryStore())
    const workers: Registry[] = []
    for (const key of ['invoice:1', 'invoice:2']) {
      workers.push(measured({ locks }).registry)
      await locks.acquire(key)
    }
    const labels = { store: 'memory', group: 'invoice' }
    const valueIn = async (registry: Pick<Registry, 'getMetricsAsJSON'>, name: string) => {
      const metric = (await registry.getMetricsAsJSON()).find((each) => each.name === name)
      return metric?.values.find((each) => sameLabels(each.labels, labels))?.value
    }
    const all = await Promise.all(workers.map((registry) => registry.getMetricsAsJSON()))
    const together = AggregatorRegistry.aggregate(all)
    expect(await valueIn(together, 'holdfast_held')).toBe(3)
    const ages = all.map((metrics) => {
      const metric = metrics.find(({ name }) => name === 'holdfast_oldest_hold_seconds')
      return metric?.values[0]?.value ?? 0
    })
    expect(await valueIn(together, 'holdfast_oldest_hold_seconds')).toBe(Math.max(...ages))
    await locks.close()
  })

  test('hears of all locks of the process without being told which', async () => {
    const { value, stop } = measured({})
    for (const key of ['k:1', 'k:2']) {
      const locks = createLocks(memoryStore())
      await locks.withLock(key, () => {})
      await locks.close()
    }
    const labels = { store: 'memory', group: 'k', outcome: 'acquired' }
    expect(await value('holdfast_requests_total', labels)).toBe(2)
    stop()
  })

  test('of the OpenMetrics kind is as good', async () => {
    const registry = new Registry<OpenMetricsContentType>()
    registry.setContentType(Registry.OPENMETRICS_CONTENT_TYPE)
    const { locks } = scene()
    onTestFinished(measureLocks({ locks, registry }))
    await locks.withLock('invoice:1', () => {})
    expect(await registry.metrics()).toMatch(/holdfast_requests_total\{.*outcome="acquired".*\} 1\n/)
  })

  test('that is none is refused', () => {
    expect(() => measureLocks({} as MeasureOptions)).toThrow(InvalidArgumentError)
  })

  test('with a metric of the same name is refused, and has nothing of ours then', async () => {
    const { locks } = scene()
    const registry = new Registry()
    const taken = 'holdfast_store_errors_total'
    new Counter({ name: taken, help: 'Somebody else’s.', registers: [registry] })
    expect(() => measureLocks({ registry, locks })).toThrow(`no metric ${taken} yet`)
    expect((await registry.getMetricsAsJSON()).map(({ name }) => name)).toEqual([taken])
    registry.removeSingleMetric(taken)
    measureLocks({ registry, locks })()
  })

  test('is left alone by options that are none', () => {
    const registry = new Registry()
    const group = 'x' as unknown as () => string
    expect(() => measureLocks({ registry, group })).toThrow(
      'Expected `group` to be a function of a key, got "x".',
    )
    for (const maxGroups of [0, 1.5, Number.NaN])
      expect(() => measureLocks({ registry, maxGroups })).toThrow(
        'Expected `maxGroups` to be a whole number from 1',
      )
    for (const buckets of [[1, 0.5], [0.1, Number.NaN], [0.1, 0.1], ['0.1'], 0.1, {}] as number[][])
      expect(() => measureLocks({ registry, buckets })).toThrow(
        'Expected `buckets` to be rising numbers of seconds, got ',
      )
    expect(registry.getMetricsAsArray()).toEqual([])
  })

  test('does not count leases that were there before', async () => {
    const { locks } = scene()
    const lease = await locks.acquire('invoice:1')
    const { value } = measured({ locks })
    await lease.release()
    expect(await value('holdfast_held', STORE)).toBe(undefined)
  })
})

function measured(options: Partial<MeasureOptions> & { readonly registry?: Registry }) {
  const registry = options.registry ?? new Registry()
  const stop = measureLocks({ ...options, registry })
  onTestFinished(stop)
  /** The value of the one sample with exactly these labels. */
  const value = async (name: string, labels: Readonly<Record<string, string | number>>) => {
    for (const metric of await registry.getMetricsAsJSON()) {
      for (const sample of metric.values as Sample[]) {
        if ((sample.metricName ?? metric.name) === name && sameLabels(sample.labels, labels))
          return sample.value
      }
    }
    return undefined
  }
  return { registry, stop, value }
}

interface Sample {
  readonly metricName?: string
  readonly labels: Readonly<Record<string, string | number | undefined>>
  readonly value: number
}

function sameLabels(one: object, other: object): boolean {
  const sorted = (labels: object) => JSON.stringify(Object.entries(labels).sort())
  return sorted(one) === sorted(other)
}
