export type {
  AcquireAnswer,
  Answer,
  EvictRequest,
  Gone,
  InspectRequest,
  ReleaseAnswer,
  ReleaseRequest,
  RenewAnswer,
  RoomPage,
  Store,
  Ticket,
  Wake,
} from './store.ts'
export { TOMBSTONE_MS, UNLIMITED } from './store.ts'
