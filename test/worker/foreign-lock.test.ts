import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { lock } from 'proper-lockfile'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createActor } from 'xstate'
import { createLocks, type Lease, type LeaseLostError } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { lockWorkerMachine, type WorkerLease } from '../../src/worker/machine/index.ts'
import { block } from '../engine/block.ts'
import { until } from '../servers/until.ts'

let folder: string
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-lock-file-'))
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

// The machine as docs/worker.md shows it, over a lock that knows nothing of Holdfast, has no queue, and notices its
// loss late.
async function tryAcquire(): Promise<WorkerLease | null> {
  const loss = new AbortController()
  const options = {
    realpath: false,
    stale: 20_000,
    update: 1000,
    onCompromised: (error: Error) => loss.abort(error),
  }
  try {
    return { signal: loss.signal, release: await lock(join(folder, 'orders'), options) }
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ELOCKED') return null
    throw error
  }
}

async function acquire(signal: AbortSignal): Promise<WorkerLease> {
  for (;;) {
    const lease = await tryAcquire()
    if (lease !== null) return lease
    await sleep(20, undefined, { signal })
  }
}

test('the machine serves a lock file as well: one works, the other takes over, and a compromised lock ends the work', async () => {
  const working = new Set<string>()
  const calls: string[] = []
  const start = (name: string) => {
    const actor = createActor(lockWorkerMachine, {
      input: {
        lock: { tryAcquire, acquire },
        start: () => {
          expect(working.size).toBe(0)
          working.add(name)
          calls.push(`${name} starts`)
        },
        stop: (reason) => {
          working.delete(name)
          calls.push(`${name} ${reason}`)
        },
        grace: 10_000,
        backoff: 20,
        maxBackoff: 20,
        chance: Math.random,
      },
    }).start()
    actor.send({ type: 'start' })
    return actor
  }
  const first = start('first')
  await until('the first works', () => working.has('first'))
  const second = start('second')
  await until('the second waits', () => second.getSnapshot().matches('waiting'))
  first.send({ type: 'stop' })
  await until('the second works', () => working.has('second'))
  rmSync(join(folder, 'orders.lock'), { recursive: true })
  await until('the second has found out and works again', () => calls.length === 5)
  second.send({ type: 'stop' })
  await until('both are stopped', () =>
    [first, second].every((actor) => actor.getSnapshot().matches('stopped')),
  )
  expect(calls).toEqual([
    'first starts',
    'first stopped',
    'second starts',
    'second lost',
    'second starts',
    'second stopped',
  ])
})

test('the machine starts no work under a lease that ended while its event loop stood still', async () => {
  const locks = createLocks(memoryStore(), { ttl: 2000 })
  const fences: bigint[] = []
  const troubles: unknown[] = []
  let blocks = 2
  const tryAcquire = async () => {
    const lease = await locks.tryAcquire('k')
    // A listener reads the signal before the machine does. Then the event loop stands still for longer than the ttl.
    lease?.signal.addEventListener('abort', () => {})
    if (blocks-- > 0) block(2000)
    return lease
  }
  const actor = createActor(lockWorkerMachine, {
    input: {
      lock: { tryAcquire, acquire: () => locks.acquire('k', { wait: Number.POSITIVE_INFINITY }) },
      start: (lease) => {
        expect(lease.signal.aborted).toBe(false)
        fences.push((lease as Lease).fence)
      },
      stop: () => {},
      grace: 10_000,
      backoff: 10,
      maxBackoff: 10,
      chance: Math.random,
    },
  })
  actor.on('trouble', ({ during, error }) => troubles.push([during, (error as LeaseLostError).code]))
  actor.start()
  actor.send({ type: 'start' })
  await until('it works', () => fences.length === 1)
  expect(troubles).toEqual([
    ['hold', 'lease-lost'],
    ['hold', 'lease-lost'],
  ])
  actor.send({ type: 'stop' })
  await until('it has stopped', () => actor.getSnapshot().status === 'done')
  await locks.close()
})
