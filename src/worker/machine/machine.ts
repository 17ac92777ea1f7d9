import { assign, emit, fromCallback, fromPromise, raise, setup } from 'xstate'
import { assert } from '../../base/assert.ts'
import { outsideOfCallers } from '../../base/async-context.ts'
import { backoffMs } from '../../base/backoff.ts'
import { HOLD_RANGE, parseDuration } from '../../base/duration.ts'
import { isHoldfastError } from '../../errors.ts'
import { asking, letGo, type WorkerLease, type WorkerLock } from '../lock.ts'
import {
  type CurrentTerm,
  type Doing,
  isAnswerTo,
  newTerm,
  overdue,
  released,
  type StopReason,
  stopped,
} from '../term.ts'
import type {
  LockWorkerContext,
  LockWorkerEvent,
  LockWorkerInput,
  LockWorkerMachine,
  WorkerTrouble,
} from './signature.ts'

const parts = setup({
  types: {
    context: {} as LockWorkerContext,
    events: {} as LockWorkerEvent,
    input: {} as LockWorkerInput,
    emitted: {} as WorkerTrouble,
  },
  actors: {
    tryAcquire: fromCallback<LockWorkerEvent, WorkerLock>(({ input, sendBack }) =>
      asking((signal) => input.tryAcquire(signal), sendBack),
    ),
    acquire: fromCallback<LockWorkerEvent, WorkerLock>(({ input, sendBack }) =>
      asking((signal) => input.acquire(signal), sendBack),
    ),
    hearLoss: fromCallback<LockWorkerEvent, WorkerLease>(({ input: { signal }, sendBack }) => {
      const tell = () => sendBack({ type: 'lost', error: signal.reason })
      if (signal.aborted) tell()
      else signal.addEventListener('abort', tell, { once: true })
      return () => signal.removeEventListener('abort', tell)
    }),
    start: fromPromise<unknown, LockWorkerContext>(async ({ input }) => {
      const { lease, signal, fail } = current(input)
      lease.assertHeld?.()
      lease.signal.throwIfAborted()
      await input.start(lease, { signal, fail })
    }),
    stop: fromPromise<unknown, LockWorkerContext>(async ({ input }) => {
      const { reason } = input
      assert(reason !== undefined, 'the work is ended without a reason')
      await input.stop(reason, current(input).lease)
    }),
    release: fromPromise<unknown, LockWorkerContext>(async ({ input }) => current(input).lease.release()),
    leave: fromPromise<unknown, WorkerLock>(async ({ input }) => input.left?.()),
  },
  guards: {
    isEnding: ({ context }) => context.reason !== undefined,
    isStopping: ({ context }) => context.isStopping,
    leavesTraces: ({ context }) => context.lock.left !== undefined,
    isInJeopardy: ({ context }) => context.term?.lease.state === 'jeopardy',
    isReleased: ({ context }) => context.term?.lease.state === 'released',
    isClosed: (_, { error }: { error: unknown }) => isHoldfastError(error, 'closed'),
    isHopeless: (_, { error }: { error: unknown }) => isHoldfastError(error, 'invalid-argument'),
    /** It only passes on why the signal aborted, which is no failure. */
    isObedience: ({ context: { term } }, { error }: { error: unknown }) =>
      term?.signal.aborted === true && isAnswerTo(term.signal.reason, error),
  },
  delays: {
    pause: ({ context }) =>
      backoffMs(
        { firstMs: context.backoffMs, longestMs: context.maxBackoffMs, jitter: 0.5 },
        context.failures,
        context.chance,
      ),
    grace: ({ context }) => context.graceMs,
    releaseTimeout: 5000,
    look: ({ context }) => Math.min(Math.max((context.term?.lease.remainingMs ?? 8000) / 8, 20), 5000),
  },
  actions: {
    begin: assign(({ event, self }) => {
      if (event.type !== 'granted') return {}
      const broke = (error: unknown) => outsideOfCallers(() => self.send({ type: 'broke', error }))
      return { term: newTerm(event.lease, broke) }
    }),
    end: assign(({ context: { reason, isStopping } }, params: { reason: StopReason; error: unknown }) => ({
      reason: reason ?? params.reason,
      // The work may throw the same error, of an object of its own.
      isStopping: isStopping || (params.reason === 'lost' && isHoldfastError(params.error, 'closed')),
    })),
    tellTerm: ({ context }, { error }: { error: unknown }) => context.term?.ending.abort(error),
    letGo: ({ context }) => letGo(current(context).lease),
    forget: assign({ term: undefined, reason: undefined }),
    fail: assign({ failures: ({ context }) => context.failures + 1 }),
    succeed: assign({ failures: 0 }),
    stopAfterwards: assign({ isStopping: true }),
    report: emit((_, { during, error }: { during: Doing; error: unknown }) => ({
      type: 'trouble',
      during,
      error,
    })),
  },
})

/** After a term: try again, unless that was the last one. */
const next = [{ guard: 'isStopping', target: 'stopped' }, { target: 'pausing' }] as const

/** Out of the queue, for good. */
const leave = [
  { guard: 'leavesTraces', target: 'leaving', actions: 'stopAfterwards' },
  { target: 'stopped' },
] as const

const unavailable = [
  { guard: { type: 'isClosed', params: errorOf }, target: 'stopped' },
  {
    guard: { type: 'isHopeless', params: errorOf },
    target: 'stopped',
    actions: { type: 'report', params: troubleOf('acquire') },
  },
  { target: 'pausing', actions: ['fail', { type: 'report', params: troubleOf('acquire') }] },
] as const

/**
 * The lock worker as a state machine: it tries for a lock, waits in its queue, does the work of one term while it holds it,
 * and tries again after a loss or a failure. Serves any {@link WorkerLock}; `createLockWorker` is this machine over `Locks`.
 *
 * ```ts
 * import { connect } from 'holdfast'
 * import { lockWorkerMachine } from 'holdfast/worker/machine'
 * import { createActor } from 'xstate'
 *
 * const locks = await connect('memory:')
 * const actor = createActor(lockWorkerMachine, {
 *   input: {
 *     lock: {
 *       tryAcquire: (signal) => locks.tryAcquire('mailer', { signal }),
 *       acquire: (signal) => locks.acquire('mailer', { signal, wait: Infinity }),
 *     },
 *     start: () => console.log('sends mail'),
 *     stop: (reason) => console.log('sends no more:', reason),
 *     grace: '10s',
 *     backoff: '1s',
 *     maxBackoff: '30s',
 *     chance: Math.random,
 *   },
 * })
 * actor.on('trouble', ({ during, error }) => console.error(during, error))
 * actor.start()
 * actor.send({ type: 'start' })
 * ```
 */
export const lockWorkerMachine: LockWorkerMachine = parts.createMachine({
  id: 'lockWorker',
  // Parsed here: an error in a delay would end the machine while it holds the lock.
  context: ({ input: { grace, backoff, maxBackoff, ...input } }) => ({
    ...input,
    graceMs: parseDuration('grace', grace, HOLD_RANGE),
    backoffMs: parseDuration('backoff', backoff, HOLD_RANGE),
    maxBackoffMs: parseDuration('maxBackoff', maxBackoff, HOLD_RANGE),
    term: undefined,
    reason: undefined,
    failures: 0,
    isStopping: false,
  }),
  initial: 'idle',
  states: {
    idle: {
      on: { start: 'trying', stop: 'stopped' },
    },
    trying: {
      description: 'asks whether the lock is free',
      invoke: { src: 'tryAcquire', input: ({ context }) => context.lock },
      on: { granted: 'working', busy: 'waiting', unavailable, stop: leave },
    },
    waiting: {
      description: 'stands in the queue',
      invoke: { src: 'acquire', input: ({ context }) => context.lock },
      on: { granted: 'working', unavailable, stop: leave },
    },
    leaving: {
      description: 'gives its place back',
      invoke: {
        src: 'leave',
        input: ({ context }) => context.lock,
        onDone: 'stopped',
        onError: 'stopped',
      },
      after: { releaseTimeout: 'stopped' },
    },
    working: {
      type: 'parallel',
      entry: 'begin',
      states: {
        lease: {
          initial: 'kept',
          states: {
            kept: {
              invoke: { src: 'hearLoss', input: ({ context }) => current(context).lease },
              initial: 'held',
              on: { lost: 'over', overdue: 'over' },
              states: {
                held: {
                  after: {
                    look: [
                      { guard: 'isReleased', actions: raise(() => ({ type: 'lost', error: released() })) },
                      { guard: 'isInJeopardy', target: 'jeopardy' },
                      { target: 'held', reenter: true },
                    ],
                  },
                },
                jeopardy: {
                  after: {
                    look: [{ guard: 'isInJeopardy', target: 'jeopardy', reenter: true }, { target: 'held' }],
                  },
                },
              },
            },
            over: {},
          },
        },
        work: {
          initial: 'starting',
          states: {
            starting: {
              invoke: {
                src: 'start',
                input: ({ context }) => context,
                onDone: 'running',
                onError: [
                  { guard: { type: 'isObedience', params: errorOf }, target: 'settled' },
                  {
                    target: 'settled',
                    actions: [
                      'fail',
                      { type: 'tellTerm', params: errorOf },
                      { type: 'report', params: troubleOf('start') },
                    ],
                  },
                ],
              },
            },
            running: {
              entry: 'succeed',
              always: { guard: 'isEnding', target: 'stopping' },
            },
            stopping: {
              invoke: {
                src: 'stop',
                input: ({ context }) => context,
                onDone: 'settled',
                onError: { target: 'settled', actions: { type: 'report', params: troubleOf('stop') } },
              },
            },
            settled: {
              always: '#lockWorker.releasing',
            },
          },
        },
        term: {
          initial: 'lasting',
          states: {
            lasting: {
              on: {
                stop: {
                  target: 'ending',
                  actions: [
                    'stopAfterwards',
                    { type: 'end', params: { reason: 'stopped', error: undefined } },
                    { type: 'tellTerm', params: () => ({ error: stopped() }) },
                  ],
                },
                lost: {
                  target: 'ending',
                  actions: [
                    'fail',
                    { type: 'end', params: ({ event }) => ({ reason: 'lost', error: event.error }) },
                    { type: 'tellTerm', params: errorOf },
                    { type: 'report', params: troubleOf('hold') },
                  ],
                },
                broke: {
                  target: 'ending',
                  actions: [
                    'fail',
                    { type: 'end', params: ({ event }) => ({ reason: 'failed', error: event.error }) },
                    { type: 'tellTerm', params: errorOf },
                    { type: 'report', params: troubleOf('work') },
                  ],
                },
              },
            },
            ending: {
              after: { grace: 'overdue' },
              on: {
                stop: { actions: 'stopAfterwards' },
                lost: { actions: { type: 'report', params: troubleOf('hold') } },
              },
            },
            overdue: {
              description: 'lets the lock run out, and starts nothing before the work has ended',
              entry: [
                'letGo',
                { type: 'report', params: ({ context }) => ({ during: 'stop', error: overdue(context) }) },
                raise({ type: 'overdue' }),
              ],
              on: { stop: { actions: 'stopAfterwards' } },
            },
          },
        },
      },
    },
    releasing: {
      invoke: {
        src: 'release',
        input: ({ context }) => context,
        onDone: next,
        onError: next,
      },
      after: { releaseTimeout: next },
      on: { stop: { actions: 'stopAfterwards' } },
      exit: 'forget',
    },
    pausing: {
      description: 'waits longer after each failure in a row',
      after: { pause: 'trying' },
      on: { stop: 'stopped' },
    },
    stopped: { type: 'final' },
  },
})

function errorOf({ event }: { event: { error?: unknown } }): { error: unknown } {
  return { error: event.error }
}

function troubleOf(during: Doing): (at: { event: { error?: unknown } }) => { during: Doing; error: unknown } {
  return ({ event }) => ({ during, error: event.error })
}

function current({ term }: LockWorkerContext): CurrentTerm {
  if (term === undefined) throw new Error('The worker has no lease where it needs one')
  return term
}
