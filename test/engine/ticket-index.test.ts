import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { nextTicketId } from '../../src/engine/ids.ts'
import { type Indexed, TicketIndex } from '../../src/engine/ticket-index.ts'

function entryOf(id: string): Indexed {
  return { ticket: { id } }
}

describe('an index of tickets', () => {
  test('finds what a Map finds, whatever comes and goes', () => {
    // Few ids, of which many share their hash: only the last eight characters count.
    const id = fc.tuple(fc.constantFrom('', 'a', 'b'), fc.nat(90)).map(([start, n]) => `${start}00000000${n}`)
    const step = fc.record({ verb: fc.constantFrom('add', 'add', 'remove', 'remove a stranger'), id })
    fc.assert(
      fc.property(fc.array(step, { maxLength: 600 }), (steps) => {
        const index = new TicketIndex<Indexed>()
        const map = new Map<string, Indexed>()
        for (const { verb, id } of steps) {
          const known = map.get(id)
          if (verb === 'remove a stranger') index.remove(entryOf(id))
          else if (verb === 'remove') {
            if (known !== undefined) index.remove(known)
            map.delete(id)
          } else {
            const entry = entryOf(id)
            index.add(entry)
            map.set(id, entry)
          }
          expect(index.size).toBe(map.size)
          expect(index.find(id)).toBe(map.get(id))
        }
        for (const [id, entry] of map) expect(index.find(id)).toBe(entry)
      }),
    )
  })

  test('grows and shrinks with a hundred thousand ids of a process', () => {
    const index = new TicketIndex<Indexed>()
    const entries = Array.from({ length: 100_000 }, () => entryOf(nextTicketId()))
    for (const entry of entries) index.add(entry)
    expect(index.size).toBe(entries.length)
    expect(entries.every((entry) => index.find(entry.ticket.id) === entry)).toBe(true)
    const [kept, ...left] = entries
    for (const entry of left) index.remove(entry)
    expect(index.size).toBe(1)
    expect(index.find(kept?.ticket.id ?? '')).toBe(kept)
    expect(left.some((entry) => index.find(entry.ticket.id) !== undefined)).toBe(false)
  })

  test('keeps an entry when another one with its id leaves', () => {
    const index = new TicketIndex<Indexed>()
    const [before, after] = [entryOf('same'), entryOf('same')]
    index.add(before)
    index.add(after)
    index.remove(before)
    expect(index.find('same')).toBe(after)
    expect(index.size).toBe(1)
  })

  test('loses time, but not much, with five thousand ids that all end alike', () => {
    const index = new TicketIndex<Indexed>()
    const entries = Array.from({ length: 5000 }, (_, n) => entryOf(`${n}-the same end`))
    for (const entry of entries) index.add(entry)
    for (const entry of entries) {
      expect(index.find(entry.ticket.id)).toBe(entry)
      index.remove(entry)
    }
    expect(index.size).toBe(0)
  })
})
