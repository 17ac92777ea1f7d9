import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, test } from 'vitest'
import { createTaskQueue } from '../../src/queue/index.ts'
import { cpuMs, undisturbed } from '../base/measured.ts'
import { gate } from './gate.ts'

setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc') as () => void

function heapBytes(): number {
  collectGarbage()
  return process.memoryUsage().heapUsed
}

const MEGABYTE = 1024 * 1024

test('a million tasks of a million groups leave nothing behind: no group, timer or listener', async () => {
  const queue = createTaskQueue({ maxActiveTasks: 16, maxQueueSize: 1000, maxRun: '1h' })
  const { signal } = new AbortController()
  let ran = 0
  const add = async (count: number) => {
    for (let index = 0; index < count; index++) {
      await queue.onRoom()
      void queue.run({ group: `group:${ran + queue.size + queue.active}`, signal, wait: '1h' }, async () => {
        ran += 1
      })
    }
    await queue.onIdle()
  }
  await add(20_000)
  const before = heapBytes()
  await add(1_000_000)
  expect(ran).toBe(1_020_000)
  // A single leaked object of 16 bytes per task would be 15 MB.
  expect(heapBytes() - before).toBeLessThan(4 * MEGABYTE)
})

test('adding and running a task costs the same with 10 and with 300,000 tasks in the queue', async () => {
  const microsecondsPerTask = async (waiting: number, rounds: number, groups: number) => {
    const queue = createTaskQueue({ maxActiveTasks: 4, maxQueueSize: Number.POSITIVE_INFINITY })
    const begun = cpuMs()
    for (let round = 0; round < rounds; round++) {
      for (let index = 0; index < waiting; index++) {
        void queue.run({ group: `g${index % groups}` }, async () => {})
      }
      await queue.onIdle()
    }
    return ((cpuMs() - begun) * 1000) / (waiting * rounds)
  }
  await microsecondsPerTask(10, 5000, 3)
  const short = await microsecondsPerTask(10, 30_000, 3)
  const oneGroup = await microsecondsPerTask(300_000, 1, 1)
  const manyGroups = await microsecondsPerTask(300_000, 1, 100_000)
  // Measured: 1.4 to 2.5 times, because of the objects that the garbage collector visits. A scan would be thousands of
  // times.
  expect(oneGroup / short).toBeLessThan(20)
  expect(manyGroups / short).toBeLessThan(20)
})

test('leaving the middle of 200,000 waiting tasks costs the same as leaving a short queue', async () => {
  const microsecondsPerTask = async (half: number) => {
    const queue = createTaskQueue({ maxActiveTasks: 1, maxQueueSize: Number.POSITIVE_INFINITY })
    const { opened, open } = gate()
    const held = queue.run(() => opened)
    const controllers = Array.from({ length: 2 * half }, () => new AbortController())
    let left = 0
    let ran = 0
    for (const { signal } of controllers) {
      queue.run({ group: 'a', signal }, () => ran++).catch(() => left++)
    }
    const begun = cpuMs()
    for (const [index, controller] of controllers.entries()) if (index % 2 === 1) controller.abort()
    const spent = cpuMs() - begun
    expect(queue.size).toBe(half)
    open()
    await held
    await queue.onIdle()
    expect({ ran, left }).toEqual({ ran: half, left: half })
    return (spent * 1000) / half
  }
  await microsecondsPerTask(5000)
  const timesShort = await undisturbed(
    (times) => times < 2,
    async () => {
      const short = await microsecondsPerTask(5000)
      return (await microsecondsPerTask(100_000)) / short
    },
  )
  // Measured: 0.4 to 0.7 times, because the code gets warm. Searching the queue would take 10,000,000,000 steps.
  expect(timesShort).toBeLessThan(2)
})
