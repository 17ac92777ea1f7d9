import type { StoreError } from '../../../errors.ts'
import type { MessageListener, MessageSubscription, RedisLink } from './client-link.ts'
import { ServerConnection } from './connection.ts'
import { needsPerson } from './failures.ts'
import { warnOfMissingMessages } from './missing-messages.ts'
import { MovingSubscription } from './moving-subscription.ts'
import type { RoomNames } from './room-names.ts'
import type { Script, Scripts } from './scripts.ts'
import type { StoredRooms } from './stored-rooms.ts'
import type { Partition, Scanned, ScanRequest, Topology } from './topology.ts'

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
  /** How many connections were lost or replaced. */
  #lost = 0

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
      onLost: () => {
        this.#lost += 1
      },
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
    for (let tries = 1; ; tries += 1) {
      // Each process of Redis has its keys in an order of its own, so a cursor of another process is of no use: after a fail-over or a restart
      // the scan begins again.
      const known = `${this.#lost}:`
      const cursor = from.startsWith(known) ? from.slice(known.length) : '0'
      const [next, names] = await this.#connection.scan(cursor, { pattern, count })
      const isSame = known === `${this.#lost}:`
      if (isSame || tries === MOST_TRIES)
        return { names, at: known + cursor, next: next === '0' ? undefined : known + next }
    }
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

/** A connection that is lost again and again does not hold up a listing for ever. */
const MOST_TRIES = 3
