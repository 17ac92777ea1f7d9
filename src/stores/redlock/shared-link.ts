import type {
  ChannelsConnection,
  ChannelsListener,
  RawConnection,
  RedisLink,
} from '../redis/server/client-link.ts'
import { replyCode } from '../redis/server/failures.ts'
import type { Script } from '../redis/server/scripts.ts'
import { SecondConnection } from '../redis/server/second-connection.ts'

/** The commands that the rooms and the scripts of the quorum send. */
type Command = 'EVAL' | 'EVALSHA' | 'SCAN' | 'CONFIG'

/**
 * One connection that the rooms of a server and the scripts of the quorum share, so that the server runs all their commands in
 * the order in which they were sent.
 */
export class SharedLink implements RedisLink {
  readonly isShared = true
  readonly keyPrefix: string
  readonly #link: RedisLink
  readonly #onLost = new Set<() => void>()
  readonly #second = new SecondConnection(() => this.#open())
  #connection: RawConnection | undefined
  #generation = 0

  constructor(link: RedisLink) {
    this.#link = link
    this.keyPrefix = link.keyPrefix
  }

  /** A new number for each connection: the next command may reach another server, or the same one after a restart. */
  get generation(): number {
    return this.#generation
  }

  open(onLost: () => void): RawConnection {
    this.#onLost.add(onLost)
    return {
      send: (command, args) => this.send(command as Command, args),
      reasonOf: (error) => this.reasonOf(error),
      close: () => {
        this.#onLost.delete(onLost)
        this.replace()
      },
    }
  }

  openChannels(listener: ChannelsListener): ChannelsConnection {
    return this.#link.openChannels(listener)
  }

  send(command: Command, args: string[]): Promise<unknown> {
    this.#connection ??= this.#open()
    // The clients send any command; the rooms need only these.
    return this.#connection.send(command as 'EVAL', args)
  }

  reasonOf(error: unknown): unknown {
    return this.#connection?.reasonOf(error) ?? error
  }

  /** Runs a script. `args` are an empty text, which this method fills, the number of keys, the keys, and the other arguments. */
  run(script: Script, args: string[]): Promise<unknown> {
    args[0] = script.sha
    return this.send('EVALSHA', args).catch((error: unknown) => {
      if (replyCode(error) !== 'NOSCRIPT') throw error
      args[0] = script.text
      return this.send('EVAL', args)
    })
  }

  /** The server is silent. If it answers on a second connection alone, that one replaces the connection. */
  suspect(isSilent: () => boolean): void {
    this.#second.try(() => {
      if (isSilent()) this.replace(this.#second.take())
    })
  }

  /** The server has answered: no second connection is needed. */
  trust(): void {
    this.#second.close()
  }

  /** Ends the connection. `by`: the connection to use from now on. Default: the next command opens one. */
  replace(by?: RawConnection): void {
    this.#second.close()
    const before = this.#connection
    if (before === undefined) return
    this.#connection = by
    this.#lost()
    before.close()
  }

  #open(): RawConnection {
    const connection = this.#link.open(() => {
      if (this.#connection === connection) this.#lost()
    })
    return connection
  }

  #lost(): void {
    this.#generation += 1
    for (const onLost of this.#onLost) onLost()
  }
}
