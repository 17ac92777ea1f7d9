import { release, type StoreTime } from '../../law/room.ts'
import { isDamagedRoom } from '../damaged-rooms.ts'
import { step } from './room-window.ts'
import type { SqliteStatements } from './statements.ts'

/**
 * Clears rooms whose processes died, dead waiters, tombstones, and ended lock-delays. Every 32nd acquire looks at up to 64 holders, 64
 * waiters and 64 tombstones. So garbage is removed faster than it is made, and no server has to run. Each process keeps its own places
 * in the lists of holders and waiters.
 */
export class Sweep {
  #acquires = 0
  #key = ''
  #id = ''
  #waiter: { readonly key: string; readonly place: number } = FIRST_WAITER

  /** Counts an acquire. True when it is time to sweep. */
  isDue(): boolean {
    this.#acquires += 1
    return this.#acquires % ACQUIRES_A_SWEEP === 0
  }

  clear(statements: SqliteStatements, time: StoreTime): void {
    for (const [key, id] of statements.buriedBefore.all(time.ms, LOOKS)) statements.unbury.run(key, id)
    this.#dropDeadWaiters(statements, time)
    const holders = statements.holdersAfter.all(this.#key, this.#id, LOOKS)
    const [key, id] = holders.length < LOOKS ? ['', ''] : (holders.at(-1) ?? ['', ''])
    this.#key = key
    this.#id = id
    const expired = holders.filter(([, , expiresAt]) => expiresAt <= time.ms)
    const ended = statements.closedBefore.all(time.ms, LOOKS)
    for (const key of new Set([...expired, ...ended].map(([key]) => key))) settle(statements, key, time)
  }

  /**
   * The law drops a dead waiter when it reaches the head of the queue. Behind a long lease it would stay, and a process that crashes
   * again and again while it waits would leave one each time.
   */
  #dropDeadWaiters(statements: SqliteStatements, time: StoreTime): void {
    const waiters = statements.waitersAfter.all(this.#waiter.key, this.#waiter.place, LOOKS)
    const [key, place] = waiters[LOOKS - 1] ?? [FIRST_WAITER.key, FIRST_WAITER.place]
    this.#waiter = { key, place }
    for (const [key, place, rememberedUntil] of waiters)
      if (rememberedUntil <= time.ms - DEAD_FOR_MS) statements.dropWaiter.run(key, place)
  }
}

/** The release of a ticket that is not there: the law then only clears what is overdue. */
function settle(statements: SqliteStatements, key: string, time: StoreTime): void {
  // A waiter asks again at the time it was given, so this caller need not let it in. A late waiter keeps its place while no other
  // passes it. So only a waiter that is certainly dead is cleared with the room.
  if (statements.remembered.get(key, time.ms - DEAD_FOR_MS) !== undefined) return
  const nobody = { key, id: '', cancel: false }
  statements.savepoint.run()
  try {
    step(statements, { ...nobody, inbox: undefined, reaches: () => false, time }, (room, at) =>
      release(room, nobody, at),
    )
  } catch (error) {
    if (!isDamagedRoom(error)) throw error
    // The caller asks about another key, and is not to fail because another program has written to this one.
    statements.rollBackToSavepoint.run()
  }
  statements.releaseSavepoint.run()
}

const ACQUIRES_A_SWEEP = 32
const LOOKS = 2 * ACQUIRES_A_SWEEP
/** As `LATE_MS` of the law: after this long no waiter is expected to come back. */
const DEAD_FOR_MS = 600_000
const FIRST_WAITER = { key: '', place: 0 }
