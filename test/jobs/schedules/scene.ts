import type { Jobs } from '../../../src/jobs/index.ts'
import {
  createJobSchedules,
  type JobSchedules,
  type JobSchedulesOptions,
} from '../../../src/jobs/schedules/index.ts'
import { type JobsScene, openScene } from '../scene.ts'

interface ScheduleScene extends AsyncDisposable {
  readonly scene: JobsScene
  readonly jobs: Jobs
  readonly schedules: JobSchedules
}

/** Jobs and their schedules in a schema of their own. */
export async function openSchedules(options: JobSchedulesOptions = {}): Promise<ScheduleScene> {
  const scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const schedules = createJobSchedules(jobs, options)
  return {
    scene,
    jobs,
    schedules,
    async [Symbol.asyncDispose]() {
      await schedules.stop()
      await scene[Symbol.asyncDispose]()
    },
  }
}

/**
 * Sets the clock of a schedule: as if it had been stored, and had its next tick, some seconds earlier. The database's own clock cannot
 * be set for one test.
 */
export async function letPass(scene: JobsScene, seconds: number, id?: string): Promise<void> {
  const where = id === undefined ? '' : `where id = '${id}'`
  await scene.sql(
    `update $schema.job_schedules set due_at = due_at - interval '${seconds} s', tick_at = tick_at - interval '${seconds} s',
      anchor_at = anchor_at - interval '${seconds} s' ${where}`,
  )
}
