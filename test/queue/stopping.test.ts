import { setTimeout as delay } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { createTaskQueue } from '../../src/queue/index.ts'
import { gate, outcomeOf, settled } from './gate.ts'

const oneAtATime = { maxActiveTasks: 1, maxQueueSize: Number.POSITIVE_INFINITY }

test('a stopped queue takes no new tasks', async () => {
  const queue = createTaskQueue(oneAtATime)
  await queue.stop()
  expect(await outcomeOf(queue.run(() => 1))).toBe('closed')
  expect(await outcomeOf(queue.enqueue(({ ack }) => ack()))).toBe('closed')
})

test('stop rejects waiting tasks at once, and waits for active ones', async () => {
  const queue = createTaskQueue(oneAtATime)
  const { opened, open } = gate()
  const active = queue.run({ group: 'a' }, () => opened.then(() => 'finished'))
  await settled()
  const order: string[] = []
  const waiting = [{ group: 'a' }, { group: 'b' }, {}].map((options, index) =>
    outcomeOf(queue.run(options, () => 1)).then((outcome) => {
      order.push(`${index}`)
      return outcome
    }),
  )
  const stopping = queue.stop().then(() => order.push('stopped'))
  expect(await Promise.all(waiting)).toEqual(['closed', 'closed', 'closed'])
  expect({ size: queue.size, active: queue.active }).toEqual({ size: 0, active: 1 })
  open()
  expect(await active).toBe('finished')
  await stopping
  expect(order).toEqual(['0', '1', '2', 'stopped'])
  expect(queue.active).toBe(0)
})

test('a task that has its place already is carried out, although stop came before its function was called', async () => {
  const queue = createTaskQueue(oneAtATime)
  const task = queue.run(() => 'done')
  await queue.stop()
  expect(await task).toBe('done')
})

test('stop by force never calls the function of a task that did not start', async () => {
  const queue = createTaskQueue(oneAtATime)
  let ran = false
  const task = outcomeOf(
    queue.run(() => {
      ran = true
    }),
  )
  await queue.stop({ force: true })
  expect(await task).toBe('closed')
  await settled()
  expect(ran).toBe(false)
})

test('stop by force aborts the signal of active tasks and settles even those that do not listen', async () => {
  const queue = createTaskQueue({ ...oneAtATime, maxActiveTasks: 2 })
  let reason: unknown
  const deaf = outcomeOf(queue.run(() => new Promise(() => {})))
  const listening = outcomeOf(
    queue.enqueue(({ signal }) => {
      signal.addEventListener('abort', () => {
        reason = signal.reason
      })
      return new Promise(() => {})
    }),
  )
  await settled()
  await queue.stop({ force: true })
  expect(await Promise.all([deaf, listening])).toEqual(['closed', 'closed'])
  expect(reason).toMatchObject({ code: 'closed' })
  expect({ size: queue.size, active: queue.active }).toEqual({ size: 0, active: 0 })
})

test('stop by force with a timeout lets tasks that listen end in their own way', async () => {
  const queue = createTaskQueue({ ...oneAtATime, maxActiveTasks: 2 })
  const tidy = queue.run(async ({ signal }) => {
    await delay(60_000, undefined, { signal }).catch(() => {})
    await settled()
    return 'tidied up'
  })
  const deaf = outcomeOf(queue.run(() => new Promise(() => {})))
  await settled()
  await queue.stop({ force: true, grace: 50 })
  expect(await tidy).toBe('tidied up')
  expect(await deaf).toBe('closed')
})

test('stop with a timeout leaves active tasks undisturbed until then, and gives up the rest', async () => {
  const queue = createTaskQueue({ ...oneAtATime, maxActiveTasks: 2 })
  const quick = queue.run(({ signal }) => settled().then(() => signal.aborted))
  const deaf = outcomeOf(queue.run(() => new Promise(() => {})))
  await settled()
  await queue.stop({ grace: '40ms' })
  expect(await quick).toBe(false)
  expect(await deaf).toBe('closed')
})

test('stop with a timeout resolves as soon as nothing is active', async () => {
  const queue = createTaskQueue(oneAtATime)
  const task = queue.run(settled)
  const startedAt = performance.now()
  await queue.stop({ grace: '10m' })
  await task
  expect(performance.now() - startedAt).toBeLessThan(5000)
})

test('stop may be called again and again, and a stronger call ends a weaker one', async () => {
  const queue = createTaskQueue(oneAtATime)
  const deaf = outcomeOf(queue.run(() => new Promise(() => {})))
  await settled()
  const patient = [queue.stop(), queue.stop(), queue.drain()]
  await queue.stop({ force: true })
  await Promise.all(patient)
  expect(await deaf).toBe('closed')
  await queue.stop()
  await queue.stop({ force: true })
})

test('drain takes no new tasks and carries out all that were added', async () => {
  const queue = createTaskQueue(oneAtATime)
  const tasks = [1, 2, 3].map((index) => queue.run(() => settled().then(() => index)))
  const drained = queue.drain()
  await expect(queue.run(() => 4)).rejects.toMatchObject({
    code: 'closed',
    message: 'The task queue takes no new tasks: it was drained or stopped.',
  })
  await drained
  expect({ size: queue.size, active: queue.active }).toEqual({ size: 0, active: 0 })
  expect(await Promise.all(tasks)).toEqual([1, 2, 3])
})

test('stop during drain rejects the tasks that still wait, and both resolve', async () => {
  const queue = createTaskQueue(oneAtATime)
  const { opened, open } = gate()
  const active = queue.run(() => opened)
  const waiting = expect(queue.run(() => 1)).rejects.toMatchObject({
    code: 'closed',
    message: 'The task queue is stopped: it takes no new tasks and starts none that waited.',
  })
  const drained = queue.drain()
  const stopping = queue.stop()
  await waiting
  open()
  await Promise.all([active, drained, stopping])
})

test('stop settles all callers that wait for the queue', async () => {
  const queue = createTaskQueue({ maxActiveTasks: 1, maxQueueSize: 1 })
  const tasks = [queue.run(() => new Promise(() => {})), queue.run(() => 1)].map(outcomeOf)
  const waiting = [queue.onRoom(), queue.onIdle()]
  await queue.stop({ force: true })
  await Promise.all(waiting)
  expect(await Promise.all(tasks)).toEqual(['closed', 'closed'])
})

test('stop from within a task is possible, as long as the task does not wait for it', async () => {
  const queue = createTaskQueue(oneAtATime)
  let stopping: Promise<void> = Promise.resolve()
  const task = queue.run(() => {
    stopping = queue.stop()
    return 'last one'
  })
  const waiting = outcomeOf(queue.run(() => 1))
  expect(await task).toBe('last one')
  expect(await waiting).toBe('closed')
  await stopping
})

test('leaving `await using` stops the queue', async () => {
  const queue = createTaskQueue(oneAtATime)
  const task = queue.run(() => settled().then(() => 'done'))
  await queue[Symbol.asyncDispose]()
  expect(await task).toBe('done')
  expect(await outcomeOf(queue.run(() => 1))).toBe('closed')
})

test.each([{ force: 'yes' }, { grace: 'soon' }, { timeout: 5 }])(
  'stop(%j) is refused and stops nothing',
  async (options) => {
    const queue = createTaskQueue(oneAtATime)
    expect(await outcomeOf(queue.stop(options as never))).toBe('invalid-argument')
    expect(await queue.run(() => 'still open')).toBe('still open')
  },
)

test('no timer of the queue keeps the process alive', async () => {
  const keepingAlive = () => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length
  const before = keepingAlive()
  const queue = createTaskQueue({ ...oneAtATime, maxRun: '1h' })
  const tasks = [queue.run(() => new Promise(() => {})), queue.run({ wait: '1h' }, () => 1)].map(outcomeOf)
  // The test waits by microtasks only, so no other timer of this process can start or end in between.
  for (let turn = 0; turn < 5; turn++) await null
  void queue.stop({ grace: '1h' })
  for (let turn = 0; turn < 5; turn++) await null
  expect(keepingAlive()).toBe(before)
  await queue.stop({ force: true })
  expect(await Promise.all(tasks)).toEqual(['closed', 'closed'])
})
