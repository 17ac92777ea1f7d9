import type { AcquireAnswer, ReleaseRequest, RenewAnswer, Ticket } from '../../src/contract/store.ts'

/** Makes tickets of a mutex that waits. A draft may change anything. An acceptance term is never longer than the ttl. */
export function ticketsWith(
  times: Pick<Ticket, 'ttlMs' | 'acceptMs' | 'patienceMs'>,
): (draft?: Partial<Ticket>) => Ticket {
  return (draft = {}) => {
    const ttlMs = draft.ttlMs ?? times.ttlMs
    return {
      key: 'key',
      id: crypto.randomUUID(),
      units: 1,
      limit: 1,
      ttlMs,
      acceptMs: Math.min(ttlMs, times.acceptMs),
      patienceMs: times.patienceMs,
      minHoldMs: 0,
      lockDelayMs: 0,
      owner: '{"test":"store"}',
      ...draft,
    }
  }
}

/** A ticket that does not expire while a test runs, unless the draft says so. */
export const ticket: (draft?: Partial<Ticket>) => Ticket = ticketsWith({
  ttlMs: 60_000,
  acceptMs: 60_000,
  patienceMs: 60_000,
})

export function releaseOf({ key, id }: Ticket): ReleaseRequest {
  return { key, id, cancel: false }
}

/** The fence of an answer that has to be `held`. */
export function fenceOf(answer: AcquireAnswer | RenewAnswer | undefined): bigint {
  if (answer?.tag === 'held') return answer.fence
  throw new Error(`Expected a ticket that holds, got ${answer?.tag}`)
}
