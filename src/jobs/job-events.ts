import type { Wrap } from '../base/around.ts'
import { makeTopics, type TopicEvents, type Topics } from '../base/topics.ts'
import type { JobFacts } from './job.ts'
import type { JobFailure } from './run-settlement.ts'

/** The events of jobs in this process, by name. See [Metrics of work](../../docs/metrics-work.md#events). */
export interface JobEvents {
  /** Jobs are about to be enqueued. Told in the caller's async context. */
  readonly enqueuing: JobEvent<'enqueuing'> & {
    /** The names of the jobs, in order. */
    readonly names: readonly string[]
    /** Stores a `traceparent` (W3C Trace Context) with each of these jobs. Other texts are left out. The first call counts. */
    readonly carry: (traceparent: string) => void
  }
  /** Jobs of one name were enqueued. In a transaction of yours, they are there when it commits. */
  readonly enqueued: JobEvent<'enqueued'> & {
    readonly name: string
    /** How many. A job whose unique key is taken is not counted. */
    readonly count: number
  }
  /** The handler is about to be called. */
  readonly begun: JobEvent<'begun'> &
    AttemptFacts & {
      /** How long the job waited for its handler since it was ready, in milliseconds. */
      readonly waitedMs: number
      /** The `traceparent` that the job was enqueued with. */
      readonly trace: string | null
      /** Runs the handler inside of a function. The function must call `run` at once. */
      readonly around: (wrap: Wrap) => void
    }
  /** The handler has ended, and the job was settled, or could not be. */
  readonly ended: JobEvent<'ended'> &
    AttemptFacts & {
      /** How long the handler took, in milliseconds. */
      readonly ranMs: number
      /** What became of the job; `given-back`: the worker was stopped, or the handler gave the job back. */
      readonly outcome: JobFailure['outcome'] | 'given-back'
      /** What the handler threw, or why the job could not be settled. `undefined`: it went well, or the handler has settled the job itself. */
      readonly error: unknown
    }
}

/** What each of these events tells. */
export interface JobEvent<Name extends string> {
  /** The name of the event. */
  readonly event: Name
  /** When, by this process's clock, in milliseconds since 1970. */
  readonly at: number
}

type AttemptFacts = Pick<JobFacts, 'id' | 'name' | 'attempt' | 'failures' | 'maxAttempts'> & {
  /** The same number at the begin and the end of this attempt. No other run of this process has it, although jobs of two databases may have the same id. */
  readonly run: number
  /** The name of the worker. */
  readonly worker: string
}

const made: { readonly topics: Topics<JobEvents>; readonly events: TopicEvents<JobEvents> } =
  makeTopics<JobEvents>('jobs', ['enqueuing', 'enqueued', 'begun', 'ended'])

export const jobTopics: Topics<JobEvents> = made.topics

/** The events of all jobs of this process, whichever `createJobs` they belong to. Without a listener they cost nothing. */
export const jobEvents: TopicEvents<JobEvents> = made.events

/** The traceparent that a listener wants these jobs to carry. */
export function traceOf(names: () => readonly string[]): string | undefined {
  if (!jobTopics.enqueuing.isHeard) return undefined
  let trace: string | undefined
  jobTopics.enqueuing.tell({
    names: names(),
    carry(traceparent) {
      if (TRACEPARENT.test(traceparent)) trace ??= traceparent
    },
  })
  return trace
}

const TRACEPARENT = /^[\da-f]{2}-[\da-f]{32}-[\da-f]{16}-[\da-f]{2}$/

export function tellEnqueued(
  entries: readonly { readonly name: string }[],
  ids: readonly (string | null)[],
): void {
  if (!jobTopics.enqueued.isHeard) return
  const counts = new Map<string, number>()
  for (const [position, { name }] of entries.entries())
    if (ids[position] != null) counts.set(name, (counts.get(name) ?? 0) + 1)
  for (const [name, count] of counts) jobTopics.enqueued.tell({ name, count })
}
