import { randomBytes } from 'node:crypto'
import type {
  AcquireAnswer,
  EvictRequest,
  InspectRequest,
  ReleaseAnswer,
  ReleaseRequest,
  RenewAnswer,
  RoomPage,
  Store,
  Ticket,
  Wake,
} from '../../contract/store.ts'
import { StoreError } from '../../errors.ts'
import type { PostgresConnections } from '../../postgres/connections.ts'
import { isAboutValue, isAbsent, isRetryable, storeErrorOf } from '../../postgres/failures.ts'
import type { ChannelSubscription } from '../../postgres/subscription.ts'
import { answers } from './answers.ts'
import { type PendingRequest, type RequestBatch, RequestBatches } from './request-batches.ts'
import { roomView } from './room-view.ts'
import { type PostgresStatements, presenceOf, statementsFor } from './statements.ts'

export interface PostgresStoreParts {
  readonly connections: PostgresConnections
  readonly schema: string
  /** How many calls run at once. */
  readonly mostCalls: number
  /** Whether a grant waits for the disk. */
  readonly isLogged: boolean
  /** Runs before the first call, and again until it has resolved once. */
  readonly prepare: () => Promise<void>
}

/**
 * Each verb is one call of one function. Requests that come while all connections are busy go together into the next call. A call
 * waits for the disk once, however many tickets it is about.
 */
export class PostgresStore implements Store {
  readonly name = 'postgres'
  readonly #connections: PostgresConnections
  readonly #statements: PostgresStatements
  readonly #prepare: () => Promise<void>
  readonly #inbox = `holdfast_${randomBytes(9).toString('base64url')}`
  readonly #isLogged: string
  readonly #batches: RequestBatches
  readonly #listeners = new Set<{ readonly onWake: (wake: Wake) => void }>()
  #prepared: Promise<void> | undefined
  #isPrepared = false
  #listening: Promise<Push> | undefined
  #subscription: ChannelSubscription | undefined
  #polls = false
  #sweepAt = 0
  readonly #unfinished = new Set<string>()
  #isFinishing = false

  constructor({ connections, schema, mostCalls, isLogged, prepare }: PostgresStoreParts) {
    this.#connections = connections
    this.#statements = statementsFor(schema)
    this.#prepare = prepare
    this.#isLogged = String(isLogged)
    this.#batches = new RequestBatches(mostCalls, {
      acquire: (batch) => this.#acquireBatch(batch),
      release: (batch) => this.#releaseBatch(batch),
    })
  }

  acquire(ticket: Ticket): Promise<AcquireAnswer> {
    return this.#batches.acquire(ticket)
  }

  release(request: ReleaseRequest): Promise<ReleaseAnswer> {
    return this.#batches.release(request)
  }

  async renew(tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
    const renewed: RenewAnswer[] = []
    // One call after the other, so that acquire and release have the other connections.
    for (let start = 0; start < tickets.length; start += MOST_RENEWALS) {
      renewed.push(...(await this.#renewBatch(tickets.slice(start, start + MOST_RENEWALS))))
    }
    return renewed
  }

  /** Behind a pooler only the wakes of this process flow. Every waiter is then told to ask again soon. */
  async listen(onWake: (wake: Wake) => void): Promise<() => void> {
    const listener = { onWake }
    this.#listeners.add(listener)
    this.#listening ??= this.#startListening()
    const listening = this.#listening
    try {
      await listening
    } catch (error) {
      if (this.#listening === listening) this.#listening = undefined
      this.#listeners.delete(listener)
      throw storeErrorOf(error, { doing: 'listening for wakes' })
    }
    return () => {
      this.#listeners.delete(listener)
    }
  }

  async inspect({ prefix, exact = false, cursor, count }: InspectRequest): Promise<RoomPage> {
    // One more, to see whether another page follows.
    const parameters = exact ? [prefix] : [prefix, cursor ?? null, String(count + 1)]
    const statement = exact ? this.#statements.peek : this.#statements.inspect
    const rows = await this.#run(statement, parameters, { doing: 'listing rooms' })
    const page = rows.slice(0, count)
    const rooms = page.flatMap(({ key, room }) => roomView(String(key), String(room)) ?? [])
    const last = page.at(-1)?.['key']
    return { rooms, next: rows.length > count && last !== undefined ? String(last) : undefined }
  }

  async evict({ key, id, reason }: EvictRequest): Promise<readonly string[]> {
    const parameters = [key, id ?? null, JSON.stringify(reason), this.#inbox, this.#isLogged]
    const lines = await this.#call(this.#statements.evict, parameters, { doing: 'evicting', key })
    const count = Number(lines[0])
    this.#follow(lines.slice(count + 1))
    return lines.slice(1, count + 1)
  }

  async close(): Promise<void> {
    this.#listeners.clear()
    await this.#connections.close()
  }

  async #acquireBatch(batch: RequestBatch<Ticket, AcquireAnswer>): Promise<void> {
    const tickets = batch.map(({ asked }) => asked)
    const terms = arraysOf(tickets, [
      'key',
      'id',
      'units',
      'limit',
      'ttlMs',
      'acceptMs',
      'patienceMs',
      'minHoldMs',
      'lockDelayMs',
      'owner',
    ])
    await this.#answer(batch, this.#statements.acquire, {
      parameters: [...terms, this.#inbox, this.#listens, this.#isLogged],
      doing: 'asking for a key',
      parse: (text) => this.#polling(answers.acquire(text)),
      alone: (one) => this.#acquireBatch(one),
    })
    this.#sweepNowAndThen()
  }

  #releaseBatch(batch: RequestBatch<ReleaseRequest, ReleaseAnswer>): Promise<void> {
    const requests = batch.map(({ asked }) => asked)
    return this.#answer(batch, this.#statements.release, {
      parameters: [...arraysOf(requests, ['key', 'id', 'cancel']), this.#inbox],
      doing: 'giving a key back',
      parse: answers.release,
      alone: (one) => this.#releaseBatch(one),
    })
  }

  async #answer<Asked extends { readonly key: string }, Answer>(
    batch: readonly PendingRequest<Asked, Answer>[],
    statement: string,
    {
      parameters,
      doing,
      parse,
      alone,
    }: {
      readonly parameters: readonly (string | null)[]
      readonly doing: string
      readonly parse: (text: string) => Answer
      readonly alone: (batch: RequestBatch<Asked, Answer>) => Promise<void>
    },
  ): Promise<void> {
    try {
      const lines = await this.#call(statement, parameters, { doing })
      // Wakes first, so that a waiter that was let in confirms before the caller can queue again.
      this.#follow(lines.slice(batch.length))
      for (const [index, { resolve }] of batch.entries()) resolve(parse(lines[index] ?? ''))
    } catch (error) {
      const { code, message, cause } = storeErrorOf(error, { doing })
      // The call has done nothing. Each request is sent alone, so that only the one with the wrong value fails.
      if (batch.length > 1 && isAboutValue(cause)) {
        await Promise.all(batch.map((each) => alone([each])))
        return
      }
      for (const { asked, reject } of batch) {
        reject(new StoreError(code as StoreErrorCode, message, { key: asked.key, cause }))
      }
    }
  }

  async #renewBatch(tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
    const terms = arraysOf(tickets, ['key', 'id', 'ttlMs', 'acceptMs', 'patienceMs', 'minHoldMs'])
    const parameters = [...terms, this.#inbox, this.#listens, this.#isLogged]
    const lines = await this.#call(this.#statements.renew, parameters, { doing: 'renewing' })
    this.#follow(lines.slice(tickets.length))
    return tickets.map((_, index) => this.#polling(answers.renew(lines[index] ?? '')))
  }

  async #call(
    statement: string,
    parameters: readonly (string | null)[],
    about: { readonly doing: string; readonly key?: string },
  ): Promise<readonly string[]> {
    const [row] = await this.#run(statement, parameters, { ...about, isAlone: true })
    return String(row?.['answer']).split('\n')
  }

  async #run(
    statement: string,
    parameters: readonly (string | null)[],
    { isAlone = false, ...about }: { doing: string; key?: string; isAlone?: boolean },
  ): Promise<readonly Readonly<Record<string, unknown>>[]> {
    if (!this.#isPrepared) await this.#prepareOnce()
    this.#subscription?.probe()
    try {
      for (let attempt = 1; ; attempt += 1) {
        try {
          return await this.#connections.query(statement, parameters, { isAlone })
        } catch (error) {
          if (attempt === MOST_ATTEMPTS) throw error
          // A fail-over may lose the schema, too.
          if (isAbsent(error)) await this.#prepareAnew()
          else if (!isRetryable(error)) throw error
        }
      }
    } catch (error) {
      throw storeErrorOf(error, about)
    }
  }

  async #prepareOnce(): Promise<void> {
    this.#prepared ??= this.#prepare()
    try {
      await this.#prepared
      this.#isPrepared = true
    } catch (error) {
      this.#prepared = undefined
      throw error
    }
  }

  #prepareAnew(): Promise<void> {
    if (this.#isPrepared) this.#prepared = undefined
    this.#isPrepared = false
    return this.#prepareOnce()
  }

  async #startListening(): Promise<Push> {
    if (await this.#connections.isPooled()) {
      this.#polls = true
      return 'none'
    }
    this.#subscription = await this.#connections.listen(this.#inbox, {
      onMessage: (id) => this.#wake({ tag: 'ticket', id }),
      onResubscribed: () => this.#wake({ tag: 'all' }),
      presence: presenceOf(this.#inbox),
    })
    return 'flows'
  }

  /** Whether our session listens, with its lock as a sign of life. Behind a pooler there is no such session. */
  get #listens(): string {
    return String(this.#subscription?.isOpen === true)
  }

  /** Behind a pooler nobody can wake a waiter. It has to ask again long before its patience ends. */
  #polling<Answer extends AcquireAnswer | RenewAnswer>(answer: Answer): Answer {
    if (!this.#polls || answer.tag !== 'queued') return answer
    return { ...answer, askAgainMs: Math.min(answer.askAgainMs, POLL_MS) }
  }

  /**
   * Lines `*id`: waiters of this process that our call has let in. A waiter that was let in and evicted is there twice. Lines
   * `+key`: rooms with more waiters to let in than one call may.
   */
  #follow(lines: readonly string[]): void {
    for (const line of new Set(lines)) {
      if (line[0] === '+') this.#unfinished.add(JSON.parse(line.slice(1)) as string)
      else this.#wake({ tag: 'ticket', id: line.slice(1) })
    }
    if (this.#unfinished.size > 0 && !this.#isFinishing) void this.#finishRooms()
  }

  /** Lets the rest of these rooms in. If a call fails, the next request for the room goes on. */
  async #finishRooms(): Promise<void> {
    this.#isFinishing = true
    for (const key of this.#unfinished) {
      this.#unfinished.delete(key)
      // No ticket has this id, so the call only lets waiters in. Its answer may name the key again.
      await this.release({ key, id: '?', cancel: false }).catch(() => {})
    }
    this.#isFinishing = false
  }

  #wake(wake: Wake): void {
    for (const { onWake } of this.#listeners) onWake(wake)
  }

  /** Called beside an acquire, so that an idle process sends nothing. */
  #sweepNowAndThen(): void {
    const now = performance.now()
    if (now < this.#sweepAt) return
    // Jittered, so that processes do not sweep together. Set to 0 below when there was more than one call could clear.
    this.#sweepAt = now + SWEEP_EVERY_MS * (0.5 + Math.random())
    this.#connections.query(this.#statements.sweep, [String(SWEPT_TOGETHER)]).then(
      ([row]) => {
        if (Number(row?.['answer']) === SWEPT_TOGETHER) this.#sweepAt = 0
      },
      () => {
        // Nothing depends on it. Another process sweeps, or this one later.
      },
    )
  }
}

type Push = 'flows' | 'none'
type StoreErrorCode = ConstructorParameters<typeof StoreError>[0]

/** One array for each name, in PostgreSQL's notation. */
function arraysOf<Row>(rows: readonly Row[], names: readonly (keyof Row)[]): string[] {
  return names.map((name) => `{${rows.map((row) => quoted(row[name])).join(',')}}`)
}

function quoted(value: unknown): string {
  return typeof value === 'string' ? `"${value.replace(/["\\]/g, '\\$&')}"` : String(value)
}

const MOST_ATTEMPTS = 5
/** Behind a pooler: how long a hand-over may go unnoticed. It costs one call for each process and turn. */
const POLL_MS = 250
/** Renewals are not urgent, and are cheaper together. */
const MOST_RENEWALS = 500
const SWEEP_EVERY_MS = 600_000
const SWEPT_TOGETHER = 500
