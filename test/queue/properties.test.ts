import fc from 'fast-check'
import { expect, test } from 'vitest'
import { createTaskQueue, type TaskQueue } from '../../src/queue/index.ts'
import { settled } from './gate.ts'

/** How a task behaves once it runs. `turns`: how many turns of the event loop it takes. */
interface Behaviour {
  readonly ends: 'return' | 'throw' | 'throw when aborted' | 'ack' | 'ack, then throw' | 'no ack'
  readonly turns: number
  readonly group: string | undefined
  /** The index of the shared signal that the task gets. */
  readonly signal: number | undefined
  readonly wait: 0 | undefined
}

type Step =
  | { readonly does: 'add'; readonly behaviour: Behaviour }
  | { readonly does: 'abort'; readonly signal: number }
  | { readonly does: 'pass' }
  | { readonly does: 'drain' | 'stop' | 'stop by force' }

const SIGNALS = 4

const behaviour: fc.Arbitrary<Behaviour> = fc.record({
  ends: fc.constantFrom<Behaviour['ends'][]>(
    'return',
    'throw',
    'throw when aborted',
    'ack',
    'ack, then throw',
    'no ack',
  ),
  turns: fc.nat(3),
  group: fc.constantFrom(undefined, 'a', 'b', 'c'),
  signal: fc.option(fc.nat(SIGNALS - 1), { nil: undefined }),
  wait: fc.constantFrom<(0 | undefined)[]>(undefined, undefined, undefined, undefined, 0),
})

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 60, arbitrary: behaviour.map((chosen): Step => ({ does: 'add', behaviour: chosen })) },
  { weight: 25, arbitrary: fc.constant<Step>({ does: 'pass' }) },
  { weight: 6, arbitrary: fc.nat(SIGNALS - 1).map((signal): Step => ({ does: 'abort', signal })) },
  {
    weight: 1,
    arbitrary: fc
      .constantFrom('drain' as const, 'stop' as const, 'stop by force' as const)
      .map((does): Step => ({ does })),
  },
)

interface Observed {
  readonly behaviour: Behaviour
  state: 'waiting' | 'active' | 'over'
  started: boolean
  outcome: 'pending' | 'resolved' | string
}

/** The judge keeps its own account of every task, and knows nothing of how the queue works. */
class Judge {
  readonly tasks: Observed[] = []
  readonly late: unknown[] = []
  /** The mistakes found inside of a task, where a throw would be taken for the task's own. */
  readonly violations: unknown[] = []
  readonly #maxActiveTasks: number

  constructor(maxActiveTasks: number) {
    this.#maxActiveTasks = maxActiveTasks
  }

  add(chosen: Behaviour): Observed {
    const task: Observed = { behaviour: chosen, state: 'waiting', started: false, outcome: 'pending' }
    this.tasks.push(task)
    return task
  }

  starts(task: Observed): void {
    const { group } = task.behaviour
    expect(task, 'a task runs once, and not after its promise was settled').toMatchObject({
      state: 'waiting',
      started: false,
      outcome: 'pending',
    })
    const active = this.tasks.filter((other) => other.state === 'active')
    expect(active.length, 'maxActiveTasks').toBeLessThan(this.#maxActiveTasks)
    if (group !== undefined) {
      expect(
        active.filter((other) => other.behaviour.group === group),
        'one of a group at a time',
      ).toEqual([])
      const earlier = this.tasks.slice(0, this.tasks.indexOf(task))
      const overtaken = earlier.filter(
        (other) => other.state === 'waiting' && other.behaviour.group === group,
      )
      expect(overtaken, 'order of the group').toEqual([])
    }
    task.started = true
    task.state = 'active'
  }

  /** Called when nothing can happen without a turn of the event loop. Every task that can run runs by then. */
  checkNobodyWaitsInVain(queue: TaskQueue, aborted: ReadonlySet<number>): void {
    const active = this.tasks.filter((task) => task.state === 'active')
    const waiting = this.tasks.filter((task) => task.state === 'waiting')
    expect({ size: queue.size, active: queue.active }).toEqual({
      size: waiting.length,
      active: active.length,
    })
    expect(
      waiting.filter(({ behaviour: { signal } }) => signal !== undefined && aborted.has(signal)),
      'an aborted task does not wait',
    ).toEqual([])
    if (active.length === this.#maxActiveTasks) return
    const groups = new Set(active.map((task) => task.behaviour.group))
    const inVain = waiting.filter(({ behaviour: { group } }) => group === undefined || !groups.has(group))
    expect(inVain, 'a free place and a free group').toEqual([])
  }
}

class OwnError extends Error {
  readonly code = 'own'
}

async function act(chosen: Behaviour, context: { signal: AbortSignal; ack: () => void }, over: () => void) {
  const acknowledges = chosen.ends === 'ack' || chosen.ends === 'ack, then throw'
  const acknowledge = () => {
    over()
    context.ack()
  }
  if (acknowledges && chosen.turns < 2) acknowledge()
  for (let turn = 0; turn < chosen.turns; turn++) {
    await settled()
    if (chosen.ends === 'throw when aborted' && context.signal.aborted) {
      over()
      throw context.signal.reason
    }
  }
  if (acknowledges) acknowledge()
  else over()
  if (chosen.ends === 'throw' || chosen.ends === 'ack, then throw') throw new OwnError()
}

function add(queue: TaskQueue, judge: Judge, chosen: Behaviour, signal: AbortSignal | undefined): void {
  const task = judge.add(chosen)
  const over = () => {
    task.state = 'over'
  }
  const { group, wait } = chosen
  const start = (context: { signal: AbortSignal; ack: () => void }) => {
    try {
      judge.starts(task)
    } catch (violation) {
      judge.violations.push(violation)
    }
    return act(chosen, context, over)
  }
  const options = { group, wait, signal }
  const promise =
    chosen.ends === 'ack' || chosen.ends === 'ack, then throw' || chosen.ends === 'no ack'
      ? queue.enqueue(options, start)
      : queue.run(options, ({ signal: own }) => start({ signal: own, ack: () => {} }))
  promise.then(
    () => {
      task.outcome = 'resolved'
    },
    (error: { code?: string }) => {
      over()
      task.outcome = String(error.code)
    },
  )
}

const POSSIBLE: Record<Behaviour['ends'], readonly string[]> = {
  return: ['resolved', 'closed'],
  throw: ['own', 'closed'],
  'throw when aborted': ['resolved', 'aborted', 'closed'],
  ack: ['resolved', 'closed'],
  'ack, then throw': ['resolved', 'closed'],
  'no ack': ['task-failed', 'closed'],
}

const NEVER_STARTED = ['aborted', 'queue-full', 'start-timeout', 'closed']

test('whatever tasks do: order, exclusion and bounds hold, every promise settles, nothing is left behind', async () => {
  const seen = new Set<string>()
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { minLength: 1, maxLength: 60, size: 'max' }),
      fc.integer({ min: 1, max: 4 }),
      fc.constantFrom(1, 3, Number.POSITIVE_INFINITY),
      async (steps, maxActiveTasks, maxQueueSize) => {
        const judge = new Judge(maxActiveTasks)
        const queue = createTaskQueue({
          maxActiveTasks,
          maxQueueSize,
          onLateError: (error) => judge.late.push(error),
        })
        const controllers = Array.from({ length: SIGNALS }, () => new AbortController())
        const ends: Promise<void>[] = []
        const aborted = new Set<number>()
        let forced = false
        for (const next of steps) {
          if (next.does === 'add') {
            const { signal } = next.behaviour
            add(queue, judge, next.behaviour, signal === undefined ? undefined : controllers[signal]?.signal)
          } else if (next.does === 'abort') {
            aborted.add(next.signal)
            controllers[next.signal]?.abort(Object.assign(new Error('aborted'), { code: 'aborted' }))
          } else if (next.does === 'pass') {
            await settled()
            judge.checkNobodyWaitsInVain(queue, aborted)
          } else if (next.does === 'drain') ends.push(queue.drain())
          else {
            forced ||= next.does === 'stop by force'
            ends.push(queue.stop({ force: next.does === 'stop by force' }))
          }
          expect(queue.size).toBeLessThanOrEqual(maxQueueSize)
          expect(queue.active).toBeLessThanOrEqual(maxActiveTasks)
        }
        await queue.onIdle()
        await Promise.all(ends)
        // The longest task takes three turns. After that, every late error has been thrown.
        for (let turn = 0; turn < 5; turn++) await settled()

        expect({ size: queue.size, active: queue.active }).toEqual({ size: 0, active: 0 })
        expect(judge.violations).toEqual([])
        for (const { started, outcome, behaviour: chosen } of judge.tasks) {
          expect(started ? POSSIBLE[chosen.ends] : NEVER_STARTED).toContain(outcome)
          seen.add(started ? `${chosen.ends}: ${outcome}` : `never started: ${outcome}`)
        }
        const failedLate = judge.tasks.filter(
          (task) => task.started && task.behaviour.ends === 'ack, then throw',
        )
        const failedForced = judge.tasks.filter(
          (task) => task.started && task.outcome === 'closed' && task.behaviour.ends === 'throw',
        )
        expect(judge.late).toHaveLength(failedLate.length + failedForced.length)
        expect(judge.late.every((error) => error instanceof OwnError)).toBe(true)
        if (!forced) {
          const closedWhileActive = judge.tasks.filter(
            ({ started, outcome }) => started && outcome === 'closed',
          )
          expect(closedWhileActive).toEqual([])
        }
      },
    ),
    { numRuns: 1000 },
  )
  // The histories show something: everything that can become of a task did.
  const possible = Object.entries(POSSIBLE).flatMap(([ends, outcomes]) =>
    outcomes.map((outcome) => `${ends}: ${outcome}`),
  )
  expect([...seen].sort()).toEqual(
    [...possible, ...NEVER_STARTED.map((outcome) => `never started: ${outcome}`)].sort(),
  )
})
