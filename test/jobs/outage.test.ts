import { fork } from 'node:child_process'
import { once } from 'node:events'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { bundled } from '../servers/bundled.ts'
import { until } from '../servers/until.ts'
import { closeSharedServer, openProxied, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

const many = (count: number) => Array.from({ length: count }, (_, n) => ({ name: 'a', payload: n }))

test.each([1, 2])('a worker with %i places goes on after an outage of half a second', async (concurrency) => {
  await using proxied = await openProxied()
  const { scene, direct, proxy, url } = proxied
  await direct.enqueueAll(many(100))
  const errors: unknown[] = []
  let ended = 0
  scene.open({}, { url }).work(
    {
      a: async () => {
        await new Promise((resolve) => setTimeout(resolve, 20))
        ended += 1
      },
    },
    { concurrency, ttl: '1h', pollInterval: 100, onError: (error) => errors.push(error) },
  )
  await until('some have ended', () => ended >= 10)
  proxy.refuse()
  const outUntil = performance.now() + 500
  await until('the outage is over', () => errors.length > 0 && performance.now() > outUntil)
  proxy.normal()
  await until('all are completed', async () =>
    (await direct.count()).every(({ state }) => state === 'completed'),
  )
  for (const error of errors) expect(error).toMatchObject({ code: 'store-unavailable' })
})

test('a worker whose only place is taken keeps its process alive until it is stopped', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const id = (await jobs.enqueue('a')) ?? ''
  const program = await bundled(new URL('unref-worker.ts', import.meta.url))
  const child = fork(program, [scene.server.url, scene.schema], {
    execArgv: [],
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
  })
  let said = ''
  child.stdout?.on('data', (bytes) => {
    said += String(bytes)
  })
  const [code] = await once(child, 'close')
  expect([code, said]).toEqual([0, 'ended\nexit\n'])
  expect(await jobs.find(id)).toMatchObject({ state: 'completed', attempt: 1 })
})
