import { type Backoff, backoffMs } from '../../base/backoff.ts'
import type { AcquireAnswer, Answer, ReleaseRequest, Ticket } from '../../contract/store.ts'
import { StoreError } from '../../errors.ts'
import type { RedisLink } from '../redis/server/client-link.ts'
import { RoomNames } from '../redis/server/room-names.ts'
import { RoomRequests } from '../redis/server/room-requests.ts'
import { SingleServer } from '../redis/server/single-server.ts'
import { type Claim, type ClaimAnswer, NodeScripts } from './node-scripts.ts'
import { PendingReleases } from './pending-releases.ts'
import { votingScripts } from './scripts.ts'
import type { ServerIdentity } from './server-identity.ts'
import { SharedLink } from './shared-link.ts'
import { UnprovenRequests } from './identity-queue.ts'

/** Learns what became of one request. */
export interface Sink<T> {
  answered(answer: T): void
  /** The request failed, or was given up after a long silence. The server may have carried it out all the same. */
  failed(error: unknown): void
  /** The answer to a request that was given up. */
  answeredLate?(answer: T): void
}

export interface NodeWatch {
  /** Whether the others make a quorum without this node. If not, it gets more time: this process or the network may be slow. */
  canSpare(node: RedlockNode): boolean
  /** The server answers again. */
  onBack(): void
  /** Called with the server's identity. Returns an error where this server must not be in the list. */
  onIdentity(node: RedlockNode, identity: ServerIdentity): StoreError | undefined
  /** The server refuses, for a reason that a person has to look after. */
  onRefusal(node: RedlockNode, error: StoreError): void
}

export interface NodeOptions {
  /** Its place in the list, from 0. */
  readonly index: number
  readonly prefix: string
  readonly maxTtlMs: number
  readonly watch: NodeWatch
}

/**
 * One of the servers, with its rooms. It gets requests only while it answers. A server that hangs or is gone gets one probe now
 * and then, so that nothing waits for it and nothing piles up.
 */
export class RedlockNode {
  readonly index: number
  readonly rooms: RoomRequests
  /** Requests that only a server of several gets. Like those of `rooms`, they go through {@link ask}. */
  readonly scripts: NodeScripts
  identity: ServerIdentity | undefined
  readonly #options: NodeOptions
  readonly #link: SharedLink
  readonly #pendingReleases: PendingReleases
  /** Requests without an answer, the oldest first. */
  readonly #openRequests = new Set<OpenRequest>()
  #watching: NodeJS.Timeout | undefined
  #lookAt = 0
  #releaseTimer: NodeJS.Timeout | undefined
  /** Why the server gets no requests now; undefined while it does. */
  #fault: unknown
  #probedAt = 0
  #probing = false
  #probes = 0
  #proving: Promise<void> | undefined
  readonly #unproven = new UnprovenRequests(() => this.#prove())
  #provenGeneration = -1
  #closed = false

  constructor(link: RedisLink, options: NodeOptions) {
    this.index = options.index
    this.#options = options
    this.#link = new SharedLink(link)
    this.scripts = new NodeScripts(this.#link, options)
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

  /** Whether its votes count: the server has forgotten nothing for `maxTtl`, and so no holder. */
  get counts(): boolean {
    return this.identity !== undefined && this.forgetfulMs <= 0
  }

  /** After how long its votes count. Zero or less: they count. */
  get forgetfulMs(): number {
    if (this.identity === undefined) return this.#options.maxTtlMs
    return this.#options.maxTtlMs - (performance.now() - this.identity.since)
  }

  ask<T>(request: () => Answer<T>, sink: Sink<T>): void {
    if (this.#fault !== undefined || this.#closed) {
      this.#probe()
      sink.failed(this.#fault)
      return
    }
    const open: OpenRequest = {
      silentSince: performance.now(),
      abandon: sink.failed.bind(sink),
      isAbandoned: false,
    }
    this.#openRequests.add(open)
    this.#watch()
    let generation = this.#link.generation
    const send = (): Answer<T> => {
      generation = this.#link.generation
      return request()
    }
    const isProven = this.#provenGeneration === generation && this.#unproven.isEmpty
    const reply = isProven ? request() : this.#unproven.add(send)
    Promise.resolve(reply).then(
      (answer) => {
        this.#openRequests.delete(open)
        this.#heard()
        // The connection was lost in between, so the server may have been restarted, and may have forgotten holders.
        if (this.#link.generation !== generation) this.#drop(open, sink, restartedError())
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

  /** Asks for this server's vote. The server gives the proposed fence where it can; see proposal.lua. */
  vote(ticket: Ticket, proposal: number | undefined): Promise<AcquireAnswer> {
    return this.rooms.acquireWith(
      ticket,
      proposal === undefined ? undefined : `${proposal} ${this.#options.maxTtlMs} ${this.#memory}`,
    )
  }

  async claim(ticket: Ticket, claim: Omit<Claim, 'memory'>): Promise<ClaimAnswer> {
    const answer = await this.scripts.claim(ticket, { ...claim, memory: this.#memory })
    // Its memory counted a moment ago: the server was flushed meanwhile, and has to say again who it is.
    if (answer.tag === 'forgetful' && this.counts) this.#provenGeneration = -1
    return answer
  }

  async close(): Promise<void> {
    this.#closed = true
    clearTimeout(this.#watching)
    clearTimeout(this.#releaseTimer)
    this.#pendingReleases.clear()
    await this.rooms.close()
    this.#link.replace()
  }

  /** The memory that the server has kept for `maxTtl` by our clock. Its own may have been set back. Empty: no such memory. */
  get #memory(): string {
    if (this.identity === undefined || !this.counts) return ''
    const { name, run } = this.identity
    return run === undefined ? name : `${name} ${run}`
  }

  #drop<T>(open: OpenRequest, sink: Sink<T>, error: unknown): void {
    if (!open.isAbandoned) sink.failed(error)
  }

  #prove(): Promise<void> {
    this.#proving ??= this.#askIdentity().finally(() => {
      this.#proving = undefined
    })
    return this.#proving
  }

  async #askIdentity(): Promise<void> {
    const generation = this.#link.generation
    const identity = await this.scripts.identity()
    const refusal = this.#options.watch.onIdentity(this, identity)
    if (refusal !== undefined) throw refusal
    const known = this.identity
    const isSame = known?.run !== undefined && known.name === identity.name && known.run === identity.run
    // If the server's clock was set back, the memory seems younger than it is.
    this.identity = isSame ? { ...identity, since: Math.min(known.since, identity.since) } : identity
    // The first request opens the connection, which does not change the generation.
    this.#provenGeneration = Math.max(generation, this.#provenGeneration)
  }

  #heard(): void {
    this.#probes = 0
    if (this.#fault === undefined) return
    this.#fault = undefined
    this.#pendingReleases.send()
    this.#options.watch.onBack()
  }

  #failed(error: unknown): void {
    if (!(error instanceof StoreError)) return
    if (error.code === 'store-refused') this.#options.watch.onRefusal(this, error)
    // A server that refused one request may still do others. One that refuses this client, or is silent, will not.
    const isRefused = error.code === 'store-refused'
    if (isRefused && this.#provenGeneration === this.#link.generation) return
    // A connection whose password was refused stays refused, also when the password is right again.
    if (isRefused) this.#link.replace()
    this.#fault = error
    this.#probedAt = performance.now()
    this.#probe()
  }

  /** All open requests fail now. Answers that come later go to `answeredLate`. */
  #giveUp(error: unknown): void {
    this.#fault = error
    this.#probedAt = performance.now()
    for (const open of this.#openRequests) {
      if (open.isAbandoned) continue
      open.isAbandoned = true
      open.abandon(error)
    }
  }

  /** Gives up if the oldest request is overdue. Replies that have arrived are read first: this process may be what hung. */
  readonly #look = (): void => {
    this.#watching = undefined
    const now = performance.now()
    const lateMs = now - this.#lookAt
    const wasLate = lateMs > LATE_MS
    if (wasLate) this.#excuse(lateMs, now)
    if (this.#leftMs(wasLate) > 1) return this.#watch(wasLate)
    setImmediate(() => {
      // Another server may have been given up meanwhile, so that this one is needed for a quorum.
      if (this.#closed || this.#leftMs(wasLate) > 1) return this.#watch(wasLate)
      this.#giveUp(silentError(this.index))
    })
  }

  /** No server is silent while this process stands still: its requests may not even be sent. */
  #excuse(stoodStillMs: number, now: number): void {
    for (const open of this.#openRequests) {
      open.silentSince = Math.min(now, open.silentSince + stoodStillMs)
    }
  }

  #watch(wasLate = false): void {
    if (this.#watching !== undefined || this.#closed || this.#oldest() === undefined) return
    const leftMs = Math.max(1, Math.min(SILENCE_MS, this.#leftMs(wasLate)))
    this.#lookAt = performance.now() + leftMs
    this.#watching = setTimeout(this.#look, leftMs).unref()
  }

  /** How much longer the oldest request has. After a late timer it has longer: the servers may have had no time either. */
  #leftMs(wasLate: boolean): number {
    const oldest = this.#oldest()
    if (oldest === undefined) return Number.POSITIVE_INFINITY
    const isSpared = this.#options.watch.canSpare(this) && !wasLate
    return oldest.silentSince + (isSpared ? SILENCE_MS : LONG_SILENCE_MS) - performance.now()
  }

  #oldest(): OpenRequest | undefined {
    for (const open of this.#openRequests) if (!open.isAbandoned) return open
    return undefined
  }

  /** A waiter may depend on a pending release, and no other request may reach this server until then. */
  #sendReleasesLater(): void {
    if (this.#releaseTimer !== undefined || this.#closed || this.#pendingReleases.isEmpty) return
    this.#releaseTimer = setTimeout(() => {
      this.#releaseTimer = undefined
      if (this.#fault === undefined) return this.#pendingReleases.send()
      this.#probe()
      this.#sendReleasesLater()
    }, this.#pauseMs()).unref()
  }

  #pauseMs(): number {
    // Perhaps only one request or the connection failed: often the server answers at once.
    if (this.#probes === 0) return 0
    return backoffMs(PROBING, this.#probes)
  }

  /** Asks whether the server is back. One probe at a time, and none too often. */
  #probe(): void {
    const now = performance.now()
    const quietMs = now - this.#probedAt
    if (this.#closed || quietMs < this.#pauseMs()) return
    if (this.#probing || this.#openRequests.size > 0) {
      // The connection may be half open: it is replaced. Its open requests get no answer any more.
      if (quietMs > DEAD_MS) {
        this.#probedAt = now
        this.#link.replace()
      }
      return
    }
    this.#probing = true
    this.#probes += 1
    this.#probedAt = now
    this.#prove()
      .then(
        () => this.#heard(),
        (error: unknown) => this.#failed(error),
      )
      .finally(() => {
        this.#probing = false
      })
  }
}

interface OpenRequest {
  /** When it was asked, by `performance.now()`, moved on by the time that this process stood still meanwhile. */
  silentSince: number
  readonly abandon: (error: unknown) => void
  isAbandoned: boolean
}

/**
 * After so long without an answer a server is given up. A caller that gets a quorum from the others does not wait for it at
 * all, so this delays only the first refusal after the server has begun to hang.
 */
const SILENCE_MS = 300
/** As long for a server without which there would be no quorum. */
const LONG_SILENCE_MS = 2000
/** After so long without an answer a new connection may get through where the old one does not. */
const DEAD_MS = 5000
/** If a timer is so late, this process or the machine has no time for anything. */
const LATE_MS = 50
/** Without jitter: how much of the pause is over is looked at several times, and a random one would be another each time. */
const PROBING: Backoff = { firstMs: 50, longestMs: 1000, jitter: 0 }

function silentError(index: number): StoreError {
  return new StoreError('store-unavailable', `Redis server ${index + 1} of the list does not answer.`)
}

function restartedError(): StoreError {
  return new StoreError('store-unavailable', 'The Redis server was restarted or replaced while it was asked.')
}
