import { AsyncLocalStorage } from 'node:async_hooks'
import { expect, test } from 'vitest'
import { createTaskQueue } from '../../src/queue/index.ts'
import { gate, outcomeOf, settled } from './gate.ts'

const unbounded = { maxActiveTasks: Number.POSITIVE_INFINITY, maxQueueSize: Number.POSITIVE_INFINITY }

test('run resolves with what the function returns, now or later', async () => {
  const queue = createTaskQueue(unbounded)
  expect(await queue.run(() => 1)).toBe(1)
  expect(await queue.run(async () => 'later')).toBe('later')
})

test('run rejects with the very error the function throws, and the next task runs', async () => {
  const queue = createTaskQueue({ ...unbounded, maxActiveTasks: 1 })
  const error = new Error('own')
  const failing = queue.run(() => {
    throw error
  })
  const failingLater = queue.run(async () => {
    throw error
  })
  const next = queue.run(() => 'next')
  await expect(failing).rejects.toBe(error)
  await expect(failingLater).rejects.toBe(error)
  expect(await next).toBe('next')
})

test('a function never starts before the call that adds it has returned', async () => {
  const queue = createTaskQueue(unbounded)
  let returned = false
  const seen = queue.run(() => returned)
  returned = true
  expect(await seen).toBe(true)
})

test('tasks of one group run one at a time, in the order in which they were added', async () => {
  const queue = createTaskQueue(unbounded)
  const log: string[] = []
  const gates = [gate(), gate(), gate()]
  const tasks = gates.map(({ opened }, index) =>
    queue.run({ group: 'a' }, async () => {
      log.push(`start ${index}`)
      await opened
      log.push(`end ${index}`)
    }),
  )
  // The gates are opened in the wrong order: a later task must not get ahead by being quick.
  for (const { open } of gates.toReversed()) open()
  await Promise.all(tasks)
  expect(log).toEqual(['start 0', 'end 0', 'start 1', 'end 1', 'start 2', 'end 2'])
})

test('groups run side by side, and so do tasks without a group', async () => {
  const queue = createTaskQueue(unbounded)
  const { opened, open } = gate()
  const tasks = [{ group: 'a' }, { group: 'b' }, {}, {}].map((options) => queue.run(options, () => opened))
  expect(queue.active).toBe(4)
  open()
  await Promise.all(tasks)
  expect(queue.active).toBe(0)
})

test('never more than maxActiveTasks are active over all groups, and never fewer while tasks wait', async () => {
  const queue = createTaskQueue({ ...unbounded, maxActiveTasks: 2 })
  const gates = Array.from({ length: 6 }, () => gate())
  let running = 0
  const tasks = gates.map(({ opened }, index) =>
    queue.run(index % 2 === 0 ? { group: `g${index}` } : {}, async () => {
      running += 1
      await opened
      running -= 1
    }),
  )
  for (const [index, { open }] of gates.entries()) {
    await settled()
    expect(running).toBe(Math.min(2, 6 - index))
    expect({ active: queue.active, size: queue.size }).toEqual({
      active: Math.min(2, 6 - index),
      size: Math.max(0, 4 - index),
    })
    open()
  }
  await Promise.all(tasks)
})

test('groups take turns: a group of a thousand tasks delays another one by a single turn', async () => {
  const queue = createTaskQueue({ ...unbounded, maxActiveTasks: 1 })
  const order: string[] = []
  for (let index = 0; index < 1000; index++) void queue.run({ group: 'busy' }, () => order.push('busy'))
  for (const group of ['b', 'c']) {
    for (let index = 0; index < 3; index++) void queue.run({ group }, () => order.push(group))
  }
  void queue.run(() => order.push('none'))
  await queue.onIdle()
  expect(order.slice(0, 10).join(' ')).toBe('busy b c none busy b c busy b c')
  expect(order).toHaveLength(1007)
})

test('a group whose task is active does not hold up the tasks of others that came later', async () => {
  const queue = createTaskQueue({ ...unbounded, maxActiveTasks: 2 })
  const { opened, open } = gate()
  const held = [queue.run({ group: 'a' }, () => opened), queue.run({ group: 'a' }, () => 'second')]
  expect(await queue.run({ group: 'b' }, () => 'other')).toBe('other')
  expect(queue.size).toBe(1)
  open()
  expect(await Promise.all(held)).toEqual([undefined, 'second'])
})

test('one task more than maxQueueSize is refused at once, and has no effect on the others', async () => {
  const queue = createTaskQueue({ maxActiveTasks: 1, maxQueueSize: 2 })
  const { opened, open } = gate()
  const taken = [0, 1, 2].map((index) => queue.run(() => opened.then(() => index)))
  let ran = false
  const refused = queue.run({ group: 'late' }, () => {
    ran = true
  })
  await expect(refused).rejects.toMatchObject({ code: 'queue-full', key: 'late' })
  open()
  expect(await Promise.all(taken)).toEqual([0, 1, 2])
  expect(ran).toBe(false)
  expect(await queue.run(() => 'room again')).toBe('room again')
})

test('a task that can start at once is taken however full the queue is', async () => {
  const queue = createTaskQueue({ maxActiveTasks: 2, maxQueueSize: 1 })
  const { opened, open } = gate()
  const tasks = [queue.run({ group: 'a' }, () => opened), queue.run({ group: 'a' }, () => opened)]
  expect(await queue.run({ group: 'b' }, () => 'free')).toBe('free')
  open()
  await Promise.all(tasks)
})

test('a producer that awaits onRoom is never refused', async () => {
  const queue = createTaskQueue({ maxActiveTasks: 2, maxQueueSize: 3 })
  let most = 0
  const tasks: Promise<void>[] = []
  for (let index = 0; index < 100; index++) {
    await queue.onRoom()
    tasks.push(queue.run({ group: `g${index % 5}` }, settled))
    most = Math.max(most, queue.size)
  }
  await Promise.all(tasks)
  expect(most).toBe(3)
})

test('onIdle resolves when the last task is over, and at once when there is none', async () => {
  const queue = createTaskQueue({ ...unbounded, maxActiveTasks: 1 })
  await queue.onIdle()
  const { opened, open } = gate()
  const tasks = [queue.run(() => opened), queue.run(() => opened)]
  let idle = false
  const idles = queue.onIdle().then(() => {
    idle = true
  })
  await settled()
  expect(idle).toBe(false)
  open()
  await idles
  expect({ size: queue.size, active: queue.active }).toEqual({ size: 0, active: 0 })
  await Promise.all(tasks)
})

test('a task may add tasks, also to its own group', async () => {
  const queue = createTaskQueue({ ...unbounded, maxActiveTasks: 1 })
  const order: string[] = []
  let inner: Promise<unknown> = Promise.resolve()
  await queue.run({ group: 'a' }, () => {
    inner = queue.run({ group: 'a' }, () => order.push('inner'))
    order.push('outer')
  })
  await inner
  expect(order).toEqual(['outer', 'inner'])
})

test('a function runs in the async context of the caller who added it, not of the task before', async () => {
  const queue = createTaskQueue({ ...unbounded, maxActiveTasks: 1 })
  const context = new AsyncLocalStorage<string>()
  const { opened, open } = gate()
  const seen = ['first', 'second', 'third'].map((name) =>
    context.run(name, () => queue.run({ group: 'a' }, () => opened.then(() => context.getStore()))),
  )
  open()
  expect(await Promise.all(seen)).toEqual(['first', 'second', 'third'])
})

test.each([
  [{ maxActiveTasks: 0, maxQueueSize: 1 }, 'Expected `maxActiveTasks` to be a whole number from 1 on'],
  [{ maxActiveTasks: 1.5, maxQueueSize: 1 }, 'got 1.5'],
  [{ maxActiveTasks: 1, maxQueueSize: Number.NaN }, 'Expected `maxQueueSize` to be'],
  [{ maxActiveTasks: 1, maxQueueSize: '5' }, 'got "5"'],
  [{ maxActiveTasks: 1 }, 'got undefined'],
  [{ maxActiveTasks: 1, maxQueueSize: 1, concurrency: 3 }, 'got `concurrency`'],
  [{ ...unbounded, maxRun: 0 }, 'Expected `maxRun` to be a duration from 1 ms to 24 days'],
  [{ ...unbounded, maxRun: '1 week' }, 'got "1 week"'],
  [{ ...unbounded, maxRun: '25000h' }, 'to 24 days'],
  [{ ...unbounded, onLateError: 'log' }, 'Expected `onLateError` to be a function'],
  [null, 'Expected the options to be an object, got null'],
])('createTaskQueue(%j) is refused in one clear sentence', (options, sentence) => {
  expect(() => createTaskQueue(options as never)).toThrow(
    expect.objectContaining({ code: 'invalid-argument', message: expect.stringContaining(sentence) }),
  )
})

test.each([
  [{ group: '' }, 'Expected `group` to be a string that is not empty, got ""'],
  [{ group: 7 }, 'got 7'],
  [{ signal: {} }, 'Expected `signal` to be an AbortSignal, got an object'],
  [{ wait: -1 }, 'Expected `wait` to be a duration from 0 ms'],
  [{ wait: '30' }, 'got "30"'],
  [{ maxRun: Number.NaN }, 'got NaN'],
  [{ priority: 1 }, 'got `priority`'],
])('a task with %j is refused with a rejection, and not run', async (options, sentence) => {
  const queue = createTaskQueue(unbounded)
  let ran = false
  const refused = queue.run(options as never, () => {
    ran = true
  })
  await expect(refused).rejects.toMatchObject({
    code: 'invalid-argument',
    message: expect.stringContaining(sentence),
  })
  expect(await outcomeOf(queue.enqueue(undefined as never))).toBe('invalid-argument')
  await settled()
  expect({ ran, size: queue.size, active: queue.active }).toEqual({ ran: false, size: 0, active: 0 })
})
