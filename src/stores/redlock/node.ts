import { type Backoff, backoffMs } from '../../base/backoff.ts'
import type { AcquireAnswer, Answer, ReleaseRequest, Ticket } from '../../contract/store.ts'
import { StoreError } from '../../errors.ts'
import type { RedisLink } from '../redis/server/client-link.ts'
import { RoomNames } from '../redis/server/room-names.ts'
import { RoomRequests } from '../redis/server/room-requests.ts'
import { SingleServer } from '../redis/server/single-server.ts'
import { type Claim, type ClaimAnswer, NodeScripts } from './node-scripts.ts'
import { Debts } from './pending-releases.ts'
import { votingScripts } from './scripts.ts'
import type { Standing } from './server-identity.ts'
import { SharedLink } from './shared-link.ts'
import { UnprovenRequests } from './unproven-requests.ts'

/** Who wants to know what became of one request. */
export interface Sink<T> {
  answered(answer: T): void
  /** It failed, or has no answer for so long that nobody waits for it. It may or may not have happened. */
  failed(error: unknown): void
  /** The answer came after all. */
  answeredLate?(answer: T): void
}

export interface NodeWatch {
  /** Whether the others can do without it. If not, it is waited for longer: it may be us, or the network, that is slow. */
  canSpare(node: RedlockNode): boolean
  /** A server came back: what it was not told meanwhile it is told now. */
  onBack(): void
  /** Who the server is became known. An error, where it must not be among the others. */
  onStanding(node: RedlockNode, standing: Standing): StoreError | undefined
  /** The server says no, for a reason that somebody has to look after. */
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
 * One of the servers: a redis store of its own, which is asked only while it answers. A server that hangs or is gone is not
 * asked at all but for one question now and then, so nothing waits for it and nothing piles up.
 */
export class RedlockNode {
  readonly index: number
  readonly rooms: RoomRequests
  /** What a server of a majority is asked besides; through {@link ask}, as the store is. */
  readonly scripts: NodeScripts
  standing: Standing | undefined
  readonly #options: NodeOptions
  readonly #link: SharedLink
  readonly #debts: Debts
  /** What has no answer yet, the oldest first. */
  readonly #owed = new Set<Owed>()
  #watching: NodeJS.Timeout | undefined
  #lookAt = 0
  #paying: NodeJS.Timeout | undefined
  /** Why it is not asked now. */
  #fault: unknown
  #probedAt = 0
  #probing = false
  #probes = 0
  #proving: Promise<void> | undefined
  readonly #unproven = new UnprovenRequests(() => this.#prove())
  #provenTurn = -1
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
    this.#debts = new Debts(
      (request) => this.rooms.release(request),
      () => this.#payLater(),
    )
  }

  get isFaulty(): boolean {
    return this.#fault !== undefined
  }

  /** Whether its votes count: it has forgotten nothing for as long as anybody may hold. */
  get counts(): boolean {
    return this.standing !== undefined && this.forgetfulMs <= 0
  }

  /** How much longer its votes do not count. */
  get forgetfulMs(): number {
    if (this.standing === undefined) return this.#options.maxTtlMs
    return this.#options.maxTtlMs - (performance.now() - this.standing.since)
  }

  ask<T>(request: () => Answer<T>, sink: Sink<T>): void {
    if (this.#fault !== undefined || this.#closed) {
      this.#probe()
      sink.failed(this.#fault)
      return
    }
    const owed: Owed = { since: performance.now(), waive: sink.failed.bind(sink), waived: false }
    this.#owed.add(owed)
    this.#watch()
    let turn = this.#link.turn
    const send = (): Answer<T> => {
      turn = this.#link.turn
      return request()
    }
    const isProven = this.#provenTurn === turn && this.#unproven.isEmpty
    const reply = isProven ? request() : this.#unproven.add(send)
    Promise.resolve(reply).then(
      (answer) => {
        this.#owed.delete(owed)
        this.#heard()
        // A server that was restarted in between has been asked without our knowing what it remembers.
        if (this.#link.turn !== turn) this.#drop(owed, sink, restartedError())
        else if (owed.waived) sink.answeredLate?.(answer)
        else sink.answered(answer)
      },
      (error: unknown) => {
        this.#owed.delete(owed)
        this.#failed(error)
        this.#drop(owed, sink, error)
      },
    )
  }

  /** Tells the server that a ticket is over as soon as it can be told: its vote must not stand until the ttl has passed. */
  owe(request: ReleaseRequest, forMs: number): void {
    if (this.#closed) return
    this.#debts.add(request, forMs)
    if (this.#fault === undefined) this.#debts.pay()
    else this.#payLater()
  }

  /** A vote, and with it the fence that is proposed where this server can agree to that. */
  vote(ticket: Ticket, proposal: number | undefined): Promise<AcquireAnswer> {
    return this.rooms.acquireWith(
      ticket,
      proposal === undefined ? undefined : `${proposal} ${this.#options.maxTtlMs} ${this.#memory}`,
    )
  }

  async claim(ticket: Ticket, claim: Omit<Claim, 'memory'>): Promise<ClaimAnswer> {
    const answer = await this.scripts.claim(ticket, { ...claim, memory: this.#memory })
    // Its memory is younger than it was: it was flushed behind our back, and has to be asked anew.
    if (answer.tag === 'forgetful' && this.counts) this.#provenTurn = -1
    return answer
  }

  async close(): Promise<void> {
    this.#closed = true
    clearTimeout(this.#watching)
    clearTimeout(this.#paying)
    this.#debts.forget()
    await this.rooms.close()
    this.#link.replace()
  }

  /** What it has remembered for long enough, by our own clock: its clock may have been set back. */
  get #memory(): string {
    if (this.standing === undefined || !this.counts) return ''
    const { name, run } = this.standing
    return run === undefined ? name : `${name} ${run}`
  }

  #drop<T>(owed: Owed, sink: Sink<T>, error: unknown): void {
    if (!owed.waived) sink.failed(error)
  }

  #prove(): Promise<void> {
    this.#proving ??= this.#askStanding().finally(() => {
      this.#proving = undefined
    })
    return this.#proving
  }

  async #askStanding(): Promise<void> {
    const turn = this.#link.turn
    const standing = await this.scripts.standing()
    const refusal = this.#options.watch.onStanding(this, standing)
    if (refusal !== undefined) throw refusal
    const known = this.standing
    const isSame = known?.run !== undefined && known.name === standing.name && known.run === standing.run
    // By a clock that was set back it seems younger than it is.
    this.standing = isSame ? { ...standing, since: Math.min(known.since, standing.since) } : standing
    // The first request of all opens the connection, which is no change of it.
    this.#provenTurn = Math.max(turn, this.#provenTurn)
  }

  #heard(): void {
    this.#probes = 0
    if (this.#fault === undefined) return
    this.#fault = undefined
    this.#debts.pay()
    this.#options.watch.onBack()
  }

  #failed(error: unknown): void {
    if (!(error instanceof StoreError)) return
    if (error.code === 'store-refused') this.#options.watch.onRefusal(this, error)
    // Refused for what it was asked to do, it may still do something else; refused as a client, or silent, it will not.
    const isRefused = error.code === 'store-refused'
    if (isRefused && this.#provenTurn === this.#link.turn) return
    // Whoever was not let in stays outside on this connection, also when the password is right again.
    if (isRefused) this.#link.replace()
    this.#fault = error
    this.#probedAt = performance.now()
    this.#probe()
  }

  /** Nobody waits for what it owes any more. */
  #giveUp(error: unknown): void {
    this.#fault = error
    this.#probedAt = performance.now()
    for (const owed of this.#owed) {
      if (owed.waived) continue
      owed.waived = true
      owed.waive(error)
    }
  }

  /** Whether the oldest question has an answer. Looked at once more after what has arrived was read: it may be us who hung. */
  readonly #look = (): void => {
    this.#watching = undefined
    const wasLate = performance.now() - this.#lookAt > LATE_MS
    if (this.#leftMs(wasLate) > 1) return this.#watch(wasLate)
    setImmediate(() => {
      // Meanwhile another one may have been given up, and this one cannot be spared any more.
      if (this.#closed || this.#leftMs(wasLate) > 1) return this.#watch(wasLate)
      this.#giveUp(silentError(this.index))
    })
  }

  #watch(wasLate = false): void {
    if (this.#watching !== undefined || this.#closed || this.#oldest() === undefined) return
    const leftMs = Math.max(1, Math.min(SILENCE_MS, this.#leftMs(wasLate)))
    this.#lookAt = performance.now() + leftMs
    this.#watching = setTimeout(this.#look, leftMs).unref()
  }

  /** How much longer the oldest question is waited for. Where our own clock was late the servers may have had no time either. */
  #leftMs(wasLate: boolean): number {
    const oldest = this.#oldest()
    if (oldest === undefined) return Number.POSITIVE_INFINITY
    const isSpared = this.#options.watch.canSpare(this) && !wasLate
    return oldest.since + (isSpared ? SILENCE_MS : LONG_SILENCE_MS) - performance.now()
  }

  #oldest(): Owed | undefined {
    for (const owed of this.#owed) if (!owed.waived) return owed
    return undefined
  }

  /** Somebody may wait for what is owed, and nobody ask this server anything until then. */
  #payLater(): void {
    if (this.#paying !== undefined || this.#closed || this.#debts.isEmpty) return
    this.#paying = setTimeout(() => {
      this.#paying = undefined
      if (this.#fault === undefined) return this.#debts.pay()
      this.#probe()
      this.#payLater()
    }, this.#pauseMs()).unref()
  }

  #pauseMs(): number {
    // A single request may have failed, or the connection: often it is back at once.
    if (this.#probes === 0) return 0
    return backoffMs(PROBING, this.#probes)
  }

  /** Whether it is back. One question at a time, and none too often. */
  #probe(): void {
    const now = performance.now()
    const quietMs = now - this.#probedAt
    if (this.#closed || quietMs < this.#pauseMs()) return
    if (this.#probing || this.#owed.size > 0) {
      // A connection that may be half open is replaced. What was asked on it is answered no more.
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

interface Owed {
  readonly since: number
  readonly waive: (error: unknown) => void
  waived: boolean
}

/**
 * A server that owes an answer for so long is no longer waited for. Nobody who gets a quorum from the others waits for it
 * at all, so this delays only the first refusal after it has begun to hang.
 */
const SILENCE_MS = 300
/** Where there would be no quorum without it. */
const LONG_SILENCE_MS = 2000
/** After so long without an answer another connection may get through where this one does not. */
const DEAD_MS = 5000
/** A timer that is so late says that this process, or the machine, has no time for anything. */
const LATE_MS = 50
/** Without jitter: how much of the pause is over is looked at several times, and a random one would be another each time. */
const PROBING: Backoff = { firstMs: 50, longestMs: 1000, jitter: 0 }

function silentError(index: number): StoreError {
  return new StoreError('store-unavailable', `Redis server ${index + 1} of the list does not answer.`)
}

function restartedError(): StoreError {
  return new StoreError('store-unavailable', 'The Redis server was restarted or replaced while it was asked.')
}
