export { openLocks } from '../open-locks.ts'
export { take } from '../take.ts'
export { whyBusy } from '../why-busy.ts'
