import { expect, test } from 'vitest'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { FakeClock } from '../engine/fake-clock.ts'
import { realScene, startProcess } from '../engine/scene.ts'

test.each([
  ['nobody listens', false],
  ['a listener hears of each key', true],
])('five thousand keys are held together without a deep stack: %s', async (_, listens) => {
  const { locks } = realScene()
  const heard: string[] = []
  if (listens) locks.on('working', ({ key }) => heard.push(key))
  const keys = keysOf(5000)
  expect(await locks.tryWithLocks(keys, (leases) => leases.keys.length)).toEqual({ ran: true, value: 5000 })
  expect(heard).toEqual(listens ? keys : [])
})

test('a set of eight times as many keys reads the clocks about eight times as often', async () => {
  class CountingClock extends FakeClock {
    reads = 0

    override monotonicMs(): number {
      this.reads += 1
      return super.monotonicMs()
    }
  }
  const readsFor = async (count: number): Promise<number> => {
    const clock = new CountingClock()
    const { locks } = startProcess(memoryStore(), clock)
    const keys = keysOf(count)
    await locks.withLocks(keys, () => {})
    const set = await locks.acquireAll(keys)
    await set.release()
    return clock.reads
  }
  expect((await readsFor(160)) / (await readsFor(20))).toBeLessThan(10)
})

/** In the order of a set. */
function keysOf(count: number): string[] {
  return Array.from({ length: count }, (_, at) => `key:${String(at).padStart(4, '0')}`)
}
