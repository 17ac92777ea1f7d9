import { expect, test } from 'vitest'
import { GroupTurns, type Place } from '../../src/queue/turns.ts'

function join(turns: GroupTurns<string>, item: string, group: string | undefined): Place<string> {
  return turns.join(item, group)
}

test('a group has one turn at a time, and goes to the back of the round after it', () => {
  const turns = new GroupTurns<string>()
  const places = new Map(['a1', 'a2', 'b1'].map((item) => [item, join(turns, item, item[0])]))
  const end = (item: string) => turns.end(places.get(item) as Place<string>)
  expect([turns.begin(), turns.begin(), turns.begin()]).toEqual(['a1', 'b1', undefined])
  expect(turns.size).toBe(1)
  end('a1')
  expect(turns.begin()).toBe('a2')
  end('b1')
  end('a2')
  expect(turns.begin()).toBeUndefined()
})

test('items without a group do not wait for one another', () => {
  const turns = new GroupTurns<string>()
  join(turns, 'x', undefined)
  join(turns, 'y', undefined)
  expect([turns.begin(), turns.begin()]).toEqual(['x', 'y'])
})

test('nothing is left of a group when its last item ended its turn or left', () => {
  const turns = new GroupTurns<string>()
  const ends = join(turns, 'ends', 'a')
  const leaves = join(turns, 'leaves', 'a')
  turns.begin()
  turns.leave(leaves)
  expect(turns.isFree('a')).toBe(false)
  turns.end(ends)
  expect(turns.isFree('a')).toBe(true)

  turns.leave(join(turns, 'leaves before its turn', 'b'))
  expect({ free: turns.isFree('b'), size: turns.size, next: turns.begin() }).toEqual({
    free: true,
    size: 0,
    next: undefined,
  })
})

test.each([
  ['first', 0, ['2', '3']],
  ['middle', 1, ['1', '3']],
  ['last', 2, ['1', '2']],
])('when the %s of three leaves, the others keep their order', (_, index, rest) => {
  const turns = new GroupTurns<string>()
  const places = ['1', '2', '3'].map((item) => join(turns, item, 'a'))
  turns.leave(places[index] as Place<string>)
  const later = join(turns, '4', 'a')
  const order: string[] = []
  for (let item = turns.begin(); item !== undefined; item = turns.begin()) {
    order.push(item)
    turns.end(later)
  }
  expect(order).toEqual([...rest, '4'])
})
