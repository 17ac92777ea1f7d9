import { describe, expect, test } from 'vitest'
import type { OwnTicket, TicketState } from '../../../src/stores/etcd/session/own-ticket.ts'
import { ownTicket } from './own.ts'

type Tag = TicketState['tag']

const DRAFT = { ttlMs: 1000, acceptMs: 300, patienceMs: 600, minHoldMs: 5000 }

/** A ticket that came at 0, and has been in this state since 100. */
function inState(tag: Tag): OwnTicket {
  const own = ownTicket(DRAFT, 0)
  if (tag === 'waiting') return own
  if (tag === 'ending') own.expired(Promise.resolve())
  else if (tag === 'forgotten') own.forgotten()
  else {
    own.offered(100, 300)
    if (tag !== 'offered') own.confirmed(own.ticket, 100)
    if (tag === 'leaving') own.left()
  }
  return own
}

const STATES: readonly Tag[] = ['waiting', 'offered', 'held', 'leaving', 'ending', 'forgotten']

const METHODS: Readonly<Record<string, readonly [from: readonly Tag[], call: (own: OwnTicket) => void]>> = {
  heard: [['waiting'], (own) => own.heard(own.ticket, 200)],
  waits: [['waiting'], (own) => own.waits(own.ticket)],
  offered: [['waiting'], (own) => own.offered(200, 300)],
  confirmed: [['offered', 'held'], (own) => own.confirmed(own.ticket, 200)],
  renewed: [['held'], (own) => own.renewed(1000, 200)],
  minHoldOver: [['held'], (own) => own.minHoldOver()],
  left: [['held'], (own) => own.left()],
  expired: [['waiting', 'offered', 'held', 'leaving'], (own) => own.expired(Promise.resolve())],
  forgotten: [['waiting', 'offered', 'held', 'leaving', 'ending'], (own) => own.forgotten()],
}

describe.each(Object.entries(METHODS))('%s', (_, [from, call]) => {
  test.each(STATES)('of a ticket that is %s', (tag) => {
    const own = inState(tag)
    expect(own.state.tag).toBe(tag)
    if (from.includes(tag)) call(own)
    else {
      const before = own.state
      expect(() => call(own)).toThrow('This cannot be')
      expect(own.state).toBe(before)
    }
  })
})

test('a waiter is remembered anew each time it asks', () => {
  const own = inState('waiting')
  own.heard(own.ticket, 250)
  expect(own.state).toEqual({ tag: 'waiting', heardAt: 250, rememberedUntil: 850 })
})

test('a ttl counts from the last request, never gets shorter, and does not end before the minimum hold', () => {
  const own = inState('offered')
  own.confirmed(own.ticket, 200)
  expect(own.state).toEqual({ tag: 'held', since: 200, until: 1200, minHoldUntil: 5200 })
  own.confirmed({ ...own.ticket, ttlMs: 10 }, 300)
  expect(own.state).toMatchObject({ since: 200, until: 1200, minHoldUntil: 5200 })
  own.renewed(1000, 300)
  expect(own.state).toMatchObject({ until: 5200 })
  own.renewed(9000, 400)
  expect(own.state).toMatchObject({ until: 9400 })
})

test('a ticket that was released early leaves at the end of its minimum hold', () => {
  expect(inState('leaving').state).toEqual({ tag: 'leaving', since: 100, until: 5100 })
})

test('of two writes of its key the later one counts, in whichever order they are heard of', () => {
  const own = inState('held')
  const { binding } = own
  expect(own.bound({ ...binding, revision: binding.revision + 2, isForMinHold: true })).toBe(true)
  expect(own.bound({ ...binding, revision: binding.revision + 1 })).toBe(false)
  expect(own.binding).toMatchObject({ revision: binding.revision + 2, isForMinHold: true })
})

test('it has an open request until the last one is answered, also when one fails', async () => {
  const own = inState('waiting')
  let fail: (error: Error) => void = () => {}
  const failing = new Promise<void>((_, reject) => {
    fail = reject
  })
  const first = own.during(() => failing)
  await own.during(async () => {})
  expect(own.hasOpenRequest).toBe(true)
  fail(new Error('no answer'))
  await expect(first).rejects.toThrow('no answer')
  expect(own.hasOpenRequest).toBe(false)
})
