import { context, metrics, type Span, SpanStatusCode, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import { MeterProvider, MetricReader } from '@opentelemetry/sdk-metrics'
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  type ReadableSpan,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { createLocks } from '../../src/index.ts'
import { type InstrumentOptions, instrumentLocks, leaseContext } from '../../src/observe/otel/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { settled } from '../engine/fake-clock.ts'
import { scene } from '../engine/scene.ts'
import { until } from '../servers/until.ts'

beforeAll(() => {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
})
afterAll(() => {
  context.disable()
})

describe('spans', () => {
  test('of the wait and of the hold are children of the span in which the call was made', async () => {
    const { locks } = scene()
    const { inSpan, spans } = traced({ locks })
    const lease = await inSpan('request', () => locks.acquire('invoice:1'))
    await lease.release()
    const [wait, request, hold] = spans()
    expect([wait?.name, request?.name, hold?.name]).toEqual(['holdfast.wait', 'request', 'holdfast.hold'])
    expect([wait, hold].map((span) => parentOf(span))).toEqual([idOf(request), idOf(request)])
    expect(wait?.attributes).toEqual({
      'holdfast.key': 'invoice:1',
      'holdfast.store': 'scripted',
      'holdfast.ticket.id': lease.id,
      'holdfast.units': 1,
      'holdfast.limit': 1,
      'holdfast.fence': String(lease.fence),
      'holdfast.outcome': 'acquired',
    })
    expect(hold?.attributes).toEqual({ ...wait?.attributes, 'holdfast.outcome': 'released' })
    expect(hold?.status).toEqual({ code: SpanStatusCode.UNSET })
  })

  test('of the callback’s work are children of the hold, however long the callback waited for it', async () => {
    const { clock, locks, other } = scene()
    const { inSpan, spans, tracer } = traced({ locks })
    const first = await other.locks.acquire('k')
    const work = async () => {
      tracer.startSpan('begins').end()
      await clock.advance(5)
      tracer.startSpan('goes on').end()
      return 'done'
    }
    const done = inSpan('request', async () => {
      const value = await locks.withLock('k', work)
      tracer.startSpan('after').end()
      return value
    })
    await clock.advance(100)
    await first.release()
    expect(await clock.until(done)).toBe('done')
    const byName = new Map(spans().map((span) => [span.name, span]))
    const parents = ['holdfast.wait', 'holdfast.hold', 'begins', 'goes on', 'after'].map((name) => {
      const parent = [...byName.values()].find((span) => idOf(span) === parentOf(byName.get(name)))
      return `${name} in ${parent?.name}`
    })
    expect(parents).toEqual([
      'holdfast.wait in request',
      'holdfast.hold in request',
      'begins in holdfast.hold',
      'goes on in holdfast.hold',
      'after in request',
    ])
    expect(byName.get('holdfast.wait')?.events.map(({ name }) => name)).toEqual(['queued'])
  })

  test('of two calls at once do not mix', async () => {
    const { clock, locks } = scene()
    const { inSpan, spans, tracer } = traced({ locks })
    const call = (name: string) =>
      inSpan(name, () =>
        locks.withLock('k', async () => {
          await settled()
          tracer.startSpan(`work of ${name}`).end()
        }),
      )
    await clock.until(Promise.all([call('a'), call('b'), call('c')]))
    const all = spans()
    for (const name of ['a', 'b', 'c']) {
      const work = all.find((span) => span.name === `work of ${name}`)
      const hold = all.find((span) => idOf(span) === parentOf(work))
      const request = all.find((span) => idOf(span) === parentOf(hold))
      expect([hold?.name, request?.name]).toEqual(['holdfast.hold', name])
    }
  })

  test('can be made children of the hold of a lease from acquire, for as long as it is held', async () => {
    const { locks } = scene()
    const { spans, tracer } = traced({ locks })
    const lease = await locks.acquire('k')
    await context.with(leaseContext(lease), async () => {
      await settled()
      tracer.startSpan('inside').end()
    })
    await lease.release()
    context.with(leaseContext(lease), () => tracer.startSpan('after').end())
    const hold = spans().find(({ name }) => name === 'holdfast.hold')
    expect(parentOf(spans().find(({ name }) => name === 'inside'))).toBe(idOf(hold))
    expect(parentOf(spans().find(({ name }) => name === 'after'))).toBe(undefined)
  })

  test('of several keys nest, and those of the callback are in the innermost', async () => {
    const { locks } = scene()
    const { spans, tracer } = traced({ locks })
    await locks.withLocks(['b', 'a'], () => tracer.startSpan('work').end())
    const keyOf = (span: ReadableSpan | undefined) => span?.attributes['holdfast.key']
    const all = spans()
    const hold = all.find((span) => idOf(span) === parentOf(all.find(({ name }) => name === 'work')))
    expect([hold?.name, keyOf(hold)]).toEqual(['holdfast.hold', 'b'])
  })

  test.each([
    ['busy', undefined],
    ['timeout', 'acquire-timeout'],
    ['aborted', undefined],
    ['evicted', 'lease-lost'],
    ['store', 'store-refused'],
  ] as const)(
    'of a wait that ends as %s say so, and are errors unless the caller wanted that end',
    async (outcome, type) => {
      const { clock, store, locks, other } = scene()
      const { spans } = traced({ locks })
      const first = await other.locks.acquire('k')
      const caller = new AbortController()
      if (outcome === 'store') store.next('acquire', 'refuse')
      const wait = outcome === 'busy' ? 0 : 1000
      const ended = locks.acquire('k', { wait, signal: caller.signal }).catch(() => {})
      await clock.advance(10)
      if (outcome === 'aborted') caller.abort()
      if (outcome === 'evicted') {
        const room = (await other.locks.inspect().next()).value
        await other.locks.evict('k', room?.queue[0]?.id ?? '', { reason: 'a test' })
      }
      await clock.until(ended)
      const [span] = spans()
      expect(span?.attributes['holdfast.outcome']).toBe(outcome)
      expect(span?.attributes['error.type']).toBe(type)
      expect(span?.status.code).toBe(type === undefined ? SpanStatusCode.UNSET : SpanStatusCode.ERROR)
      await first.release()
    },
  )

  test('of a hold that is lost are errors that say why, with the cause', async () => {
    const { clock, store, locks } = scene()
    const { spans } = traced({ locks })
    const lease = await locks.acquire('k', { ttl: 3000 })
    store.always('fail', ['renew'])
    await clock.untilTrue(() => lease.state === 'lost')
    await clock.advance(1000)
    const hold = spans().find(({ name }) => name === 'holdfast.hold')
    const events = hold?.events.map(({ name }) => name) ?? []
    expect([...new Set(events)].sort()).toEqual(['jeopardy', 'lost', 'store-error'])
    expect(hold?.events.at(-1)?.attributes).toEqual({ 'holdfast.reason': 'expired' })
    expect(hold?.status.code).toBe(SpanStatusCode.ERROR)
    expect(hold?.attributes).toMatchObject({ 'holdfast.outcome': 'lost', 'error.type': 'lease-lost' })
  })

  test('go on where a lease is adopted, in the span of the caller that adopts', async () => {
    const { locks, other } = scene()
    const { spans } = traced({ locks })
    const there = traced({ locks: other.locks })
    const json = (await locks.acquire('k')).detach()
    const adopted = await there.inSpan('adopting', () => other.locks.adopt(json))
    await adopted.release()
    expect(spans().at(-1)?.attributes['holdfast.outcome']).toBe('detached')
    const hold = there.spans().find(({ name }) => name === 'holdfast.hold')
    expect(parentOf(hold)).toBe(idOf(there.spans().find(({ name }) => name === 'adopting')))
  })

  test('end where their own process adopts the lease again, which begins another', async () => {
    const { locks } = scene()
    const { spans } = traced({ locks })
    const lease = await locks.acquire('k')
    const again = await locks.adopt(lease.toJSON())
    expect(spans().at(-1)?.attributes['holdfast.outcome']).toBe('unknown')
    await again.release()
    expect(spans().filter(({ name }) => name === 'holdfast.hold')).toHaveLength(2)
  })

  test('that are open when it is stopped are ended, and none are begun after', async () => {
    const { clock, locks } = scene()
    const { spans, stop } = traced({ locks })
    const lease = await locks.acquire('k')
    const waiting = locks.acquire('k')
    await clock.advance(10)
    stop()
    stop()
    const outcomes = spans().map(({ name, attributes }) => `${name} ${attributes['holdfast.outcome']}`)
    expect(outcomes).toEqual(['holdfast.wait acquired', 'holdfast.wait unknown', 'holdfast.hold unknown'])
    await lease.release()
    await (await clock.until(waiting)).release()
    await locks.withLock('k', () => {})
    expect(spans()).toHaveLength(3)
  })

  test('go to the global provider, also to one that is set up later', async () => {
    const { locks } = scene()
    onTestFinished(instrumentLocks({ locks }))
    await locks.withLock('before', () => {})
    const exporter = new InMemorySpanExporter()
    trace.setGlobalTracerProvider(
      new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }),
    )
    onTestFinished(() => trace.disable())
    await locks.withLock('after', () => {})
    const spans = exporter.getFinishedSpans()
    expect(spans.map(({ attributes }) => attributes['holdfast.key'])).toEqual(['after', 'after'])
  })

  test('are made for all locks of the process if none are named', async () => {
    const { spans, stop } = traced({})
    const locks = createLocks(memoryStore())
    await locks.withLock('k', () => {})
    await locks.close()
    stop()
    expect(spans().map(({ name }) => name)).toEqual(['holdfast.wait', 'holdfast.hold'])
  })
})

describe('metrics', () => {
  test('have names, units and attributes in the manner of the conventions', async () => {
    const { clock, locks, other } = scene()
    const { collect } = traced({ locks })
    const first = await other.locks.acquire('invoice:1')
    const waiting = locks.acquire('invoice:1')
    await clock.advance(40)
    await first.release()
    const lease = await clock.until(waiting)
    await clock.advance(2000)
    const during = await collect()
    await lease.release()
    const after = await collect()

    const group = { 'holdfast.store': 'scripted', 'holdfast.group': 'invoice' }
    expect(during.get('holdfast.held')?.points).toEqual([{ attributes: group, value: 1 }])
    expect(after.get('holdfast.held')).toMatchObject({ unit: '{lease}', points: [{ value: 0 }] })
    expect(after.get('holdfast.requests')).toMatchObject({
      unit: '{request}',
      points: [
        { attributes: { ...group, 'holdfast.outcome': 'acquired' }, value: 1 },
        { attributes: { ...group, 'holdfast.outcome': 'busy' }, value: 0 },
        { attributes: { ...group, 'holdfast.outcome': 'timeout' }, value: 0 },
      ],
    })
    const wait = after.get('holdfast.wait.duration')
    expect(wait?.unit).toBe('s')
    expect(wait?.points).toMatchObject([{ value: { count: 1, sum: expect.closeTo(0.04) } }])
    const hold = after.get('holdfast.hold.duration')
    expect(hold?.points).toMatchObject([{ value: { count: 1, sum: expect.closeTo(2) } }])
    expect(during.get('holdfast.oldest_hold.duration')?.points).toMatchObject([{ attributes: group }])
  })

  test('show the age of the oldest hold, and that there is none any more', async () => {
    const locks = createLocks(memoryStore())
    const { collect } = traced({ locks })
    const lease = await locks.acquire('k')
    const age = async () => (await collect()).get('holdfast.oldest_hold.duration')?.points[0]?.value
    await until('it has an age', async () => Number(await age()) > 0.01)
    await lease.release()
    expect(await age()).toBe(0)
    await locks.close()
  })

  test('show the oldest hold of all calls for one meter, and not that of the last call', async () => {
    const all = [createLocks(memoryStore()), createLocks(memoryStore())]
    const reader = new Reader()
    const meterProvider = new MeterProvider({ readers: [reader] })
    const stops = all.map((locks) => instrumentLocks({ locks, meterProvider }))
    const age = async () => {
      const { resourceMetrics } = await reader.collect()
      const metrics = resourceMetrics.scopeMetrics.flatMap((scope) => scope.metrics)
      const found = metrics.find(({ descriptor }) => descriptor.name === 'holdfast.oldest_hold.duration')
      return Number(found?.dataPoints[0]?.value)
    }
    const lease = await all[0]?.acquire('k')
    await all[1]?.withLock('k', () => {})
    await until('it has an age', async () => (await age()) > 0.01)
    stops[1]?.()
    expect(await age()).toBeGreaterThan(0.01)
    await lease?.release()
    stops[0]?.()
    for (const locks of all) await locks.close()
  })

  test('go to the global provider, also to one that is set up later', async () => {
    const { locks } = scene()
    const stop = instrumentLocks({ locks })
    onTestFinished(stop)
    expect(() => instrumentLocks({ locks, maxGroups: 0 })).toThrow('Expected `maxGroups` to be')
    const held = await locks.acquire('before')
    const reader = new Reader()
    metrics.setGlobalMeterProvider(new MeterProvider({ readers: [reader] }))
    onTestFinished(() => metrics.disable())
    await locks.withLock('after', () => {})
    await held.release()
    const lease = await locks.acquire('after')
    const group = { 'holdfast.store': 'scripted', 'holdfast.group': 'after' }
    const read = async (name: string) => {
      const { resourceMetrics } = await reader.collect()
      const found = resourceMetrics.scopeMetrics.flatMap((scope) => scope.metrics)
      const points = found.find(({ descriptor }) => descriptor.name === name)?.dataPoints ?? []
      return points.map(({ attributes, value }) => ({ attributes, value }))
    }
    const acquired = { attributes: { ...group, 'holdfast.outcome': 'acquired' }, value: 2 }
    expect(await read('holdfast.requests')).toContainEqual(acquired)
    expect(await read('holdfast.held')).toEqual([{ attributes: group, value: 1 }])
    stop()
    expect(await read('holdfast.held')).toEqual([{ attributes: group, value: 0 }])
    await lease.release()
  })

  test('take back their values when they are stopped', async () => {
    const { locks } = scene()
    const { collect, stop } = traced({ locks })
    const lease = await locks.acquire('k')
    stop()
    expect((await collect()).get('holdfast.held')?.points).toMatchObject([{ value: 0 }])
    await lease.release()
  })
})

function traced(options: InstrumentOptions) {
  const exporter = new InMemorySpanExporter()
  const tracerProvider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] })
  const reader = new Reader()
  const meterProvider = new MeterProvider({ readers: [reader] })
  const stop = instrumentLocks({ ...options, tracerProvider, meterProvider })
  onTestFinished(stop)
  const tracer = tracerProvider.getTracer('test')
  return {
    stop,
    tracer,
    /** The spans, in the order in which they ended. */
    spans: () => exporter.getFinishedSpans(),
    async inSpan<T>(name: string, work: () => Promise<T>): Promise<T> {
      const span: Span = tracer.startSpan(name)
      try {
        return await context.with(trace.setSpan(context.active(), span), work)
      } finally {
        span.end()
      }
    },
    async collect() {
      const { resourceMetrics } = await reader.collect()
      const found = resourceMetrics.scopeMetrics.flatMap(({ metrics }) => metrics)
      return new Map(
        found.map(({ descriptor, dataPoints }) => [
          descriptor.name,
          {
            unit: descriptor.unit,
            points: (dataPoints as { attributes: object; value: unknown }[]).map(({ attributes, value }) => ({
              attributes,
              value,
            })),
          },
        ]),
      )
    },
  }
}

class Reader extends MetricReader {
  protected override async onForceFlush(): Promise<void> {}
  protected override async onShutdown(): Promise<void> {}
}

function idOf(span: ReadableSpan | undefined): string | undefined {
  return span?.spanContext().spanId
}

function parentOf(span: ReadableSpan | undefined): string | undefined {
  return span?.parentSpanContext?.spanId
}
