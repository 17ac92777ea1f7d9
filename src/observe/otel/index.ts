export type { GroupOptions } from '../key-groups.ts'
export { type InstrumentOptions, instrumentLocks } from './instrument-locks.ts'
export { leaseContext } from './spans.ts'
