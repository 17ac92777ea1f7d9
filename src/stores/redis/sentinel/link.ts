import { StoreError } from '../../../errors.ts'
import type {
  ChannelsConnection,
  ChannelsListener,
  OtherServer,
  RawConnection,
  RedisLink,
  ServerAccess,
  ServerAddress,
} from '../server/client-link.ts'
import { isSame, MasterWatch } from './master-watch.ts'

export interface SentinelSettings {
  /** The name by which the Sentinels know the master. */
  readonly name: string
  readonly nodes: readonly ServerAddress[]
  /** User, password and TLS of the Sentinels, which have none unless they were given their own. */
  readonly access: ServerAccess
  /** Translates the address that the Sentinels announce into one that can be reached from here. */
  readonly reach?: ((announced: ServerAddress) => ServerAddress) | undefined
}

type LinkTo = (target?: OtherServer) => RedisLink

/**
 * Connections to the server that is the master. The clients' own support of Sentinel is not used. ioredis asks the
 * Sentinels one after the other, and waits for one that hangs. node-redis hides its connections. Neither leaves an old
 * master that still answers.
 */
export function sentinelLink(linkTo: LinkTo, settings: SentinelSettings): RedisLink {
  const { name, nodes, access, reach = (announced) => announced } = settings
  const sentinels = nodes.map((node) => linkTo({ ...node, access }))
  const watch = new MasterWatch({ name, sentinels })
  const serverAt = (announced: ServerAddress): RedisLink => linkTo(reach(announced))
  return {
    keyPrefix: linkTo().keyPrefix,
    open: (onLost) => new MasterCommands({ watch, serverAt, onLost }),
    openChannels: (listener) => new MasterChannels({ watch, serverAt, listener }),
    close: () => watch.close(),
  }
}

interface MasterParts {
  readonly watch: MasterWatch
  readonly serverAt: (announced: ServerAddress) => RedisLink
}

class MasterCommands implements RawConnection {
  readonly #parts: MasterParts & { readonly onLost: () => void }
  readonly #stopWatching: () => void
  /** To the server that has confirmed that it is the master. */
  #connection: RawConnection | undefined
  #opening: Promise<RawConnection> | undefined
  /** The open connection, whether its server has confirmed that it is the master or not. */
  #open: { readonly address: ServerAddress; readonly connection: RawConnection } | undefined
  #closed = false

  constructor(parts: MasterParts & { readonly onLost: () => void }) {
    this.#parts = parts
    // Open requests are rejected: what the old master has done may be lost.
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
    // When the connection is lost, the Sentinels are asked again: the address may lead to another server by now.
    const connection = serverAt(address).open(() => {
      if (this.#open?.connection === connection) this.#leave()
    })
    this.#open = { address, connection }
    try {
      await assertMaster(connection)
      if (this.#open?.connection !== connection) throw new Error('The connection was closed')
      this.#connection = connection
      watch.confirmed()
      return connection
    } catch (error) {
      if (!this.#closed) watch.failed(address)
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

/** Sentinels may name a server that is not the master yet, or not any more. */
async function assertMaster(connection: RawConnection): Promise<void> {
  const role = await connection.send('ROLE', [])
  if (Array.isArray(role) && role[0] === 'master') return
  throw new StoreError(
    'store-unavailable',
    'The Redis server that the Sentinels name as the master is a replica. In a fail-over this passes by itself.',
  )
}

/** The channels of the master. They count as lost as soon as another server is the master. */
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
