import type { Ticket } from '../../../src/contract/store.ts'

/** A ticket of a mutex that waits, and expires only after minutes, but for what the draft says. */
export function ticket(draft: Partial<Ticket> = {}): Ticket {
  const ttlMs = draft.ttlMs ?? 120_000
  return {
    key: 'key',
    id: crypto.randomUUID(),
    units: 1,
    limit: 1,
    ttlMs,
    acceptMs: Math.min(ttlMs, 30_000),
    patienceMs: 120_000,
    minHoldMs: 0,
    lockDelayMs: 0,
    owner: '{"test":"sqlite"}',
    ...draft,
  }
}
