import type { Wrap } from '../base/around.ts'
import { makeTopics, type TopicEvents, type Topics } from '../base/topics.ts'
import type { FinishedRun } from './run.ts'

/** The events of schedules in this process, by name. See [Metrics of work](../../docs/metrics-work.md). */
export interface ScheduleEvents {
  /** A run is about to begin in this process. */
  readonly begun: ScheduleEvent<'begun'> & {
    /** The tick. */
    readonly scheduledAt: Date
    /** How long after its tick the run begins, in milliseconds. */
    readonly lateMs: number
    /** 1, or how often this tick has begun. */
    readonly attempt: number
    /** The fence of the run. */
    readonly fence: bigint
    /** The same number at the end of this run. No other run of this process has it. */
    readonly run: number
    /** Runs the work inside of a function. The function must call `run` at once. */
    readonly around: (wrap: Wrap) => void
  }
  /** A run has ended in this process. */
  readonly ended: ScheduleEvent<'ended'> & {
    /** The tick. */
    readonly scheduledAt: Date
    /** The fence of the run. */
    readonly fence: bigint
    /** The same number as at the begin of this run. */
    readonly run: number
    /** How long it took, in milliseconds. */
    readonly ranMs: number
    /** As that of a {@link FinishedRun}. */
    readonly result: FinishedRun['result']
    /** Why it failed or was interrupted. */
    readonly error: unknown
  }
  /** A tick did not run, because it came while a run went on. The process of that run tells of it. */
  readonly overlapped: ScheduleEvent<'overlapped'> & {
    /** The tick. */
    readonly scheduledAt: Date
  }
  /**
   * Ticks did not run, because no process began them in time: all were down, blocked, or without their store. One process tells of
   * them, 5 minutes after the last moment at which the tick might have run, or when the first process is back. At most once: if that
   * process dies just then, none does.
   */
  readonly missed: ScheduleEvent<'missed'> & {
    /** How many, one after the other. */
    readonly count: number
    /** The first of these ticks. */
    readonly firstAt: Date
    /** The last of these ticks. */
    readonly lastAt: Date
    /** Whether there were more than `count` of them: not more than about 1,000 ticks of one outage are counted. */
    readonly isAtLeast: boolean
  }
}

/** What each of these events tells. */
export interface ScheduleEvent<Name extends string> {
  /** The name of the event. */
  readonly event: Name
  /** When, by this process's clock, in milliseconds since 1970. */
  readonly at: number
  /** The name of the scheduled job. */
  readonly name: string
}

const made: { readonly topics: Topics<ScheduleEvents>; readonly events: TopicEvents<ScheduleEvents> } =
  makeTopics<ScheduleEvents>('schedule', ['begun', 'ended', 'overlapped', 'missed'])

export const scheduleTopics: Topics<ScheduleEvents> = made.topics

/** The events of all schedules of this process that `createSchedule` made. Without a listener they cost nothing. */
export const scheduleEvents: TopicEvents<ScheduleEvents> = made.events
