export type { GroupOptions } from '../key-groups.ts'
export { type MeasureOptions, measureLocks } from './measure-locks.ts'
