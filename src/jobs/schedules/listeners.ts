import { parseFunction } from '../../base/arguments.ts'
import { callListener } from '../../base/listener.ts'
import { reportOf } from '../../base/thrown.ts'
import type { Advance, LeftOut } from './advance.ts'
import type { RawSchedule } from './stored-schedule.ts'

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
  /** How many. After a long outage they are not counted one by one: at most some 1,000. */
  readonly count: number
  /** The first of these ticks. */
  readonly firstAt: Date
  /** The last of these ticks. */
  readonly lastAt: Date
}

/** Whom to tell. */
export interface ScheduleListenerOptions {
  /** Called after each fire of this process. Default: none. */
  readonly onFire?: ((fire: ScheduleFire) => void) | undefined
  /** Called for ticks that became no job. Default: none. */
  readonly onLeftOut?: ((ticks: LeftOutTicks) => void) | undefined
  /** Called when the database did not answer; the process tries again. Default: a process warning. */
  readonly onError?: ((error: unknown) => void) | undefined
}

export class ScheduleListeners {
  readonly #onFire: (fire: ScheduleFire) => void
  readonly #onLeftOut: (ticks: LeftOutTicks) => void
  readonly onError: (error: unknown) => void

  constructor({ onFire = () => {}, onLeftOut = () => {}, onError = warnOfError }: ScheduleListenerOptions) {
    this.#onFire = guarded('onFire', parseFunction('onFire', onFire))
    this.#onLeftOut = guarded('onLeftOut', parseFunction('onLeftOut', onLeftOut))
    this.onError = guarded('onError', parseFunction('onError', onError))
  }

  tell(
    { id, tenant, job }: RawSchedule,
    { advance, jobIds }: { readonly advance: Advance; readonly jobIds: readonly string[] },
  ): void {
    const { fires, missed, overlapped } = advance
    for (const [position, jobId] of jobIds.entries())
      this.#onFire({ id, tenant, job, jobId, scheduledAt: new Date(fires[position] ?? Number.NaN) })
    const leftOut = (reason: LeftOutTicks['reason'], ticks: LeftOut | null): void => {
      if (ticks === null) return
      const { count, firstMs, lastMs } = ticks
      this.#onLeftOut({
        id,
        tenant,
        job,
        reason,
        count,
        firstAt: new Date(firstMs),
        lastAt: new Date(lastMs),
      })
    }
    leftOut('missed', missed)
    leftOut('overlapped', overlapped)
  }
}

function guarded<Argument>(name: string, listener: (given: Argument) => void): (given: Argument) => void {
  return (given) =>
    callListener(
      () => listener(given),
      (error) => warn(`\`${name}\` of the schedules itself failed.`, error),
    )
}

function warnOfError(error: unknown): void {
  warn('Stored schedules could not be fired, and are tried again.', error)
}

function warn(message: string, error: unknown): void {
  process.emitWarning(message, {
    type: 'HoldfastWarning',
    code: 'HOLDFAST_SCHEDULE',
    detail: reportOf(error),
  })
}
