import type { Duration } from '../../base/duration.ts'
import type { SqlClient } from '../../postgres/executor.ts'
import type { NameOf } from '../new-job.ts'
import type { ScheduleListenerOptions } from './listeners.ts'
import type { ScheduleTimes, StoredScheduleOptions } from './options.ts'
import type { ScheduleState, StoredSchedule, StoredScheduleDetails } from './stored-schedule.ts'

/** Options of {@link createJobSchedules}. */
export interface JobSchedulesOptions extends ScheduleListenerOptions {
  /**
   * How long a new or changed schedule may go unnoticed by the processes that fire if no message tells them, because of a pooler
   * for example. From 20 ms to 30 s. Default: `'30s'`.
   */
  readonly pollInterval?: Duration | undefined
}

/** What the payload of a scheduled job has besides the payload of its schedule. */
export interface ScheduleTick {
  /** The id of the schedule. */
  readonly id: string
  /** Whose schedule it is. `null`: nobody's. */
  readonly tenant: string | null
  /** The tick, as ISO 8601 in UTC. The job may run later. Use it with the id as an idempotency key. */
  readonly scheduledAt: string
}

/**
 * The payload of a job that a schedule makes: `createJobs<{ report: ScheduledPayload<{ customer: string }> }>(pool)`. A job of that name can
 * also be enqueued by hand, with or without `schedule`.
 */
export type ScheduledPayload<Payload extends object = object> = Payload & { readonly schedule?: ScheduleTick }

/** What `add` and `put` take: when to fire, which job that makes, and with which payload. */
export type NewSchedule<Payloads extends object = Record<string, unknown>> = {
  [Name in NameOf<Payloads>]: StoredScheduleOptions & {
    /** The name of the jobs. */
    readonly job: Name
  } & SchedulePayload<Payloads[Name]>
}[NameOf<Payloads>]

/** An object, as JSON of up to 64 KiB. It may be left out if no property is needed. */
type SchedulePayload<Payload> = unknown extends Payload
  ? { readonly payload?: object | undefined }
  : object extends Omit<Payload, 'schedule'>
    ? { readonly payload?: Omit<Payload, 'schedule'> | undefined }
    : { readonly payload: Omit<Payload, 'schedule'> }

/** What `change` takes: the settings to change. `null` takes a setting away. */
export type ScheduleChange<Payloads extends object = Record<string, unknown>> = {
  readonly [Setting in keyof StoredScheduleOptions]?: StoredScheduleOptions[Setting] | null
} & {
  /** The name of the jobs. */
  readonly job?: NameOf<Payloads> | undefined
  /** Replaces the payload. */
  readonly payload?: object | undefined
}

/** Where to make a change. */
export interface InTransaction {
  /**
   * The caller's open transaction: the change takes effect when that commits, and only then. As the `transaction` of `enqueue`.
   * Default: a transaction of its own.
   */
  readonly transaction?: SqlClient | undefined
}

/** Which schedules: those that fit everything given here. */
export interface ScheduleFilter {
  /** Default: all. */
  readonly tenant?: string | readonly string[] | undefined
  /** The name of their jobs. Default: all. */
  readonly job?: string | readonly string[] | undefined
}

/** The schedules to change: an id, some ids, or a filter that has at least one property. */
export type ScheduleSelection = string | readonly string[] | ScheduleFilter

/** Which schedules, and which page of them. */
export interface ListSchedulesOptions extends ScheduleFilter {
  /** Default: all. */
  readonly state?: ScheduleState | readonly ScheduleState[] | undefined
  /** The page after this id: the `next` of a page. Default: the first page. */
  readonly after?: string | undefined
  /** How many schedules a page has at most, from 1 to 1000. Default: 50. */
  readonly limit?: number | undefined
}

/** A page of schedules. */
export interface StoredSchedulesPage {
  /** In the order of their ids. */
  readonly schedules: readonly StoredSchedule[]
  /** For `after`, to get the next page. `null`: there are no more. */
  readonly next: string | null
}

/** See {@link createJobSchedules}. */
export interface JobSchedules<Payloads extends object = Record<string, unknown>> extends AsyncDisposable {
  /**
   * Adds a schedule. Resolves with whether it did: `false` if there is one of this id, which stays as it is.
   *
   * @throws {InvalidArgumentError} when an argument is not what it should be, or no tick is to come; {@link StoreError}.
   */
  add(id: string, schedule: NewSchedule<Payloads>, options?: InTransaction): Promise<boolean>
  /**
   * Adds a schedule, or makes the one of this id as given. If its times stay the same, its next tick stays, too. A paused one stays
   * paused. Safe at every start of every process.
   *
   * @throws like {@link add}.
   */
  put(id: string, schedule: NewSchedule<Payloads>, options?: InTransaction): Promise<void>
  /**
   * Changes some settings. Resolves with whether there is a schedule of this id. If the change touches its times, the next tick counts
   * from now. A schedule that is over goes on if it has a next tick.
   *
   * @throws like {@link add}.
   */
  change(id: string, change: ScheduleChange<Payloads>, options?: InTransaction): Promise<boolean>
  /** Keeps schedules from firing. Resolves with the ids of those that it has paused. Jobs that are enqueued already run. */
  pause(selection: ScheduleSelection, options?: InTransaction): Promise<readonly string[]>
  /**
   * Lets paused schedules go on with their next tick from now. Ticks of the pause are not missed. Resolves with the ids.
   *
   * @throws {StoreError} `store-refused`: this process cannot read one of them, because a newer version has stored it. It stays paused.
   * The others go on, unless this rolls your transaction back.
   */
  resume(selection: ScheduleSelection, options?: InTransaction): Promise<readonly string[]>
  /** Forgets schedules. Resolves with the ids of those that it has removed. Their jobs stay. */
  remove(selection: ScheduleSelection, options?: InTransaction): Promise<readonly string[]>
  /**
   * Enqueues a job of a schedule now, whatever its state is. It replaces no tick, and counts as none. Resolves with the id of the job,
   * or with null if there is no schedule of this id.
   */
  run(id: string, options?: InTransaction): Promise<string | null>
  /** The schedule of this id with its payload. `null`: there is none. */
  find(id: string): Promise<StoredScheduleDetails | null>
  /** A page of the schedules, in the order of their ids. */
  list(options?: ListSchedulesOptions): Promise<StoredSchedulesPage>
  /**
   * The next ticks, by the database's clock: of a stored schedule that is active, or of times that are not stored yet. Fewer if there
   * are fewer. Empty: none is known.
   *
   * @throws {InvalidArgumentError} when there is no schedule of this id, or the times are not what they should be; {@link StoreError}.
   */
  nextRuns(scheduleOrTimes: string | ScheduleTimes, count: number): Promise<readonly Date[]>
  /**
   * Fires all schedules of the schema that are due, in this process, until `stop()` or until the jobs are closed. The process stays alive.
   * Any number of processes may fire; each tick becomes one job. Called again it changes nothing.
   */
  start(): void
  /** Fires no more, and resolves when the current round is over. May be called again. */
  stop(): Promise<void>
}
