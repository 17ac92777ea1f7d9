import { getEventListeners } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { createTaskQueue } from '../../src/queue/index.ts'
import { cpuMs, undisturbed } from '../base/measured.ts'
import { gate, outcomeOf, settled } from './gate.ts'

const oneAtATime = { maxActiveTasks: 1, maxQueueSize: Number.POSITIVE_INFINITY }

test('a signal that is aborted already refuses the task', async () => {
  const queue = createTaskQueue(oneAtATime)
  const reason = new Error('too late')
  await expect(queue.run({ signal: AbortSignal.abort(reason) }, () => 1)).rejects.toBe(reason)
  expect({ size: queue.size, active: queue.active }).toEqual({ size: 0, active: 0 })
})

test('aborting a task that waits rejects it at once with the reason and leaves the order of the others', async () => {
  const queue = createTaskQueue(oneAtATime)
  const { opened, open } = gate()
  const order: number[] = []
  const controllers = Array.from({ length: 5 }, () => new AbortController())
  const held = queue.run({ group: 'a' }, () => opened)
  const tasks = controllers.map(({ signal }, index) =>
    outcomeOf(queue.run({ group: 'a', signal }, () => order.push(index))),
  )
  const reason = new Error('not needed')
  for (const index of [0, 2, 4]) controllers[index]?.abort(reason)
  expect(queue.size).toBe(2)
  expect(await tasks[2]).toEqual({ error: reason })
  open()
  await held
  await Promise.all(tasks)
  expect(order).toEqual([1, 3])
})

test('a group whose waiting tasks are all aborted leaves nothing behind and can be used again', async () => {
  const queue = createTaskQueue(oneAtATime)
  const { opened, open } = gate()
  const held = queue.run(() => opened)
  const controller = new AbortController()
  const tasks = [1, 2].map(() => outcomeOf(queue.run({ group: 'a', signal: controller.signal }, () => 1)))
  controller.abort(new Error('not needed'))
  await Promise.all(tasks)
  expect(queue.size).toBe(0)
  const again = queue.run({ group: 'a' }, () => 'again')
  open()
  await held
  expect(await again).toBe('again')
})

test('aborting a task that has a place but did not start frees the place and never calls the function', async () => {
  const queue = createTaskQueue(oneAtATime)
  const controller = new AbortController()
  let ran = false
  const task = outcomeOf(
    queue.run({ signal: controller.signal }, () => {
      ran = true
    }),
  )
  const next = queue.run(() => 'next')
  controller.abort(new Error('not needed'))
  await task
  expect(await next).toBe('next')
  expect(ran).toBe(false)
})

test('aborting a running task aborts its signal with the same reason, and the task decides how it ends', async () => {
  const queue = createTaskQueue({ ...oneAtATime, maxActiveTasks: 3 })
  const controller = new AbortController()
  const { opened, open } = gate()
  const options = { signal: controller.signal }
  const obedient = outcomeOf(queue.run(options, ({ signal }) => delay(60_000, undefined, { signal })))
  const salvaging = queue.enqueue<string>(
    options,
    ({ ack, signal }) =>
      new Promise<void>((resolve) => {
        signal.addEventListener('abort', () => {
          ack('half of it')
          resolve()
        })
      }),
  )
  const deaf = queue.run(options, ({ signal }) => opened.then(() => signal.reason))
  await settled()
  const reason = new Error('enough')
  controller.abort(reason)
  expect(await obedient).toBe('ABORT_ERR')
  expect(await salvaging).toBe('half of it')
  await settled()
  expect(queue.active).toBe(1)
  open()
  expect(await deaf).toBe(reason)
})

test('a signal that several tasks share still reaches the others after one of them is over', async () => {
  const queue = createTaskQueue(oneAtATime)
  const controller = new AbortController()
  const options = { signal: controller.signal }
  const { opened, open } = gate()
  const first = queue.run(options, () => 'over')
  const second = queue.run(options, ({ signal }) => opened.then(() => signal.aborted))
  const third = outcomeOf(queue.run(options, () => 'ran'))
  expect(await first).toBe('over')
  await settled()
  const reason = new Error('enough')
  controller.abort(reason)
  expect(await third).toEqual({ error: reason })
  open()
  expect(await second).toBe(true)
})

test('a signal is no longer listened to once its tasks are over, however they ended', async () => {
  const queue = createTaskQueue({ maxActiveTasks: 1, maxQueueSize: 3 })
  const { signal } = new AbortController()
  const tasks = [
    queue.run({ signal }, () => 'runs'),
    queue.enqueue({ signal }, () => {}),
    queue.run({ signal, wait: 0 }, settled),
    queue.run({ signal }, () => 1),
    queue.run({ signal }, () => 2),
  ]
  expect(getEventListeners(signal, 'abort')).toHaveLength(1)
  const outcomes = await Promise.all(tasks.map(outcomeOf))
  expect(outcomes).toEqual([{ value: 'runs' }, 'task-failed', 'start-timeout', { value: 1 }, { value: 2 }])
  expect(getEventListeners(signal, 'abort')).toHaveLength(0)
})

test('100,000 waiting tasks share one signal, and aborting it rejects them all, in linear time', async () => {
  const cpuMsPerTask = async (count: number) => {
    const queue = createTaskQueue(oneAtATime)
    const { opened, open } = gate()
    const held = queue.run(() => opened)
    const controller = new AbortController()
    const reason = new Error('shutdown')
    const begun = cpuMs()
    const tasks = Array.from({ length: count }, (_, index) =>
      queue
        .run({ group: `g${index % 100}`, signal: controller.signal }, () => index)
        .catch((error: unknown) => error),
    )
    controller.abort(reason)
    const outcomes = await Promise.all(tasks)
    const spent = cpuMs() - begun
    expect(outcomes.every((outcome) => outcome === reason)).toBe(true)
    expect(queue.size).toBe(0)
    open()
    await held
    return spent / count
  }
  await cpuMsPerTask(1000)
  const timesFew = await undisturbed(
    (times) => times < 2,
    async () => {
      const few = await cpuMsPerTask(1000)
      return (await cpuMsPerTask(100_000)) / few
    },
  )
  // Measured: 0.4, because the code gets warm. With one listener each, adding one walks over all of
  // them: 15 s in all.
  expect(timesFew).toBeLessThan(2)
})

test('a task that is not started within `wait` leaves the queue and never runs', async () => {
  const queue = createTaskQueue(oneAtATime)
  const { opened, open } = gate()
  const held = queue.run(() => opened)
  let ran = false
  const task = queue.run({ wait: '20ms', group: 'a' }, () => {
    ran = true
  })
  await expect(task).rejects.toMatchObject({ code: 'start-timeout', key: 'a', waitedMs: 20 })
  expect(queue.size).toBe(0)
  open()
  await held
  await queue.onIdle()
  expect(ran).toBe(false)
})

test('a task whose `wait` is over never runs, also if the task before it has blocked the event loop', async () => {
  const queue = createTaskQueue(oneAtATime)
  const held = queue.run(async () => {
    await settled()
    const until = performance.now() + 100
    while (performance.now() < until);
  })
  const late = outcomeOf(queue.run({ wait: '50ms' }, () => 'ran'))
  const next = queue.run(() => 'next')
  await held
  expect(await late).toBe('start-timeout')
  expect(await next).toBe('next')
  expect({ size: queue.size, active: queue.active }).toEqual({ size: 0, active: 0 })
})

test('`wait` bounds the wait only: a task that started in time may take longer', async () => {
  const queue = createTaskQueue(oneAtATime)
  const held = queue.run(() => settled())
  const slow = queue.run({ wait: 1000 }, () => delay(1500, 'slow'))
  await held
  expect(await slow).toBe('slow')
})

test('with `wait: 0` a task starts at once or not at all', async () => {
  const queue = createTaskQueue(oneAtATime)
  const { opened, open } = gate()
  const held = queue.run({ wait: 0 }, () => opened)
  expect(await outcomeOf(queue.run({ wait: 0 }, () => 1))).toBe('start-timeout')
  expect({ size: queue.size, active: queue.active }).toEqual({ size: 0, active: 1 })
  open()
  await held
})

test('a task that never acknowledges is given up after maxRun, told so, and the next one runs', async () => {
  const queue = createTaskQueue({ ...oneAtATime, maxRun: 20 })
  let reason: unknown
  const stuck = queue.enqueue(({ signal }) => {
    signal.addEventListener('abort', () => {
      reason = signal.reason
    })
    return new Promise(() => {})
  })
  const next = queue.run(() => 'next')
  await expect(stuck).rejects.toMatchObject({
    code: 'task-failed',
    message: expect.stringContaining('within 20 ms'),
  })
  await expect(stuck).rejects.toBe(reason)
  expect(await next).toBe('next')
})

test('nothing that a task does after maxRun has an effect, and only its own errors are reported', async () => {
  const late: unknown[] = []
  const queue = createTaskQueue({
    maxActiveTasks: 3,
    maxQueueSize: 3,
    maxRun: '20ms',
    onLateError: (error) => late.push(error),
  })
  const { opened, open } = gate()
  const own = new Error('own')
  const tasks = [
    queue.enqueue(({ ack }) => opened.then(() => ack())),
    queue.run(({ signal }) => delay(60_000, undefined, { signal })),
    queue.run(() =>
      opened.then(() => {
        throw own
      }),
    ),
  ]
  expect(await Promise.all(tasks.map(outcomeOf))).toEqual(['task-failed', 'task-failed', 'task-failed'])
  expect(queue.active).toBe(0)
  open()
  await settled()
  expect(late).toEqual([own])
  expect({ size: queue.size, active: queue.active }).toEqual({ size: 0, active: 0 })
})

test('maxRun counts from the start of the task, and a task may have its own', async () => {
  const queue = createTaskQueue({ ...oneAtATime, maxRun: 50 })
  const slow = queue.run({ maxRun: Number.POSITIVE_INFINITY }, () => delay(80, 'slow'))
  const waited = queue.run(() => 'quick')
  expect(await slow).toBe('slow')
  expect(await waited).toBe('quick')
})
