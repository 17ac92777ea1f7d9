import { elapsedMs, type Instant, now, systemClock } from '../../../base/clock.ts'
import { StoreError } from '../../../errors.ts'
import type { Cluster } from '../grpc/cluster.ts'
import { isLeaseThere } from '../grpc/failures.ts'
import { LEASE_GRANT, LEASE_KEEP_ALIVE } from '../grpc/messages.ts'

/**
 * A lease of etcd. Keys that are bound to it are deleted by etcd once it has not been kept alive for its time to live, so
 * it is what ends the tickets of a process that has died, hangs, or is cut off.
 */
export class EtcdLease {
  readonly id: number
  /** What etcd granted. */
  readonly ttlMs: number
  /** The longest term of a ticket that may hold by it. */
  readonly termMs: number
  /** How many tickets are bound to it; without any it is not kept alive. */
  tickets = 0
  isLost = false
  /** The instant before the last request that etcd answered was written: from here on the lease lasts for `ttlMs`. */
  #since: Instant
  #asking: Promise<void> | undefined

  constructor(id: number, ttlMs: number, since: Instant) {
    this.id = id
    this.ttlMs = ttlMs
    this.termMs = longestTerm(ttlMs / 1000)
    this.#since = since
  }

  /** Whether it surely lasts for so long from now. */
  lastsFor(durationMs: number): boolean {
    return !this.isLost && this.leftMs >= durationMs
  }

  /** The least that is left of it. */
  get leftMs(): number {
    return this.ttlMs - elapsedMs(this.#since, now(systemClock))
  }

  /** Resolves when etcd has kept it alive, or has said that it does not know it. */
  keepAlive(cluster: Cluster): Promise<void> {
    this.#asking ??= this.#keepAlive(cluster).finally(() => {
      this.#asking = undefined
    })
    return this.#asking
  }

  async #keepAlive(cluster: Cluster): Promise<void> {
    const since = now(systemClock)
    const { reply } = await cluster.ask(LEASE_KEEP_ALIVE, { id: this.id })
    if (reply.ttl <= 0) this.isLost = true
    else this.#since = since
  }
}

/**
 * The leases of one process: one for each length of time that its holders ask for, which is one for most, and a short one
 * for all its waiters.
 *
 * A lease is longer than the ttl of its tickets, by a fifth and a second, and is kept alive so often that at any moment it
 * surely lasts for that ttl. So a ticket can be promised its ttl without a request: when it is renewed, and when its own
 * process hands the key to it. As long as the process lives, it ends each single ticket in time (`ticket-timers.ts`).
 *
 * If the process dies, hangs or is cut off, its waiters vanish with the short lease, so they hold up nobody for long.
 */
export class EtcdLeases {
  readonly #cluster: Cluster
  readonly #onLost: (lease: EtcdLease) => void
  readonly #shared = new Map<number, Shared>()
  #tombstones: { readonly lease: Promise<EtcdLease>; readonly since: Instant } | undefined
  readonly #ids = new Set<number>()
  #isClosed = false

  constructor(cluster: Cluster, onLost: (lease: EtcdLease) => void) {
    this.#cluster = cluster
    this.#onLost = onLost
  }

  /** The one for holders that have to be kept for `termMs`. */
  async shared(termMs: number): Promise<EtcdLease> {
    const ttl = lengthFor(termMs)
    const lease = await this.#lasting(ttl)
    if (lease.ttlMs > ttl * 1000) throw tooShort(ttl, lease.ttlMs / 1000)
    return lease
  }

  /** The one for waiters: the shortest that etcd grants. A key never comes back to it from a longer one. */
  waiting(): Promise<EtcdLease> {
    return this.#lasting(SHORTEST)
  }

  /** A lease that this process keeps alive, by its id. */
  keptAlive(id: number): EtcdLease | undefined {
    for (const { lease } of this.#shared.values()) if (lease?.id === id) return lease
    return undefined
  }

  #lasting(ttl: number): Promise<EtcdLease> {
    let shared = this.#shared.get(ttl)
    if (shared === undefined) {
      shared = { lease: undefined, granting: undefined, beat: undefined }
      this.#shared.set(ttl, shared)
    }
    const { lease } = shared
    if (lease !== undefined && !lease.isLost && lease.leftMs > 0) return Promise.resolve(lease)
    return this.#renewed(shared, ttl)
  }

  /** A lease that is not kept alive: its keys end at their time, whatever becomes of this process. */
  async expiring(durationMs: number, { mayBeLonger = false }: ExpiringLeaseOptions = {}): Promise<EtcdLease> {
    const ttl = lengthFor(durationMs)
    const lease = await this.#grant(ttl)
    this.#forgetLater(lease)
    if (lease.ttlMs > ttl * 1000 && !mayBeLonger) throw tooShort(ttl, lease.ttlMs / 1000)
    return lease
  }

  /** For tombstones: one for many, so each lasts for a minute, or for two. */
  tombstones(lastMs: number): Promise<EtcdLease> {
    if (this.#tombstones === undefined || elapsedMs(this.#tombstones.since, now(systemClock)) > lastMs) {
      const lease = this.#grant(Math.ceil((2 * lastMs) / 1000) + 1)
      this.#tombstones = { lease, since: now(systemClock) }
      lease.catch(() => {
        this.#tombstones = undefined
      })
    }
    return this.#tombstones.lease
  }

  /** etcd no longer knows it, and with it all its keys are gone. */
  lost(lease: EtcdLease): void {
    lease.isLost = true
    // What it has forgotten may be all there was.
    this.tombstonesLost()
    this.#onLost(lease)
  }

  tombstonesLost(): void {
    this.#tombstones = undefined
  }

  /** Resolves when it surely lasts for so long, or is lost. */
  async ensure(lease: EtcdLease, durationMs: number): Promise<void> {
    for (let tries = 0; !lease.isLost && !lease.lastsFor(durationMs); tries += 1) {
      await lease.keepAlive(this.#cluster)
      // After a keep-alive it has its whole time, unless it took that long to be answered.
      if (lease.isLost) this.lost(lease)
      else if (tries > MOST_BEATS)
        throw new StoreError('store-unavailable', 'etcd answers too slowly to keep a lease.')
    }
  }

  /** Finds out soon which of them etcd still knows. */
  check(): void {
    for (const { lease } of this.#shared.values())
      if (lease !== undefined && lease.tickets > 0) this.#ask(lease)
  }

  /** In the background: a verb that needs the lease keeps it alive itself, and this only saves it the wait. */
  #ask(lease: EtcdLease): void {
    void lease
      .keepAlive(this.#cluster)
      .then(() => lease.isLost && this.lost(lease))
      .catch(() => {})
  }

  /** Whether a key is bound to a lease of this process. */
  isOurs(id: number): boolean {
    return this.#ids.has(id)
  }

  close(): void {
    this.#isClosed = true
    for (const { beat } of this.#shared.values()) clearInterval(beat)
  }

  #renewed(shared: Shared, ttl: number): Promise<EtcdLease> {
    shared.granting ??= this.#asked(shared, ttl).finally(() => {
      shared.granting = undefined
    })
    return shared.granting
  }

  /** By our clock the lease is over. By that of etcd it may not be, if ours has jumped or this process was frozen. */
  async #asked(shared: Shared, ttl: number): Promise<EtcdLease> {
    const { lease: before } = shared
    if (before !== undefined && !before.isLost && before.tickets > 0) {
      await before.keepAlive(this.#cluster)
      if (!before.isLost) return before
      this.lost(before)
    }
    const lease = await this.#grant(ttl)
    if (before !== undefined) this.#forgetLater(before)
    shared.lease = lease
    shared.beat ??= this.#beat(shared, ttl)
    return lease
  }

  /** Keeps the lease alive, twice in the time by which it is longer than its tickets ask for. */
  #beat(shared: Shared, ttl: number): NodeJS.Timeout {
    const everyMs = Math.max(SHORTEST_BEAT_MS, (ttl * 1000 - longestTerm(ttl)) / 2)
    const beat = setInterval(() => {
      const { lease } = shared
      if (lease === undefined || lease.tickets === 0 || lease.isLost || this.#isClosed) {
        clearInterval(beat)
        shared.beat = undefined
        return
      }
      this.#ask(lease)
    }, everyMs)
    beat.unref()
    return beat
  }

  /** Lets it beat again when it has tickets again. */
  used(lease: EtcdLease): void {
    lease.tickets += 1
    for (const [ttl, shared] of this.#shared)
      if (shared.lease === lease && shared.beat === undefined) shared.beat = this.#beat(shared, ttl)
  }

  async #grant(ttl: number): Promise<EtcdLease> {
    // Chosen here, so that the request may be repeated.
    const id = 1 + Math.floor(Math.random() * (Number.MAX_SAFE_INTEGER - 1))
    const since = now(systemClock)
    this.#ids.add(id)
    try {
      const { reply } = await this.#cluster.ask(LEASE_GRANT, { id, ttl })
      return new EtcdLease(id, reply.ttl * 1000, since)
    } catch (error) {
      if (!isLeaseThere(error)) throw error
      return new EtcdLease(id, ttl * 1000, since)
    }
  }

  /** By then etcd has ended it, and its keys with it. */
  #forgetLater({ id, ttlMs }: EtcdLease): void {
    setTimeout(() => this.#ids.delete(id), 2 * ttlMs).unref()
  }
}

interface ExpiringLeaseOptions {
  /** This process deletes what is bound to it in time. If it cannot, the key may stay for longer. */
  readonly mayBeLonger?: boolean
}

interface Shared {
  lease: EtcdLease | undefined
  granting: Promise<EtcdLease> | undefined
  beat: NodeJS.Timeout | undefined
}

/** In whole seconds, in steps that grow with it: tickets of similar terms share a lease. */
function lengthFor(termMs: number): number {
  const seconds = Math.max(SHORTEST, Math.ceil((termMs * SPARE) / 1000 + 1))
  const step = 10 ** Math.max(0, Math.floor(Math.log10(seconds)) - 1) * (seconds >= 20 ? 5 : 1)
  return Math.ceil(seconds / step) * step
}

/** The longest term of a ticket under a lease of this length. */
function longestTerm(ttl: number): number {
  return Math.min(ttl * 1000 - 1000, ((ttl - 1) * 1000) / SPARE)
}

const SPARE = 1.2
/** What etcd grants at least as it comes: one and a half election timeouts, in whole seconds. */
const SHORTEST = 2
const SHORTEST_BEAT_MS = 250
const MOST_BEATS = 2

function tooShort(asked: number, granted: number): StoreError {
  const leastMs = Math.floor(longestTerm(granted))
  return new StoreError(
    'store-refused',
    `etcd grants no lease for less than ${granted} s, and this ticket asks for ${asked} s: if its process died, its key would be taken for longer than it said. Use a ttl of ${leastMs} ms or more, or lower the election timeout of etcd.`,
  )
}
