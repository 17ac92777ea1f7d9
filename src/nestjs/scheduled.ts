import { checkOptions } from '../base/arguments.ts'
import type { ScheduledJobOptions, ScheduledRun } from '../schedule/index.ts'
import { type NotedMethod, noted } from './noted.ts'

/** What stands at a method with {@link Scheduled}. */
export interface ScheduledNote {
  readonly name: string
  readonly expression: string
  readonly options: ScheduledJobOptions
}

/** For a method that takes the run, or nothing. What it returns is awaited. */
export type ScheduledDecorator = <Method extends (run: ScheduledRun) => unknown>(
  target: object,
  name: string | symbol,
  descriptor: TypedPropertyDescriptor<Method>,
) => void

const notes = noted<ScheduledNote>('@Scheduled', Symbol.for('holdfast scheduled'))

/**
 * Method decorator for any provider or controller: the method runs at the times of a cron expression, once per tick over all
 * instances of the application, as a job of {@link createSchedule}. Its argument is the run. Jobs start when the application
 * has started, and stop when it closes: a run that is going on may end first.
 *
 * The name belongs to the job in all instances, also after a new deployment. So it is not made from the name of the class.
 *
 * ```ts
 * import { Injectable } from '@nestjs/common'
 * import { Scheduled } from 'holdfast/nestjs'
 * import type { ScheduledRun } from 'holdfast/schedule'
 *
 * @Injectable()
 * export class Reports {
 *   @Scheduled('nightly-report', '0 3 * * *', { timezone: 'Europe/Berlin', missed: 'once' })
 *   async send({ scheduledAt, signal }: ScheduledRun): Promise<void> {
 *     await fetch('https://reports.example/', { method: 'POST', body: scheduledAt.toISOString(), signal })
 *   }
 * }
 * ```
 *
 * @throws {InvalidArgumentError} when it stands at something else than a method of instances. Its arguments are checked when
 * the application starts.
 */
export function Scheduled(
  name: string,
  expression: string,
  options: ScheduledJobOptions = {},
): ScheduledDecorator {
  checkOptions(options, Object.keys(TAKES))
  return (target, _name, { value }) => notes.add(target, value, { name, expression, options })
}

export function scheduledMethods(instance: object): readonly NotedMethod<ScheduledNote>[] {
  return notes.of(instance)
}

const TAKES: Readonly<Record<keyof ScheduledJobOptions, true>> = {
  timezone: true,
  missed: true,
  catchUp: true,
  overlap: true,
  afterCrash: true,
  minHold: true,
  maxRun: true,
  ttl: true,
}
