import { closedStoreError } from '../../../base/closed.ts'
import type { StoreError } from '../../../errors.ts'
import { probeAnswer, textsOf } from './answers.ts'
import { type RawConnection, type RedisLink, SILENCE_MS } from './client-link.ts'
import { replyCode, storeErrorOf, unexpectedReply } from './failures.ts'
import { NotReplicatedError, Replication, WAIT_LIMIT_MS } from './replication.ts'
import { isOnReplica } from './replies.ts'
import type { Script, Scripts } from './scripts.ts'
import { SecondConnection, SUSPICION_MS } from './second-connection.ts'
import { inspectAnswer, readByCommands, type StoredRooms } from './stored-rooms.ts'

export interface ConnectionOptions {
  /** How many replicas must have a grant before it counts. */
  readonly replicas: number
  readonly scripts: Pick<Scripts, 'probe' | 'inspect'>
  /** Whether rooms are read without scripts. Default: false. */
  readonly readOnly?: boolean | undefined
  /** Called when the user may do everything but send messages. */
  readonly onMute?: () => void
  /** Called when the connection is lost or replaced. The next command may reach another server, or the same one after a restart. */
  readonly onLost?: (() => void) | undefined
}

/** The store's connection for commands to one server. The first command opens it; one that is silent or refuses is replaced. */
export class ServerConnection {
  readonly #link: RedisLink
  readonly #scripts: ConnectionOptions['scripts']
  readonly #readOnly: boolean
  readonly #replication: Replication | undefined
  readonly #onMute: (() => void) | undefined
  readonly #onLost: (() => void) | undefined
  readonly #suspicionMs: number
  #proven: boolean | Promise<void> = false
  #raw: RawConnection | undefined
  /** Whether the server has answered on this connection. If not, it may be slow to open, and a second one would be as slow. */
  #hasAnswered = false
  readonly #second = new SecondConnection(() => this.#open())
  #watching: NodeJS.Timeout | undefined
  /** Scripts whose text was sent on this connection: their SHA-1 is enough from then on. */
  readonly #known = new Set<Script>()
  #closed = false
  #unanswered = 0
  #heardAt = 0
  #readOnlySince: number | undefined

  constructor(link: RedisLink, { replicas, scripts, readOnly = false, onMute, onLost }: ConnectionOptions) {
    this.#onMute = onMute
    this.#onLost = onLost
    this.#link = link
    this.#scripts = scripts
    this.#readOnly = readOnly
    this.#replication = replicas === 0 ? undefined : new Replication(replicas)
    // A server that waits for replicas answers nothing else on this connection.
    this.#suspicionMs = replicas === 0 ? SUSPICION_MS : SUSPICION_MS + WAIT_LIMIT_MS
  }

  /**
   * Runs a script. `args[0]` is left empty and is filled here; then come the number of keys, the keys (the last fence first),
   * and the rest. Rejects with the client's own error, which {@link failure} turns into one for the caller.
   */
  run(script: Script, args: string[]): Promise<unknown> {
    if (this.#proven === true) return this.#runUnproven(script, args)
    // The check of rights may itself be what the connection never answers.
    this.#replaceIfSilent()
    return this.#prove(args).then(() => this.#runUnproven(script, args))
  }

  /** What is stored under the names of rooms. Needs no right to write: nothing here could stop half-way. */
  async read(names: readonly string[]): Promise<StoredRooms> {
    if (this.#readOnly) return readByCommands((command, args) => this.send(command, args), names)
    const args = ['', String(names.length), ...names]
    return inspectAnswer(await this.#runUnproven(this.#scripts.inspect, args), names.length)
  }

  /** Reads rooms on a server that is importing their slot. */
  async readAsking(names: readonly string[]): Promise<StoredRooms> {
    if (this.#readOnly) return readByCommands((command, args) => this.#ask(command, args), names)
    const args = ['', String(names.length), ...names]
    return inspectAnswer(await this.runAsking(this.#scripts.inspect, args), names.length)
  }

  isReplica(): Promise<boolean> {
    return isOnReplica({ send: (_, args) => this.send('HELLO', args) })
  }

  #runUnproven(script: Script, args: string[]): Promise<unknown> {
    this.#replaceIfSilent()
    const { grants } = script
    // The first time the script is sent as a text: a process that exits right after a release would not read a
    // NOSCRIPT.
    if (!this.#known.has(script)) {
      this.#known.add(script)
      args[0] = script.text
      return this.send('EVAL', args, grants)
    }
    args[0] = script.sha
    return this.send('EVALSHA', args, grants, (error) => {
      // The server's scripts were flushed, or it has changed behind a connection that stayed.
      if (replyCode(error) !== 'NOSCRIPT') throw error
      args[0] = script.text
      return this.send('EVAL', args, grants)
    })
  }

  /**
   * Runs a script on a server that is importing the slot. The script is sent as a text, because NOSCRIPT would take
   * another request.
   */
  async runAsking(script: Script, args: string[]): Promise<unknown> {
    args[0] = script.text
    return this.#ask('EVAL', args, script.grants)
  }

  /** A step of a scan: the cursor of the next step, and the Redis keys that were found. */
  async scan(
    cursor: string,
    { pattern, count }: { readonly pattern: string; readonly count: number },
  ): Promise<readonly [next: string, names: readonly string[]]> {
    const reply = await this.send('SCAN', [cursor, 'MATCH', pattern, 'COUNT', String(count)])
    const [next, names] = Array.isArray(reply) ? (reply as readonly unknown[]) : []
    if (typeof next !== 'string' || !/^\d{1,20}$/.test(next)) throw unexpectedReply(reply)
    return [next, textsOf(names)]
  }

  async #ask(command: SentCommand, args: string[], grants = false): Promise<unknown> {
    // ASKING counts for the very next request on this connection.
    const [, reply] = await Promise.all([this.send('ASKING', []), this.send(command, args, grants)])
    return reply
  }

  send(
    command: SentCommand,
    args: string[],
    grants = false,
    otherwise: (error: unknown) => Promise<unknown> = raise,
  ): Promise<unknown> {
    if (this.#closed) return Promise.reject(closedStoreError('redisStore()'))
    this.#replaceIfSilent()
    if (this.#unanswered === 0) this.#heardAt = performance.now()
    this.#raw ??= this.#open()
    this.#watching ??= this.#watchSoon()
    const raw = this.#raw
    this.#unanswered += 1
    const sent = raw.send(command, args)
    const reply = grants && this.#replication !== undefined ? this.#replication.cover(sent, raw) : sent
    // A single `then` serves everything, because each further one slows down a lock that is taken and released in a
    // loop.
    return reply.then(
      (answer) => {
        this.#heard(raw)
        return answer
      },
      (error: unknown) => {
        const reason = raw.reasonOf(error)
        this.#failed(raw, reason)
        return otherwise(reason)
      },
    )
  }

  /** @throws {StoreError} when it was closed. */
  assertOpen(): void {
    if (this.#closed) throw closedStoreError('redisStore()')
  }

  /** The error for the caller of a request that failed with `error`. */
  failure(error: unknown, key?: string): StoreError {
    if (error instanceof NotReplicatedError) return error.asStoreError(key)
    const since = this.#readOnlySince
    return storeErrorOf(error, key, since === undefined ? 0 : performance.now() - since)
  }

  /** For how long requests have been open without any answer, in ms. */
  get silentMs(): number {
    return this.#unanswered === 0 ? 0 : performance.now() - this.#heardAt
  }

  /** Ends the connection. Open requests are rejected; the next one opens another connection. */
  leave(): void {
    this.#replace()
  }

  close(): void {
    this.#closed = true
    clearTimeout(this.#watching)
    this.#replace()
  }

  #heard(raw: RawConnection): void {
    this.#unanswered -= 1
    // A late reply on a connection that was replaced tells nothing about the present one.
    if (raw !== this.#raw) return
    this.#heardAt = performance.now()
    this.#hasAnswered = true
    this.#readOnlySince = undefined
  }

  #failed(raw: RawConnection, error: unknown): void {
    this.#unanswered -= 1
    if (raw !== this.#raw) return
    const code = replyCode(error)
    if (code !== undefined || error instanceof NotReplicatedError) this.#heardAt = performance.now()
    if (code === 'READONLY') this.#readOnlySince ??= performance.now()
    // A new connection looks for the primary again, and a client whose password was refused would reconnect in the background.
    if (code === 'READONLY' || code === 'WRONGPASS' || code === 'NOAUTH') this.#replace()
  }

  /** Checks once that the user may run every command: a script that is refused half-way would leave a broken room. */
  #prove([, , fence = '']: readonly string[]): Promise<unknown> {
    if (typeof this.#proven !== 'boolean') return this.#proven
    // The same prefix as the last fence, and so the same slot.
    const start = fence.slice(0, -'fence'.length)
    const proof = this.#runUnproven(this.#scripts.probe, ['', '1', `${start}probe`, `${start}inbox:`])
    this.#proven = proof.then(probeAnswer).then(
      ({ isMute }) => {
        this.#proven = true
        if (isMute) this.#onMute?.()
      },
      (error: unknown) => {
        this.#proven = false
        // A slot that is moving takes no new key here. The next request checks again.
        if (replyCode(error) !== 'ASK') throw error
      },
    )
    return this.#proven
  }

  #open(): RawConnection {
    // The second connection may be lost while the first one is used.
    const raw = this.#link.open(() => {
      if (this.#raw === raw) this.#forget()
    })
    return raw
  }

  #watchSoon(): NodeJS.Timeout {
    return setTimeout(() => {
      this.#watching = this.#unanswered > 0 || this.#second.isOpen ? this.#watchSoon() : undefined
      // This process may have been the one that stood still: what has arrived meanwhile is read first.
      setImmediate(() => this.#look())
    }, WATCH_MS).unref()
  }

  #look(): void {
    if (this.silentMs <= this.#suspicionMs) return this.#second.close()
    if (this.#closed || !this.#hasAnswered || this.#link.isShared) return
    const heardAt = this.#heardAt
    this.#second.try(() => {
      if (this.#heardAt === heardAt) this.#replace(this.#second.take())
    })
  }

  #replaceIfSilent(): void {
    if (this.#unanswered > 0 && performance.now() - this.#heardAt > SILENCE_MS)
      this.#replace(this.#second.take())
  }

  /** `by`: the connection to use from now on. Default: the next command opens one. */
  #replace(by?: RawConnection): void {
    this.#second.close()
    const before = this.#raw
    this.#raw = by
    this.#forget()
    this.#heardAt = performance.now()
    before?.close()
  }

  #forget(): void {
    this.#hasAnswered = false
    this.#known.clear()
    this.#replication?.lost()
    this.#onLost?.()
  }
}

/** How often silence is looked for. Processes do so at different times, so they do not all connect at once. */
const WATCH_MS = 250

type SentCommand =
  | 'EVAL'
  | 'EVALSHA'
  | 'SCAN'
  | 'ASKING'
  | 'HELLO'
  | 'MGET'
  | 'TYPE'
  | 'GET'
  | 'ZRANGE'
  | 'PEXPIRETIME'
  | 'PTTL'

function raise(error: unknown): never {
  throw error
}
