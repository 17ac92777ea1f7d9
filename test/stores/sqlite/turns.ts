import { expect } from 'vitest'

/**
 * The number of turns in a record, whose lines are `enter FENCE PID` and `leave FENCE PID`. Expects rising fences, and that
 * each process leaves before the next one enters.
 */
export function turnsIn(record: readonly string[], killed: ReadonlySet<string>): number {
  let inside: { fence: bigint; pid: string } | undefined
  let last = 0n
  let turns = 0
  for (const line of record) {
    const [verb, number = '', pid = ''] = line.split(' ')
    const fence = BigInt(number)
    if (verb === 'enter') {
      // Only a process that was killed while it held the key may have written no line for its end.
      if (inside !== undefined) expect(killed).toContain(inside.pid)
      expect(fence).toBeGreaterThan(last)
      inside = { fence, pid }
      last = fence
      turns += 1
    } else {
      expect({ fence, pid }).toEqual(inside)
      inside = undefined
    }
  }
  return turns
}
