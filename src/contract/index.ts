/**
 * What a store of your own implements. See [Testing](../../docs/testing.md).
 *
 * @module
 */
export type {
  AcquireAnswer,
  Answer,
  EvictRequest,
  Gone,
  Granted,
  HolderView,
  InspectRequest,
  LocalQueue,
  LocalWaiter,
  ReleaseAnswer,
  ReleaseRequest,
  RenewAnswer,
  RoomPage,
  RoomView,
  Store,
  Ticket,
  WaiterView,
  Wake,
} from './store.ts'
export { TOMBSTONE_MS, UNLIMITED } from './store.ts'
