import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { startPostgres } from '../servers/postgres-server.ts'
import { startProxy } from '../servers/tcp-proxy.ts'
import { until } from '../servers/until.ts'
import { CLIENT_KINDS, closeSharedServer, JobsScene, openProxied, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

/** Longer than a silent connection is kept and the next one may take to open. */
const SILENCE_MS = 20_000

describe.concurrent('after a silence of twenty seconds a worker goes on by itself', () => {
  const cases = CLIENT_KINDS.flatMap((kind) =>
    (['the server hangs', 'the network is cut'] as const).map((what) => [kind, what] as const),
  )

  test.for(cases)('with %s, when %s', async ([kind, what]) => {
    await using server = await startPostgres()
    await using proxy = await startProxy({ targetPort: server.port })
    await using scene = new JobsScene(server)
    const url = server.url.replace(`:${server.port}/`, `:${proxy.port}/`)
    const jobs = scene.open({}, { kind, url })
    await jobs.migrate()
    const done = new Set<unknown>()
    const errors: unknown[] = []
    const work = () =>
      scene
        .open({}, { kind, url })
        .work(
          { a: ({ payload }) => void done.add(payload) },
          { ttl: '3s', onError: (error) => errors.push(error), onFailure: () => {} },
        )
    work()
    await jobs.enqueue('a', 'before')
    await until('the first is done', () => done.has('before'))

    await (what === 'the server hangs' ? server.pause() : proxy.halfOpen())
    const silentUntil = performance.now() + SILENCE_MS
    // The very first connection of this worker meets the silence.
    work()
    await until('the silence is over', () => performance.now() > silentUntil)
    // Connections from before the end of the silence never carry a byte again, unless the server itself hung.
    if (what === 'the server hangs') server.resume()
    else proxy.strand()

    const enqueued = () =>
      jobs.enqueue('a', 'after', { key: 'after' }).then(
        () => true,
        () => false,
      )
    await until('it can be enqueued', enqueued)
    await until('it is done', () => done.has('after'))
    for (const error of errors) expect(error).toMatchObject({ code: 'store-unavailable' })
  })
})

test.each(CLIENT_KINDS)(
  'with %s, the renewals of a connection that falls silent go over another one in time',
  async (kind) => {
    await using proxied = await openProxied()
    const { scene, direct, proxy, url } = proxied
    const id = (await direct.enqueue('a')) ?? ''
    // A renewal that waited for its limit of ten seconds would come too late.
    const ttlMs = 12_000
    let told: unknown
    scene.open({}, { kind, url }).work(
      {
        a: async (job) => {
          const renewedAfter = (ms: number) =>
            until('it was renewed', async () => {
              const [row] = await scene.sql(
                `select due_at > started_at + interval '${ttlMs + ms} ms' as renewed from $schema.jobs where id = ${id}`,
              )
              return job.signal.aborted || row?.['renewed'] === true
            })
          await renewedAfter(500)
          expect(proxy.silence('holdfast jobs renewal')).toBe(1)
          await renewedAfter(ttlMs)
          told = job.signal.reason ?? 'nothing'
        },
      },
      { ttl: ttlMs, onError: () => {}, onFailure: () => {} },
    )
    await until('it is told', () => told !== undefined)
    expect(told).toBe('nothing')
  },
)
