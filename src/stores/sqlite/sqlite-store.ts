import { setImmediate as nextTurn } from 'node:timers/promises'
import { checkOptions, expected } from '../../base/arguments.ts'
import { opened } from '../../base/opened.ts'
import type {
  AcquireAnswer,
  Answer,
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
import { acquire, evict, release, renew, type StoreTime, view, withdrawOffer } from '../../law/room.ts'
import { parsePath } from './file-path.ts'
import { Inbox } from './inbox.ts'
import type { LockFileOptions } from './lock-file.ts'
import { bootOfMachine, machineTime } from './machine.ts'
import { type Notice, readRoom, type Step, step } from './room-window.ts'
import type { SqliteEngine } from './sqlite-engine.ts'
import type { Statements } from './statements.ts'
import { Sweep } from './sweep.ts'
import { Transactions, type Work } from './transactions.ts'

export interface SqliteStoreOptions {
  /** The lock file. It and its folders are made when they are not there yet. */
  readonly path: string
  /** Which SQLite to use, for tests. Default: `node:sqlite` where the runtime has it, otherwise the package. */
  readonly engine?: SqliteEngine | undefined
  /** Where the store's time comes from, for tests. Default: the monotonic clock of the machine, and its wall clock. */
  readonly now?: (() => StoreTime) | undefined
  /** Names the boot that `now` counts from, for tests. Default: the boot id of the machine. */
  readonly boot?: string | undefined
}

/**
 * A store in a file, for all processes of one machine. Nothing has to be running, nothing has to be set up, and what was
 * held when the machine went down is free when it comes up.
 *
 * All processes have to see the file on a disk of the same machine: network file systems are refused. In containers, the
 * folder has to be shared, not the file alone, because SQLite keeps two more files beside it.
 *
 * Takes a path or {@link SqliteStoreOptions}. The file is opened by the first call; {@link openSqlite} opens it at once.
 * Calls throw `StoreError`s: `store-refused` when the file cannot be used until somebody changes something,
 * `store-unavailable` when the disk is full or another process was stopped in the middle of a transaction.
 *
 * Needs Node.js 22.16 or newer, or the package `@photostructure/sqlite`, which needs no compiler.
 *
 * ```ts
 * import { createLocks } from 'holdfast'
 * import { sqliteStore } from 'holdfast/sqlite'
 *
 * const locks = createLocks(sqliteStore('./locks.db'))
 * await locks.withLock('report', async () => console.log('one at a time on this machine'))
 * ```
 */
export function sqliteStore(pathOrOptions: string | SqliteStoreOptions): Store {
  return new SqliteStore(parseOptions(pathOrOptions))
}

/** {@link sqliteStore}, once its file could be opened: for programs that want to know at their start. */
export async function openSqlite(pathOrOptions: string | SqliteStoreOptions): Promise<Store> {
  return opened(new SqliteStore(parseOptions(pathOrOptions)), (store) => store.open())
}

class SqliteStore implements Store {
  readonly name = 'sqlite'
  readonly #transactions: Transactions
  readonly #inbox: Inbox
  readonly #sweep = new Sweep()

  constructor(options: LockFileOptions) {
    this.#inbox = new Inbox(options.path, (notice) => this.#withdraw(notice))
    this.#transactions = new Transactions(options, () => void this.#inbox.reopen())
  }

  async open(): Promise<void> {
    await this.#transactions.write(() => undefined)
  }

  acquire(ticket: Ticket): Answer<AcquireAnswer> {
    const { key, id } = ticket
    const sweeps = this.#sweep.isDue()
    return this.#write<AcquireAnswer>((statements, time) => {
      const request = { key, id, inbox: this.#inbox.address || undefined, time }
      const { answer, notices } = step(statements, request, (room, at) => acquire(room, ticket, at))
      if (sweeps) this.#sweep.clear(statements, time)
      if (answer.tag !== 'queued') return { answer, notices }
      return { answer: { ...answer, ahead: countAhead(statements, ticket) }, notices }
    })
  }

  renew(tickets: readonly Ticket[]): Answer<readonly RenewAnswer[]> {
    const answers = this.#renewSome(tickets)
    const complete = !(answers instanceof Promise) && answers.length === tickets.length
    return complete ? answers : this.#renewRest(tickets, answers)
  }

  release(request: ReleaseRequest): Answer<ReleaseAnswer> {
    const { key, id } = request
    return this.#write((statements, time) =>
      step(statements, { key, id, inbox: undefined, time }, (room, at) => release(room, request, at)),
    )
  }

  evict(request: EvictRequest): Answer<readonly string[]> {
    const { key, id } = request
    return this.#write((statements, time) =>
      step(statements, { key, id, inbox: undefined, time }, (room, at) => evict(room, request, at)),
    )
  }

  inspect({ prefix, cursor = '', count }: InspectRequest): Answer<RoomPage> {
    return this.#transactions.read((statements, time) => {
      // One more, to see whether another page follows. Keys with a prefix stand together, as they are in byte order.
      const keys = statements.rooms
        .all(prefix, cursor, count + 1)
        .map(([key]) => key)
        .filter((key) => key.startsWith(prefix))
      const page = keys.slice(0, count)
      const rooms = page
        .map((key) => view(readRoom(statements, key, time), key, time))
        .filter((room) => room.holders.length > 0 || room.queue.length > 0 || room.closedMs > 0)
      return { rooms, next: keys.length > count ? page.at(-1) : undefined }
    })
  }

  async listen(onWake: (wake: Wake) => void): Promise<() => void> {
    // The inbox is beside the lock file, so there has to be one.
    await this.open()
    return this.#inbox.listen(onWake)
  }

  async close(): Promise<void> {
    this.#transactions.close()
    await this.#inbox.close()
  }

  /** As many as a short transaction can do, at least one. */
  #renewSome(tickets: readonly Ticket[]): Answer<readonly RenewAnswer[]> {
    return this.#write<readonly RenewAnswer[]>((statements, time) => {
      const yieldAt = performance.now() + SLICE_MS
      const answer: RenewAnswer[] = []
      const notices: Notice[] = []
      for (const ticket of tickets) {
        const { key, id } = ticket
        const request = { key, id, inbox: this.#inbox.address || undefined, time }
        const done = step(statements, request, (room, at) => renew(room, ticket, at))
        answer.push(done.answer)
        notices.push(...done.notices)
        if (performance.now() >= yieldAt) break
      }
      return { answer, notices }
    })
  }

  /** Everybody else, in this process and in others, gets a turn in between. */
  async #renewRest(
    tickets: readonly Ticket[],
    first: Answer<readonly RenewAnswer[]>,
  ): Promise<readonly RenewAnswer[]> {
    const answers = [...(await first)]
    while (answers.length < tickets.length) {
      await nextTurn()
      answers.push(...(await this.#renewSome(tickets.slice(answers.length))))
    }
    return answers
  }

  /**
   * An offer to a process that is gone goes to the next waiter at once, past all waiters of that process. Otherwise it would last
   * for its acceptance term.
   */
  async #withdraw({ key, id, inbox }: Notice): Promise<void> {
    try {
      await this.#write((statements, time) => {
        // Not if it was confirmed, has lapsed, or its process has another inbox by now.
        if (statements.offeredTo.get(key, id)?.[0] !== inbox) return { answer: undefined, notices: [] }
        statements.dropWaitersOf.run(key, inbox)
        return step(statements, { key, id, inbox: undefined, time }, (room, at) =>
          withdrawOffer(room, id, at),
        )
      })
    } catch {
      // The offer then ends with its acceptance term.
    }
  }

  /** Wakes go out when what they tell of has certainly happened. */
  #write<A>(work: Work<Step<A>>): Answer<A> {
    const done = this.#transactions.write(work)
    return done instanceof Promise ? done.then((later) => this.#tell(later)) : this.#tell(done)
  }

  #tell<A>({ answer, notices }: Step<A>): Answer<A> {
    return this.#inbox.tell(notices)?.then(() => answer) ?? answer
  }
}

/** Enough for 200 renewals. */
const SLICE_MS = 2

/** The law counts in its window of the queue; this counts in all of it. */
function countAhead(statements: Statements, { key, id }: Ticket): number {
  const [ahead] = statements.ahead.get(key, id) ?? [0]
  return ahead
}

function parseOptions(pathOrOptions: string | SqliteStoreOptions): LockFileOptions {
  const isObject = typeof pathOrOptions === 'object' && pathOrOptions !== null
  const options: SqliteStoreOptions = isObject ? pathOrOptions : { path: pathOrOptions }
  checkOptions(options, ['path', 'engine', 'now', 'boot'])
  const { path, engine, now = machineTime, boot = bootOfMachine() } = options
  if (engine !== undefined && engine !== 'node:sqlite' && engine !== '@photostructure/sqlite') {
    throw expected('engine', '"node:sqlite" or "@photostructure/sqlite"', engine)
  }
  return { path: parsePath(path), engine, now, boot }
}
