import assert from 'node:assert/strict'
import type { AcquireAnswer, ReleaseAnswer, RenewAnswer, Ticket } from '../../src/contract/store.ts'
import { mayStandTogether } from '../../src/law/law.ts'
import { type Observation, REASON, type WaiterThen } from './observation.ts'

/**
 * The rules that every step has to keep. They come from the sentences of the design and of the contract, and not from
 * the code of the law. The law says how, a rule says what.
 */
export const rules: Readonly<Record<string, (step: Observation) => void>> = {
  'holders stand together only while the law allows it'({ after, ms }) {
    const standing = [...after.holders.values()].filter(({ expiresAt }) => expiresAt > ms)
    assert.ok(mayStandTogether(standing.map(({ ticket }) => ticket)))
  },

  'no ticket that may hold is left waiting, and no forgotten ticket stands in front'({ action, after, ms }) {
    const [head] = after.queue.values()
    if (head === undefined || action.verb === 'idle') return
    const tickets = [...after.holders.values()].map(({ ticket }) => ticket)
    assert.ok(after.closedUntil > ms || !mayStandTogether([...tickets, head.ticket]), 'the head may hold')
    // A waiter that asks with a patience of 0 does not want to wait any more, and is forgotten.
    assert.ok(head.rememberedUntil > ms, 'the head is forgotten')
  },

  'tickets are admitted in order of arrival'(step) {
    const { action, admitted, before, after, ms, asking } = step
    const entered = new Set(admitted.map(({ ticket }) => ticket.id))
    const passedOver = (id: string): boolean => {
      const waiter = before.queue.get(id)
      if (waiter === undefined || entered.has(id) || isRemovedBy(action, id)) return false
      return id === asking?.id || (waiter.rememberedUntil > ms && !lapsedWith(step, waiter))
    }
    const order = [...before.queue.keys()]
    for (const { ticket } of admitted) {
      const place = order.includes(ticket.id) ? order.indexOf(ticket.id) : order.length
      assert.deepEqual(order.slice(0, place).filter(passedOver), [], `overtaken by ${ticket.id}`)
    }
    const fromQueue = admitted.map(({ ticket }) => ticket.id).filter((id) => before.queue.has(id))
    assert.deepEqual(
      fromQueue,
      order.filter((id) => entered.has(id)),
      'in order of their fences',
    )
    const staying = order.filter((id) => after.queue.has(id))
    assert.deepEqual([...after.queue.keys()].slice(0, staying.length), staying, 'the queue keeps its order')
  },

  'a ticket leaves the queue when it is admitted, removed, forgotten, or silent while an offer lapsed'(step) {
    const { action, admitted, before, after, ms, asking } = step
    const entered = new Set(admitted.map(({ ticket }) => ticket.id))
    let inFront = true
    for (const [id, waiter] of before.queue) {
      const lapsed: boolean = inFront && lapsedWith(step, waiter)
      inFront = lapsed && id !== asking?.id
      if (after.queue.has(id) || entered.has(id) || isRemovedBy(action, id)) continue
      assert.ok(waiter.rememberedUntil <= ms || lapsed, `${id} was lost`)
      assert.notEqual(id, asking?.id, `${id} asked and was lost`)
    }
  },

  'an offer that lapses takes along the silent waiters right behind it'(step) {
    const { action, admitted, before, after, asking } = step
    if (action.verb === 'idle') return
    const entered = new Set(admitted.map(({ ticket }) => ticket.id))
    for (const [id, waiter] of before.queue) {
      if (id === asking?.id || isRemovedBy(action, id) || !lapsedWith(step, waiter)) return
      assert.ok(!entered.has(id) && !after.queue.has(id), `${id} kept its place`)
    }
  },

  'only an acquire queues, and only the ticket that asks and waits'({ action, before, after, asking }) {
    const added = [...after.queue.keys()].filter((id) => !before.queue.has(id))
    const mayQueue = action.verb === 'acquire' && asking !== undefined && asking.patienceMs > 0
    assert.deepEqual(
      added.filter((id) => !mayQueue || id !== asking.id),
      [],
    )
    for (const id of after.queue.keys()) assert.ok(!after.holders.has(id), `${id} holds and waits`)
  },

  'a ticket enters by being admitted from the queue or by an acquire of its own'({
    action,
    admitted,
    before,
  }) {
    for (const { ticket } of admitted) {
      const asks = action.verb === 'acquire' && `${action.who}` === ticket.id
      assert.ok(asks || before.queue.has(ticket.id), `${ticket.id} came from nowhere`)
    }
  },

  'fences rise and are not below the time in µs, and a hold has one for all its life'(step) {
    let last = step.highestFence
    for (const { fence } of step.admitted) {
      assert.ok(fence > last && fence >= step.ms * 1000, `${fence} after ${last} at ${step.ms} ms`)
      last = fence
    }
  },

  'an expired ticket is gone with the next call, and no ticket goes earlier'({
    action,
    before,
    after,
    ms,
    expired,
  }) {
    // While a ticket waits, `idle` answers without settling the room.
    if (action.verb === 'idle' && before.queue.size > 0) return
    for (const { ticket, fence } of expired) assert.notEqual(after.holders.get(ticket.id)?.fence, fence)
    if (action.verb === 'idle') return
    for (const [id, holder] of before.holders) {
      if (holder.expiresAt <= ms || isRemovedBy(action, id)) continue
      assert.equal(after.holders.get(id)?.fence, holder.fence, `${id} was lost`)
    }
  },

  'an offer lasts for the acceptance term, a lease by message for its ttl, and only the asker is touched'(
    step,
  ) {
    const { action, admitted, before, after, ms } = step
    const actor = 'who' in action && action.who !== undefined ? `${action.who}` : undefined
    for (const { ticket, state, expiresAt } of admitted) {
      if (ticket.id === actor && action.verb !== 'evict') continue
      const expected = hasLease(step, ticket)
        ? ['held', ms + ticket.ttlMs]
        : ['offered', ms + ticket.acceptMs]
      assert.deepEqual([state, expiresAt], expected, ticket.id)
    }
    for (const [id, holder] of before.holders) {
      if (id === actor || holder.expiresAt <= ms || !after.holders.has(id)) continue
      const { state, expiresAt, holdUntil } = after.holders.get(id) ?? holder
      assert.deepEqual([state, expiresAt, holdUntil], [holder.state, holder.expiresAt, holder.holdUntil], id)
    }
  },

  'a holder that asks is confirmed for its full ttl, and for its minimum hold'(step) {
    const { asking, after, before, ms } = step
    const holder = asking && after.holders.get(asking.id)
    if (holder === undefined || asking === undefined || holder.state === 'leaving') return
    const earlier = [...before.holders.values()].find(({ fence }) => fence === holder.fence)
    const minimum = asking.minHoldMs === 0 ? 0 : ms + asking.minHoldMs
    const holdUntil = earlier?.state === 'held' ? earlier.holdUntil : minimum
    assert.equal(holder.state, 'held')
    assert.equal(holder.holdUntil, holdUntil)
    // A request with a shorter ttl may be late, so it does not take back an earlier promise. An offer is a promise,
    // too.
    const promised = earlier?.expiresAt ?? ms + asking.acceptMs
    assert.equal(holder.expiresAt, Math.max(ms + asking.ttlMs, holdUntil, promised))
  },

  'a waiter that asks is remembered for its full patience'({ asking, after, ms }) {
    const waiter = asking && after.queue.get(asking.id)
    if (waiter === undefined || asking === undefined) return
    assert.deepEqual([waiter.heardAt, waiter.rememberedUntil], [ms, ms + asking.patienceMs])
  },

  'a release ends the hold, or leaves it to the end of the minimum hold'({ action, before, after, ms }) {
    if (action.verb !== 'release') return
    const id = `${action.who}`
    assert.ok(!after.queue.has(id), 'still queued')
    const [holder, left] = [before.holders.get(id), after.holders.get(id)]
    const bound = holder !== undefined && holder.expiresAt > ms && holder.holdUntil > ms
    if (bound) assert.deepEqual([left?.state, left?.expiresAt], ['leaving', holder.holdUntil])
    else assert.equal(left, undefined)
  },

  'a release says what the ticket was'(step) {
    const { action, before, answer, expired, ms } = step
    if (action.verb !== 'release') return
    const { was } = answer as ReleaseAnswer
    const id = `${action.who}`
    const holder = before.holders.get(id)
    if (holder !== undefined && expired.every(({ ticket }) => ticket.id !== id))
      return assert.equal(was, holder.state === 'leaving' ? 'unknown' : 'held')
    const waiter = before.queue.get(id)
    if (waiter === undefined) return assert.equal(was, 'unknown')
    // In this very step the waiter may have been forgotten before it could be removed, or may have been admitted.
    if (waiter.rememberedUntil > ms && !lapsedWith(step, waiter)) assert.notEqual(was, 'unknown')
    if (was !== 'held') return
    const standing = [...before.holders.values()].filter((each) => !expired.includes(each))
    const together = mayStandTogether([...standing.map(({ ticket }) => ticket), waiter.ticket])
    assert.ok(together && waiter.rememberedUntil > ms && before.closedUntil <= ms)
  },

  'an eviction removes the tickets that it names, at once'(step) {
    const { action, answer, before, after, ms } = step
    if (action.verb !== 'evict') return
    const removed = answer as readonly string[]
    const alive = [
      ...[...before.holders].filter(([, { expiresAt }]) => expiresAt > ms),
      ...[...before.queue].filter(([, waiter]) => waiter.rememberedUntil > ms && !lapsedWith(step, waiter)),
    ].map(([id]) => id)
    const meant = alive.filter((id) => isRemovedBy(action, id))
    assert.deepEqual(
      meant.filter((id) => !removed.includes(id)),
      [],
      'not removed',
    )
    for (const id of removed) {
      assert.ok(
        isRemovedBy(action, id) && (before.holders.has(id) || before.queue.has(id)),
        `${id} was not meant`,
      )
      assert.ok(!after.holders.has(id) && !after.queue.has(id), `${id} is still there`)
    }
  },

  'cancelled and evicted tickets never come back within the life of their tombstone'(step) {
    const { asking, graves, answer, after } = step
    for (const { ticket } of step.admitted) assert.ok(!graves.has(ticket.id), `${ticket.id} was buried`)
    const grave = asking && graves.get(asking.id)
    if (grave === undefined || asking === undefined) return
    assert.ok(!after.queue.has(asking.id))
    const leaving = after.holders.has(asking.id)
    const expected =
      grave.evicted && !leaving
        ? { tag: 'gone', evicted: true, reason: REASON }
        : { tag: 'gone', evicted: false }
    assert.deepEqual(answer, expected)
  },

  'no ticket is gone without a reason'({ action, asking, answer, before, graves, ms }) {
    const gone = (answer as AcquireAnswer | RenewAnswer).tag === 'gone'
    if (!gone || asking === undefined) return
    const holder = before.holders.get(asking.id)
    const leaving = holder?.state === 'leaving' && holder.expiresAt > ms
    if (graves.has(asking.id) || leaving) return
    assert.equal(action.verb, 'renew')
    assert.ok(holder === undefined || holder.expiresAt <= ms)
    assert.ok(!before.queue.has(asking.id))
  },

  'an answer says where the ticket is, and when asking again is useful'({
    action,
    asking,
    answer,
    after,
    ms,
  }) {
    if (asking === undefined) return
    const told = answer as AcquireAnswer | RenewAnswer
    const holder = after.holders.get(asking.id)
    const place = [...after.queue.keys()].indexOf(asking.id)
    assert.equal(told.tag === 'held', holder !== undefined && holder.state !== 'leaving')
    assert.equal(told.tag === 'queued', place >= 0)
    if (told.tag === 'held') assert.equal(told.fence, BigInt(holder?.fence ?? -1))
    if (told.tag === 'busy') assert.deepEqual([asking.patienceMs, told.retryMs], [0, untilChange(after, ms)])
    if (told.tag !== 'queued') return
    if ('ahead' in told) assert.equal(told.ahead, place)
    else assert.equal(action.verb, 'renew')
    assert.equal(told.askAgainMs, askAgain(asking, place, untilChange(after, ms)))
  },

  'each ticket that was let in without asking gets one message, and each evicted one a hint'(step) {
    const { action, admitted, answer, wakes, asking, ms } = step
    const letIn = admitted.filter(({ ticket }) => ticket.id !== asking?.id)
    const evicted = action.verb === 'evict' ? (answer as readonly string[]) : []
    const granted = wakes.flatMap((wake) => (wake.tag === 'granted' ? [wake] : []))
    const hinted = wakes.flatMap(({ tag, id }) => (tag === 'ticket' ? [id] : []))
    const leases = letIn.filter(({ ticket }) => hasLease(step, ticket))
    for (const { ticket, fence } of leases) {
      const [wake, more] = granted.filter(({ id }) => id === ticket.id)
      assert.deepEqual([wake?.fence, wake?.storeMs, more], [BigInt(fence), ms, undefined], ticket.id)
    }
    for (const { id } of granted)
      assert.ok(evicted.includes(id) || leases.some(({ ticket }) => ticket.id === id), id)
    const offered = letIn.filter(({ ticket }) => !hasLease(step, ticket)).map(({ ticket }) => ticket.id)
    assert.deepEqual([...hinted].sort(), [...new Set([...offered, ...evicted])].sort())
  },

  'an answer to a waiter tells the time'({ answer, ms }) {
    const { tag, storeMs } = Object(answer) as { readonly tag?: string; readonly storeMs?: number }
    if (tag === 'queued') assert.equal(storeMs, ms)
  },

  'a lock-delay follows an expiry or an eviction of a confirmed holder, and nothing else'(step) {
    const { action, before, after, expired, ms, answer, admitted } = step
    const delayed = expired.filter(({ state }) => state === 'held')
    const opening = Math.max(
      before.closedUntil,
      ...delayed.map(({ ticket, expiresAt }) => expiresAt + ticket.lockDelayMs),
    )
    if (admitted.length > 0) assert.ok(opening <= ms, `admitted while closed until ${opening}`)
    const evicted = action.verb === 'evict' ? (answer as readonly string[]) : []
    const thrown = [...before.holders.values()].filter(
      ({ ticket, state, expiresAt }) => evicted.includes(ticket.id) && state === 'held' && expiresAt > ms,
    )
    const closedUntil = Math.max(opening, ...thrown.map(({ ticket }) => ms + ticket.lockDelayMs))
    // While a ticket waits, `idle` does not settle the room. So the room closes with a later call.
    if (action.verb === 'idle' && before.queue.size > 0) return
    assert.equal(Math.max(after.closedUntil, ms), Math.max(closedUntil, ms))
    // Without a lock-delay not even an instant in the past may be stored. It would lie ahead again after the clock was
    // set back.
    const isDelayed = [...before.holders.values()].some(({ ticket }) => ticket.lockDelayMs > 0)
    if (!isDelayed) assert.equal(after.closedUntil, before.closedUntil)
  },

  'a call that is sent again finds the room as it left it'({ action, repeated, answer, changed }) {
    if (repeated === undefined) return
    assert.ok(!changed, 'the second call changed the room')
    if (action.verb === 'release') assert.deepEqual(answer, { was: 'unknown' })
    else if (action.verb === 'evict') assert.deepEqual(answer, [])
    else assert.deepEqual(answer, repeated.answer)
  },

  'a room is idle when nothing but its last fence would be lost'({
    action,
    answer,
    before,
    after,
    graves,
    ms,
  }) {
    if (action.verb !== 'idle') return
    const waiting = [...before.queue.values()].some(({ rememberedUntil }) => rememberedUntil > ms)
    const standing = [...before.holders.values()].some(({ expiresAt }) => expiresAt > ms)
    const idle = !waiting && !standing && graves.size === 0 && after.closedUntil <= ms
    // The room may drop forgotten tickets at once, or with the next request.
    if (before.queue.size === 0 || waiting) assert.equal(answer, idle)
    else assert.ok(answer === false || idle)
  },

  'nothing expires before the moment that the room looks out for'({ after }) {
    for (const { expiresAt } of after.holders.values()) assert.ok(after.nextExpiry <= expiresAt)
  },
}

/** Whether the message to a waiter that is admitted has to be the lease itself. */
function hasLease({ before, ms, reached }: Observation, ticket: Ticket): boolean {
  const heardAt = before.queue.get(ticket.id)?.heardAt
  const isHeard = heardAt !== undefined && heardAt + ticket.acceptMs > ms
  return isHeard && reached.has(ticket.id) && ticket.minHoldMs === 0 && ticket.lockDelayMs === 0
}

function isRemovedBy(action: Observation['action'], id: string): boolean {
  if (action.verb === 'release') return id === `${action.who}`
  return action.verb === 'evict' && (action.who === undefined || id === `${action.who}`)
}

function untilChange({ holders, closedUntil }: Observation['after'], ms: number): number {
  const changes = [...holders.values()].map(({ expiresAt }) => expiresAt)
  if (closedUntil > ms) changes.push(closedUntil)
  return Math.max(1, Math.min(...changes) - ms)
}

/**
 * A waiter asks often enough to stay remembered, to find an offer whose wake was lost while the offer still stands, and
 * to notice expiries.
 */
function askAgain({ patienceMs, acceptMs }: Ticket, place: number, changeMs: number): number {
  const watched = place === 0 ? changeMs : Math.max(changeMs, acceptMs / 6)
  return Math.ceil(Math.min(patienceMs / 3, (acceptMs * 2) / 3, watched))
}

/** Whether an offer lapsed in this step, and the waiter had been silent for its own acceptance term by then. */
function lapsedWith({ expired, ms }: Observation, { heardAt, ticket }: WaiterThen): boolean {
  return expired.some(({ state }) => state === 'offered') && heardAt + ticket.acceptMs <= ms
}
