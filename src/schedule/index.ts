/**
 * Cron jobs that run once in the whole fleet. See [Schedules](../../docs/schedule.md).
 *
 * @module
 */
export { type NodeCronRunCoordinator, nodeCronCoordinator } from './node-cron.ts'
export type { ScheduledJobOptions, ScheduleOptions } from './options.ts'
export type { FinishedRun, ScheduledRun } from './run.ts'
export { createSchedule, type Schedule, type ScheduledWork } from './schedule.ts'
export { type ScheduleEvent, type ScheduleEvents, scheduleEvents } from './schedule-events.ts'
export type { ScheduledJob, ScheduleStatus } from './scheduled-job.ts'
