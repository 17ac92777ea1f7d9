import { checkOptions } from '../base/arguments.ts'
import type { CampaignOptions, Leadership } from '../index.ts'
import { type NotedMethod, noted } from './noted.ts'

/** The module ends its campaigns itself, and its logger has their errors. */
export type OnLeadershipOptions = Omit<CampaignOptions, 'signal' | 'onError'>

/** What stands at a method with {@link OnLeadership}. */
export interface LeadershipNote {
  readonly key: string
  readonly options: OnLeadershipOptions
}

/** For a method that takes the leadership, or nothing. What it returns is awaited. */
export type OnLeadershipDecorator = <Method extends (leadership: Leadership) => unknown>(
  target: object,
  name: string | symbol,
  descriptor: TypedPropertyDescriptor<Method>,
) => void

const notes = noted<LeadershipNote>('@OnLeadership', Symbol.for('holdfast leadership'))

/**
 * Method decorator for any provider or controller: the method runs when this instance of the application is elected as the
 * leader for the key. One instance leads at a time. If the method returns, its instance leads on: until it is asked to step
 * down, loses its lease, or the application closes. Then the `signal` of the leadership aborts, and the next instance leads
 * once the method has settled.
 *
 * If the method fails, the error is logged, the next instance leads, and this one becomes a candidate again after a pause.
 *
 * ```ts
 * import { Injectable } from '@nestjs/common'
 * import type { Leadership } from 'holdfast'
 * import { OnLeadership } from 'holdfast/nestjs'
 *
 * @Injectable()
 * export class Outbox {
 *   @OnLeadership('outbox')
 *   async drain({ signal, fence }: Leadership): Promise<void> {
 *     while (!signal.aborted) {
 *       await fetch('https://outbox.example/next', { headers: { fence: String(fence) }, signal })
 *     }
 *   }
 * }
 * ```
 *
 * @throws {InvalidArgumentError} when it stands at something else than a method of instances. Its arguments are checked when
 * the application starts.
 */
export function OnLeadership(key: string, options: OnLeadershipOptions = {}): OnLeadershipDecorator {
  checkOptions(options, Object.keys(TAKES))
  return (target, _name, { value }) => notes.add(target, value, { key, options })
}

export function leadershipMethods(instance: object): readonly NotedMethod<LeadershipNote>[] {
  return notes.of(instance)
}

const TAKES: Readonly<Record<keyof OnLeadershipOptions, true>> = {
  ttl: true,
  minHold: true,
  lockDelay: true,
  value: true,
  grace: true,
  priority: true,
  yieldAfter: true,
}
