import { describe, expect, test } from 'vitest'
import * as law from '../../src/law/room.ts'
import { exploreRoom, smallRooms } from './small-rooms.ts'

// Tries every call and every step of time from every room that can be reached. Only larger casts are left out.
describe('whatever happens to three tickets keeps the rules, if the tickets are', () => {
  test.each(Object.entries(smallRooms))('%s', (_, cast) => {
    expect(exploreRoom(law, cast)).toBeGreaterThan(1_500)
  })
})
