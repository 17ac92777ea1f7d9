import { describe, expect, test } from 'vitest'
import * as law from '../../src/law/room.ts'
import { exploreRoom, smallRooms } from './small-rooms.ts'

describe('every sequence of six calls keeps the rules, among', () => {
  test.each(Object.entries(smallRooms))('%s', { timeout: 60_000 }, (_, cast) => {
    expect(exploreRoom(law, cast, 6)).toBeGreaterThan(10_000)
  })
})
