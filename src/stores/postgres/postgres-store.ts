import { comesAfter } from '../../base/text.ts'
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
import { isAboutValue, isOverdue, storeErrorOf } from '../../postgres/failures.ts'
import { wakeOf } from '../answers.ts'
import { type RenewTogether, renewBesideDamage } from '../damaged-rooms.ts'
import { WaitGroups } from '../wait-groups.ts'
import { answers, isUnexpectedAnswer, readAnswer } from './answers.ts'
import { arraysOf } from './arrays.ts'
import { NotificationInbox } from './notification-inbox.ts'
import { PostgresRenewals } from './renewals.ts'
import { type PendingRequest, type RequestBatch, RequestBatches } from './request-batches.ts'
import { RoomSweep } from './room-sweep.ts'
import { roomView } from './room-view.ts'
import { type CallSubject, StatementCalls } from './statement-calls.ts'
import { type PostgresStatements, statementsFor } from './statements.ts'
import { UnfinishedRooms } from './unfinished-rooms.ts'

/** Whether an error says that a room holds what Holdfast never wrote. */
function isDamage(error: unknown): boolean {
  return isUnexpectedAnswer(error) || (error instanceof StoreError && isAboutValue(error.cause))
}

export interface PostgresStoreParts {
  readonly connections: PostgresConnections
  readonly schema: string
  /** How many calls run at once. */
  readonly mostCalls: number
  /** Whether a grant waits for the disk. */
  readonly isLogged: boolean
  /** Whether tables that are missing are as good as empty ones. Otherwise `prepare` makes them, or refuses. */
  readonly readOnly: boolean
  /** Runs before the first call, and again until it has resolved once. */
  readonly prepare: () => Promise<void>
  /** The smallest number of waiters for one key that becomes a group; see ../wait-groups.ts. Default: 4. */
  readonly leastGroup?: number
}

/**
 * Each verb is one call of one function. Requests that come while all connections are busy go together into the next call. A call
 * waits for the disk once, however many tickets it is about.
 */
export class PostgresStore implements Store {
  readonly name = 'postgres'
  readonly #connections: PostgresConnections
  readonly #statements: PostgresStatements
  readonly #isLogged: string
  readonly #calls: StatementCalls
  readonly #inbox: NotificationInbox
  readonly #sweep: RoomSweep
  readonly #batches: RequestBatches
  readonly #renewTogether: RenewTogether = {
    ask: (tickets) => this.#renewals.renew(tickets),
    isDamage,
  }
  readonly #groups: WaitGroups
  readonly #renewals: PostgresRenewals
  readonly #unfinished = new UnfinishedRooms((key) => this.#settle(key))

  constructor(parts: PostgresStoreParts) {
    const { connections, schema, mostCalls, isLogged, readOnly, prepare, leastGroup = 4 } = parts
    this.#connections = connections
    this.#statements = statementsFor(schema)
    this.#isLogged = String(isLogged)
    this.#calls = new StatementCalls(connections, { prepare, missesTables: readOnly })
    this.#inbox = new NotificationInbox(connections)
    this.#sweep = new RoomSweep(connections, this.#statements.sweep)
    this.#batches = new RequestBatches(mostCalls, {
      acquire: (batch) => this.#acquireBatch(batch),
      release: (batch) => this.#releaseBatch(batch),
    })
    this.#groups = new WaitGroups(this.#inbox.name, leastGroup)
    this.#renewals = new PostgresRenewals({
      groups: this.#groups,
      statements: this.#statements,
      ask: async (statement, parameters, count) => {
        const asker = [this.#inbox.name, String(this.#inbox.isOpen), this.#isLogged]
        const lines = await this.#ask(statement, [...parameters, ...asker], { doing: 'renewing leases' })
        this.#follow(lines.slice(count))
        return lines
      },
      read: (line) => this.#inbox.polling(answers.renew(line)),
      isDamage,
      isOverdue: (error) => error instanceof StoreError && isOverdue(error.cause),
      takenOf: async (keys) => {
        const rows = await this.#calls.rows(this.#statements.taken, [keys], { doing: 'renewing leases' })
        return new Set(rows.map(({ key }) => String(key)))
      },
    })
  }

  acquire(ticket: Ticket): Promise<AcquireAnswer> {
    return this.#batches.acquire(ticket)
  }

  release(request: ReleaseRequest): Promise<ReleaseAnswer> {
    return this.#batches.release(request)
  }

  async renew(tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
    return renewBesideDamage(this.#renewTogether, tickets)
  }

  listen(onWake: (wake: Wake) => void): Promise<() => void> {
    return this.#inbox.listen(onWake)
  }

  async inspect({ prefix, exact = false, cursor, count }: InspectRequest): Promise<RoomPage> {
    // One more, to see whether another page follows.
    const parameters = exact ? [prefix] : [prefix, cursor ?? null, String(count + 1)]
    const statement = exact ? this.#statements.peek : this.#statements.inspect
    this.#inbox.probe()
    const rows = await this.#calls.rows(statement, parameters, { doing: 'listing rooms' })
    const page = rows.slice(0, count)
    const rooms = page.flatMap(({ key, room }) => roomView(String(key), String(room)) ?? [])
    const last = page.at(-1)?.['key']
    if (rows.length <= count || last === undefined) return { rooms, next: undefined }
    const next = String(last)
    if (cursor !== undefined && !comesAfter(next, cursor)) throw new StoreError('store-refused', OUT_OF_ORDER)
    return { rooms, next }
  }

  async caveats(): Promise<readonly string[]> {
    const [facts] = await this.#calls.rows(FACTS, [], { doing: 'asking whether the server is a standby' })
    return facts?.['standby'] === 'true' ? [STANDBY] : []
  }

  async evict({ key, id, reason, onlyIfWaiting = false }: EvictRequest): Promise<readonly string[]> {
    const parameters = [
      key,
      id ?? null,
      JSON.stringify(reason),
      String(onlyIfWaiting),
      this.#inbox.name,
      this.#isLogged,
    ]
    const lines = await this.#ask(this.#statements.evict, parameters, { doing: 'evicting tickets', key })
    const count = Number(lines[0])
    this.#follow(lines.slice(count + 1))
    return lines.slice(1, count + 1)
  }

  async close(): Promise<void> {
    this.#inbox.close()
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
      parameters: [...terms, this.#inbox.name, String(this.#inbox.isOpen), this.#isLogged],
      doing: 'acquiring a key',
      parse: (text, ticket) => {
        const answer = this.#inbox.polling(answers.acquire(text))
        if (answer.tag === 'queued') this.#groups.waits(ticket)
        return answer
      },
      alone: (one) => this.#acquireBatch(one),
    })
    this.#sweep.nowAndThen()
  }

  #releaseBatch(batch: RequestBatch<ReleaseRequest, ReleaseAnswer>): Promise<void> {
    const requests = batch.map(({ asked }) => asked)
    return this.#answer(batch, this.#statements.release, {
      parameters: [...arraysOf(requests, ['key', 'id', 'cancel']), this.#inbox.name, this.#isLogged],
      doing: 'releasing a key',
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
      readonly parse: (text: string, asked: Asked) => Answer
      readonly alone: (batch: RequestBatch<Asked, Answer>) => Promise<void>
    },
  ): Promise<void> {
    try {
      const lines = await this.#ask(statement, parameters, { doing })
      // Wakes first, so that a waiter that was let in has the key before the caller can queue again.
      this.#follow(lines.slice(batch.length))
      for (const [index, { asked, resolve }] of batch.entries()) resolve(parse(lines[index] ?? '', asked))
    } catch (error) {
      const { code, message, cause } = storeErrorOf(error, { doing })
      // The call has done nothing. Each request is sent alone, so that only the one with the wrong value fails, and those for one key
      // one after the other, in their order.
      if (batch.length > 1 && isAboutValue(cause)) {
        const lastOfKey = new Map<string, Promise<void>>()
        for (const each of batch) {
          const { key } = each.asked
          lastOfKey.set(key, lastOfKey.get(key)?.then(() => alone([each])) ?? alone([each]))
        }
        await Promise.all(lastOfKey.values())
        return
      }
      for (const { asked, reject } of batch) {
        reject(new StoreError(code as StoreErrorCode, message, { key: asked.key, cause }))
      }
    }
  }

  #ask(
    statement: string,
    parameters: readonly (string | null)[],
    about: CallSubject,
  ): Promise<readonly string[]> {
    this.#inbox.probe()
    return this.#calls.lines(statement, parameters, about)
  }

  /** No ticket has this id, so the call only lets waiters in. */
  #settle(key: string): Promise<unknown> {
    return this.release({ key, id: '?', cancel: false })
  }

  /**
   * The lines of lock_settle (room.sql): messages to waiters of this process, and rooms with more waiters to let in than one call
   * may. A waiter that was offered the key and evicted is there twice.
   */
  #follow(lines: readonly string[]): void {
    for (const line of new Set(lines)) {
      if (line[0] === '+') this.#unfinished.add(readAnswer(line, () => String(JSON.parse(line.slice(1)))))
      else if (line[0] === '*') this.#inbox.wake(wakeOf(line.slice(1)))
    }
  }
}

type StoreErrorCode = ConstructorParameters<typeof StoreError>[0]

const FACTS = 'select pg_catalog.pg_is_in_recovery()::text as standby'
const STANDBY =
  'The PostgreSQL server is a standby. What its primary did in the last moments may be missing here, and if the standby takes over, its primary may have granted more than is shown.'

const OUT_OF_ORDER =
  'The keys of the PostgreSQL schema cannot be listed, because the server does not return them in order. Check that it is a PostgreSQL server, and that nobody has changed the tables of Holdfast.'
