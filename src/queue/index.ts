export type { RunContext, TaskContext } from './task.ts'
export {
  createTaskQueue,
  type EnqueuedTask,
  type RunTask,
  type StopOptions,
  type TaskOptions,
  type TaskQueue,
  type TaskQueueOptions,
} from './task-queue.ts'
