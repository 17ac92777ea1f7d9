import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Roster } from '../../src/law/roster.ts'

describe('a roster', () => {
  it('holds what a Map would hold, in the same order, whatever is done to the roster', () => {
    const ids = fc.integer({ min: 0, max: 30 }).map(String)
    const step = fc.oneof(
      fc.tuple(fc.constant('set' as const), ids),
      fc.tuple(fc.constant('delete' as const), ids),
    )
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const roster = new Roster<number>()
        const map = new Map<string, number>()
        for (const [turn, [verb, id]] of steps.entries()) {
          if (verb === 'delete') expect(roster.delete(id)).toBe(map.delete(id))
          else {
            roster.set(id, turn)
            map.set(id, turn)
          }
          expect(roster.size).toBe(map.size)
          expect([...roster]).toEqual([...map])
        }
        for (let id = 0; id <= 30; id += 1) {
          expect(roster.get(String(id))).toBe(map.get(String(id)))
          expect(roster.has(String(id))).toBe(map.has(String(id)))
        }
        expect([...roster.keys()]).toEqual([...map.keys()])
        expect([...roster.values()]).toEqual([...map.values()])
      }),
    )
  })

  it('goes on when the entry that was visited last is deleted, and gives entries that were added meanwhile', () => {
    const roster = new Roster<string>()
    for (const id of ['a', 'b', 'c']) roster.set(id, id)
    const visited: string[] = []
    for (const [id] of roster) {
      visited.push(id)
      roster.delete(id)
      if (id === 'b') roster.set('d', 'd')
    }
    expect(visited).toEqual(['a', 'b', 'c', 'd'])
    expect([...roster]).toEqual([])
  })
})
