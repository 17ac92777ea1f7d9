/**
 * Stored schedules, whose ticks become jobs in PostgreSQL. See [Stored schedules](../../../docs/job-schedules.md).
 *
 * @module
 */
export { createJobSchedules } from './create-job-schedules.ts'
export type {
  InTransaction,
  JobSchedules,
  JobSchedulesOptions,
  ListSchedulesOptions,
  NewSchedule,
  ScheduleChange,
  ScheduledPayload,
  ScheduleFilter,
  ScheduleSelection,
  ScheduleTick,
  StoredSchedulesPage,
} from './job-schedules.ts'
export type { ScheduledJobSettings, ScheduleTimes, StoredScheduleOptions } from './options.ts'
export {
  type LastRun,
  SCHEDULE_STATES,
  type ScheduleState,
  type StoredSchedule,
  type StoredScheduleDetails,
} from './stored-schedule.ts'
export {
  type JobScheduleEvents,
  jobScheduleEvents,
  type LeftOutTicks,
  type ScheduleFire,
  type TickEvent,
} from './tick-events.ts'
