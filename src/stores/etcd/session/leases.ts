import { assert } from '../../../base/assert.ts'
import { elapsedMs, type Instant, LONGEST_TIMER_MS, now, systemClock } from '../../../base/clock.ts'
import { StoreError } from '../../../errors.ts'
import type { Cluster } from '../grpc/cluster.ts'
import { isLeaseThere } from '../grpc/failures.ts'
import { LEASE_GRANT, LEASE_KEEP_ALIVE } from '../grpc/messages.ts'

/**
 * A lease of etcd. If it is not kept alive for its time to live, etcd deletes all keys that are bound to it. That ends the
 * tickets of a process that has died, hangs, or is cut off.
 */
export class EtcdLease {
  readonly id: number
  /** Its time to live, as etcd granted it. */
  readonly ttlMs: number
  /** The longest term (ttl and lock-delay) of a ticket that may hold by it. */
  readonly termMs: number
  isLost = false
  /** The instant before the last answered request was written. The lease lasts for `ttlMs` from here. */
  #since: Instant
  #asking: Promise<void> | undefined
  #tickets = 0

  constructor(id: number, ttlMs: number, since: Instant) {
    this.id = id
    this.ttlMs = ttlMs
    this.termMs = longestTerm(ttlMs / 1000)
    this.#since = since
  }

  /** Whether a ticket needs it. It is kept alive only while one does. */
  get isNeeded(): boolean {
    return this.#tickets > 0
  }

  /** One more ticket needs it. */
  needed(): void {
    this.#tickets += 1
  }

  /** One of the tickets that needed it does so no more. */
  released(): void {
    assert(this.#tickets > 0, 'a lease of etcd was released more often than it was needed')
    this.#tickets -= 1
  }

  /** Whether it surely lasts for this long from now. */
  lastsFor(durationMs: number): boolean {
    return !this.isLost && this.leftMs >= durationMs
  }

  /** For how long it lasts at least. */
  get leftMs(): number {
    return this.ttlMs - elapsedMs(this.#since, now(systemClock))
  }

  /** Resolves when etcd has kept it alive, or does not know it any more. */
  keepAlive(cluster: Pick<Cluster, 'ask'>): Promise<void> {
    this.#asking ??= this.#keepAlive(cluster).finally(() => {
      this.#asking = undefined
    })
    return this.#asking
  }

  async #keepAlive(cluster: Pick<Cluster, 'ask'>): Promise<void> {
    const since = now(systemClock)
    const { reply } = await cluster.ask(LEASE_KEEP_ALIVE, { id: this.id })
    if (reply.ttl <= 0) this.isLost = true
    else this.#since = since
  }
}

/**
 * The etcd leases of one process: one for each length that its holders ask for, and a short one for all its waiters. Most
 * processes have one length.
 *
 * A lease of holders is longer than the ttl of its tickets, by a fifth and a second at least. It is kept alive so often that at
 * any moment it surely lasts for that ttl. So a ticket can be promised its ttl without a request: when it is renewed, and when
 * its own process hands the key to it. As long as the process lives, it ends each single ticket in time (`ticket-timers.ts`).
 *
 * If the process dies, hangs or is cut off, its waiters vanish with the short lease, so they delay nobody for long.
 */
export class EtcdLeases {
  readonly #cluster: Pick<Cluster, 'ask'>
  readonly #onLost: (lease: EtcdLease) => void
  readonly #shared = new Map<number, Shared>()
  #tombstones: { readonly lease: Promise<EtcdLease>; readonly since: Instant } | undefined
  readonly #ids = new Set<number>()
  #isClosed = false

  constructor(cluster: Pick<Cluster, 'ask'>, onLost: (lease: EtcdLease) => void) {
    this.#cluster = cluster
    this.#onLost = onLost
  }

  /** The lease of holders whose keys have to be kept for `termMs`. */
  async shared(termMs: number): Promise<EtcdLease> {
    const ttl = lengthFor(termMs)
    const lease = await this.#current(ttl)
    if (lease.ttlMs > ttl * 1000) throw tooShort(ttl, lease.ttlMs / 1000)
    return lease
  }

  /** The lease of waiters: the shortest that etcd grants. A key never returns to it from a longer one. */
  waiting(): Promise<EtcdLease> {
    return this.#current(SHORTEST)
  }

  /** A lease that this process keeps alive, by its id. */
  keptAlive(id: number): EtcdLease | undefined {
    for (const { lease } of this.#shared.values()) if (lease?.id === id) return lease
    return undefined
  }

  #current(ttl: number): Promise<EtcdLease> {
    let shared = this.#shared.get(ttl)
    if (shared === undefined) {
      shared = { lease: undefined, granting: undefined, timer: undefined }
      this.#shared.set(ttl, shared)
    }
    const { lease } = shared
    if (lease !== undefined && !lease.isLost && lease.leftMs > 0) return Promise.resolve(lease)
    return this.#renew(shared, ttl)
  }

  /** A lease of its own that is not kept alive: its keys end at their time, whatever becomes of this process. */
  async expiring(durationMs: number, { mayBeLonger = false }: ExpiringLeaseOptions = {}): Promise<EtcdLease> {
    const ttl = lengthFor(durationMs)
    const lease = await this.#grant(ttl)
    this.#forgetLater(lease)
    if (lease.ttlMs > ttl * 1000 && !mayBeLonger) throw tooShort(ttl, lease.ttlMs / 1000)
    return lease
  }

  /** The lease of tombstones. Many share it, so a tombstone lasts for `lastMs` at least, and for about twice as long at most. */
  tombstones(lastMs: number): Promise<EtcdLease> {
    if (this.#tombstones === undefined || elapsedMs(this.#tombstones.since, now(systemClock)) > lastMs) {
      const lease = this.#grant(Math.ceil((2 * lastMs) / 1000) + 1)
      this.#tombstones = { lease, since: now(systemClock) }
      lease.then(
        (granted) => this.#forgetLater(granted),
        () => {
          this.#tombstones = undefined
        },
      )
    }
    return this.#tombstones.lease
  }

  /** etcd does not know this lease any more, so all its keys are gone. */
  lost(lease: EtcdLease): void {
    lease.isLost = true
    // etcd may have lost all its data, and the lease of tombstones with it.
    this.tombstonesLost()
    this.#onLost(lease)
  }

  tombstonesLost(): void {
    this.#tombstones = undefined
  }

  /** Resolves when a lease surely lasts for this long, or is lost. */
  async ensure(lease: EtcdLease, durationMs: number): Promise<void> {
    for (let tries = 0; !lease.isLost && !lease.lastsFor(durationMs); tries += 1) {
      await lease.keepAlive(this.#cluster)
      // After a keep-alive the lease has its whole time to live, less the time that the answer took.
      if (lease.isLost) this.lost(lease)
      else if (tries > MOST_KEEP_ALIVES)
        throw new StoreError(
          'store-unavailable',
          'etcd takes longer to answer than a lease lasts. Check its disk latency, or use a longer `ttl`.',
        )
    }
  }

  /** Begins to find out which leases etcd still knows. */
  check(): void {
    for (const { lease } of this.#shared.values()) if (lease?.isNeeded === true) this.#keepAlive(lease)
  }

  /** Keeps a lease alive in the background. If that fails, the verb that needs the lease does it, and fails itself. */
  #keepAlive(lease: EtcdLease): void {
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
    for (const { timer } of this.#shared.values()) clearInterval(timer)
  }

  #renew(shared: Shared, ttl: number): Promise<EtcdLease> {
    shared.granting ??= this.#keepOrGrant(shared, ttl).finally(() => {
      shared.granting = undefined
    })
    return shared.granting
  }

  /** By our clock the lease is over. By etcd's clock it may not be, if our clock has jumped or this process was frozen. */
  async #keepOrGrant(shared: Shared, ttl: number): Promise<EtcdLease> {
    const { lease: before } = shared
    if (before !== undefined && !before.isLost && before.isNeeded) {
      await before.keepAlive(this.#cluster)
      if (!before.isLost) return before
      this.lost(before)
    }
    const lease = await this.#grant(ttl)
    if (before !== undefined) this.#forgetLater(before)
    shared.lease = lease
    shared.timer ??= this.#startKeepAlive(shared, ttl)
    return lease
  }

  /** Keeps the lease alive twice in each span by which it is longer than its tickets need. */
  #startKeepAlive(shared: Shared, ttl: number): NodeJS.Timeout {
    const everyMs = Math.max(SHORTEST_PAUSE_MS, (ttl * 1000 - longestTerm(ttl)) / 2)
    const timer = setInterval(() => {
      const { lease } = shared
      if (lease === undefined || !lease.isNeeded || lease.isLost || this.#isClosed) {
        clearInterval(timer)
        shared.timer = undefined
        return
      }
      this.#keepAlive(lease)
    }, everyMs)
    timer.unref()
    return timer
  }

  /** One more ticket needs this lease. Starts its keep-alives again if they have stopped. */
  used(lease: EtcdLease): void {
    lease.needed()
    for (const [ttl, shared] of this.#shared)
      if (shared.lease === lease && shared.timer === undefined)
        shared.timer = this.#startKeepAlive(shared, ttl)
  }

  async #grant(ttl: number): Promise<EtcdLease> {
    // This process chooses the id, so that the request may be repeated.
    const id = 1 + Math.floor(Math.random() * (Number.MAX_SAFE_INTEGER - 1))
    const since = now(systemClock)
    this.#ids.add(id)
    try {
      const { reply } = await this.#cluster.ask(LEASE_GRANT, { id, ttl })
      return new EtcdLease(id, reply.ttl * 1000, since)
    } catch (error) {
      if (!isLeaseThere(error)) {
        // etcd may have granted it.
        this.#forgetLater({ id, ttlMs: ttl * 1000 })
        throw error
      }
      return new EtcdLease(id, ttl * 1000, since)
    }
  }

  /** Forgets the id of a lease when etcd has surely ended it, and its keys with it. */
  #forgetLater({ id, ttlMs }: Pick<EtcdLease, 'id' | 'ttlMs'>): void {
    // The id of a longer lease is kept for good: a timer of this length would fire at once.
    if (2 * ttlMs <= LONGEST_TIMER_MS) systemClock.startTimer(2 * ttlMs, () => this.#ids.delete(id))
  }
}

interface ExpiringLeaseOptions {
  /** Whether etcd may grant a longer lease: this process deletes the key in time, and only if it cannot the key stays longer. */
  readonly mayBeLonger?: boolean
}

interface Shared {
  lease: EtcdLease | undefined
  granting: Promise<EtcdLease> | undefined
  timer: NodeJS.Timeout | undefined
}

/**
 * The length of a lease in whole seconds. From 10 s on, a step is 4 to 10 % of the length: tickets of similar terms share a lease,
 * and the key of a dead process is not kept for much longer. Below 10 s a step is one second. All terms between a second and an
 * hour make a hundred lengths.
 */
export function lengthFor(termMs: number): number {
  const seconds = Math.max(SHORTEST, Math.ceil((termMs * SPARE) / 1000 + 1))
  const power = 10 ** Math.max(0, Math.floor(Math.log10(seconds)) - 1)
  const leading = seconds / power / 10
  const step = power * (leading >= 5 ? 5 : leading >= 2 ? 2 : 1)
  return Math.ceil(seconds / step) * step
}

/** The longest term of a ticket under a lease of this length. */
function longestTerm(ttl: number): number {
  return Math.min(ttl * 1000 - 1000, ((ttl - 1) * 1000) / SPARE)
}

const SPARE = 1.2
/** The shortest lease that etcd grants by default: one and a half election timeouts, in whole seconds. */
const SHORTEST = 2
const SHORTEST_PAUSE_MS = 250
const MOST_KEEP_ALIVES = 2

function tooShort(asked: number, granted: number): StoreError {
  const leastMs = Math.floor(longestTerm(granted))
  return new StoreError(
    'store-refused',
    `etcd grants no lease for less than ${granted} s, and this ticket asks for ${asked} s: if its process died, its key would be taken for longer than it said. Use a ttl of ${leastMs} ms or more, or lower the election timeout of etcd.`,
  )
}
