import { closedStoreError } from '../../base/closed.ts'
import {
  type AcquireAnswer,
  type EvictRequest,
  type InspectRequest,
  type ReleaseAnswer,
  type ReleaseRequest,
  type RenewAnswer,
  type RoomPage,
  type RoomView,
  type Store,
  type Ticket,
  UNLIMITED,
  type Wake,
} from '../../contract/store.ts'
import { StoreError } from '../../errors.ts'
import type { RedisLink } from '../redis/server/client-link.ts'
import { acquire } from './acquire.ts'
import { CombinedWakes } from './combined-wakes.ts'
import { Listening } from './listening.ts'
import { poll, type Tally } from './poll.ts'
import { Proposals } from './proposals.ts'
import { type Quorum, tooFewError } from './quorum.ts'
import { RedlockServer } from './redlock-server.ts'
import { renew } from './renew.ts'
import { mergeRooms, roomsOf } from './rooms.ts'
import { isWrongServer, type ServerIdentity, twiceError } from './server-identity.ts'
import { ALL_SERVERS, has } from './server-set.ts'
import { isOurs, Tickets } from './tickets.ts'

export interface RedlockSettings {
  readonly prefix: string
  readonly fences: boolean
  readonly maxTtlMs: number
}

/** Independent Redis servers, of which more than half decide. The rules are in quorum.ts. */
export class RedlockStore implements Store {
  readonly name = 'redlock'
  readonly #settings: RedlockSettings
  readonly #quorum: Quorum
  readonly #wakes: CombinedWakes
  readonly #listeners = new Set<{ readonly onWake: (wake: Wake) => void }>()
  readonly #warned = new Set<string>()
  #listening: Listening | undefined
  #closed = false

  constructor(links: readonly RedisLink[], settings: RedlockSettings) {
    this.#settings = settings
    const watch = {
      canSpare: (server: RedlockServer) => this.#working(server) >= this.#quorum.majority,
      onBack: () => this.#serverBack(),
      onIdentity: (server: RedlockServer, identity: ServerIdentity) => this.#met(server, identity),
      onRefusal: (server: RedlockServer, error: StoreError) => this.#warnOf(server, error),
    }
    const { prefix, maxTtlMs, fences } = settings
    const servers = links.map((link, index) => new RedlockServer(link, { index, prefix, maxTtlMs, watch }))
    const majority = Math.floor(servers.length / 2) + 1
    this.#wakes = new CombinedWakes(majority, (wake) => this.#wake(wake))
    const wake = (id: string): void => this.#wake({ tag: 'ticket', id })
    const warn = (message: string): void => this.#warn('forgetful', message)
    this.#quorum = {
      servers,
      majority,
      maxTtlMs,
      fences,
      tickets: new Tickets(),
      proposals: new Proposals(),
      wake,
      warn,
    }
  }

  acquire(ticket: Ticket): Promise<AcquireAnswer> {
    const refusal = this.#refusalOf(ticket)
    return refusal === undefined ? acquire(this.#quorum, ticket) : Promise.reject(refusal)
  }

  async renew(tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
    this.#assertOpen()
    const [ticket] = tickets
    if (ticket === undefined) return []
    // Only an extension asks for a ttl that `acquire` has not checked, and an extension comes as a request of its own.
    const refusal = tickets.length === 1 ? this.#refusalOf(ticket) : undefined
    if (refusal !== undefined) throw refusal
    return renew(this.#quorum, tickets)
  }

  async release(request: ReleaseRequest): Promise<ReleaseAnswer> {
    this.#assertOpen()
    const { majority, servers, tickets } = this.#quorum
    const record = tickets.end(request.id)
    // If another process has begun the ticket, it may have sent an acquire to each server.
    const { acquireSentTo, unansweredBy } =
      record !== undefined && isOurs(record)
        ? record
        : { acquireSentTo: ALL_SERVERS, unansweredBy: ALL_SERVERS }
    // An acquire may still arrive, on a connection that was given up or from the other process. The tombstone stops it.
    const requestTo = (server: RedlockServer): ReleaseRequest =>
      has(unansweredBy, server) ? { ...request, cancel: true } : request
    return poll(servers, (server) => server.rooms.release(requestTo(server)), {
      failed: (server) => {
        if (has(acquireSentTo, server)) server.releaseLater(request, this.#settings.maxTtlMs)
      },
      decide: (tally: Tally<ReleaseAnswer>) => {
        const { answers, pending } = tally
        const held = answers.filter((answer) => answer?.was === 'held').length
        if (held >= majority) return { was: 'held' }
        if (held + pending >= majority) return undefined
        const answered = answers.filter((answer) => answer !== undefined).length
        if (answered >= majority) {
          return { was: answers.some((answer) => answer?.was === 'queued') ? 'queued' : 'unknown' }
        }
        if (answered + pending >= majority) return undefined
        throw tooFewError(this.#quorum, tally, request.key)
      },
    })
  }

  async listen(onWake: (wake: Wake) => void): Promise<() => void> {
    this.#assertOpen()
    const listener = { onWake }
    this.#listeners.add(listener)
    const { servers, majority } = this.#quorum
    const options = { majority, wakes: this.#wakes, onWake: (wake: Wake) => this.#wake(wake) }
    this.#listening ??= new Listening(servers, options)
    const listening = this.#listening
    try {
      await listening.flowing
    } catch (error) {
      // The next listener tries again.
      listening.close()
      if (this.#listening === listening) this.#listening = undefined
      this.#listeners.delete(listener)
      throw error
    }
    return () => {
      this.#listeners.delete(listener)
    }
  }

  /** Unless one room is asked for, it reads every room of every server for each page. That is for people, and not for a loop. */
  async inspect({ prefix, exact = false, cursor, count }: InspectRequest): Promise<RoomPage> {
    this.#assertOpen()
    const { servers, majority, fences } = this.#quorum
    const lists = await poll(servers, (server) => roomsOf(server.rooms, { prefix, exact }), {
      decide: (tally: Tally<readonly RoomView[]>) => {
        if (tally.pending > 0) return undefined
        const seen = tally.answers.filter((rooms) => rooms !== undefined)
        if (seen.length < majority) throw tooFewError(this.#quorum, tally)
        return seen
      },
    })
    const rooms = mergeRooms(lists, { majority, fences }).filter(
      ({ key }) => cursor === undefined || key > cursor,
    )
    const page = rooms.slice(0, count)
    return { rooms: page, next: rooms.length > count ? page.at(-1)?.key : undefined }
  }

  async evict(request: EvictRequest): Promise<readonly string[]> {
    this.#assertOpen()
    return poll(this.#quorum.servers, (server) => server.rooms.evict(request), {
      decide: (tally: Tally<readonly string[]>) => {
        if (tally.pending > 0) return undefined
        const removed = tally.answers.filter((ids) => ids !== undefined)
        if (removed.length < this.#quorum.majority) throw tooFewError(this.#quorum, tally, request.key)
        // A ticket that had expired on most of these servers did not hold or wait any more.
        const counts = new Map<string, number>()
        for (const id of removed.flat()) counts.set(id, (counts.get(id) ?? 0) + 1)
        return [...counts].filter(([, count]) => count > removed.length / 2).map(([id]) => id)
      },
    })
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#listeners.clear()
    this.#listening?.close()
    this.#wakes.close()
    await Promise.all(this.#quorum.servers.map((server) => server.close()))
  }

  /**
   * Asks every server for its identity, and waits {@link MEET_GRACE_MS} for servers that are slower than a quorum.
   *
   * @throws {StoreError} when fewer than a quorum can be reached, or the list is wrong.
   */
  async meet(): Promise<void> {
    let grace: NodeJS.Timeout | undefined
    let endGrace = (): void => {}
    const graceOver = new Promise<void>((resolve) => {
      endGrace = resolve
    })
    const met = poll(this.#quorum.servers, () => true, {
      decide: (tally: Tally<boolean>) => {
        const wrong = tally.errors.find(isWrongServer)
        if (wrong !== undefined) throw wrong
        const count = tally.answers.filter((answer) => answer === true).length
        if (count >= this.#quorum.majority) grace ??= setTimeout(endGrace, MEET_GRACE_MS)
        if (tally.pending > 0) return undefined
        if (count < this.#quorum.majority) throw tooFewError(this.#quorum, tally)
        return true
      },
    })
    try {
      await Promise.race([met, graceOver])
    } finally {
      clearTimeout(grace)
    }
  }

  #refusalOf({ key, limit, ttlMs, minHoldMs, lockDelayMs }: Ticket): StoreError | undefined {
    if (this.#closed) return closedStoreError('redlockStore()')
    if (limit !== 1 && limit !== UNLIMITED) {
      return new StoreError('store-refused', SEMAPHORE, { key })
    }
    const { maxTtlMs } = this.#settings
    const termMs = Math.max(ttlMs, minHoldMs) + lockDelayMs
    if (termMs <= maxTtlMs) return undefined
    const what = `Expected \`ttl\` (or \`minHold\`) and \`lockDelay\` to be at most the \`maxTtl\` of redlockStore() together, ${maxTtlMs} ms, got ${termMs} ms. Set a larger \`maxTtl\`, the same in every process.`
    return new StoreError('store-refused', what, { key })
  }

  /**
   * Two addresses of one server would give it two votes. So the second one counts as away, until it leads to another server, or the
   * first one does.
   */
  #met(server: RedlockServer, { memoryName, runId }: ServerIdentity): StoreError | undefined {
    for (const other of this.#quorum.servers) {
      const known = other.countedIdentity
      if (other === server || known === undefined) continue
      const knowsRuns = runId !== undefined && known.runId !== undefined
      if (knowsRuns ? known.runId !== runId : known.memoryName !== memoryName) continue
      return twiceError([other.index, server.index])
    }
    return undefined
  }

  /** The store works with the other servers, but a person should know that this one is missing. */
  #warnOf(server: RedlockServer, error: StoreError): void {
    const warning = `Redis server ${server.index + 1} of ${this.#quorum.servers.length} does not take part: ${error.message}`
    this.#warn(warning, warning)
  }

  /** Once for each `what`. */
  #warn(what: string, warning: string): void {
    if (this.#closed || this.#warned.has(what)) return
    this.#warned.add(what)
    process.emitWarning(warning, 'HoldfastWarning')
  }

  /** If this server makes a quorum again, waiters must ask again: no message of a server wakes them for that. */
  #serverBack(): void {
    if (this.#working() === this.#quorum.majority) this.#wake({ tag: 'all' })
  }

  #working(without?: RedlockServer): number {
    return this.#quorum.servers.filter((server) => server !== without && !server.isFaulty).length
  }

  #wake(wake: Wake): void {
    for (const { onWake } of this.#listeners) onWake(wake)
  }

  #assertOpen(): void {
    if (this.#closed) throw closedStoreError('redlockStore()')
  }
}

/** How long `meet()` waits for slower servers once a quorum has answered: some of them may hang or be away. */
const MEET_GRACE_MS = 50

const SEMAPHORE =
  'Expected a lock, a read lock or a write lock, got a semaphore: on independent servers its permits cannot be counted, as each of three holders may have two of three servers for itself. Use another store for it, or that many locks.'
