import { beforeEach, expect, test } from 'vitest'
import type { Ticket } from '../../../src/contract/store.ts'
import type { Operation } from '../../../src/stores/etcd/grpc/messages.ts'
import { EtcdRoom } from '../../../src/stores/etcd/rooms/room.ts'
import { ticketValue } from '../../../src/stores/etcd/rooms/room-entry.ts'
import type { OwnTicket } from '../../../src/stores/etcd/session/own-ticket.ts'
import { TicketTimers } from '../../../src/stores/etcd/session/ticket-timers.ts'
import { FakeClock } from '../../engine/fake-clock.ts'
import { ownTicket } from './own.ts'

let clock: FakeClock
let timers: TicketTimers
let room: EtcdRoom
let tickets: Map<string, OwnTicket>
/** The writes that ended each ticket. `withoutMinHold`: the tickets whose minimum hold was over. */
let ended: { readonly own: OwnTicket; readonly atMs: number; readonly apply: readonly Operation[] }[]
let withoutMinHold: OwnTicket[]
/** How many more requests etcd leaves without an answer. */
let failures: number

beforeEach(() => {
  clock = new FakeClock()
  room = new EtcdRoom('k')
  tickets = new Map()
  ended = []
  withoutMinHold = []
  failures = 0
  timers = new TicketTimers({
    clock,
    tickets,
    roomOf: () => room,
    delays: {
      operation: async (key, id, ms) => ({ tag: 'put', key: `${key} !${id}`, value: String(ms), lease: 1 }),
      begin() {},
    },
    keys: {
      async change(own, plan) {
        failures -= 1
        if (failures >= 0) throw new Error('etcd does not answer')
        ended.push({ own, atMs: clock.monotonicMs(), apply: plan(0).apply })
        return { revision: 1, succeeded: true, ranges: [] }
      },
    },
    onExpired(own) {
      own.forgotten()
      tickets.delete(own.ticket.id)
      room.delete(own.ticket.id)
    },
    onMinHoldOver(own) {
      own.minHoldOver()
      withoutMinHold.push(own)
    },
  })
})

function enter(draft: Partial<Ticket> = {}): OwnTicket {
  const own = ownTicket(
    { key: 'k', ttlMs: 1000, acceptMs: 300, patienceMs: 600, ...draft },
    clock.monotonicMs(),
  )
  const { ticket, name, createRevision, binding } = own
  const { key, id } = ticket
  const value = ticketValue(ticket, { at: 0 })
  room.put({ name, key, id, createRevision, modRevision: createRevision, lease: binding.lease.id, value })
  tickets.set(id, own)
  timers.look(own)
  return own
}

function hold(own: OwnTicket): void {
  if (own.state.tag === 'waiting') own.offered(clock.monotonicMs(), own.ticket.ttlMs)
  own.confirmed(own.ticket, clock.monotonicMs())
  timers.look(own)
}

test('a holder is ended when its ttl is over, and not while it renews', async () => {
  const own = enter()
  hold(own)
  for (let round = 0; round < 5; round += 1) {
    await clock.advance(900)
    hold(own)
  }
  expect(ended).toEqual([])
  const from = clock.monotonicMs()
  await clock.advance(999)
  expect(ended).toEqual([])
  await clock.advance(1)
  expect(ended).toEqual([{ own, atMs: from + 1000, apply: [{ tag: 'delete', key: own.name }] }])
})

test('a holder with a lock-delay closes its room for what is left of it, an offer does not', async () => {
  const [own, offered] = [enter({ lockDelayMs: 500, limit: 2 }), enter({ lockDelayMs: 500, limit: 2 })]
  hold(own)
  offered.offered(clock.monotonicMs(), 300)
  timers.look(offered)
  await clock.advance(1000)
  expect(ended.map(({ apply }) => apply)).toEqual([
    [{ tag: 'delete', key: offered.name }],
    [
      { tag: 'delete', key: own.name },
      { tag: 'put', key: `k !${own.ticket.id}`, value: '500', lease: 1 },
    ],
  ])
})

test('an offer that nobody takes ends with its acceptance term, and takes silent waiters right behind it along', async () => {
  const [holder, silent, heard, behind] = [enter(), enter(), enter(), enter()]
  await clock.advance(400)
  heard.heard(heard.ticket, clock.monotonicMs())
  holder.offered(clock.monotonicMs(), 300)
  timers.look(holder)
  await clock.advance(250)
  heard.heard(heard.ticket, clock.monotonicMs())
  await clock.advance(50)
  expect(ended.map(({ own }) => own)).toEqual([silent, holder])
  expect(behind.state.tag).toBe('waiting')
})

test('a waiter that is silent is forgotten some seconds after it would be passed over', async () => {
  const own = enter()
  await clock.advance(5599)
  expect(ended).toEqual([])
  await clock.advance(1)
  expect(ended.map((one) => one.own)).toEqual([own])
})

test('the end of a minimum hold is told once, and of a ticket that leaves it is the end', async () => {
  const [own, leaving] = [enter({ minHoldMs: 400, limit: 2 }), enter({ minHoldMs: 400, limit: 2 })]
  for (const one of [own, leaving]) {
    one.bound({ ...one.binding, isForMinHold: true })
    hold(one)
  }
  leaving.left()
  timers.look(leaving)
  await clock.advance(999)
  expect(withoutMinHold).toEqual([own])
  expect(ended.map((one) => one.own)).toEqual([leaving])
  await clock.advance(1)
  expect(ended.map((one) => one.own)).toEqual([leaving, own])
})

test('an etcd that does not answer is asked again until it does, and once for all who want the end of a ticket', async () => {
  const own = enter()
  hold(own)
  failures = 5
  await clock.advance(1000)
  const ends = [timers.expire(own), timers.expire(own)]
  expect(own.state.tag).toBe('ending')
  await clock.until(Promise.all(ends))
  expect(ended.map((one) => one.own)).toEqual([own])
  expect(own.state.tag).toBe('forgotten')
  await timers.expire(own)
  expect(ended).toHaveLength(1)
})

test('clearing a room ends those at its front whose time is over, and waits for those that are being ended', async () => {
  const [own, waiter] = [enter(), enter()]
  hold(own)
  expect(timers.expireFront(room)).toBeUndefined()
  await clock.advance(900)
  failures = 1
  await clock.advance(100)
  const clearing = timers.expireFront(room)
  expect(clearing).toBeDefined()
  await clock.until(clearing as Promise<void>)
  expect(timers.expireFront(room)).toBeUndefined()
  expect(waiter.state.tag).toBe('waiting')
})

test('once closed, nothing is asked any more', async () => {
  hold(enter())
  timers.close()
  await clock.advance(60_000)
  expect(ended).toEqual([])
  expect(clock.timers.running).toBe(0)
})
