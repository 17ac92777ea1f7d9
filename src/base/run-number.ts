import { processWide } from './process-wide.ts'

/**
 * A number that no other run of this process has. The begin and the end of a run tell it, because ids, keys and fences may be the same in
 * two stores or databases. Two copies of this library share the numbers, as they share the listeners.
 */
export function nextRunNumber(): number {
  numbers.last += 1
  return numbers.last
}

const numbers = processWide('numbers of runs', () => ({ last: 0 }))
