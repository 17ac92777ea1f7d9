import type {
  AnyActorRef,
  CallbackActorLogic,
  MetaObject,
  NonReducibleUnknown,
  PromiseActorLogic,
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

/** The actors of the machine. `provide` takes another logic for each name. */
export interface LockWorkerActors {
  /** Asks once for the lock, and sends `granted`, `busy` or `unavailable`. */
  tryAcquire: CallbackActorLogic<LockWorkerEvent, WorkerLock>
  /** Waits for the lock, and sends `granted` or `unavailable`. */
  acquire: CallbackActorLogic<LockWorkerEvent, WorkerLock>
  /** Sends `lost` when the lease is lost. */
  hearLoss: CallbackActorLogic<LockWorkerEvent, WorkerLease>
  /** Starts the work. */
  start: PromiseActorLogic<unknown, LockWorkerContext>
  /** Ends the work. */
  stop: PromiseActorLogic<unknown, LockWorkerContext>
  /** Gives the lock back. */
  release: PromiseActorLogic<unknown, LockWorkerContext>
  /** Waits until an ended wait has left nothing behind. */
  leave: PromiseActorLogic<unknown, WorkerLock>
}

/** The actions of the machine, each with its parameters. */
export interface LockWorkerActions {
  /** Begins a term with the lease of the event. */
  begin: NonReducibleUnknown
  /** Notes why the term ends. */
  end: { reason: StopReason; error: unknown }
  /** Aborts the signal of the work. */
  tellTerm: { error: unknown }
  /** Ends the renewal, so that the lock runs out. */
  letGo: NonReducibleUnknown
  /** Ends the term. */
  forget: NonReducibleUnknown
  /** Counts a failure. */
  fail: NonReducibleUnknown
  /** Forgets the failures. */
  succeed: NonReducibleUnknown
  /** Tries nothing after this term. */
  stopAfterwards: NonReducibleUnknown
  /** Emits `trouble`. */
  report: { during: Doing; error: unknown }
}

/** The guards of the machine, each with its parameters. */
export interface LockWorkerGuards {
  /** The term is to end. */
  isEnding: NonReducibleUnknown
  /** Nothing is tried after this term. */
  isStopping: NonReducibleUnknown
  /** The lock has something to wait for after a wait. */
  leavesTraces: NonReducibleUnknown
  /** A renewal is overdue. */
  isInJeopardy: NonReducibleUnknown
  /** Somebody else released the lease. */
  isReleased: NonReducibleUnknown
  /** The locks are closed. */
  isClosed: { error: unknown }
  /** To ask again would fail in the same way. */
  isHopeless: { error: unknown }
  /** The error only passes on why the signal aborted. */
  isObedience: { error: unknown }
}

/** The delays of the machine. */
export type LockWorkerDelay = 'pause' | 'grace' | 'releaseTimeout' | 'look'

/** A name and its parameters, for each member. */
type Parameterized<T> = { [Name in keyof T & string]: { type: Name; params: T[Name] } }[keyof T & string]

/** Written out, because the inferred type of a machine cannot stand in a declaration file. */
export type LockWorkerMachine = StateMachine<
  LockWorkerContext,
  LockWorkerEvent,
  Record<string, AnyActorRef | undefined>,
  {
    [Name in keyof LockWorkerActors]: { src: Name; logic: LockWorkerActors[Name]; id: string | undefined }
  }[keyof LockWorkerActors],
  Parameterized<LockWorkerActions>,
  Parameterized<LockWorkerGuards>,
  LockWorkerDelay,
  LockWorkerStateValue,
  string,
  LockWorkerInput,
  NonReducibleUnknown,
  WorkerTrouble,
  MetaObject,
  StateSchema
>
