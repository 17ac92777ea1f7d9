/**
 * Keys divided among the processes that are alive. See [Partition](../../docs/partition.md).
 *
 * @module
 */
export type { PartitionDoing } from './failure-warnings.ts'
export type {
  AnyKey,
  KeyPartitionOptions,
  NumberedPartitionOptions,
  PartitionTerm,
  PartitionWork,
  StartedTerm,
  StoppedTerm,
} from './options.ts'
export type { PartitionChange } from './own-share.ts'
export {
  createPartition,
  type KeyPartition,
  type NumberedPartition,
  type PartitionMember,
} from './partition.ts'
export { type PartitionEvent, type PartitionEvents, partitionEvents } from './partition-events.ts'
