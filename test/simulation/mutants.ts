import type { Family } from './plan.ts'
import type { Rule } from './violation.ts'

/** A mistake that a programmer could make, and the rules by which checkers may notice it. */
export interface Mutant {
  readonly name: string
  readonly edits: readonly Edit[]
  /** The family of histories in which it shows. */
  readonly family: Family
  readonly rules: readonly Rule[]
}

export interface Edit {
  /** The path below `src/`. */
  readonly file: string
  /** A text that occurs once in the file, and the text that replaces it. */
  readonly find: string
  readonly replace: string
}

const NETWORK = 'a network that loses, delays and repeats'
const PROCESSES = 'processes that pause, sleep and die'
const CLOCKS = 'clocks that disagree'
const MEMORY = 'a store that forgets and whose clock jumps'
const CONTENTION = 'contention alone'

export const mutants: readonly Mutant[] = [
  mutant('the law forgets the limit', CONTENTION, ['exclusion at the store'], {
    file: 'law/law.ts',
    find: 'admits(share: Share): boolean {',
    replace: 'admits(share: Share): boolean {\n    if (share.units > 0) return true',
  }),
  mutant('the law looks at its own limit only, not at the smallest', CONTENTION, ['exclusion at the store'], {
    file: 'law/law.ts',
    find: 'Math.min(this.#limit, share.limit)',
    replace: 'share.limit',
  }),
  mutant('a fence is used twice', CONTENTION, ['fence order'], {
    file: 'law/room.ts',
    find: 'Math.max(room.lastFence + 1, time.us)',
    replace: 'Math.max(room.lastFence, time.us - (time.us % 1_000_000))',
  }),
  mutant('fences only count', MEMORY, ['fence order'], {
    file: 'law/room.ts',
    find: 'Math.max(room.lastFence + 1, time.us)',
    replace: 'room.lastFence + 1',
  }),
  mutant('fences are only the time', MEMORY, ['fence order'], {
    file: 'law/room.ts',
    find: 'Math.max(room.lastFence + 1, time.us)',
    replace: 'time.us',
  }),
  mutant('the last to come is served first', CONTENTION, ['order of arrival'], {
    file: 'law/room.ts',
    find: 'for (let entry = room.queue.first; entry !== undefined; entry = entry.next) {\n    const { id, value: waiter } = entry',
    replace: 'for (const [id, waiter] of [...room.queue].reverse()) {',
  }),
  mutant('who comes new goes before who waits', CONTENTION, ['order of arrival'], {
    file: 'law/room.ts',
    find: 'if (room.queue.size === 0 && admits(',
    replace: 'if (admits(',
  }),
  mutant('a release lets nobody in', CONTENTION, ['liveness'], {
    file: 'law/room.ts',
    find: "const after = was === 'unknown' ? NOBODY : settle(room, time)",
    replace: 'const after = NOBODY',
  }),
  mutant('a head that is away costs its ttl', CONTENTION, ['liveness'], {
    file: 'law/room.ts',
    find: 'time.ms + ticket.acceptMs',
    replace: 'time.ms + ticket.ttlMs',
  }),
  mutant('a request with a shorter ttl takes back what was promised', NETWORK, ['deadline'], {
    file: 'law/room.ts',
    find: 'Math.max(holder.expiresAt, ',
    replace: 'Math.max(0, ',
  }),
  mutant('who is evicted does not hear of it', CONTENTION, ['signal'], {
    file: 'law/room.ts',
    find: 'evicted.filter((id) => !hinted.has(id)).map(hint)',
    replace: '[]',
  }),
  mutant('withLock does not release', CONTENTION, ['left behind', 'liveness'], {
    file: 'primitives/hold.ts',
    find: 'return lease.inner === undefined ? lease.releaseNow() :',
    replace: 'return lease.inner === undefined ? undefined :',
  }),
  mutant('the deadline of a grant counts from the reply', NETWORK, ['deadline', 'exclusion among leases'], {
    file: 'engine/acquisition.ts',
    find: '{ ticket, fence, askedAt, answeredAt, options }',
    replace: '{ ticket, fence, askedAt: answeredAt, answeredAt, options }',
  }),
  mutant('the deadline of a renewal counts from the reply', NETWORK, ['deadline', 'exclusion among leases'], {
    file: 'engine/delivery.ts',
    find: 'one.ticket, when)',
    replace: 'one.ticket, { ...when, askedAt: when.answeredAt })',
  }),
  mutant(
    'the deadline allows nothing for clocks that run at different rates',
    CLOCKS,
    ['deadline', 'exclusion among leases'],
    {
      file: 'base/validity.ts',
      find: 'return ttlMs - ttlMs * CLOCK_RATE_ERROR - Math.min(ttlMs / 20, MARGIN_MS)',
      replace: 'return ttlMs',
    },
  ),
  mutant('a cancelling leaves no tombstone', NETWORK, ['left behind'], {
    file: 'law/room.ts',
    find: 'if (request.cancel) bury(',
    replace: 'if (request.cancel && time.ms < 0) bury(',
  }),
  mutant('who gives up gives nothing back', CONTENTION, ['liveness'], {
    file: 'engine/acquisition.ts',
    find: 'void this.#context.release(this.ticket, { cancel: acquireMayFollow })\n    const waitedMs',
    replace: 'const waitedMs',
  }),
  mutant(
    'a grant that comes after giving up is kept',
    CONTENTION,
    ['left behind', 'liveness'],
    {
      file: 'engine/acquisition.ts',
      find: "if (this.#state.tag === 'over') return this.#settleLate(this.#state, answer)",
      replace:
        "if (this.#state.tag === 'over') {\n      if (answer.tag === 'held')\n        newLease(this.#context, { ticket: this.ticket, fence: answer.fence, ...when, options: this.#request.lease })\n      return\n    }",
    },
    {
      file: 'engine/acquisition.ts',
      find: 'void this.#context.release(this.ticket, { cancel: acquireMayFollow })\n    const waitedMs',
      replace: 'const waitedMs',
    },
  ),
  mutant('a give-back is not repeated', NETWORK, ['left behind'], {
    file: 'engine/pending-release.ts',
    find: 'if (at.monotonicMs >= this.#until) {',
    replace: 'if (at.monotonicMs >= 0) {',
  }),
  mutant('an acquire without an answer is forgotten', NETWORK, ['left behind'], {
    file: 'engine/acquisition.ts',
    find: 'void this.#context.release(this.ticket, { cancel: acquireMayFollow })\n    const waitedMs',
    replace: 'void this.#context.release(this.ticket, { cancel: false })\n    const waitedMs',
  }),
  mutant('a renewal that fails ends the lease', NETWORK, ['lost without a reason'], {
    file: 'engine/renewed-lease.ts',
    find: 'unanswered(error: unknown): void {',
    replace:
      "unanswered(error: unknown): void {\n    return this.lose('expired', 'It could not be renewed.')",
  }),
  mutant(
    'a renewal that fails counts as one that succeeds',
    NETWORK,
    ['deadline', 'exclusion among leases'],
    {
      file: 'engine/renewed-lease.ts',
      find: 'unanswered(error: unknown): void {',
      replace:
        'unanswered(error: unknown): void {\n    this.confirm({ askedAt: this.now(), answeredAt: this.now() }, this.ticket.ttlMs)',
    },
  ),
  mutant('a wake is believed', NETWORK, ['deadline', 'exclusion among leases'], {
    file: 'engine/acquisition.ts',
    find: "    if (this.#state.tag !== 'waiting') return\n    this.dueAt = 0",
    replace:
      "    const at = this.#context.now()\n    if (this.#state.tag === 'waiting') return this.#deliver(1n, { askedAt: at, answeredAt: at })",
  }),
  mutant('the grant of a message counts from its arrival', NETWORK, ['deadline', 'exclusion among leases'], {
    file: 'engine/acquisition.ts',
    find: 'this.#deliver(granted.fence, { askedAt, answeredAt: at })',
    replace: 'this.#deliver(granted.fence, { askedAt: at, answeredAt: at })',
  }),
  mutant(
    'the store’s time is taken for that of the reply, without the trip',
    NETWORK,
    ['deadline', 'exclusion among leases'],
    {
      file: 'engine/acquisition.ts',
      find: 'sampleOf(answer, when.askedAt)',
      replace: 'sampleOf(answer, when.answeredAt)',
    },
  ),
  mutant('a head that nobody heard of gets its full ttl', PROCESSES, ['liveness'], {
    file: 'law/room.ts',
    find: 'isPlain && heardAt + ticket.acceptMs > time.ms',
    replace: 'isPlain',
  }),
  mutant('a head that no message reaches gets its full ttl', PROCESSES, ['liveness'], {
    file: 'law/room.ts',
    find: ' && room.reaches(ticket.id)',
    replace: '',
  }),
  mutant('a lease that came by message is not renewed', CONTENTION, ['lost without a reason'], {
    file: 'engine/acquisition.ts',
    find: 'this.#deliver(granted.fence, { askedAt, answeredAt: at })',
    replace:
      'Object.assign(this.#request, { lease: { ...this.#request.lease, renew: false } })\n    this.#deliver(granted.fence, { askedAt, answeredAt: at })',
  }),
  mutant(
    'a message is believed after the ticket was given back',
    NETWORK,
    ['left behind', 'liveness'],
    {
      file: 'engine/acquisition.ts',
      find: '    this.#context.wakes.remove(this)\n',
      replace: '    if (lease !== undefined) this.#context.wakes.remove(this)\n',
    },
    {
      file: 'engine/acquisition.ts',
      find: "    if (this.#state.tag === 'waiting') this.#state.granted = granted\n",
      replace:
        "    const at = this.#context.now()\n    const when = { askedAt: at, answeredAt: at }\n    if (this.#state.tag === 'over') {\n      newLease(this.#context, { ticket: this.ticket, fence: granted.fence, ...when, options: this.#request.lease }).check()\n      return\n    }\n    if (this.#state.tag === 'waiting') this.#state.granted = granted\n",
    },
    {
      file: 'engine/acquisition.ts',
      find: "    assert(this.#state.tag !== 'over', 'a wait that is over is woken')\n",
      replace: "    if (this.#state.tag === 'over') return\n",
    },
  ),
  mutant('messages that are leases are not heard', CONTENTION, ['liveness'], {
    file: 'engine/wakes.ts',
    find: 'return this.#waiters.find(wake.id)?.granted(wake)',
    replace: 'return',
  }),
  mutant('wakes are not heard', CONTENTION, ['liveness'], {
    file: 'engine/acquisition.ts',
    find: '  wake(): void {',
    replace:
      "  wake(): void {\n    if (this.#state.tag !== 'waiting' || this.#state.granted === undefined) return",
  }),
  mutant('who waits asks only when woken', NETWORK, ['liveness'], {
    file: 'engine/acquisition-state.ts',
    find: 'return askAgainMs >= 1 ? askAgainMs',
    replace: 'return askAgainMs >= 1 ? 1000 * askAgainMs',
  }),
  mutant('what is held is not renewed', CONTENTION, ['lost without a reason'], {
    file: 'engine/renewed-lease.ts',
    find: 'const third = (this.ticket.ttlMs / 3)',
    replace: 'const third = (this.ticket.ttlMs * 3)',
  }),
  mutant('answers to a batch go to the wrong tickets', NETWORK, ['deadline', 'lost without a reason'], {
    file: 'engine/delivery.ts',
    find: 'const answer = answers?.[index]\n    // The store',
    replace: 'const answer = answers?.[answers.length - 1 - index]\n    // The store',
  }),
  mutant('withLock succeeds under a lease that was lost', CONTENTION, ['error'], {
    file: 'primitives/hold.ts',
    find: 'const loss = lease.lossSoFar()',
    replace: 'const loss = undefined',
  }),
  mutant('a grant that took longer than its ttl is delivered', CLOCKS, ['deadline'], {
    file: 'engine/acquisition.ts',
    find: 'if (!lease.isOverAt(answeredAt)) {',
    replace: 'if (this.ticket.units > 0) {',
  }),
  mutant('an extension without an answer counts as one that succeeds', NETWORK, ['deadline'], {
    file: 'engine/held-lease.ts',
    find: 'await paused(',
    replace: 'this.confirm({ askedAt, answeredAt: this.now() }, asked.ttlMs)\n        await paused(',
  }),
  mutant('a late answer gives back what goes on elsewhere', NETWORK, ['deadline'], {
    file: 'engine/held-lease.ts',
    find: 'this.end(DETACHED)',
    replace: 'this.end(RELEASED)',
  }),
  mutant('who was forgotten does not ask anew', CLOCKS, ['liveness'], {
    file: 'engine/acquisition.ts',
    find: '        return this.#askAnew()\n      default:',
    replace: '        return\n      default:',
  }),
  mutant('a lease is not told that it is over', CONTENTION, ['signal'], {
    file: 'engine/renewed-lease.ts',
    find: "this.end({ tag: 'lost', error })\n    this.tell(error)",
    replace: "this.end({ tag: 'lost', error })",
  }),
  mutant('what is due stays due', MEMORY, ['rest'], {
    file: 'engine/renewed-lease.ts',
    find: 'this.dueAt = Math.ceil(deadlineAt)\n      if (asks)',
    replace: 'if (asks)',
  }),
  mutant('closing gives nothing back', PROCESSES, ['left behind'], {
    file: 'engine/engine.ts',
    find: "return context.leases.list().map((lease) => lease.close(closedDuring(lease.key, 'held')))",
    replace: 'return []',
  }),
  mutant('only the monotonic clock is read', PROCESSES, ['deadline', 'exclusion among leases'], {
    file: 'engine/lease-deadline.ts',
    find: 'Math.max(at.monotonicMs - this.askedAtMs, at.wallMs - this.askedAtWallMs)',
    replace: '(at.monotonicMs - this.askedAtMs)',
  }),
  mutant('only the wall clock is read', CLOCKS, ['deadline', 'exclusion among leases'], {
    file: 'engine/lease-deadline.ts',
    find: 'Math.max(at.monotonicMs - this.askedAtMs, at.wallMs - this.askedAtWallMs)',
    replace: '(at.wallMs - this.askedAtWallMs)',
  }),
  mutant('a machine that slept is not noticed', PROCESSES, ['signal'], {
    file: 'engine/renewal-loop.ts',
    find: 'return this.#wallLead - before > SLEPT_MS',
    replace: 'return this.#wallLead - before > Number.POSITIVE_INFINITY',
  }),
]

function mutant(name: string, family: Family, rules: readonly Rule[], ...edits: readonly Edit[]): Mutant {
  return { name, family, rules, edits }
}
