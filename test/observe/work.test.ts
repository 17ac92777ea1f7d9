import { context, metrics, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import { MeterProvider, MetricReader } from '@opentelemetry/sdk-metrics'
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base'
import { AggregatorRegistry, Registry } from 'prom-client'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { createLocks, InvalidArgumentError, type Locks } from '../../src/index.ts'
import { createLimit } from '../../src/limits/index.ts'
import { instrumentWork } from '../../src/observe/otel/index.ts'
import { type MeasureWorkOptions, measureWork } from '../../src/observe/prometheus/index.ts'
import { createPartition } from '../../src/partition/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { createLockWorker } from '../../src/worker/index.ts'
import { closeSharedServer, openProxied, openScene } from '../jobs/scene.ts'
import { Stage } from '../schedule/stage.ts'
import { until } from '../servers/until.ts'

beforeAll(() => {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
})
afterAll(async () => {
  context.disable()
  await closeSharedServer()
})

describe('the metrics of jobs', () => {
  test('time waits and runs by name, and count attempts by their outcome', async () => {
    await using scene = await openScene()
    const jobs = scene.open()
    await jobs.migrate()
    const { value, metrics } = measured({ jobs })
    await jobs.enqueueAll([{ name: 'mail' }, { name: 'mail' }, { name: 'bad', maxAttempts: 1 }])
    expect(await value('holdfast_jobs', { job: 'mail', state: 'ready' })).toBe(2)
    expect(await value('holdfast_jobs_enqueued_total', { job: 'mail' })).toBe(2)
    let end = (): void => {}
    const held = new Promise<void>((resolve) => {
      end = resolve
    })
    const handlers = {
      mail: () => held,
      bad: () => Promise.reject(new Error('bad')),
    }
    const worker = jobs.work(handlers, { onFailure: () => {} })
    await until('both run', async () => (await value('holdfast_jobs_running', { job: 'mail' })) === 2)
    end()
    await until('all have ended', async () => {
      const done = await value('holdfast_job_attempts_total', { job: 'mail', outcome: 'completed' })
      return done === 2 && (await value('holdfast_job_attempts_total', { job: 'bad', outcome: 'dead' })) === 1
    })
    await worker.stop()
    expect(await value('holdfast_jobs_running', { job: 'mail' })).toBe(0)
    expect(await value('holdfast_job_wait_seconds_count', { job: 'mail' })).toBe(2)
    expect(await value('holdfast_job_run_seconds_count', { job: 'bad', outcome: 'dead' })).toBe(1)
    expect(await value('holdfast_jobs', { job: 'bad', state: 'dead' })).toBe(1)
    expect(await value('holdfast_jobs', { job: 'mail', state: 'ready' })).toBe(0)
    expect(await value('holdfast_oldest_job_seconds', { job: 'mail' })).toBe(0)
    expect(await value('holdfast_jobs_answered', {})).toBe(1)
    // What has not happened is there as 0, so that its first case is a rise.
    expect(await metrics()).toContain('holdfast_job_attempts_total{job="mail",outcome="dead"} 0')
  })

  test('a database that is silent delays a scrape by the time-out, and is told of', async () => {
    await using proxied = await openProxied()
    const { scene, direct, proxy, url } = proxied
    const jobs = scene.open({}, { url })
    await direct.enqueue('mail')
    let isAsked = false
    const backlog = () => {
      isAsked = true
      return jobs.backlog().finally(() => {
        isAsked = false
      })
    }
    const { value, metrics } = measured({ jobs: { backlog }, timeout: 200 })
    // A busy machine may need longer than the time-out for an answer, so several scrapes.
    const isHeard = async () => (await value('holdfast_jobs', { job: 'mail', state: 'ready' })) === 1
    await until('the database is heard', isHeard)
    proxy.holdReplies()
    const all = await Promise.all([metrics(), metrics()])
    // Neither an answer nor the limit of the statement has ended the scrapes.
    expect(isAsked).toBe(true)
    for (const text of all) {
      expect(text).toContain('holdfast_jobs_answered 0')
      expect(text).not.toContain('holdfast_jobs{job="mail"')
    }
    proxy.normal()
    await until('the database is heard again', isHeard)
  })

  test('ask a silent database one question, however many scrapes come meanwhile', async () => {
    let asked = 0
    const { metrics } = measured({
      timeout: 50,
      jobs: {
        backlog() {
          asked += 1
          return new Promise(() => {})
        },
      },
    })
    for (let scrape = 0; scrape < 3; scrape += 1)
      expect(await metrics()).toContain('holdfast_jobs_answered 0')
    expect(asked).toBe(1)
  })
})

describe('the metrics of what is built on locks', () => {
  test('count ticks by what became of them, and time how late they begin', async () => {
    const { value } = measured({})
    const stage = new Stage()
    const member = stage.member('a', {})
    member.schedule.add('report:daily', '* * * * *', () => stage.clock.advance(0))
    member.schedule.start()
    await stage.clock.advance(130_000)
    const runs = await value('holdfast_ticks_total', { schedule: 'report', outcome: 'ok' })
    expect(runs).toBe(2)
    expect(await value('holdfast_tick_run_seconds_count', { schedule: 'report', outcome: 'ok' })).toBe(2)
    expect(await value('holdfast_tick_delay_seconds_count', { schedule: 'report' })).toBe(2)
    stage.clock.block(150_000)
    await stage.clock.advance(420_000)
    expect(await value('holdfast_ticks_total', { schedule: 'report', outcome: 'missed' })).toBe(2)
  })

  test('count terms of workers by why they end', async () => {
    const { value } = measured({})
    const locks = opened()
    const worker = createLockWorker(locks, 'mailer:1', { start: () => {}, stop: () => {} })
    worker.start()
    await until('it works', async () => (await value('holdfast_workers_working', { worker: 'mailer' })) === 1)
    await worker.stop()
    expect(await value('holdfast_workers_working', { worker: 'mailer' })).toBe(0)
    expect(await value('holdfast_worker_terms_total', { worker: 'mailer', outcome: 'stopped' })).toBe(1)
    expect(await value('holdfast_worker_terms_total', { worker: 'mailer', outcome: 'lost' })).toBe(0)
  })

  test('say how many keys of a partition are worked on, and how many a process is to have', async () => {
    const { value, registry } = measured({})
    const locks = opened()
    const partition = createPartition(locks, 'queues', { partitions: 8, start: () => {}, stop: () => {} })
    partition.start()
    await until(
      'all are worked on',
      async () => (await value('holdfast_partition_keys', { partition: 'queues' })) === 8,
    )
    expect(await value('holdfast_partition_share', { partition: 'queues' })).toBe(8)
    expect(await value('holdfast_partition_size', { partition: 'queues' })).toBe(8)
    expect(await value('holdfast_partition_members', { partition: 'queues' })).toBe(1)
    expect(await value('holdfast_partition_moves_total', { partition: 'queues', outcome: 'taken' })).toBe(8)
    // As for two workers of a cluster: both see the same partition.
    const metrics = await registry.getMetricsAsJSON()
    const together = await AggregatorRegistry.aggregate([metrics, metrics]).getMetricsAsJSON()
    const sumOf = (name: string) =>
      together.find((each) => each.name === `holdfast_partition_${name}`)?.values[0]?.value
    expect(['size', 'members', 'share', 'keys'].map(sumOf)).toEqual([8, 1, 16, 16])
    await partition.stop()
    expect(await value('holdfast_partition_keys', { partition: 'queues' })).toBe(0)
    expect(await value('holdfast_partition_moves_total', { partition: 'queues', outcome: 'stopped' })).toBe(8)
    // Else the alert on keys that nobody works on would ring.
    for (const name of ['share', 'size', 'members'])
      expect(await value(`holdfast_partition_${name}`, { partition: 'queues' })).toBe(0)
  })

  test('of a partition are those of the next object, when one replaces the other', async () => {
    const { value } = measured({})
    const store = memoryStore()
    const [before, after] = [0, 1].map(() => {
      const locks = createLocks(store)
      onTestFinished(() => locks.close())
      return createPartition(locks, 'queues', { partitions: 8, start: () => {}, stop: () => {} })
    })
    const of = (name: string) => value(`holdfast_partition_${name}`, { partition: 'queues' })
    before?.start()
    await until('it has all', async () => (await of('keys')) === 8)
    after?.start()
    await until('both take part', async () => (await of('members')) === 2)
    await before?.stop()
    await until('the next one has all', async () => (await of('share')) === 8 && (await of('keys')) === 8)
    expect(await of('size')).toBe(8)
    await after?.stop()
    expect(await of('size')).toBe(0)
  })

  test('show the present values also after a reset of the registry', async () => {
    const { registry, value } = measured({})
    const limit = createLimit(opened(), 'exports', { concurrency: 5 })
    await limit.run('a', async () => {
      registry.resetMetrics()
      expect(await value('holdfast_limit_running', { limit: 'exports' })).toBe(1)
    })
    expect(await value('holdfast_limit_running', { limit: 'exports' })).toBe(0)
  })

  test('of a later call stay, whatever an earlier one does when it is stopped', () => {
    const registry = new Registry()
    const first = measureWork({ registry })
    first()
    const second = measureWork({ registry })
    const count = registry.getMetricsAsArray().length
    first()
    expect(registry.getMetricsAsArray()).toHaveLength(count)
    registry.clear()
    const third = measureWork({ registry })
    second()
    expect(registry.getMetricsAsArray()).toHaveLength(count)
    third()
    expect(registry.getMetricsAsArray()).toEqual([])
  })

  test('count calls of limits, and those that were refused by why', async () => {
    const { value } = measured({})
    const locks = opened()
    const limit = createLimit(locks, 'exports', { concurrency: 1, rate: { points: 2, window: '1h' } })
    await limit.run('a', async () => {
      expect(await value('holdfast_limit_running', { limit: 'exports' })).toBe(1)
      expect(await limit.tryRun('a', () => {})).toMatchObject({ ran: false })
    })
    let end = (): void => {}
    const running = limit.run(
      'a',
      () =>
        new Promise<void>((resolve) => {
          end = resolve
        }),
    )
    await until('it runs', async () => (await value('holdfast_limit_running', { limit: 'exports' })) === 1)
    await expect(limit.run('a', { wait: 50 }, () => {})).rejects.toThrow()
    end()
    await running
    expect(await limit.tryRun('a', () => {})).toMatchObject({ ran: false, reason: 'rate' })
    await expect(limit.run('a', { wait: 50 }, () => {})).rejects.toThrow()
    const calls = (outcome: string) => value('holdfast_limit_calls_total', { limit: 'exports', outcome })
    expect(await Promise.all(['ran', 'concurrency', 'rate'].map(calls))).toEqual([2, 2, 2])
    expect(await value('holdfast_limit_running', { limit: 'exports' })).toBe(0)
    expect(await value('holdfast_limit_wait_seconds_count', { limit: 'exports' })).toBe(2)
  })

  test('are taken out again, and refuse a registry that has them', () => {
    const registry = new Registry()
    const stop = measureWork({ registry })
    expect(() => measureWork({ registry })).toThrow(InvalidArgumentError)
    stop()
    expect(registry.getMetricsAsArray()).toEqual([])
    expect(() => measureWork({ registry, jobs: {} as never })).toThrow(InvalidArgumentError)
    expect(() => measureWork({ registry, timeout: 'soon' as never })).toThrow(InvalidArgumentError)
    expect(() => measureWork({} as never)).toThrow(InvalidArgumentError)
  })
})

describe('what has the same id or key in two stores', () => {
  test('jobs: each is counted, and has its own span', async () => {
    await using one = await openScene()
    await using other = await openScene()
    const { value } = measured({})
    const { spans } = traced()
    const ends: (() => void)[] = []
    const start = async (scene: typeof one, name: string) => {
      const jobs = scene.open()
      await jobs.migrate()
      const id = await jobs.enqueue(name)
      const worker = jobs.work({ [name]: () => new Promise<void>((resolve) => ends.push(resolve)) })
      await until('it runs', async () => (await value('holdfast_jobs_running', { job: name })) === 1)
      return { id, worker }
    }
    const [mail, report] = [await start(one, 'mail'), await start(other, 'report')]
    expect(mail.id).toBe(report.id)
    ends[0]?.()
    await mail.worker.stop()
    expect(await value('holdfast_jobs_running', { job: 'mail' })).toBe(0)
    expect(await value('holdfast_jobs_running', { job: 'report' })).toBe(1)
    ends[1]?.()
    await report.worker.stop()
    expect(await value('holdfast_jobs_running', { job: 'report' })).toBe(0)
    expect(spans().map(({ attributes }) => attributes['holdfast.job'])).toEqual(['mail', 'report'])
  })

  test('workers: each is counted, and has its own span', async () => {
    const { value } = measured({})
    const { spans } = traced()
    const workers = [0, 1].map(() => {
      const locks = createLocks(memoryStore({ now: () => ({ ms: 1000, us: 1_000_000 }) }))
      onTestFinished(() => locks.close())
      return createLockWorker(locks, 'mailer', { start: () => {}, stop: () => {} })
    })
    const working = () => value('holdfast_workers_working', { worker: 'mailer' })
    for (const worker of workers) worker.start()
    await until('both work', async () => (await working()) === 2)
    await workers[0]?.stop()
    expect(await working()).toBe(1)
    await workers[1]?.stop()
    expect(await working()).toBe(0)
    const fences = spans().map(({ attributes }) => attributes['holdfast.fence'])
    expect(fences).toHaveLength(2)
    expect(new Set(fences).size).toBe(1)
  })
})

describe('the spans of work', () => {
  test('lead from the request that enqueues a job to its handler, and on into what that does', async () => {
    await using scene = await openScene()
    const jobs = scene.open()
    await jobs.migrate()
    const { tracer, spans } = traced()
    const request = tracer.startSpan('request')
    await context.with(trace.setSpan(context.active(), request), () => jobs.enqueue('mail'))
    request.end()
    await jobs.enqueue('untraced')
    const failing = jobs.enqueue('bad', 1, { maxAttempts: 1 })
    const worker = jobs.work(
      {
        mail: async () => {
          await Promise.resolve()
          tracer.startSpan('sends').end()
        },
        untraced: () => {},
        bad: () => {
          throw new TypeError('bad')
        },
      },
      { onFailure: () => {} },
    )
    await failing
    const done = await until('all spans have ended', async () => {
      const found = spans()
      return found.filter(({ name }) => name === 'holdfast.job').length === 3 && found
    })
    await worker.stop()
    const jobSpan = (name: string) => done.find(({ attributes }) => attributes['holdfast.job'] === name)
    const mail = jobSpan('mail')
    expect(mail).toMatchObject({ kind: SpanKind.CONSUMER, status: { code: SpanStatusCode.UNSET } })
    expect(mail?.attributes).toMatchObject({ 'holdfast.outcome': 'completed', 'holdfast.job.attempt': 1 })
    expect(mail?.spanContext().traceId).toBe(request.spanContext().traceId)
    expect(mail?.parentSpanContext).toMatchObject({ spanId: request.spanContext().spanId, isRemote: true })
    const sends = done.find(({ name }) => name === 'sends')
    expect(sends?.parentSpanContext?.spanId).toBe(mail?.spanContext().spanId)
    expect(jobSpan('untraced')?.parentSpanContext).toBeUndefined()
    expect(jobSpan('bad')).toMatchObject({
      status: { code: SpanStatusCode.ERROR, message: 'bad' },
      attributes: { 'holdfast.outcome': 'dead', 'error.type': 'TypeError' },
    })
  })

  test('of a job that its handler gives back are no errors', async () => {
    await using scene = await openScene()
    const jobs = scene.open()
    await jobs.migrate()
    const { spans } = traced()
    await jobs.enqueue('mail')
    const worker = jobs.work({ mail: (job) => (job.attempt === 1 ? job.giveBack() : undefined) })
    await until('both attempts have ended', async () => spans().length === 2)
    await worker.stop()
    const [first] = spans()
    expect(first?.attributes).toMatchObject({ 'holdfast.outcome': 'given-back' })
    expect(first?.attributes).not.toHaveProperty('error.type')
    expect(first?.status).toEqual({ code: SpanStatusCode.UNSET })
  })

  test('of a run and of a term hold what they do', async () => {
    const { tracer, spans } = traced()
    const stage = new Stage()
    const member = stage.member('a', {})
    member.schedule.add('report', '* * * * *', () => tracer.startSpan('inside the run').end())
    member.schedule.start()
    await stage.clock.advance(70_000)
    await member.schedule.stop()
    const locks = opened()
    const worker = createLockWorker(locks, 'mailer', {
      start: () => tracer.startSpan('inside the term').end(),
      stop: () => {},
    })
    worker.start()
    await until('it has begun', async () => spans().some(({ name }) => name === 'inside the term'))
    await worker.stop()
    for (const [inner, outer, outcome] of [
      ['inside the run', 'holdfast.run', 'ok'],
      ['inside the term', 'holdfast.term', 'stopped'],
    ] as const) {
      const parent = spans().find(({ name }) => name === outer)
      expect(parent?.attributes).toMatchObject({ 'holdfast.outcome': outcome })
      const child = spans().find(({ name }) => name === inner)
      expect(child?.parentSpanContext?.spanId).toBe(parent?.spanContext().spanId)
    }
  })

  test('come with the same metrics, also those that the database is asked for', async () => {
    const backlog = { name: 'mail', state: 'ready', count: 3, oldestMs: 4500, isMore: false } as const
    const { collect } = traced({ jobs: { backlog: async () => [backlog] } })
    const locks = opened()
    await createLimit(locks, 'exports', { concurrency: 1 }).run('a', () => {})
    const found = await collect()
    expect(found.get('holdfast.oldest_job.duration')).toEqual([
      { labels: { 'holdfast.job': 'mail' }, value: 4.5 },
    ])
    expect(found.get('holdfast.jobs')).toContainEqual({
      labels: { 'holdfast.job': 'mail', 'holdfast.state': 'ready' },
      value: 3,
    })
    expect(found.get('holdfast.jobs_answered')).toEqual([{ labels: {}, value: 1 }])
    expect(found.get('holdfast.limit_calls')).toContainEqual({
      labels: { 'holdfast.limit': 'exports', 'holdfast.outcome': 'ran' },
      value: 1,
    })
  })
})

test('metrics of work go to the global provider, also to one that is set up later', async () => {
  onTestFinished(instrumentWork())
  const limit = createLimit(opened(), 'exports', { concurrency: 1 })
  await limit.run('a', () => {})
  const reader = new Reader()
  metrics.setGlobalMeterProvider(new MeterProvider({ readers: [reader] }))
  onTestFinished(() => metrics.disable())
  // The first call after it may be the one that is noticed.
  for (let call = 0; call < 2; call += 1) await limit.run('a', () => {})
  const { resourceMetrics } = await reader.collect()
  const found = resourceMetrics.scopeMetrics.flatMap((scope) => scope.metrics)
  const names = found
    .filter(({ dataPoints }) => dataPoints.length > 0)
    .map(({ descriptor }) => descriptor.name)
  expect(names).toContain('holdfast.limit_calls')
})

function opened(): Locks {
  const locks = createLocks(memoryStore())
  onTestFinished(() => locks.close())
  return locks
}

function measured(options: Omit<MeasureWorkOptions, 'registry'>) {
  const registry = new Registry()
  onTestFinished(measureWork({ registry, ...options }))
  const metrics = () => registry.metrics()
  return {
    registry,
    metrics,
    async value(name: string, labels: Readonly<Record<string, string>>): Promise<number | undefined> {
      const values = (await registry.getMetricsAsJSON()).flatMap((metric) =>
        (metric.values as unknown as Value[]).map((one) => ({ ...one, name: one.metricName ?? metric.name })),
      )
      return values.find((one) => one.name === name && JSON.stringify(one.labels) === JSON.stringify(labels))
        ?.value
    },
  }
}

interface Value {
  readonly metricName?: string
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

class Reader extends MetricReader {
  protected override async onForceFlush(): Promise<void> {}
  protected override async onShutdown(): Promise<void> {}
}

function traced(options: Parameters<typeof instrumentWork>[0] = {}) {
  const exporter = new InMemorySpanExporter()
  const tracerProvider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] })
  const reader = new Reader()
  const meterProvider = new MeterProvider({ readers: [reader] })
  onTestFinished(instrumentWork({ ...options, tracerProvider, meterProvider }))
  return {
    tracer: tracerProvider.getTracer('test'),
    spans: () => exporter.getFinishedSpans(),
    async collect() {
      const { resourceMetrics } = await reader.collect()
      const found = resourceMetrics.scopeMetrics.flatMap(({ metrics }) => metrics)
      return new Map(
        found.map(({ descriptor, dataPoints }) => [
          descriptor.name,
          (dataPoints as { attributes: object; value: unknown }[]).map(({ attributes, value }) => ({
            labels: attributes,
            value,
          })),
        ]),
      )
    },
  }
}
