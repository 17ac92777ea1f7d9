import { listenersIn, type TopicEvents } from '../base/topics.ts'
import type { JobEvents } from '../jobs/index.ts'
import type { JobScheduleEvents } from '../jobs/schedules/index.ts'
import type { LimitEvents } from '../limits/index.ts'
import type { PartitionEvents } from '../partition/index.ts'
import type { ScheduleEvents } from '../schedule/index.ts'
import type { WorkerEvents } from '../worker/index.ts'

// Only the types are imported. A program that measures its jobs need not have the packages that workers and schedules are made of.
type On<Events extends object> = Pick<TopicEvents<Events>, 'on'>

export const jobEvents: On<JobEvents> = listenersIn('jobs')
export const jobScheduleEvents: On<JobScheduleEvents> = listenersIn('job-schedules')
export const scheduleEvents: On<ScheduleEvents> = listenersIn('schedule')
export const workerEvents: On<WorkerEvents> = listenersIn('worker')
export const partitionEvents: On<PartitionEvents> = listenersIn('partition')
export const limitEvents: On<LimitEvents> = listenersIn('limit')

/** Calls the listener when work of any kind begins. */
export function onAnyWork(listener: () => void): () => void {
  const call = () => listener()
  const stops = [
    jobEvents.on('enqueued', call),
    jobEvents.on('begun', call),
    jobScheduleEvents.on('fired', call),
    scheduleEvents.on('begun', call),
    workerEvents.on('begun', call),
    partitionEvents.on('shared', call),
    limitEvents.on('begun', call),
  ]
  return () => {
    for (const stop of stops) stop()
  }
}
