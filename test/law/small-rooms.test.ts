import { describe, expect, test } from 'vitest'
import * as law from '../../src/law/room.ts'
import { exploreRoom, smallRooms } from './small-rooms.ts'

// From every room that can be reached, every call and every step of time: nothing is left out but longer casts.
describe('whatever happens to three tickets keeps the rules, if they are', () => {
  test.each(Object.entries(smallRooms))('%s', (_, cast) => {
    expect(exploreRoom(law, cast)).toBeGreaterThan(1_500)
  })
})
