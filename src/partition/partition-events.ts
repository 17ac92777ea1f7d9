import { makeTopics, type TopicEvents, type Topics } from '../base/topics.ts'
import type { StopReason } from '../worker/index.ts'
import type { AnyKey } from './options.ts'

/** The events of partitions in this process, by name. See [Metrics of work](../../docs/metrics-work.md). */
export interface PartitionEvents {
  /** This process has computed its share. */
  readonly shared: PartitionEvent<'shared'> & {
    /** The same number in all of these events of one partition object, and in its `left`. No other run of this process has it. */
    readonly run: number
    /** How many keys this process is to have. */
    readonly share: number
    /** How many keys there are. */
    readonly keys: number
    /** How many processes take part. */
    readonly members: number
  }
  /** This process takes part no more, because the partition was stopped or its locks were closed. */
  readonly left: PartitionEvent<'left'> & {
    /** The same number as in each `shared` before. */
    readonly run: number
  }
  /** The work on a key has started here. */
  readonly taken: PartitionEvent<'taken'> & {
    readonly key: AnyKey
    /** The fence of the key. */
    readonly fence: bigint
    /** The same number at the end of this work. No other run of this process has it. */
    readonly run: number
  }
  /** The work on a key has ended here. */
  readonly given: PartitionEvent<'given'> & {
    readonly key: AnyKey
    /** The fence of the key. */
    readonly fence: bigint
    /** The same number as when this work started. */
    readonly run: number
    /** As `stop` got it. */
    readonly reason: StopReason
  }
}

/** What each of these events tells. */
export interface PartitionEvent<Name extends string> {
  /** The name of the event. */
  readonly event: Name
  /** When, by this process's clock, in milliseconds since 1970. */
  readonly at: number
  /** The name of the partition. */
  readonly name: string
}

const made: { readonly topics: Topics<PartitionEvents>; readonly events: TopicEvents<PartitionEvents> } =
  makeTopics<PartitionEvents>('partition', ['shared', 'left', 'taken', 'given'])

export const partitionTopics: Topics<PartitionEvents> = made.topics

/** The events of all partitions of this process. Without a listener they cost nothing. */
export const partitionEvents: TopicEvents<PartitionEvents> = made.events
