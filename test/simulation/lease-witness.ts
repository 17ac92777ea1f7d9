import type { RoomView } from '../../src/contract/store.ts'
import type { Lease } from '../../src/engine/lease.ts'
import type { Member } from './member.ts'
import type { StoreWitness } from './store-witness.ts'
import type { Rule } from './violation.ts'

interface Watched {
  readonly member: Member
  readonly lease: Lease
  readonly units: number
  readonly limit: number
  readonly lasting: boolean
  /** When the witness saw that the lease was evicted. */
  evictedAt: number | undefined
  /** The signal of the lease, if its holder listens to it. */
  signal: AbortSignal | undefined
  listensSince: number
  /** The last deadline that the lease claimed, in true time. */
  deadline: number
}

export interface LeaseWitnessOptions {
  readonly report: (rule: Rule, message: string) => void
  readonly now: () => number
  /** How fast the store's clock runs, compared with the true time. */
  readonly storeRate: number
  readonly store: StoreWitness
  /** Whether there are no faults, so that everything happens soon. */
  readonly prompt: boolean
}

/**
 * Checks every lease of every process at every instant of the history: it compares what the lease claims with what the
 * store knows. It reads only what a holder could read at that instant, and changes nothing.
 */
export class LeaseWitness {
  readonly #options: LeaseWitnessOptions
  readonly #watched = new Set<Watched>()
  /** Ids of leases that ended before their release. */
  readonly lost: Set<string> = new Set()

  constructor(options: LeaseWitnessOptions) {
    this.#options = options
  }

  /** `lasting`: the lease ends by its release or an eviction, and by nothing else. */
  watch(member: Member, lease: Lease, { lasting }: { readonly lasting: boolean }): void {
    const { units, limit } = lease.toJSON()
    const now = this.#options.now()
    if (lease.remainingMs <= 0)
      this.#options.report('deadline', `${member.name} was given ${lease.id} when it was over already`)
    const yet = { signal: undefined, evictedAt: undefined, listensSince: now, deadline: now }
    this.#watched.add({ member, lease, units, limit, lasting, ...yet })
  }

  /** The holder listens from now on. */
  listens(lease: Lease): void {
    for (const watched of this.#watched) {
      if (watched.lease !== lease) continue
      watched.signal = lease.signal
      watched.listensSince = this.#options.now()
    }
  }

  /** The holder ends the lease in this very turn. */
  ends(lease: Lease): void {
    for (const watched of this.#watched) if (watched.lease === lease) this.#watched.delete(watched)
  }

  check(rooms: () => readonly RoomView[]): void {
    if (this.#watched.size === 0) return
    const held: Watched[] = []
    for (const watched of this.#watched) {
      // Reading the state of a lease may be what ends the lease. So the witness does not read it earlier than
      // necessary.
      if (!watched.member.active) this.#watched.delete(watched)
      else if (watched.lease.remainingMs > 0) held.push(watched)
      else this.#over(watched)
    }
    if (held.length === 0) return
    const views = rooms()
    for (const watched of held) this.#compare(watched, views)
    this.#exclude(held)
  }

  /** A lease must never outlive the store's record of it, and carries the store's fence. */
  #compare(watched: Watched, rooms: readonly RoomView[]): void {
    const { report, now, storeRate, store } = this.#options
    const { lease, member } = watched
    const remaining = lease.remainingMs / member.process.clock.rate
    watched.deadline = now() + remaining
    if (store.wasEvicted(lease.id)) this.#judgeEviction(watched)
    if (store.isVoid(lease.key, lease.id, lease.fence)) return
    if (watched.signal?.aborted === true)
      report('signal', `${member.name} was told that ${lease.id} is over, and it is not`)
    const who = `${member.name} has ${lease.key} as ${lease.id} for another ${remaining.toFixed(3)} ms`
    const room = rooms.find(({ key }) => key === lease.key)
    const holder = room?.holders.find(({ id }) => id === lease.id)
    if (holder === undefined) return report('deadline', `${who}, and the store has not`)
    if (holder.state !== 'held') return report('deadline', `${who}, and in the store it is ${holder.state}`)
    if (holder.fence !== lease.fence)
      return report('deadline', `${who} under ${lease.fence}, and the store under ${holder.fence}`)
    const kept = holder.remainingMs / storeRate
    if (remaining > kept + ROUNDING_MS)
      report('deadline', `${who}, and the store keeps it for ${kept.toFixed(3)} ms`)
  }

  /** Without faults a holder that has begun to listen hears of its eviction at once, and not with the next renewal. */
  #judgeEviction(watched: Watched): void {
    const { report, now, prompt } = this.#options
    watched.evictedAt ??= now()
    const listens = watched.signal !== undefined && watched.evictedAt > watched.listensSince + LATENESS_MS
    if (prompt && listens && now() > watched.evictedAt + LATENESS_MS)
      report('signal', `${watched.member.name} was not told that ${watched.lease.id} was evicted`)
  }

  #exclude(held: readonly Watched[]): void {
    if (held.length < 2) return
    const sums = new Map<string, { units: number; limit: number; ids: string[] }>()
    for (const { lease, units, limit } of held) {
      if (this.#options.store.isVoid(lease.key, lease.id, lease.fence)) continue
      const sum = sums.get(lease.key) ?? { units: 0, limit: Number.POSITIVE_INFINITY, ids: [] }
      if (sum.ids.includes(lease.id)) continue
      sum.units += units
      sum.limit = Math.min(sum.limit, limit)
      sum.ids.push(lease.id)
      sums.set(lease.key, sum)
    }
    for (const [key, { units, limit, ids }] of sums) {
      if (units > limit)
        this.#options.report('exclusion among leases', `${key} is had by ${ids.join(' and ')} at once`)
    }
  }

  #over(watched: Watched): void {
    const { report, now, store } = this.#options
    const { lease, member, signal } = watched
    this.lost.add(lease.id)
    const early = watched.deadline - now()
    const hasReason = member.clocksJumped || store.isVoid(lease.key, lease.id, lease.fence)
    if ((early > ROUNDING_MS || watched.lasting) && !hasReason)
      report(
        'lost without a reason',
        `${member.name} lost ${lease.id} ${early.toFixed(3)} ms before its deadline`,
      )
    if (signal === undefined || signal.aborted) {
      this.#watched.delete(watched)
      return
    }
    // After a pause or a leap of the clocks, the process notices the end within a second. It need not notice a leap of
    // less than 200 ms.
    const noticed = member.disturbedAt === undefined ? 0 : member.disturbedAt + 1000
    const expected = Math.max(watched.deadline + member.leaps * UNNOTICED_MS, noticed)
    if (!member.process.upToDate || now() <= expected + LATENESS_MS) return
    const late = (now() - watched.deadline).toFixed(3)
    report('signal', `${member.name} was not told that ${lease.id} is over since ${late} ms`)
  }
}

/** The error of comparing two clocks in floating point. */
const ROUNDING_MS = 1e-3
/** The engine takes a smaller difference for clocks that are slewed. */
const UNNOTICED_MS = 200
/** Two timers may fire late: the one that was due, and the one that took its place. */
const LATENESS_MS = 20
