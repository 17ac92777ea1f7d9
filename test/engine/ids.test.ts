import { expect, test } from 'vitest'
import { idStartOf, nextTicketId } from '../../src/engine/ids.ts'

test('no id begins with a hyphen, which the command line would take for an option', () => {
  const first = Array.from(
    { length: 256 },
    (_, byte) => idStartOf(Buffer.from([byte, ...Array(11).fill(255)]))[0],
  )
  expect(new Set(first).size).toBe(63)
  expect(first).not.toContain('-')
})

test('ids are unique', () => {
  expect(new Set(Array.from({ length: 10_000 }, nextTicketId)).size).toBe(10_000)
})
