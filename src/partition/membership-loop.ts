import { type Backoff, backoffMs } from '../base/backoff.ts'
import { paused, systemClock } from '../base/clock.ts'
import { nextRunNumber } from '../base/run-number.ts'
import { type GroupMember, type GroupMembership, isHoldfastError, type MemberGroup } from '../index.ts'
import { fairShares } from './fair-shares.ts'
import { claimantOf, memberValue } from './member-value.ts'
import type { PartitionSettings } from './options.ts'
import type { OwnShare } from './own-share.ts'
import { partitionTopics } from './partition-events.ts'

/**
 * Keeps this process a member, computes its share whenever the members change, and tells the others which keys it has claimed.
 */
export class MembershipLoop {
  readonly group: MemberGroup
  readonly #share: OwnShare
  readonly #name: string
  readonly #settings: PartitionSettings
  readonly #leaving = new AbortController()
  /** In the events. */
  readonly #number = nextRunNumber()
  #weight: number
  /** The request to join, from its begin until it has failed or the membership is lost. */
  #joining: Promise<GroupMembership> | undefined
  /** Calls of those who wait for the next request to join. */
  readonly #whenJoining: ((joining: Promise<unknown> | undefined) => void)[] = []
  #membership: GroupMembership | undefined
  /** Ends the membership, so that the process joins again. */
  #giveUp: (cause: unknown) => void = () => {}
  /** The last value that the others are told. They know it when `known` resolves. */
  #told: { readonly value: string; readonly known: Promise<unknown> } | undefined
  #isRunning = false
  #isStopping = false
  #running: Promise<void> = Promise.resolve()

  constructor(
    name: string,
    group: MemberGroup,
    { share, settings }: { share: OwnShare; settings: PartitionSettings },
  ) {
    this.#name = name
    this.group = group
    this.#share = share
    this.#settings = settings
    this.#weight = settings.weight
  }

  start(): void {
    // Without this news the others would not ask for the key.
    this.#share.onOverdue(() => this.#tellOthers().catch((error) => this.#giveUp(error)))
    this.#isRunning = true
    this.#running = this.#run()
  }

  async setWeight(weight: number): Promise<void> {
    // The others know that it leaves.
    if (this.#isStopping) return
    this.#weight = weight
    try {
      while (this.#isRunning && !(await this.#tellOthers())) await this.#joined()
    } catch (error) {
      if (!this.#isStopping) throw error
    }
  }

  async stop(): Promise<void> {
    this.#isStopping = true
    this.#weight = 0
    // First, so that the others wait for the keys by the time they are handed over. A store that is away must not stop the stop.
    const told = new AbortController()
    const tell = () => told.abort()
    this.#tellOthers().then(tell, tell)
    await paused(systemClock, TELLING_MS, told.signal)
    await this.#share.end(this.#settings.graceMs)
    this.#leaving.abort()
    // This ends an update that the store does not answer. The loop may wait for it.
    await this.#membership?.leave()
    await this.#running
  }

  /** Joins, and joins again after a loss, until the partition is stopped or its locks are closed. Never rejects. */
  async #run(): Promise<void> {
    for (let failures = 0; !this.#leaving.signal.aborted; ) {
      try {
        await this.#takePart(() => {
          failures = 0
        })
      } catch (error) {
        this.#joining = undefined
        if (this.#leaving.signal.aborted || isHoldfastError(error, 'closed')) break
        this.#settings.onError(error, { key: undefined, during: 'membership' })
        failures += 1
        await paused(systemClock, backoffMs(JOINING_AGAIN, failures), this.#leaving.signal)
      }
    }
    this.#isRunning = false
    for (const tell of this.#whenJoining.splice(0)) tell(undefined)
    if (partitionTopics.left.isHeard) partitionTopics.left.tell({ name: this.#name, run: this.#number })
  }

  /** One membership, from its begin to its end. */
  async #takePart(onJoined: () => void): Promise<void> {
    const value = this.#value()
    const { ttl } = this.#settings.work
    const joining = this.group.join({ ttl, value, signal: this.#leaving.signal })
    this.#joining = joining
    this.#told = { value, known: joining }
    for (const tell of this.#whenJoining.splice(0)) tell(joining)
    const membership = await joining
    this.#membership = membership
    const ending = new AbortController()
    const end = () => {
      // From now on `setWeight` waits for the next request to join.
      if (membership.signal.aborted) this.#joining = undefined
      ending.abort()
    }
    let failure: { readonly cause: unknown } | undefined
    this.#giveUp = (cause) => {
      failure ??= { cause }
      end()
    }
    for (const signal of [membership.signal, this.#leaving.signal]) {
      if (signal.aborted) end()
      else signal.addEventListener('abort', end, { once: true })
    }
    try {
      onJoined()
      for await (const members of this.group.observe({ signal: ending.signal })) {
        await this.#follow(membership.id, members)
      }
      if (membership.signal.aborted) throw membership.signal.reason
      if (failure !== undefined) throw failure.cause
    } finally {
      this.#leaving.signal.removeEventListener('abort', end)
      this.#joining = undefined
      this.#membership = undefined
      this.#share.wantHeld()
      await membership.leave()
    }
  }

  async #follow(own: string, members: readonly GroupMember[]): Promise<void> {
    // Without itself in the group, it is about to hear that its membership is lost.
    const share = fairShares(this.#settings.keys.length, members.map(claimantOf)).get(own)
    if (share === undefined || this.#isStopping) return
    this.#share.want(share)
    if (partitionTopics.shared.isHeard) {
      const counts = { share: share.length, keys: this.#settings.keys.length, members: members.length }
      partitionTopics.shared.tell({ name: this.#name, run: this.#number, ...counts })
    }
    // An update that is on its way may fail, which is an error of the call that began it.
    if (this.#told?.value !== this.#value()) await this.#tellOthers()
  }

  /** Resolves when the others know what this process wants now. `false`: it is no member, so nobody knows it. */
  async #tellOthers(): Promise<boolean> {
    const membership = this.#membership
    if (membership === undefined) return false
    const value = this.#value()
    if (this.#told?.value !== value) {
      const told = { value, known: membership.update(value) }
      this.#told = told
      told.known.catch(() => {
        if (this.#told === told) this.#told = undefined
      })
    }
    // Lost, or given up by this process, which is about to join again.
    const isOver = () => membership.signal.aborted || this.#membership !== membership
    try {
      await this.#told.known
    } catch (error) {
      if (isHoldfastError(error, 'closed') || !isOver()) throw error
    }
    return !isOver()
  }

  /** Resolves when this process is a member, or takes part no more. Rejects if the request to join fails. */
  async #joined(): Promise<void> {
    await (this.#joining ?? new Promise<unknown>((resolve) => this.#whenJoining.push(resolve)))
  }

  #value(): string {
    return memberValue({ weight: this.#weight, claims: this.#share.wanted, overdue: this.#share.overdue })
  }
}

const JOINING_AGAIN: Backoff = { firstMs: 100, longestMs: 10_000, jitter: 0.5 }
/** How long `stop` waits until the others know that it leaves. */
const TELLING_MS = 1000
