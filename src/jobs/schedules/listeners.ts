import { parseFunction } from '../../base/arguments.ts'
import { callListener } from '../../base/listener.ts'
import { reportOf } from '../../base/thrown.ts'
import type { Advance, LeftOut } from './advance.ts'
import type { RawSchedule } from './stored-schedule.ts'
import { type LeftOutTicks, type ScheduleFire, tickTopics } from './tick-events.ts'

/** Whom to tell. */
export interface ScheduleListenerOptions {
  /** Called after each fire of this process. Default: none. */
  readonly onFire?: ((fire: ScheduleFire) => void) | undefined
  /** Called for ticks that became no job. Default: none. */
  readonly onLeftOut?: ((ticks: LeftOutTicks) => void) | undefined
  /**
   * Called when the database did not answer; the process tries again. And once a minute for each due schedule that this process cannot
   * read, because a newer version has stored it, or whose job the database refuses. Default: a process warning.
   */
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
    for (const [position, jobId] of jobIds.entries()) {
      const fire = { id, tenant, job, jobId, scheduledAt: new Date(fires[position] ?? Number.NaN) }
      if (tickTopics.fired.isHeard) tickTopics.fired.tell(fire)
      this.#onFire(fire)
    }
    const leftOut = (reason: LeftOutTicks['reason'], ticks: LeftOut | null): void => {
      if (ticks === null) return
      const { count, firstMs, lastMs, isAtLeast } = ticks
      const times = { firstAt: new Date(firstMs), lastAt: new Date(lastMs) }
      const left = { id, tenant, job, reason, count, ...times, isAtLeast }
      if (tickTopics['left-out'].isHeard) tickTopics['left-out'].tell(left)
      this.#onLeftOut(left)
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
  warn('Stored schedules could not be fired, and are tried again. See `onError`.', error)
}

function warn(message: string, error: unknown): void {
  process.emitWarning(message, {
    type: 'HoldfastWarning',
    code: 'HOLDFAST_SCHEDULE',
    detail: reportOf(error),
  })
}
