export type {
  AcquireAnswer,
  Answer,
  EvictRequest,
  Gone,
  HolderView,
  InspectRequest,
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
