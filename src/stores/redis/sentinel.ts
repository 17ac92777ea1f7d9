import { StoreError } from '../../errors.ts'
import {
  type CommandConnection,
  type MessageListener,
  type RedisLink,
  reconnectDelayMs,
  type ServerAccess,
  type ServerAddress,
  type Subscription,
  type Target,
} from './connection.ts'
import { storeErrorOf } from './failures.ts'
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
    subscribe: (channel, listener) => new MasterSubscription({ watch, serverAt, channel, listener }),
    close: () => watch.close(),
  }
}

interface MasterParts {
  readonly watch: MasterWatch
  readonly serverAt: (told: ServerAddress) => RedisLink
}

class MasterCommands implements CommandConnection {
  readonly #parts: MasterParts & { readonly onLost: () => void }
  readonly #stopWatching: () => void
  /** To the server that said that it is the master. */
  #connection: CommandConnection | undefined
  #opening: Promise<CommandConnection> | undefined
  /** What is open, whether it is known to lead to the master or not. */
  #open: { readonly address: ServerAddress; readonly connection: CommandConnection } | undefined
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

  async #find(): Promise<CommandConnection> {
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
async function assertMaster(connection: CommandConnection): Promise<void> {
  const role = await connection.send('ROLE', [])
  if (Array.isArray(role) && role[0] === 'master') return
  throw new StoreError(
    'store-unavailable',
    'The Redis server that the Sentinels name as the master is a replica. In a fail-over this passes by itself.',
  )
}

class MasterSubscription implements Subscription {
  readonly flowing: Promise<void>
  readonly #parts: MasterParts & { readonly channel: string; readonly listener: MessageListener }
  readonly #stopWatching: () => void
  #flows: { resolve(): void; reject(error: unknown): void } | undefined
  #inner: Subscription | undefined
  /** Undefined while it is looked for. */
  #address: ServerAddress | undefined
  /** Of what was begun before it is no longer the turn. */
  #turn = 0
  #attempts = 0
  #pause: NodeJS.Timeout | undefined

  constructor(parts: MasterParts & { readonly channel: string; readonly listener: MessageListener }) {
    this.#parts = parts
    this.flowing = new Promise((resolve, reject) => {
      this.#flows = { resolve, reject }
    })
    this.#stopWatching = parts.watch.onMove((master) => {
      if (this.#address !== undefined && !isSame(this.#address, master)) this.#begin()
    })
    this.#begin()
  }

  close(): void {
    this.#stopWatching()
    this.#end()
    this.#flows?.reject(new Error('The connection was closed'))
    this.#flows = undefined
  }

  #begin(): void {
    this.#end()
    const turn = this.#turn
    const mine = (): boolean => turn === this.#turn
    this.#subscribe(mine).then(
      () => mine() && this.#begun(),
      (error: unknown) => mine() && this.#failed(error),
    )
  }

  async #subscribe(mine: () => boolean): Promise<void> {
    const { watch, serverAt, channel, listener } = this.#parts
    const address = await watch.find()
    if (!mine()) return
    this.#address = address
    this.#inner = serverAt(address).subscribe(channel, {
      onMessage: (message) => listener.onMessage(message),
      onResubscribed: () => mine() && listener.onResubscribed(),
    })
    await this.#inner.flowing
  }

  #begun(): void {
    this.#attempts = 0
    if (this.#flows === undefined) return this.#parts.listener.onResubscribed()
    this.#flows.resolve()
    this.#flows = undefined
  }

  #failed(error: unknown): void {
    // Also the first time it goes on trying, unless a person has to do something: it may be begun during a fail-over.
    if (this.#flows !== undefined && storeErrorOf(error, undefined, 0).code === 'store-refused') {
      this.#flows.reject(error)
      this.#flows = undefined
      this.close()
      return
    }
    this.#attempts += 1
    this.#pause = setTimeout(() => this.#begin(), reconnectDelayMs(this.#attempts)).unref()
  }

  #end(): void {
    this.#turn += 1
    this.#address = undefined
    clearTimeout(this.#pause)
    this.#inner?.close()
    this.#inner = undefined
  }
}
