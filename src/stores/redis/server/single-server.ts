import type { StoreError } from '../../../errors.ts'
import type { MessageListener, MessageSubscription, RedisLink } from './client-link.ts'
import { ServerConnection } from './connection.ts'
import { needsPerson } from './failures.ts'
import { warnOfMissingMessages } from './missing-messages.ts'
import { MovingSubscription } from './moving-subscription.ts'
import type { RoomNames } from './room-names.ts'
import type { Script, Scripts } from './scripts.ts'
import type { StoredRooms } from './stored-rooms.ts'
import { type Partition, SCAN_START, type Scanned, type ScanRequest, type Topology } from './topology.ts'

export interface SingleServerOptions {
  readonly names: RoomNames
  /** A grant counts once so many replicas have it. */
  readonly replicas: number
  readonly scripts: Scripts
  /** Whether rooms are read without scripts, for a user that may only read. Default: false. */
  readonly readOnly?: boolean | undefined
}

/** A single server with all rooms. A script call may be about any of them. */
export class SingleServer implements Topology, Partition {
  readonly scripts: Scripts
  readonly fence: string
  readonly #link: RedisLink
  readonly #names: RoomNames
  readonly #connection: ServerConnection

  constructor(link: RedisLink, { names, replicas, scripts, readOnly }: SingleServerOptions) {
    this.scripts = scripts
    this.fence = names.fence
    this.#link = link
    this.#names = names
    this.#connection = new ServerConnection(link, {
      replicas,
      scripts,
      readOnly,
      onMute: () => warnOfMissingMessages(names),
    })
  }

  divide<Asked>(asked: readonly Asked[]): readonly (readonly [Partition, readonly Asked[]])[] {
    return asked.length === 0 ? [] : [[this, asked]]
  }

  run(script: Script, args: string[]): Promise<unknown> {
    return this.#connection.run(script, args)
  }

  read(names: readonly string[]): Promise<StoredRooms> {
    return this.#connection.read(names)
  }

  isReplica(): Promise<boolean> {
    return this.#connection.isReplica()
  }

  subscribe(inbox: string, listener: MessageListener): MessageSubscription {
    const channel = this.#names.channel(inbox)
    const host = { link: this.#link }
    return new MovingSubscription({ channel, listener, find: () => host, isFinal: needsPerson })
  }

  async scan(from: string, { pattern, count }: ScanRequest): Promise<Scanned> {
    const cursor = from === SCAN_START ? '0' : from
    const [next, names] = await this.#connection.scan(cursor, { pattern, count })
    return { names, at: from, next: next === '0' ? undefined : next }
  }

  assertOpen(): void {
    this.#connection.assertOpen()
  }

  failure(error: unknown, key?: string): StoreError {
    return this.#connection.failure(error, key)
  }

  close(): void {
    this.#connection.close()
    this.#link.close?.()
  }
}
