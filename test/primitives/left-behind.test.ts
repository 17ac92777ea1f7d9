import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, test } from 'vitest'
import type { Lease } from '../../src/index.ts'
import { settled } from '../engine/fake-clock.ts'
import { realScene } from '../engine/scene.ts'

// The work of each turn starts the next turn, and does not wait for it: a loop of timers, a stream of events.
test('a loop that locks again from work it left behind keeps nothing of its earlier turns', async () => {
  const { locks } = realScene()
  const leases: WeakRef<Lease>[] = []
  const kept = await new Promise<number>((resolve, reject) => {
    const turn = (count: number) => {
      locks
        .withLock('job', (lease) => {
          if (count % 100 === 0) leases.push(new WeakRef(lease))
          if (count < TURNS) return void setImmediate(turn, count + 1)
          // The test counts from the last turn, whose scope would be the end of the chain. Scopes that were collected
          // are not walked through either, so the turns do not take longer and longer.
          setImmediate(() => {
            collectGarbage()
            resolve(leases.filter((one) => one.deref() !== undefined).length)
          })
        })
        .catch(reject)
    }
    turn(1)
  })
  expect(leases).toHaveLength(TURNS / 100)
  expect(kept).toBeLessThanOrEqual(2)
})

test('a scope that ended while work it left behind was waiting is forgotten when that work is done', async () => {
  const { locks } = realScene()
  const busy = await locks.acquire('busy')
  const left: Promise<unknown>[] = []
  const ended = await locks.withLock('outer', async (lease) => {
    left.push(
      locks.withLock('inner', async () => {
        const waiting = locks.withLock('busy', () => {})
        for (let turn = 0; turn < 5; turn += 1) await settled()
        await locks.withLock('third', () => {})
        await busy.release()
        await waiting
      }),
    )
    await settled()
    return new WeakRef(lease)
  })
  await Promise.all(left.splice(0))
  for (let turn = 0; turn < 5; turn += 1) {
    await settled()
    collectGarbage()
  }
  expect(ended.deref()).toBe(undefined)
})

const TURNS = 20_000
setFlagsFromString('--expose-gc')
const collectGarbage: () => void = runInNewContext('gc')
