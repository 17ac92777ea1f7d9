import { parseOwner } from '../base/owner.ts'
import type { Clock } from '../contract/clock.ts'
import type { HolderView, RoomPage, Store, Ticket } from '../contract/store.ts'
import type { KeyHolder } from '../errors.ts'
import { isLater } from './later.ts'

/**
 * Looks who holds a key, shortly before the `wait` of its waiters is over. The error of a wait names the holder if the look was
 * answered by then. No wait ends later because of a look, and a look that fails leaves no trace.
 *
 * All waiters of a room share one look, and a long queue is read seldom, because the store sends all of it.
 */
export class HolderLooks {
  readonly #store: Store
  readonly #clock: Clock
  readonly #looks = new Map<string, Look>()

  constructor(store: Store, clock: Clock) {
    this.#store = store
    this.#clock = clock
  }

  /** Begins a look in the background, unless there was one just now. */
  begin(key: string): void {
    const at = this.#clock.monotonicMs()
    const last = this.#looks.get(key)
    if (last !== undefined && at < last.againAt) return
    if (this.#looks.size >= MOST_LOOKS) this.#forgetOld(at)
    if (this.#looks.size >= MOST_LOOKS) return
    const look: Look = { answer: undefined, againAt: at + SILENCE_MS }
    this.#looks.set(key, look)
    const note = (page: RoomPage) => this.#note(look, key, page)
    try {
      const page = this.#store.inspect({ prefix: key, exact: true, cursor: undefined, count: 1 })
      if (isLater(page))
        Promise.resolve(page)
          .then(note)
          .catch(() => {})
      else note(page)
    } catch {
      // The wait ends without a name.
    }
  }

  /** The holder of the ticket's key, if a look has found one within the last second. */
  holderOf({ key, id }: Ticket): KeyHolder | undefined {
    const answer = this.#looks.get(key)?.answer
    if (answer === undefined) return undefined
    const agoMs = this.#clock.monotonicMs() - answer.at
    // The store may have granted the key to this ticket by a message that was lost.
    const [holder] = answer.first.filter((one) => one.id !== id)
    if (holder === undefined || agoMs > FRESH_MS) return undefined
    const others = answer.count - (answer.first.some((one) => one.id === id) ? 2 : 1)
    return { owner: parseOwner(holder.owner), heldMs: Math.round(holder.heldMs + agoMs), others }
  }

  #note(look: Look, key: string, { rooms }: RoomPage): void {
    const at = this.#clock.monotonicMs()
    const { holders = [], queue = [] } = rooms.find((room) => room.key === key) ?? {}
    look.answer = { at, first: holders.slice(0, 2), count: holders.length }
    look.againAt = at + Math.max(FRESH_MS / 2, holders.length + queue.length)
  }

  #forgetOld(at: number): void {
    for (const [key, { againAt }] of this.#looks) if (againAt <= at) this.#looks.delete(key)
  }
}

interface Look {
  /** `undefined`: none yet. */
  answer: { readonly at: number; readonly first: readonly HolderView[]; readonly count: number } | undefined
  /** When the next look at the room may begin, on the monotonic clock. */
  againAt: number
}

/** An older answer is not used. */
const FRESH_MS = 1000
/** Until then no second look at the room begins, if the first one gets no answer. */
const SILENCE_MS = 10_000
/** The answers of at most this many rooms are remembered. Further rooms get no look. */
const MOST_LOOKS = 100
