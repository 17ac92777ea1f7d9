import { checkOptions, expected, parseCount, parseFunction } from '../base/arguments.ts'
import { type Duration, HOLD_RANGE, parseDuration } from '../base/duration.ts'
import { callListener } from '../base/listener.ts'
import { InvalidArgumentError } from '../errors.ts'
import type { Lease } from '../index.ts'
import type { LockWorkerOptions, StopReason } from '../worker/index.ts'
import { type PartitionDoing, warn, warnOfError } from './failure-warnings.ts'
import { isWeight, MOST_KEYS, MOST_WEIGHT } from './member-value.ts'

/** One time of holding one key, as its work sees it. */
export interface PartitionTerm<Key extends string | number> {
  /** The key, or the number of the partition. */
  readonly key: Key
  /** Larger than the fence of every earlier holder of this key. Pass it along with each write. */
  readonly fence: bigint
  /** The lease of the key. It is for reading: the partition releases it. */
  readonly lease: Lease
}

/** What `start` receives. */
export interface StartedTerm<Key extends string | number> extends PartitionTerm<Key> {
  /** Aborts when the work on this key is to end, for whatever reason. If the lease is lost, that is by its deadline. */
  readonly signal: AbortSignal
  /** Says that the work broke after it had started: it is stopped, the key is released, and is tried again later. */
  readonly fail: (error: unknown) => void
}

/** What `stop` receives. */
export interface StoppedTerm<Key extends string | number> extends PartitionTerm<Key> {
  /** `stopped`: another process is to have the key, or this one leaves · `lost`: the lease was lost · `failed`: `fail` was called. */
  readonly reason: StopReason
}

/** How the keys of a partition are worked on. `ttl` is that of each key and of the membership. */
export interface PartitionWork<Key extends string | number>
  extends Pick<LockWorkerOptions, 'ttl' | 'backoff' | 'maxBackoff'> {
  /**
   * Starts the work on one key, which this process holds. It is not called before the `stop` of the holder before has ended, unless
   * that holder died or lost its lease. If it throws, the key is released and tried again after a pause.
   */
  readonly start: (term: StartedTerm<Key>) => unknown
  /** Ends the work on one key, and resolves when no part of it runs any more. Then the next holder starts. */
  readonly stop: (term: StoppedTerm<Key>) => unknown
  /** How large the share of this process is, compared with the weights of the others. 0: no keys. Default: 1. */
  readonly weight?: number | undefined
  /** How many keys this process hands over at the same time, while others of them go on. Default: 4. */
  readonly movesAtOnce?: number | undefined
  /**
   * How long the work on a key may take to end. After that the key is no longer renewed, and runs out within the ttl. Once
   * `stop()` has taken this long, it ends the work on all other keys at the same time. Default: 10 s.
   */
  readonly grace?: Duration | undefined
  /**
   * Called with each failure; the partition goes on by itself, unless the locks are closed. Default: a process warning, and at most one in ten seconds of
   * failures that are alike.
   */
  readonly onError?:
    | ((error: unknown, context: { readonly key: Key | undefined; readonly during: PartitionDoing }) => void)
    | undefined
}

/** A partition of a list of keys. */
export interface KeyPartitionOptions extends PartitionWork<string> {
  /** The keys, the same in every process, in any order. At most 4,096. */
  readonly keys: readonly string[]
}

/** A partition of any number of things, by numbers. */
export interface NumberedPartitionOptions extends PartitionWork<number> {
  /** How many partitions there are: `0` to `partitions - 1`. At most 4,096. The same in every process, for good. */
  readonly partitions: number
}

/** A key of a list, or the number of a partition. */
export type AnyKey = string | number

export interface PartitionSettings {
  /** In the order in which members name them. */
  readonly keys: readonly AnyKey[]
  readonly work: PartitionWork<AnyKey>
  readonly weight: number
  readonly movesAtOnce: number
  readonly graceMs: number
  readonly onError: NonNullable<PartitionWork<AnyKey>['onError']>
}

export function parsePartition(
  name: string,
  options: KeyPartitionOptions | NumberedPartitionOptions,
): PartitionSettings {
  checkOptions(options, NAMES, 'keys` or `partitions')
  const { keys, partitions, ...work } = options as Partial<KeyPartitionOptions & NumberedPartitionOptions>
  if (keys !== undefined && partitions !== undefined) {
    throw new InvalidArgumentError('Expected exactly one of `keys` and `partitions`, got both.')
  }
  if (keys === undefined && partitions === undefined) {
    throw expected('keys', 'given if `partitions` is not', keys)
  }
  const { start, stop, weight = 1, movesAtOnce = 4, grace, onError } = work as PartitionWork<AnyKey>
  parseFunction('start', start)
  parseFunction('stop', stop)
  return {
    keys: keys === undefined ? numbers(partitions) : parseKeys(keys),
    work: work as PartitionWork<AnyKey>,
    weight: parseWeight(weight),
    movesAtOnce: parseCount('movesAtOnce', movesAtOnce, { least: 1, most: MOST_KEYS }),
    graceMs: grace === undefined ? 10_000 : parseDuration('grace', grace, HOLD_RANGE),
    onError: guarded(name, onError === undefined ? warnOfError(name) : parseFunction('onError', onError)),
  }
}

export function parseWeight(weight: unknown): number {
  if (isWeight(weight)) return weight
  throw expected('weight', `a number from 0 to ${MOST_WEIGHT}`, weight)
}

const NAMES: ReadonlySet<string> = new Set<keyof KeyPartitionOptions | keyof NumberedPartitionOptions>([
  'keys',
  'partitions',
  'start',
  'stop',
  'ttl',
  'weight',
  'movesAtOnce',
  'grace',
  'backoff',
  'maxBackoff',
  'onError',
])

function numbers(partitions: unknown): readonly number[] {
  const count = parseCount('partitions', partitions, { least: 1, most: MOST_KEYS })
  return Array.from({ length: count }, (_, number) => number)
}

function parseKeys(keys: unknown): readonly string[] {
  const isList = Array.isArray(keys) && keys.every((key) => typeof key === 'string' && key !== '')
  if (!isList || keys.length === 0 || keys.length > MOST_KEYS) {
    throw expected('keys', `a list of 1 to ${MOST_KEYS} texts, none of them empty`, keys)
  }
  const inOrder = [...new Set<string>(keys)].sort()
  if (inOrder.length < keys.length) throw expected('keys', 'a list without repetitions', keys)
  return inOrder
}

function guarded(name: string, onError: PartitionSettings['onError']): PartitionSettings['onError'] {
  return (error, context) => {
    callListener(
      () => onError(error, context),
      (ownError) => warn(`\`onError\` of the partition ${JSON.stringify(name)} itself failed.`, ownError),
    )
  }
}
