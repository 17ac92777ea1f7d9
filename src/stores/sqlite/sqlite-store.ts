import { randomBytes } from 'node:crypto'
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
import { acquire, evict, release, type StoreTime, withdrawOffer } from '../../law/room.ts'
import { view } from '../../law/view.ts'
import { isDamagedRoom, type RenewTogether, renewBesideDamage } from '../damaged-rooms.ts'
import { WaitGroups } from '../wait-groups.ts'
import { Inbox } from './inbox.ts'
import type { LockFileOptions } from './lock-file.ts'
import { LoneTicket } from './lone-ticket.ts'
import { FileRenewals } from './renewals.ts'
import { type Notice, readRoom, type StepRequest, type StepResult, step } from './room-window.ts'
import type { SqliteStatements } from './statements.ts'
import { Sweep } from './sweep.ts'
import { Transactions, type TransactionWork } from './transactions.ts'

/**
 * Rooms in a file, for the processes of one machine. Each verb is one transaction that runs the law on a window of the room: the
 * rows that the verb can touch. After the transaction it wakes the processes whose turn has come.
 */
export class SqliteStore implements Store {
  readonly name = 'sqlite'
  readonly #transactions: Transactions
  readonly #inbox: Inbox
  readonly #sweep = new Sweep()
  readonly #lone = new LoneTicket()
  readonly #groups: WaitGroups
  readonly #renewTogether: RenewTogether

  /** `leastGroup`: the smallest number of waiters for one key that becomes a group; see ../wait-groups.ts. */
  constructor(options: LockFileOptions, { leastGroup = 4 }: { readonly leastGroup?: number } = {}) {
    this.#inbox = new Inbox(options.path, (notice) => this.#withdraw(notice))
    this.#transactions = new Transactions(options, (isAnother) => this.#inbox.check(isAnother))
    this.#groups = new WaitGroups(randomBytes(9).toString('base64url'), leastGroup)
    const inbox = this.#inbox
    const renewals = new FileRenewals({
      groups: this.#groups,
      get inbox() {
        return inbox.address
      },
      requestFor: ({ key, id }, time) => this.#request({ key, id, inbox: inbox.address, time }),
      write: (work) => this.#write(work),
    })
    this.#renewTogether = { ask: (tickets) => renewals.renew(tickets), isDamage: isDamagedRoom }
  }

  async open(): Promise<void> {
    await this.#transactions.write(() => undefined)
  }

  acquire(ticket: Ticket): Answer<AcquireAnswer> {
    const { key, id } = ticket
    const sweeps = this.#sweep.isDue()
    return this.#write<AcquireAnswer>((statements, time) => {
      const inbox = this.#inbox.address
      const held = this.#lone.acquire(statements, { ticket, inbox }, time)
      const { answer, notices, moment } =
        held === undefined
          ? step(statements, this.#request({ key, id, inbox, time }), (room, at) => acquire(room, ticket, at))
          : { answer: held, notices: NONE, moment: undefined }
      if (sweeps) this.#sweep.clear(statements, time)
      if (moment !== undefined) this.#lone.saw(statements, moment)
      if (answer.tag !== 'queued') return { answer, notices }
      // Without harm if the transaction is rolled back: then the first question finds no such waiter.
      this.#groups.waits(ticket)
      return { answer: { ...answer, ahead: countAhead(statements, ticket) }, notices }
    })
  }

  renew(tickets: readonly Ticket[]): Answer<readonly RenewAnswer[]> {
    return renewBesideDamage(this.#renewTogether, tickets)
  }

  release(request: ReleaseRequest): Answer<ReleaseAnswer> {
    return this.#write<ReleaseAnswer>((statements, time) => {
      const answer = this.#lone.release(statements, request, time)
      if (answer !== undefined) return { answer, notices: NONE }
      const { key, id } = request
      return step(statements, this.#request({ key, id, time }), (room, at) => release(room, request, at))
    })
  }

  evict(request: EvictRequest): Answer<readonly string[]> {
    return this.#write((statements, time) =>
      step(statements, this.#request({ ...request, time }), (room, at) => evict(room, request, at)),
    )
  }

  inspect({ prefix, exact, cursor = '', count }: InspectRequest): Answer<RoomPage> {
    return this.#transactions.read((statements, time) => {
      // One more, to see whether another page follows. Keys are in byte order, so keys with the same prefix are neighbours.
      const named =
        exact === true ? [prefix] : statements.rooms.all(prefix, cursor, count + 1).map(([key]) => key)
      const keys = named.filter((key) => key.startsWith(prefix))
      const page = keys.slice(0, count)
      const rooms = page
        .flatMap((key) => {
          try {
            return view(readRoom(statements, key, time), key, time)
          } catch (error) {
            // A listing goes on beside a room that a stranger has damaged. Whoever asks for this room alone has to hear of it.
            if (exact === true || !isDamagedRoom(error)) throw error
            return []
          }
        })
        .filter((room) => room.holders.length > 0 || room.queue.length > 0 || room.closedMs > 0)
      return { rooms, next: keys.length > count ? page.at(-1) : undefined }
    })
  }

  async listen(onWake: (wake: Wake) => void): Promise<() => void> {
    // The inbox needs the folder of the lock file.
    await this.open()
    return this.#inbox.listen(onWake)
  }

  async close(): Promise<void> {
    this.#transactions.close()
    await this.#inbox.close()
  }

  /**
   * Passes the offer of a process that is gone to the next waiter at once, and drops all waiters of that process. Otherwise the
   * offer would last for its acceptance term.
   */
  async #withdraw({ key, wake: { id }, inbox }: Notice): Promise<void> {
    try {
      await this.#write((statements, time) => {
        // Not if the offer was confirmed or has lapsed, or if its process has another inbox by now.
        if (statements.offeredTo.get(key, id)?.[0] !== inbox) return { answer: undefined, notices: [] }
        statements.dropWaitersOf.run(key, inbox)
        return step(statements, this.#request({ key, id, time }), (room, at) => withdrawOffer(room, id, at))
      })
    } catch {
      // The offer then ends with its acceptance term.
    }
  }

  /** `inbox`: that of the ticket's process, if this process asks for itself. Empty if it does not listen. */
  #request({
    key,
    id,
    inbox = '',
    time,
  }: {
    readonly key: string
    readonly id: string | undefined
    readonly inbox?: string
    readonly time: StoreTime
  }): StepRequest {
    const reached = new Map<string, boolean>()
    const reaches = (address: string): boolean => {
      const known = reached.get(address) ?? this.#inbox.reaches(address)
      reached.set(address, known)
      return known
    }
    return { key, id, inbox: inbox || undefined, reaches, time }
  }

  /** Sends the wakes of a transaction after its commit. */
  #write<A>(work: TransactionWork<StepResult<A>>): Answer<A> {
    const done = this.#transactions.write(work)
    return done instanceof Promise ? done.then((later) => this.#tell(later)) : this.#tell(done)
  }

  #tell<A>({ answer, notices }: StepResult<A>): Answer<A> {
    if (notices.length === 0) return answer
    return this.#inbox.tell(notices)?.then(() => answer) ?? answer
  }
}

const NONE: readonly Notice[] = []

/** Counts in the whole queue. The law counts in its window only. */
function countAhead(statements: SqliteStatements, { key, id }: Ticket): number {
  const [ahead] = statements.ahead.get(key, id) ?? [0]
  return ahead
}
