import { expect, test, vi } from 'vitest'
import { createTaskQueue } from '../../src/queue/index.ts'
import { HOSTILE_VALUES } from '../base/hostile-values.ts'
import { gate, settled } from './gate.ts'

const oneAtATime = { maxActiveTasks: 1, maxQueueSize: Number.POSITIVE_INFINITY }

test('a task is over when it acknowledges, while its function goes on', async () => {
  const queue = createTaskQueue(oneAtATime)
  const cleanUp = gate()
  let cleanedUp = false
  const answer = queue.enqueue<string>(async ({ ack }) => {
    ack('done')
    await cleanUp.opened
    cleanedUp = true
  })
  const next = queue.run(() => cleanedUp)
  expect(await answer).toBe('done')
  expect(await next).toBe(false)
  await queue.onIdle()
  cleanUp.open()
  await settled()
  expect(cleanedUp).toBe(true)
})

test('a task keeps its place until it acknowledges', async () => {
  const queue = createTaskQueue(oneAtATime)
  const { opened, open } = gate()
  let acknowledged = false
  const task = queue.enqueue(async ({ ack }) => {
    await opened
    acknowledged = true
    ack()
  })
  const next = queue.run(() => acknowledged)
  await settled()
  expect({ size: queue.size, active: queue.active }).toEqual({ size: 1, active: 1 })
  open()
  await task
  expect(await next).toBe(true)
})

test('the first acknowledgement counts; a second one frees no place of another task', async () => {
  const queue = createTaskQueue(oneAtATime)
  const { opened, open } = gate()
  let again: (value: string) => void = () => {}
  const first = queue.enqueue<string>(({ ack }) => {
    again = ack
    ack('one')
    ack('two')
  })
  expect(await first).toBe('one')
  const second = queue.run(() => opened)
  const third = queue.run(() => 'third')
  await settled()
  again('three')
  await settled()
  expect({ size: queue.size, active: queue.active }).toEqual({ size: 1, active: 1 })
  open()
  await second
  expect(await third).toBe('third')
})

test.each([
  ['returns', () => {}],
  ['resolves', async () => settled()],
])(
  'a function that %s without acknowledging rejects with a clear error, and frees its place',
  async (_, end) => {
    const queue = createTaskQueue(oneAtATime)
    const task = queue.enqueue({ group: 'a' }, end)
    const next = queue.run({ group: 'a' }, () => 'next')
    await expect(task).rejects.toMatchObject({
      code: 'task-failed',
      key: 'a',
      message: expect.stringContaining('without a call of `ack`'),
    })
    expect(await next).toBe('next')
  },
)

test('an error that a function throws before it acknowledges is the caller’s', async () => {
  const queue = createTaskQueue(oneAtATime)
  const error = new Error('own')
  await expect(
    queue.enqueue(() => {
      throw error
    }),
  ).rejects.toBe(error)
})

test('an error that a function throws after it acknowledged goes to onLateError and changes nothing else', async () => {
  const late: unknown[] = []
  const queue = createTaskQueue({
    ...oneAtATime,
    onLateError: (error, { group }) => late.push([error, group]),
  })
  const [now, later] = [new Error('now'), new Error('later')]
  const first = queue.enqueue<string>({ group: 'a' }, ({ ack }) => {
    ack('one')
    throw now
  })
  const second = queue.enqueue<string>(async ({ ack }) => {
    ack('two')
    await settled()
    throw later
  })
  expect(await Promise.all([first, second])).toEqual(['one', 'two'])
  await settled()
  await settled()
  expect(late).toEqual([
    [now, 'a'],
    [later, undefined],
  ])
})

test('without onLateError, and when that fails itself, the error is a process warning and not a crash', async () => {
  const warnings: Error[] = []
  const listen = (warning: Error) => warnings.push(warning)
  process.on('warning', listen)
  try {
    const failLate = ({ ack }: { ack: () => void }) => {
      ack()
      throw new Error('broken clean-up')
    }
    await createTaskQueue(oneAtATime).enqueue(failLate)
    const throwing = () => {
      throw new Error('broken handler')
    }
    await createTaskQueue({ ...oneAtATime, onLateError: throwing }).enqueue(failLate)
    await settled()
    expect(warnings).toMatchObject([
      {
        name: 'HoldfastWarning',
        code: 'HOLDFAST_LATE_ERROR',
        detail: expect.stringContaining('broken clean-up'),
      },
      {
        name: 'HoldfastWarning',
        code: 'HOLDFAST_LATE_ERROR',
        detail: expect.stringContaining('broken handler'),
      },
    ])
  } finally {
    process.off('warning', listen)
  }
})

test('the type of the task says whether `ack` needs a value', async () => {
  const queue = createTaskQueue(oneAtATime)
  const nothing = await queue.enqueue(({ ack }) => ack())
  const text: string = await queue.enqueue<string>(({ ack }) => ack('text'))
  // @ts-expect-error A task of a string has to acknowledge with one.
  const forgotten: string = await queue.enqueue<string>(({ ack }) => ack())
  expect([nothing, text, forgotten]).toEqual([undefined, 'text', undefined])
})

test.each(HOSTILE_VALUES)(
  'a late error that is %s is a process warning, and so is a listener that throws it',
  async (_, make) => {
    const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    try {
      const hostile = (): never => {
        throw make()
      }
      const failLate = ({ ack }: { ack: () => void }) => {
        ack()
        hostile()
      }
      for (const onLateError of [undefined, hostile, async () => hostile()])
        await createTaskQueue({ ...oneAtATime, onLateError }).enqueue(failLate)
      await settled()
      expect(warn).toHaveBeenCalledTimes(3)
    } finally {
      warn.mockRestore()
    }
  },
)

test.each(HOSTILE_VALUES)(
  'an error that a task throws after its signal aborted goes to onLateError, also %s',
  async (_, make) => {
    const late: unknown[] = []
    const queue = createTaskQueue({ ...oneAtATime, onLateError: (error) => late.push(error) })
    const thrown = make()
    const task = queue.run(async ({ signal }) => {
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
      throw thrown
    })
    const refused = expect(task).rejects.toMatchObject({ code: 'closed' })
    await settled()
    await queue.stop({ force: true })
    await refused
    await settled()
    expect(late.map((error) => Object.is(error, thrown))).toEqual([true])
  },
)
