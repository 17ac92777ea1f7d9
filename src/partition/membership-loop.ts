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
  /** The last request to join, which has the weight of when it began. */
  #joining: Promise<GroupMembership> | undefined
  #membership: GroupMembership | undefined
  /** Ends the membership, so that the process joins again. */
  #giveUp: (cause: unknown) => void = () => {}
  /** What the others were told last. */
  #told: string | undefined
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
    this.#running = this.#run()
  }

  async setWeight(weight: number): Promise<void> {
    // The others know that it leaves.
    if (this.#isStopping) return
    this.#weight = weight
    try {
      await this.#joining
      await this.#tellOthers()
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
        if (this.#leaving.signal.aborted || isHoldfastError(error, 'closed')) break
        this.#settings.onError(error, { key: undefined, during: 'membership' })
        failures += 1
        await paused(systemClock, backoffMs(JOINING_AGAIN, failures), this.#leaving.signal)
      }
    }
    if (partitionTopics.left.isHeard) partitionTopics.left.tell({ name: this.#name, run: this.#number })
  }

  /** One membership, from its begin to its end. */
  async #takePart(onJoined: () => void): Promise<void> {
    this.#told = this.#value()
    const { ttl } = this.#settings.work
    this.#joining = this.group.join({ ttl, value: this.#told, signal: this.#leaving.signal })
    const membership = await this.#joining
    this.#membership = membership
    const ending = new AbortController()
    const end = () => ending.abort()
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
    await this.#tellOthers()
  }

  async #tellOthers(): Promise<void> {
    const value = this.#value()
    if (value === this.#told || this.#membership === undefined) return
    this.#told = value
    try {
      await this.#membership.update(value)
    } catch (error) {
      this.#told = undefined
      throw error
    }
  }

  #value(): string {
    return memberValue({ weight: this.#weight, claims: this.#share.wanted, overdue: this.#share.overdue })
  }
}

const JOINING_AGAIN: Backoff = { firstMs: 100, longestMs: 10_000, jitter: 0.5 }
/** How long `stop` waits until the others know that it leaves. */
const TELLING_MS = 1000
