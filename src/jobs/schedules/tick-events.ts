import { makeTopics, type TopicEvents, type Topics } from '../../base/topics.ts'

/** A tick that this process has made a job of. */
export interface ScheduleFire {
  /** The id of the schedule. */
  readonly id: string
  /** Whose schedule it is. */
  readonly tenant: string | null
  /** The name of the job. */
  readonly job: string
  /** The id of the job. */
  readonly jobId: string
  /** The tick. */
  readonly scheduledAt: Date
}

/** Ticks of a schedule that became no job. One process of the fleet tells of each. */
export interface LeftOutTicks {
  /** The id of the schedule. */
  readonly id: string
  /** Whose schedule it is. */
  readonly tenant: string | null
  /** The name of its jobs. */
  readonly job: string
  /** `missed`: no process has fired them in time. `overlapped`: the last job of the schedule had not ended. */
  readonly reason: 'missed' | 'overlapped'
  /** How many. */
  readonly count: number
  /** The first of these ticks. */
  readonly firstAt: Date
  /** The last of these ticks. */
  readonly lastAt: Date
  /** Whether there were more than `count` of them: of a cron expression, not more than about 1,000 ticks of one outage are counted. */
  readonly isAtLeast: boolean
}

/** The events of stored schedules, by name. Of each tick one process of the fleet tells. See [Metrics of work](../../../docs/metrics-work.md). */
export interface JobScheduleEvents {
  /** This process has made a job of a tick. */
  readonly fired: TickEvent<'fired'> & ScheduleFire
  /** Ticks became no job. */
  readonly 'left-out': TickEvent<'left-out'> & LeftOutTicks
}

/** What each of these events tells. */
export interface TickEvent<Name extends string> {
  /** The name of the event. */
  readonly event: Name
  /** When, by this process's clock, in milliseconds since 1970. */
  readonly at: number
}

const made: { readonly topics: Topics<JobScheduleEvents>; readonly events: TopicEvents<JobScheduleEvents> } =
  makeTopics<JobScheduleEvents>('job-schedules', ['fired', 'left-out'])

export const tickTopics: Topics<JobScheduleEvents> = made.topics

/** The events of all stored schedules that this process fires. Without a listener they cost nothing. */
export const jobScheduleEvents: TopicEvents<JobScheduleEvents> = made.events
