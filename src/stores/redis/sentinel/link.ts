import { StoreError } from '../../../errors.ts'
import type {
  ChannelsConnection,
  ChannelsListener,
  RawConnection,
  RedisLink,
  ServerAccess,
  ServerAddress,
  Target,
} from '../server/client-link.ts'
import { isSame, MasterWatch } from './master-watch.ts'

export interface SentinelSettings {
  /** What the Sentinels call the master. */
  readonly name: string
  readonly nodes: readonly ServerAddress[]
  /** How to get in at the Sentinels, which have no user or password unless they were given one of their own. */
  readonly access: ServerAccess
  /** Where a server really is whose address the Sentinels tell. */
  readonly reach?: ((told: ServerAddress) => ServerAddress) | undefined
}

type LinkTo = (target?: Target) => RedisLink

/**
 * Connections to whoever is the master. They are not left to the clients' own support of Sentinel: one asks the Sentinels
 * one after the other and waits for one that hangs, the other hides its connections; neither leaves an old master that
 * still answers, unless it is asked to.
 */
export function sentinelLink(linkTo: LinkTo, settings: SentinelSettings): RedisLink {
  const { name, nodes, access, reach = (told) => told } = settings
  const sentinels = nodes.map((node) => linkTo({ ...node, access }))
  const watch = new MasterWatch({ name, sentinels })
  const serverAt = (told: ServerAddress): RedisLink => linkTo(reach(told))
  return {
    keyPrefix: linkTo().keyPrefix,
    open: (onLost) => new MasterCommands({ watch, serverAt, onLost }),
    openChannels: (listener) => new MasterChannels({ watch, serverAt, listener }),
    close: () => watch.close(),
  }
}

interface MasterParts {
  readonly watch: MasterWatch
  readonly serverAt: (told: ServerAddress) => RedisLink
}

class MasterCommands implements RawConnection {
  readonly #parts: MasterParts & { readonly onLost: () => void }
  readonly #stopWatching: () => void
  /** To the server that said that it is the master. */
  #connection: RawConnection | undefined
  #opening: Promise<RawConnection> | undefined
  /** What is open, whether it is known to lead to the master or not. */
  #open: { readonly address: ServerAddress; readonly connection: RawConnection } | undefined
  #closed = false

  constructor(parts: MasterParts & { readonly onLost: () => void }) {
    this.#parts = parts
    // What is not answered yet is rejected: it may have been done by a server whose word does not count any more.
    this.#stopWatching = parts.watch.onMove((master) => {
      if (this.#open !== undefined && !isSame(this.#open.address, master)) this.#leave()
    })
  }

  send(command: string, args: string[]): Promise<unknown> {
    if (this.#connection !== undefined) return this.#connection.send(command, args)
    this.#opening ??= this.#find().finally(() => {
      this.#opening = undefined
    })
    return this.#opening.then((connection) => connection.send(command, args))
  }

  reasonOf(error: unknown): unknown {
    return this.#open?.connection.reasonOf(error) ?? error
  }

  close(): void {
    this.#closed = true
    this.#stopWatching()
    this.#leave()
  }

  async #find(): Promise<RawConnection> {
    const { watch, serverAt } = this.#parts
    const address = await watch.find()
    if (this.#closed) throw new Error('The connection was closed')
    // Who loses a connection asks the Sentinels again: the one behind it may be another server by now.
    const connection = serverAt(address).open(() => {
      if (this.#open?.connection === connection) this.#leave()
    })
    this.#open = { address, connection }
    try {
      await assertMaster(connection)
      if (this.#open?.connection !== connection) throw new Error('The connection was closed')
      this.#connection = connection
      return connection
    } catch (error) {
      if (this.#open?.connection === connection) this.#leave()
      throw connection.reasonOf(error)
    }
  }

  #leave(): void {
    const open = this.#open
    this.#open = undefined
    this.#connection = undefined
    this.#parts.onLost()
    open?.connection.close()
  }
}

/** Sentinels may name a server that is only about to become the master, or does not know yet that it is none any more. */
async function assertMaster(connection: RawConnection): Promise<void> {
  const role = await connection.send('ROLE', [])
  if (Array.isArray(role) && role[0] === 'master') return
  throw new StoreError(
    'store-unavailable',
    'The Redis server that the Sentinels name as the master is a replica. In a fail-over this passes by itself.',
  )
}

/** Messages of the master. Lost as soon as another server is the master. */
class MasterChannels implements ChannelsConnection {
  readonly #parts: MasterParts & { readonly listener: ChannelsListener }
  readonly #stopWatching: () => void
  #inner: { readonly address: ServerAddress; readonly connection: ChannelsConnection } | undefined
  #closed = false

  constructor(parts: MasterParts & { readonly listener: ChannelsListener }) {
    this.#parts = parts
    this.#stopWatching = parts.watch.onMove((master) => {
      if (this.#inner === undefined || isSame(this.#inner.address, master)) return
      this.close()
      parts.listener.onLost()
    })
  }

  async add(channel: string): Promise<void> {
    if (this.#inner === undefined) {
      const { watch, serverAt, listener } = this.#parts
      const address = await watch.find()
      if (this.#closed) throw new Error('The connection was closed')
      this.#inner ??= { address, connection: serverAt(address).openChannels(listener) }
    }
    await this.#inner.connection.add(channel)
  }

  remove(channel: string): void {
    this.#inner?.connection.remove(channel)
  }

  close(): void {
    this.#closed = true
    this.#stopWatching()
    this.#inner?.connection.close()
  }
}
