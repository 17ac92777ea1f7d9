import { expect, test } from 'vitest'
import { EtcdRoom } from '../../../src/stores/etcd/rooms/room.ts'
import { EvictionWatch } from '../../../src/stores/etcd/session/eviction-watch.ts'
import type { OwnTicket } from '../../../src/stores/etcd/session/own-ticket.ts'
import { FakeClock } from '../../engine/fake-clock.ts'
import { ownTicket } from './own.ts'

test('a burst of holders has a thousand rooms read at most, and each of them once', async () => {
  const clock = new FakeClock()
  const tickets = new Map<string, OwnTicket>()
  const watched = new Map<string, EtcdRoom>()
  const reads: string[] = []
  let failures = 10
  const watch = new EvictionWatch({
    clock,
    tickets,
    isHeard: () => true,
    onWatched() {},
    rooms: {
      get: (key) => watched.get(key),
      get size() {
        return watched.size
      },
      async read(key) {
        reads.push(key)
        await new Promise<void>((resolve) => clock.startTimer(100, resolve))
        failures -= 1
        if (failures >= 0) throw new Error('etcd does not answer')
        const room = new EtcdRoom(key)
        watched.set(key, room)
        return room
      },
    },
  })
  for (let number = 0; number < 3000; number += 1) {
    const own = ownTicket({ key: `key ${Math.floor(number / 2)}`, limit: 2 }, clock.monotonicMs())
    own.offered(clock.monotonicMs(), 1000)
    own.confirmed(own.ticket, clock.monotonicMs())
    tickets.set(own.ticket.id, own)
    watch.look(own)
  }
  await clock.advance(1000)
  expect(reads).toHaveLength(1000)
  expect(new Set(reads).size).toBe(1000)
  expect(watched.size).toBe(990)
  // Those that failed are tried again.
  await clock.advance(20_000)
  expect(reads).toHaveLength(1010)
  expect(watched.size).toBe(1000)
  watch.close()
})
