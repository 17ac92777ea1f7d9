import type { AcquireAnswer, ReleaseRequest, RenewAnswer, Ticket } from '../../../src/contract/store.ts'

/** A ticket of a mutex that waits and does not expire, but for what the draft says. */
export function ticket(draft: Partial<Ticket> = {}): Ticket {
  const ttlMs = draft.ttlMs ?? 60_000
  return {
    key: 'key',
    id: crypto.randomUUID(),
    units: 1,
    limit: 1,
    ttlMs,
    acceptMs: Math.min(ttlMs, 60_000),
    patienceMs: 60_000,
    minHoldMs: 0,
    lockDelayMs: 0,
    owner: '{"test":"postgres"}',
    ...draft,
  }
}

export function releaseOf({ key, id }: Ticket): ReleaseRequest {
  return { key, id, cancel: false }
}

/** The fence of an answer that has to be `held`. */
export function fenceOf(answer: AcquireAnswer | RenewAnswer | undefined): bigint {
  if (answer?.tag === 'held') return answer.fence
  throw new Error(`Expected a ticket that holds, got ${answer?.tag}`)
}
