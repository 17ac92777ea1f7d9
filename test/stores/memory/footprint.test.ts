import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { describe, expect, test } from 'vitest'
import { type RoomView, type Store, type Ticket, UNLIMITED } from '../../../src/contract/store.ts'
import type { StoreTime } from '../../../src/law/room.ts'
import { memoryStore } from '../../../src/stores/memory/index.ts'

const BYTES_OF_AN_EMPTY_ROOM = 200

setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc') as () => void

describe('the memory store leaves nothing behind', () => {
  test('of a million keys that were taken and released', async () => {
    const store = memoryStore()
    const before = heap()
    for (let index = 0; index < 1_000_000; index += 1) {
      visit(store, ticketOf(`key ${index}`))
    }
    expect(heap() - before).toBeLessThan(1_000_000)
    expect(store.inspect({ prefix: '', cursor: undefined, count: 10 })).toEqual({
      rooms: [],
      next: undefined,
    })
  })

  test('of a hundred thousand holders that were never heard of again', async () => {
    const { store, pass } = storeWithTime()
    const before = heap()
    for (let index = 0; index < 100_000; index += 1) void store.acquire(ticketOf(`abandoned ${index}`))
    expect(heap() - before).toBeGreaterThan(100_000 * BYTES_OF_AN_EMPTY_ROOM)
    pass(60_000)
    useOtherKeys(store, 60_000)
    expect(heap() - before).toBeLessThan(1_000_000)
    expect(await roomsOf(store)).toEqual([])
  })

  test('of a hundred thousand keys whose holder and waiter were never heard of again', async () => {
    const { store, pass } = storeWithTime()
    const before = heap()
    for (let index = 0; index < 100_000; index += 1) {
      void store.acquire(ticketOf(`abandoned ${index}`))
      void store.acquire({ ...ticketOf(`abandoned ${index}`), patienceMs: 6000 })
    }
    expect(heap() - before).toBeGreaterThan(100_000 * BYTES_OF_AN_EMPTY_ROOM)
    pass(660_000)
    useOtherKeys(store, 60_000)
    expect(heap() - before).toBeLessThan(1_000_000)
    expect(await roomsOf(store)).toEqual([])
  })

  test('of a hundred thousand tombstones whose time is over', async () => {
    const { store, pass } = storeWithTime()
    const before = heap()
    for (let index = 0; index < 100_000; index += 1) {
      const { key, id } = ticketOf(`cancelled ${index}`)
      void store.release({ key, id, cancel: true })
    }
    expect(heap() - before).toBeGreaterThan(100_000 * BYTES_OF_AN_EMPTY_ROOM)
    pass(60_000)
    useOtherKeys(store, 60_000)
    expect(heap() - before).toBeLessThan(1_000_000)
    expect(await roomsOf(store)).toEqual([])
  })

  test('of a hundred thousand waiters that came and went on one key', async () => {
    const store = memoryStore()
    const holder = ticketOf('key')
    void store.acquire(holder)
    const before = heap()
    for (let index = 0; index < 100_000; index += 1) {
      visit(store, ticketOf('key'))
    }
    for (let index = 0; index < 100_000; index += 1) {
      visit(store, { ...ticketOf('shared'), limit: UNLIMITED })
    }
    expect(heap() - before).toBeLessThan(1_000_000)
    await store.release({ key: holder.key, id: holder.id, cancel: false })
    expect(await roomsOf(store)).toEqual([])
  })
})

let tickets = 0

function ticketOf(key: string): Ticket {
  tickets += 1
  return {
    key,
    id: `${tickets}`,
    units: 1,
    limit: 1,
    ttlMs: 30_000,
    acceptMs: 2_000,
    patienceMs: 30_000,
    minHoldMs: 0,
    lockDelayMs: 0,
    owner: '{}',
  }
}

function storeWithTime() {
  let ms = 1_000_000
  const now = (): StoreTime => ({ ms, us: ms * 1000 })
  return {
    store: memoryStore({ now }),
    pass: (by: number) => {
      ms += by
    },
  }
}

/** The call also keeps the store from being collected before the heap is measured. */
async function roomsOf(store: Store): Promise<readonly RoomView[]> {
  const { rooms } = await store.inspect({ prefix: '', cursor: undefined, count: 10 })
  return rooms
}

/** Visits other keys. Each visit also checks two old rooms. */
function useOtherKeys(store: Store, count: number): void {
  for (let index = 0; index < count; index += 1) {
    visit(store, ticketOf(`other ${index}`))
  }
}

/** Takes and releases a key. The memory store answers at once. */
function visit(store: Store, ticket: Ticket): void {
  void store.acquire(ticket)
  void store.release({ key: ticket.key, id: ticket.id, cancel: false })
}

function heap(): number {
  collectGarbage()
  return process.memoryUsage().heapUsed
}
