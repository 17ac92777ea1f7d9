import { type Backoff, backoffMs } from '../../base/backoff.ts'
import type { AcquireAnswer, Answer, ReleaseRequest, Ticket } from '../../contract/store.ts'
import { StoreError } from '../../errors.ts'
import type { RedisLink } from '../redis/server/client-link.ts'
import { RoomNames } from '../redis/server/room-names.ts'
import { RoomRequests } from '../redis/server/room-requests.ts'
import { SingleServer } from '../redis/server/single-server.ts'
import { IdentityQueue } from './identity-queue.ts'
import { type OpenRequest, OpenRequests } from './open-requests.ts'
import { PendingReleases } from './pending-releases.ts'
import type { Proposal } from './proposals.ts'
import { votingScripts } from './scripts.ts'
import type { ServerIdentity } from './server-identity.ts'
import { type Claim, type ClaimAnswer, ServerScripts } from './server-scripts.ts'
import { SharedLink } from './shared-link.ts'

/** Is called with the result of one request. */
export interface Sink<T> {
  answered(answer: T): void
  /** The request failed, or was abandoned after a long silence. The server may have carried it out all the same. */
  failed(error: unknown): void
  /** The answer to a request that was abandoned. */
  answeredLate?(answer: T): void
}

export interface ServerWatch {
  /** Whether the other servers make a quorum. If not, this one gets more time: this process or the network may be slow. */
  canSpare(server: RedlockServer): boolean
  /** The server answers again. */
  onBack(): void
  /** The server has told its identity. Returns an error if this server must not be in the list. */
  onIdentity(server: RedlockServer, identity: ServerIdentity): StoreError | undefined
  /** The server refuses, for a reason that a person has to mend. */
  onRefusal(server: RedlockServer, error: StoreError): void
}

export interface RedlockServerOptions {
  /** Its place in the list, from 0. */
  readonly index: number
  readonly prefix: string
  readonly maxTtlMs: number
  readonly watch: ServerWatch
}

/**
 * One of the servers, with its rooms. It gets requests only while it answers. A server that hangs or is gone gets one probe now
 * and then, so that no caller waits for it and no requests pile up. After each new connection the server first tells its
 * identity.
 */
export class RedlockServer {
  readonly index: number
  readonly rooms: RoomRequests
  /** Requests that only a server of several gets. They go through {@link ask}, like those of `rooms`. */
  readonly scripts: ServerScripts
  identity: ServerIdentity | undefined
  readonly #options: RedlockServerOptions
  readonly #link: SharedLink
  readonly #pendingReleases: PendingReleases
  readonly #openRequests = new OpenRequests({
    isSpare: () => this.#options.watch.canSpare(this),
    onSilence: () => this.#giveUp(silentError(this.index)),
  })
  #releaseTimer: NodeJS.Timeout | undefined
  /** Why the server gets no requests now. Undefined while it gets them. */
  #fault: unknown
  #probedAt = 0
  #probing = false
  #probes = 0
  #identifying: Promise<void> | undefined
  readonly #identityQueue = new IdentityQueue(() => this.#identify())
  #identifiedGeneration = -1
  /** When the server with this identity answered last. */
  #answeredAt = Number.NEGATIVE_INFINITY
  #closed = false

  constructor(link: RedisLink, options: RedlockServerOptions) {
    this.index = options.index
    this.#options = options
    this.#link = new SharedLink(link)
    this.scripts = new ServerScripts(this.#link, options)
    const names = new RoomNames(link.keyPrefix + options.prefix)
    this.rooms = new RoomRequests(
      new SingleServer(this.#link, { names, replicas: 0, scripts: votingScripts }),
      names,
    )
    this.#pendingReleases = new PendingReleases(
      (request) => this.rooms.release(request),
      () => this.#sendReleasesLater(),
    )
  }

  get isFaulty(): boolean {
    return this.#fault !== undefined
  }

  /** Whether a vote of this server counts for a new holder: it has lost nothing for `maxTtl`, so no holder is forgotten. */
  get votesCount(): boolean {
    return this.identity !== undefined && this.forgetfulMs <= 0
  }

  /** In how many milliseconds the votes of this server count. Zero or less: they count now. */
  get forgetfulMs(): number {
    if (this.identity === undefined) return this.#options.maxTtlMs
    return this.#options.maxTtlMs - (performance.now() - this.identity.rememberedSince)
  }

  /**
   * The identity of the server whose answers count, or may still count. A round may hold an answer from before the connection was lost.
   * After `maxTtl` a lease from such a round is over.
   */
  get countedIdentity(): ServerIdentity | undefined {
    const isConnected = this.#identifiedGeneration === this.#link.generation
    const quietMs = performance.now() - this.#answeredAt
    return isConnected || quietMs < this.#options.maxTtlMs ? this.identity : undefined
  }

  ask<T>(request: () => Answer<T>, sink: Sink<T>): void {
    if (this.#fault !== undefined || this.#closed) {
      this.#probe()
      sink.failed(this.#fault)
      return
    }
    const open = this.#openRequests.add(sink.failed.bind(sink))
    let generation = this.#link.generation
    const send = (): Answer<T> => {
      generation = this.#link.generation
      return request()
    }
    const isIdentified = this.#identifiedGeneration === generation && this.#identityQueue.isEmpty
    const reply = isIdentified ? request() : this.#identityQueue.add(send)
    Promise.resolve(reply).then(
      (answer) => {
        this.#openRequests.delete(open)
        this.#heard()
        // The connection was lost meanwhile, so the server may have been restarted and may have forgotten holders.
        if (this.#link.generation !== generation) this.#drop(open, sink, disconnectedError(this.index))
        else if (open.isAbandoned) sink.answeredLate?.(answer)
        else sink.answered(answer)
      },
      (error: unknown) => {
        this.#openRequests.delete(open)
        this.#failed(error)
        this.#drop(open, sink, error)
      },
    )
  }

  /** Releases a ticket as soon as the server can be reached, so that its vote does not stand until the ttl is over. */
  releaseLater(request: ReleaseRequest, forMs: number): void {
    if (this.#closed) return
    this.#pendingReleases.add(request, forMs)
    if (this.#fault === undefined) this.#pendingReleases.send()
    else this.#sendReleasesLater()
  }

  /** Asks for the vote of this server, with the proposed fence if the server can give that; see proposal.lua. */
  requestVote(ticket: Ticket, proposal: Proposal | undefined): Promise<AcquireAnswer> {
    if (proposal === 'unfenced') return this.rooms.acquireWith(ticket, '-')
    return this.rooms.acquireWith(
      ticket,
      proposal === undefined ? undefined : `${proposal} ${this.#options.maxTtlMs} ${this.#memory}`,
    )
  }

  async claim(ticket: Ticket, claim: Omit<Claim, 'memory'>): Promise<ClaimAnswer> {
    const answer = await this.scripts.claim(ticket, { ...claim, memory: this.#memory })
    // Its votes counted a moment ago, so the server was flushed meanwhile. It has to tell its identity again.
    if (answer.tag === 'forgetful' && this.votesCount) this.#identifiedGeneration = -1
    return answer
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#openRequests.close()
    clearTimeout(this.#releaseTimer)
    this.#pendingReleases.clear()
    await this.rooms.close()
    this.#link.replace()
  }

  /**
   * The memory that the server has had for `maxTtl` by our clock: its own clock may have been set back. Empty if there is none.
   */
  get #memory(): string {
    if (this.identity === undefined || !this.votesCount) return ''
    const { memoryName, runId } = this.identity
    return runId === undefined ? memoryName : `${memoryName} ${runId}`
  }

  #drop<T>(open: OpenRequest, sink: Sink<T>, error: unknown): void {
    if (!open.isAbandoned) sink.failed(error)
  }

  #identify(): Promise<void> {
    this.#identifying ??= this.#askIdentity().finally(() => {
      this.#identifying = undefined
    })
    return this.#identifying
  }

  async #askIdentity(): Promise<void> {
    const generation = this.#link.generation
    const identity = await this.scripts.identity()
    this.#openRequests.heard()
    const refusal = this.#options.watch.onIdentity(this, identity)
    if (refusal !== undefined) throw refusal
    const known = this.identity
    const isSame =
      known?.runId !== undefined && known.memoryName === identity.memoryName && known.runId === identity.runId
    // If the server's clock was set back, the memory seems younger than it is.
    this.identity = isSame
      ? { ...identity, rememberedSince: Math.min(known.rememberedSince, identity.rememberedSince) }
      : identity
    // The first request opens the connection, which does not change the generation.
    this.#identifiedGeneration = Math.max(generation, this.#identifiedGeneration)
  }

  #heard(): void {
    this.#openRequests.heard()
    this.#answeredAt = this.#openRequests.heardAt
    this.#probes = 0
    if (this.#fault === undefined) return
    this.#fault = undefined
    this.#link.trust()
    this.#pendingReleases.send({ all: true })
    this.#options.watch.onBack()
  }

  #failed(error: unknown): void {
    if (!(error instanceof StoreError)) return
    if (error.code === 'store-refused') this.#options.watch.onRefusal(this, error)
    // A server that refuses one request may answer others. A server that refuses this client, or is silent, answers none.
    const isRefused = error.code === 'store-refused'
    if (isRefused && this.#identifiedGeneration === this.#link.generation) return
    // A connection whose password was refused stays refused, even if the password becomes valid. So a new one is made.
    if (isRefused) this.#link.replace()
    this.#fault = error
    this.#probedAt = performance.now()
    this.#probe()
  }

  /** All open requests fail now. Answers that come later go to `answeredLate`. */
  #giveUp(error: unknown): void {
    this.#fault = error
    this.#probedAt = performance.now()
    this.#openRequests.abandonAll(error)
    // It may be slow to open, and a second connection would be as slow.
    if (this.#identifiedGeneration !== this.#link.generation) return
    const { heardAt } = this.#openRequests
    this.#link.suspect(() => this.#openRequests.heardAt === heardAt)
  }

  /** Tries pending releases again by a timer: a waiter may depend on them although no other request goes to this server. */
  #sendReleasesLater(): void {
    if (this.#releaseTimer !== undefined || this.#closed || this.#pendingReleases.isEmpty) return
    const pauseMs = this.#fault === undefined ? this.#pendingReleases.dueInMs : this.#pauseMs()
    // Those that are under way come back here if they fail.
    if (pauseMs === Number.POSITIVE_INFINITY) return
    this.#releaseTimer = setTimeout(() => {
      this.#releaseTimer = undefined
      if (this.#fault === undefined) this.#pendingReleases.send()
      else this.#probe()
      this.#sendReleasesLater()
    }, pauseMs).unref()
  }

  #pauseMs(): number {
    // The first probe follows at once: perhaps only one request or the connection failed.
    if (this.#probes === 0) return 0
    return backoffMs(PROBING, this.#probes)
  }

  /** Asks whether the server is back: one probe at a time, with pauses between them. */
  #probe(): void {
    const now = performance.now()
    const quietMs = now - this.#probedAt
    if (this.#closed || quietMs < this.#pauseMs()) return
    if (this.#probing || this.#openRequests.size > 0) {
      // The connection may be half open, so it is replaced. Its open requests get no answer any more.
      if (quietMs > DEAD_MS) {
        this.#probedAt = now
        this.#link.replace()
      }
      return
    }
    this.#probing = true
    this.#probes += 1
    this.#probedAt = now
    this.#identify()
      .then(
        () => this.#heard(),
        (error: unknown) => this.#failed(error),
      )
      .finally(() => {
        this.#probing = false
      })
  }
}

/** After so long without an answer the connection is replaced: a new one may get through. */
const DEAD_MS = 5000
/** Without jitter, because the pause is computed several times while it lasts, and must be the same each time. */
const PROBING: Backoff = { firstMs: 50, longestMs: 1000, jitter: 0 }

function silentError(index: number): StoreError {
  return new StoreError(
    'store-unavailable',
    `Redis server ${index + 1} of the list does not answer. Check that it runs and can be reached.`,
  )
}

function disconnectedError(index: number): StoreError {
  return new StoreError(
    'store-unavailable',
    `The connection to Redis server ${index + 1} of the list was lost before an answer came. Check that the server runs.`,
  )
}
