import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { AcquireAnswer } from '../../src/contract/store.ts'
import * as law from '../../src/law/room.ts'
import { view } from '../../src/law/view.ts'
import { action, cast, present } from './histories.ts'
import { Witness } from './witness.ts'

describe('a room', () => {
  test('keeps the rules through long histories of all kinds of tickets', () => {
    fc.assert(
      fc.property(cast, fc.array(action, { maxLength: 80, size: 'max' }), (parts, actions) => {
        const witness = new Witness(law, parts)
        for (const step of actions) witness.step(present(step, parts))
      }),
      { numRuns: 2_000 },
    )
  })

  test('shows its state without changing, and shows nothing that is over', () => {
    fc.assert(
      fc.property(cast, fc.array(action, { maxLength: 60, size: 'max' }), (parts, actions) => {
        const witness = new Witness(law, parts)
        for (const step of actions) {
          witness.step(present(step, parts))
          const { room, ms } = witness
          const before = witness.fingerprint()
          const shown = view(room, 'room', { ms, us: ms * 1000 })
          expect(witness.fingerprint()).toBe(before)
          const holders = [...room.holders.values()].filter(({ expiresAt }) => expiresAt > ms)
          const queue = [...room.queue.values()].filter(({ rememberedUntil }) => rememberedUntil > ms)
          expect(shown.holders).toEqual(
            holders.map(({ ticket: { id, units, limit, owner }, fence, since, expiresAt, state }) => ({
              ...{ id, units, limit, owner, state },
              fence: BigInt(fence),
              heldMs: ms - since,
              remainingMs: expiresAt - ms,
            })),
          )
          expect(shown.queue).toEqual(
            queue.map(({ ticket: { id, units, limit, owner }, since }) => ({
              ...{ id, units, limit, owner },
              waitedMs: ms - since,
            })),
          )
        }
      }),
      { numRuns: 500 },
    )
  })

  test('serves all waiters that keep asking, in order, although no wake arrives and no holder is heard of again', () => {
    let waiters = 0
    fc.assert(
      fc.property(cast, fc.array(action, { maxLength: 40, size: 'max' }), (parts, actions) => {
        // Terms of one or two milliseconds would leave no time to ask in between.
        const patient = parts.map((each) => ({
          ...each,
          ttlMs: Math.max(each.ttlMs, 3),
          acceptMs: Math.max(each.acceptMs, 3),
          patienceMs: Math.max(each.patienceMs, 30),
        }))
        const witness = new Witness(law, patient)
        for (const step of actions) witness.step(present(step, patient))
        const queue = (): number[] => {
          const time = { ms: witness.ms, us: witness.ms * 1000 }
          return view(witness.room, 'room', time).queue.map(({ id }) => Number(id))
        }
        // Until here no waiter has kept asking.
        for (const who of queue()) witness.step({ verb: 'renew', who })
        const waiting = queue()
        expect(served(witness, waiting)).toEqual(waiting)
        waiters += waiting.length
      }),
      { numRuns: 3_000 },
    )
    expect(waiters).toBeGreaterThan(500)
  })
})

/**
 * Lets waiters ask only when an answer told them to, and returns the waiters in the order in which they came to hold.
 */
function served(witness: Witness, waiting: readonly number[]): readonly number[] {
  const askAt = new Map(waiting.map((each) => [each, witness.ms]))
  const fences: { readonly id: number; readonly fence: bigint }[] = []
  for (let turns = 0; askAt.size > 0 && turns < 5_000; turns += 1) {
    const at = Math.min(...askAt.values())
    if (at > witness.ms) witness.step({ verb: 'pass', ms: at - witness.ms })
    for (const id of [...askAt.keys()].reverse().filter((each) => askAt.get(each) === at)) {
      const answer = witness.step({ verb: 'acquire', who: id }) as AcquireAnswer
      if (answer.tag === 'queued') askAt.set(id, witness.ms + answer.askAgainMs)
      else askAt.delete(id)
      if (answer.tag === 'held') fences.push({ id, fence: answer.fence })
    }
  }
  return fences.sort((one, other) => (one.fence < other.fence ? -1 : 1)).map(({ id }) => id)
}
