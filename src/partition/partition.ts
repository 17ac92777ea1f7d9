import { expected, parseFunction } from '../base/arguments.ts'
import { outsideOfCallers } from '../base/async-context.ts'
import { callListener } from '../base/listener.ts'
import { ClosedError } from '../errors.ts'
import type { Lease, Locks, Owner } from '../index.ts'
import { warn } from './failure-warnings.ts'
import { claimantOf } from './member-value.ts'
import { MembershipLoop } from './membership-loop.ts'
import { murmur3 } from './murmur3.ts'
import { groupName, lockKey } from './names.ts'
import {
  type AnyKey,
  type KeyPartitionOptions,
  type NumberedPartitionOptions,
  type PartitionSettings,
  parsePartition,
  parseWeight,
} from './options.ts'
import { OwnShare, type PartitionChange } from './own-share.ts'

/** A process that takes part in a partition, as every process can see it. */
export interface PartitionMember<Key extends string | number> {
  /** Host, process id and label, for people. */
  readonly owner: Owner
  /** How large its share is, compared with the others. 0: it takes no keys, perhaps because it is about to leave. */
  readonly weight: number
  /** The keys of its share. It works on them, or is about to. */
  readonly keys: readonly Key[]
}

/** See {@link createPartition}. */
export interface KeyPartition<Key extends string | number = string> extends AsyncDisposable {
  /** The name that all processes share. The lock of a key is `name:key`. */
  readonly name: string
  /**
   * The keys that this process holds, each with its lease. A key is in it from before `start` is called until it is released
   * or lost.
   */
  readonly held: ReadonlyMap<Key, Lease>
  /**
   * Joins the others and takes its share of the keys. A second call changes nothing. From now on the process stays alive until
   * `stop()`. The work runs outside of the caller's async context (`AsyncLocalStorage`).
   *
   * @throws {ClosedError} after `stop()`: make a new partition.
   */
  start(): void
  /**
   * Hands all keys over to the others, `movesAtOnce` at a time, and leaves. After `grace` it ends the work on all the keys that
   * are left at the same time. Resolves when all of that is done; never rejects. Call it before a deploy ends the process.
   */
  stop(): Promise<void>
  /**
   * Asks for another share from now on. With 0 this process hands all of its keys over, and stays. Resolves when the others know;
   * before `start()` and after `stop()` at once. If its membership was lost, it waits until this process has joined again.
   *
   * @throws {InvalidArgumentError} when it is no weight.
   * @throws {StoreError} when the store does not answer or refuses: call it again.
   */
  setWeight(weight: number): Promise<void>
  /** Who takes part, and with which keys. One request. Members whose process died are in it until their ttl is over. */
  members(): Promise<readonly PartitionMember<Key>[]>
  /** Calls the listener at each step of the work on a key, in order. Returns a function that ends this. */
  subscribe(listener: (change: PartitionChange<Key>) => void): () => void
}

/** A partition by numbers. */
export interface NumberedPartition extends KeyPartition<number> {
  /**
   * The partition of an id, for good and in every language: the MurmurHash3 (x86, 32 bits, seed 0) of the id in UTF-8, modulo the
   * number of partitions.
   */
  of(id: string): number
}

/**
 * Divides keys among the processes that are alive. Every process makes the same partition over the same store. Each key is held
 * by one process, under its own lease and fence. When a process comes or goes, as few keys as possible move, and the old holder's
 * `stop` has ended before the new holder's `start` is called.
 *
 * ```ts
 * import { connect } from 'holdfast'
 * import { createPartition } from 'holdfast/partition'
 *
 * const locks = await connect('redis://localhost:6379', { ttl: '10s' })
 * const customers = createPartition(locks, 'customers', {
 *   partitions: 64,
 *   start: ({ key, fence }) => console.log('works on the customers of partition', key, 'under fence', fence),
 *   stop: ({ key, reason }) => console.log('no more:', key, reason),
 * })
 * customers.start()
 * console.log(customers.held.has(customers.of('customer 42')) ? 'here' : 'elsewhere')
 * process.on('SIGTERM', () => customers.stop().then(() => locks.close()))
 * ```
 *
 * The locks alone decide who holds a key. Which process asks for which key is advice, which each process computes by itself from
 * the members that it sees. A wrong division costs time only. The lock of a key still has one holder, with the guarantee of the
 * store.
 *
 * @throws {InvalidArgumentError} when an argument is not what it should be.
 */
export function createPartition(locks: Locks, name: string, options: KeyPartitionOptions): KeyPartition
export function createPartition(
  locks: Locks,
  name: string,
  options: NumberedPartitionOptions,
): NumberedPartition
export function createPartition(
  locks: Locks,
  name: string,
  options: KeyPartitionOptions | NumberedPartitionOptions,
): KeyPartition<AnyKey> {
  if (typeof locks?.group !== 'function') {
    throw expected('locks', 'what createLocks(…) or connect(…) returns', locks)
  }
  if (typeof name !== 'string' || name === '') {
    throw expected('name', 'a text with at least one character', name)
  }
  const settings = parsePartition(name, options)
  // Makes no lock, and refuses what no store keeps as it is.
  for (const key of settings.keys) locks.readWrite(lockKey(name, key))
  return new PartitionOverLocks(locks, name, settings)
}

class PartitionOverLocks implements KeyPartition<AnyKey> {
  readonly name: string
  readonly #settings: PartitionSettings
  readonly #share: OwnShare
  readonly #loop: MembershipLoop
  readonly #listeners = new Set<(change: PartitionChange<AnyKey>) => void>()
  #stopping: Promise<void> | undefined
  #isStarted = false

  constructor(locks: Locks, name: string, settings: PartitionSettings) {
    this.name = name
    this.#settings = settings
    this.#share = new OwnShare(locks, name, settings, (change) => this.#tell(change))
    // Lists of keys that differ are partitions of their own: a key that both have is held by one of them.
    const group = locks.group(groupName(name, settings.keys))
    this.#loop = new MembershipLoop(name, group, { share: this.#share, settings })
  }

  get held(): ReadonlyMap<AnyKey, Lease> {
    return this.#share.held
  }

  start(): void {
    if (this.#stopping !== undefined) {
      throw new ClosedError('Expected a partition that was not stopped, got one that was. Make a new one.')
    }
    if (this.#isStarted) return
    this.#isStarted = true
    // The scope of a lock around this call does not wait for the work.
    outsideOfCallers(() => this.#loop.start())
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#isStarted ? this.#loop.stop() : Promise.resolve()
    return this.#stopping
  }

  setWeight(weight: number): Promise<void> {
    return this.#loop.setWeight(parseWeight(weight))
  }

  of(id: string): number {
    if (typeof id !== 'string') throw expected('id', 'a text', id)
    return murmur3(id) % this.#settings.keys.length
  }

  async members(): Promise<readonly PartitionMember<AnyKey>[]> {
    const members = await this.#loop.group.members()
    return members.map((member) => {
      const { weight, claims } = claimantOf(member)
      return { owner: member.owner, weight, keys: claims.flatMap((at) => this.#settings.keys[at] ?? []) }
    })
  }

  subscribe(listener: (change: PartitionChange<AnyKey>) => void): () => void {
    parseFunction('listener', listener)
    // A new function each time, because a program may add the same listener twice.
    const own = (change: PartitionChange<AnyKey>) => listener(change)
    this.#listeners.add(own)
    return () => {
      this.#listeners.delete(own)
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop()
  }

  #tell(change: PartitionChange<AnyKey>): void {
    for (const listener of this.#listeners) {
      callListener(
        () => listener(change),
        (error) => warn(`A listener of the partition ${JSON.stringify(this.name)} failed.`, error),
      )
    }
  }
}
