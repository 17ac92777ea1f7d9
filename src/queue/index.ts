/**
 * Tasks in turn, inside one process. See [Task queue](../../docs/queue.md).
 *
 * @module
 */
export type { QueueStopOptions, TaskOptions, TaskQueueOptions } from './options.ts'
export type { RunContext, TaskContext } from './task.ts'
export {
  createTaskQueue,
  type EnqueuedTask,
  type RunTask,
  type TaskQueue,
} from './task-queue.ts'
