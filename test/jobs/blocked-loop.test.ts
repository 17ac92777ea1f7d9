import { fork } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { bundled } from '../servers/bundled.ts'
import { startProxy } from '../servers/tcp-proxy.ts'
import { until } from '../servers/until.ts'
import { closeSharedServer, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

interface Told {
  readonly begun?: string
  readonly failed?: string
  readonly outcome?: string
  readonly told?: unknown
}

test('a job is not begun once its lease is over because the handler before it has blocked the event loop', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const ids = await jobs.enqueueAll([{ name: 'a' }, { name: 'a' }, { name: 'a' }])
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-blocked-'))
  const gate = join(folder, 'gate')
  const program = await bundled(new URL('blocking-worker.ts', import.meta.url))
  const child = fork(program, [scene.server.url, scene.schema, gate], { execArgv: [] })
  const heard: Told[] = []
  child.on('message', (message: Told) => heard.push(message))
  try {
    // No other worker may have the jobs before the leases of the blocked process are over.
    const taken: string[] = []
    await until(
      'they were taken over',
      async () => {
        if (heard.length > 0)
          for (const { id } of await jobs.claim('a', { limit: 3, ttl: '1h' })) taken.push(id)
        return taken.length === 3
      },
      { everyMs: 50 },
    )
    writeFileSync(gate, '')
    await until('its job is lost', () => heard.some(({ outcome }) => outcome === 'lost'))
    // This job is enqueued last, so it begins after the others were given back.
    const last = await jobs.enqueue('a')
    await until('another one is begun', () => heard.some(({ begun }) => begun === last))
    expect(heard.flatMap(({ begun }) => begun ?? [])).toEqual([ids[0], last])
    expect(heard.filter(({ outcome }) => outcome !== undefined)).toEqual([
      { failed: ids[0], outcome: 'lost' },
    ])
    expect(heard.find(({ told }) => told !== undefined)).toEqual({ told: [true, 'lease-lost'] })
    for (const id of ids) expect(await jobs.find(id ?? '')).toMatchObject({ state: 'running' })
  } finally {
    child.kill('SIGKILL')
    rmSync(folder, { recursive: true })
  }
})

test('a job that was not begun in time and that no other worker has is ready again, without a failure', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  // The first job is lost, and does not come back before the second one.
  const ids = await jobs.enqueueAll([
    { name: 'a', backoff: '1h' },
    { name: 'a', maxAttempts: 1 },
  ])
  const begun: [string, number][] = []
  jobs.work(
    {
      a: ({ id, attempt }) => {
        begun.push([id, attempt])
        if (begun.length === 1) block(1100)
      },
    },
    { ttl: '1s', concurrency: 2, onFailure: () => {} },
  )
  await until('both have run', async () => (await jobs.find(ids[1] ?? ''))?.state === 'completed')
  // On a busy machine the first claim may be late itself, and both are claimed once more.
  const [first, second] = begun
  expect([first?.[0], second?.[0]]).toEqual([ids[0], ids[1]])
  expect(second?.[1]).toBeGreaterThan(first?.[1] ?? Number.POSITIVE_INFINITY)
  expect(await jobs.find(ids[1] ?? '')).toMatchObject({ failures: 0 })
})

test('a claim whose answer comes after its leases are over gives the jobs back, and says so', async () => {
  await using scene = await openScene()
  const direct = scene.open()
  await direct.migrate()
  const id = (await direct.enqueue('a')) ?? ''
  await using proxy = await startProxy({ targetPort: scene.server.port })
  const jobs = scene.open(
    {},
    { url: scene.server.url.replace(String(scene.server.port), String(proxy.port)) },
  )
  await jobs.count()
  proxy.delay({ replyMs: 300 })
  await expect(jobs.claim('a', { ttl: 100 })).rejects.toMatchObject({ code: 'store-unavailable' })
  expect(await direct.find(id)).toMatchObject({ state: 'ready', attempt: 1, failures: 0 })
})

test('assertHeld of a claimed job looks at the clocks on the spot', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll([{ name: 'a' }, { name: 'a' }])
  const [long] = await jobs.claim('a', { ttl: '1h' })
  const [short] = await jobs.claim('a', { ttl: '3s' })
  block(3000)
  expect(() => long?.assertHeld()).not.toThrow()
  expect(() => short?.assertHeld()).toThrow(
    expect.objectContaining({ code: 'lease-lost', reason: 'expired', key: short?.id }),
  )
})

/** Blocks the event loop, as a handler that computes does: no timer fires, and no answer is read. */
function block(forMs: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, forMs)
}
