import type { StoreError } from '../../../errors.ts'
import type { MessageListener, RedisLink, Subscription } from './client-link.ts'
import { needsPerson } from './failures.ts'
import { LastingSubscription } from './moving-subscription.ts'
import { Line } from './connection.ts'
import { warnOfMissingMessages } from './missing-messages.ts'
import type { RoomNames } from './room-names.ts'
import { type Script, type Scripts, serverScripts } from './scripts.ts'
import { type Place, SCAN_START, type Scanned, type ScanRequest, type Servers } from './topology.ts'

/** All rooms are on one server, and may be asked about together. */
export class OneServer implements Servers, Place {
  readonly scripts: Scripts
  readonly fence: string
  readonly #link: RedisLink
  readonly #names: RoomNames
  readonly #line: Line

  constructor(
    link: RedisLink,
    {
      names,
      replicas,
      scripts = serverScripts,
    }: { readonly names: RoomNames; readonly replicas: number; readonly scripts?: Scripts | undefined },
  ) {
    this.scripts = scripts
    this.fence = names.fence
    this.#link = link
    this.#names = names
    this.#line = new Line(link, { replicas, scripts, onMute: () => warnOfMissingMessages(names) })
  }

  divide<Asked>(asked: readonly Asked[]): readonly (readonly [Place, readonly Asked[]])[] {
    return asked.length === 0 ? [] : [[this, asked]]
  }

  run(script: Script, args: string[]): Promise<unknown> {
    return this.#line.run(script, args)
  }

  runUnproven(script: Script, args: string[]): Promise<unknown> {
    return this.#line.runUnproven(script, args)
  }

  subscribe(inbox: string, listener: MessageListener): Subscription {
    const channel = this.#names.channel(inbox)
    const at = { link: this.#link }
    return new LastingSubscription({ channel, listener, find: () => at, isFinal: needsPerson })
  }

  async scan(from: string, { pattern, count }: ScanRequest): Promise<Scanned> {
    const cursor = from === SCAN_START ? '0' : from
    const [next, names] = await this.#line.scan(cursor, { pattern, count })
    return { names, at: from, next: next === '0' ? undefined : next }
  }

  assertOpen(): void {
    this.#line.assertOpen()
  }

  failure(error: unknown, key?: string): StoreError {
    return this.#line.failure(error, key)
  }

  close(): void {
    this.#line.close()
    this.#link.close?.()
  }
}
