import { expect } from 'vitest'
import type { AcquireAnswer, ReleaseRequest, RenewAnswer, Ticket } from '../../../src/contract/store.ts'

let last = 0

/** A ticket of a mutex on a key of its own, with patience, unless the draft says otherwise. */
export function ticket(draft: Partial<Ticket> = {}): Ticket {
  last += 1
  return {
    key: `test:${last}`,
    id: crypto.randomUUID(),
    units: 1,
    limit: 1,
    ttlMs: 30_000,
    acceptMs: 3000,
    patienceMs: 6000,
    minHoldMs: 0,
    lockDelayMs: 0,
    owner: '{}',
    ...draft,
  }
}

export function fenceOf(answer: AcquireAnswer | RenewAnswer | undefined): bigint {
  expect(answer).toMatchObject({ tag: 'held' })
  return answer?.tag === 'held' ? answer.fence : 0n
}

export function releaseOf({ key, id }: Ticket): ReleaseRequest {
  return { key, id, cancel: false }
}
