import type {
  AnyActorRef,
  MetaObject,
  NonReducibleUnknown,
  ParameterizedObject,
  ProvidedActor,
  StateMachine,
  StateSchema,
} from 'xstate'
import type { Duration } from '../../base/duration.ts'
import type { LockAnswer, WorkerLease, WorkerLock } from '../lock.ts'
import type { CurrentTerm, Doing, StopReason, WorkerTerm } from '../term.ts'

/** What the machine needs: a lock, the work, and its pauses. */
export interface LockWorkerInput {
  /** The lock to work under. */
  readonly lock: WorkerLock
  /** Starts the work of one term. */
  readonly start: (lease: WorkerLease, term: WorkerTerm) => unknown
  /** Ends it. Called once for each `start` that succeeded. */
  readonly stop: (reason: StopReason, lease: WorkerLease) => unknown
  /** How long the work may take to end before the lock is let go of without it. */
  readonly grace: Duration
  /** The pause after the first failure in a row; each further one doubles it. */
  readonly backoff: Duration
  /** The longest pause. */
  readonly maxBackoff: Duration
  /** A number from 0 to 1: pauses are spread over their upper half, so that a fleet does not come back at once. */
  readonly chance: () => number
}

/** `snapshot.context` of the machine. */
export interface LockWorkerContext extends Omit<LockWorkerInput, 'grace' | 'backoff' | 'maxBackoff'> {
  /** How long the work may take to end. */
  readonly graceMs: number
  /** The pause after the first failure in a row. */
  readonly backoffMs: number
  /** The longest pause. */
  readonly maxBackoffMs: number
  /** The current term. `undefined`: the lock is not held. */
  readonly term: CurrentTerm | undefined
  /** Set when the term is to end. */
  readonly reason: StopReason | undefined
  /** In a row, without work that ran in between. */
  readonly failures: number
  /** Nothing is tried after this: `stop` came, or the locks are closed. */
  readonly isStopping: boolean
}

/** `start` and `stop` come from outside, the others from the machine's own actors. */
export type LockWorkerEvent =
  | { readonly type: 'start' }
  | { readonly type: 'stop' }
  | LockAnswer
  | { readonly type: 'lost'; readonly error: unknown }
  | { readonly type: 'broke'; readonly error: unknown }
  | { readonly type: 'overdue' }

/** What went wrong, and during what, for people to read: the machine goes on by itself. */
export interface WorkerTrouble {
  /** The type of the event, as XState emits it. */
  readonly type: 'trouble'
  /** What the worker was doing. */
  readonly during: Doing
  /** What was thrown. */
  readonly error: unknown
}

/** `snapshot.value` of the machine. */
export type LockWorkerStateValue =
  | 'idle'
  | 'trying'
  | 'waiting'
  | 'leaving'
  | {
      working: {
        lease: { kept: 'held' | 'jeopardy' } | 'over'
        work: 'starting' | 'running' | 'stopping' | 'settled'
        term: 'lasting' | 'ending' | 'overdue'
      }
    }
  | 'releasing'
  | 'pausing'
  | 'stopped'

/** Written out, because the inferred type of a machine cannot stand in a declaration file. */
export type LockWorkerMachine = StateMachine<
  LockWorkerContext,
  LockWorkerEvent,
  Record<string, AnyActorRef | undefined>,
  ProvidedActor,
  ParameterizedObject,
  ParameterizedObject,
  string,
  LockWorkerStateValue,
  string,
  LockWorkerInput,
  NonReducibleUnknown,
  WorkerTrouble,
  MetaObject,
  StateSchema
>
