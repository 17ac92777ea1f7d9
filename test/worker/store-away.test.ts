import { expect, test } from 'vitest'
import { createLockWorker, type LockWorkerOptions } from '../../src/worker/index.ts'
import { awakeMs } from '../base/measured.ts'
import { inScene, type Scene } from '../faults/scene.ts'
import { until } from '../servers/until.ts'

/** Longer than a busy machine keeps this process from a renewal. */
const TTL_MS = 6000

function workerIn(scene: Scene, options: Partial<LockWorkerOptions> = {}) {
  const calls: string[] = []
  const errors: unknown[] = []
  const worker = createLockWorker(scene.proxied(), 'k', {
    start: () => {
      calls.push('start')
    },
    stop: (reason) => {
      calls.push(reason)
    },
    onError: (error) => errors.push(error),
    backoff: 50,
    maxBackoff: 200,
    ...options,
  })
  const reaches = (state: string) => until(`it is ${state}`, () => worker.state === state)
  return { worker, calls, errors, reaches }
}

test.concurrent(
  'a store that is silent for a while puts the lease in jeopardy, and the work goes on without a pause',
  inScene(
    async (scene) => {
      const { worker, calls, errors, reaches } = workerIn(scene, { ttl: 2 * TTL_MS })
      worker.start()
      await reaches('working')
      scene.proxy.halfOpen()
      await reaches('jeopardy')
      scene.proxy.normal()
      await reaches('working')
      expect([calls, errors]).toEqual([['start'], []])
      await worker.stop()
    },
    { cancels: true },
  ),
)

test.concurrent(
  'a store that is silent for longer costs the key at the deadline, and the worker asks it again until it is back',
  inScene(
    async (scene) => {
      const { worker, calls, errors, reaches } = workerIn(scene, { ttl: TTL_MS })
      worker.start()
      await reaches('working')
      scene.proxy.refuse()
      // The worker loses the key by its own clock, and no later than the store would let the next ticket in. The rest
      // of the time is for a busy machine.
      const tookMs = await awakeMs(() => until('it has ended its work', () => calls.includes('lost')))
      expect(tookMs).toBeLessThan(TTL_MS + 2000)
      await reaches('trying')
      scene.proxy.normal()
      await reaches('working')
      expect(calls).toEqual(['start', 'lost', 'start'])
      expect(errors[0]).toMatchObject({ code: 'lease-lost', reason: 'expired' })
      await worker.stop()
    },
    { cancels: true },
  ),
)

test.concurrent(
  'a store that is away while the worker tries makes the worker pause and try again, and it can be stopped at any moment of that',
  inScene(
    async (scene) => {
      const trying = workerIn(scene)
      const again = workerIn(scene)
      const pausing = workerIn(scene, { backoff: '1h', maxBackoff: '1h' })
      scene.proxy.refuse()
      for (const { worker } of [trying, again, pausing]) worker.start()
      await trying.worker.stop()
      await pausing.reaches('pausing')
      expect(pausing.errors).toMatchObject([{ code: 'store-unavailable' }])
      await pausing.worker.stop()
      await until('it was refused', () => again.errors.length > 0)
      scene.proxy.normal()
      await again.reaches('working')
      await again.worker.stop()
      expect([trying.calls, pausing.calls, again.calls]).toEqual([[], [], ['start', 'stopped']])
    },
    { cancels: true },
  ),
)

test.concurrent(
  'a store that is silent when the work is done keeps neither the worker nor its locks for longer than seconds',
  inScene(
    async (scene) => {
      const { worker, calls, errors, reaches } = workerIn(scene, { ttl: '1m' })
      worker.start()
      await reaches('working')
      scene.proxy.halfOpen()
      const toldAt = performance.now()
      await worker.stop()
      expect(worker.state).toBe('stopped')
      await scene.close()
      expect(performance.now() - toldAt).toBeLessThan(20_000)
      expect([calls, errors]).toEqual([['start', 'stopped'], []])
      // The worker could not tell the store, so it lets the key run out.
      expect(await scene.direct().evictAll('k', { reason: 'the test is over' })).toHaveLength(1)
    },
    { cancels: true },
  ),
)
