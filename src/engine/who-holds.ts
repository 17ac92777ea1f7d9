import { milliseconds } from '../base/diagnosis.ts'
import { shortened } from '../base/text.ts'
import type { Clock, Timer } from '../contract/clock.ts'
import type { RoomPage, Store } from '../contract/store.ts'
import { isLater } from './later.ts'
import { ownerName, parseOwner } from './owner.ts'

/**
 * Says in an error who holds a key. It looks at the store once, and never for long: nobody is helped by an error that comes late.
 * If many callers run out of patience at the same key, they share a look, because the queue of such a key may be long.
 */
export class WhoHolds {
  readonly #store: Store
  readonly #clock: Clock
  readonly #looks = new Map<string, Look>()

  constructor(store: Store, clock: Clock) {
    this.#store = store
    this.#clock = clock
  }

  /** A sentence with a space before it, or nothing if the store does not say. Never rejects. */
  of(key: string): string | Promise<string> {
    const at = this.#clock.monotonicMs()
    const known = this.#looks.get(key)
    if (known !== undefined && at - known.at < SHARED_MS) return known.sentence
    if (this.#looks.size >= MOST_LOOKS) this.#looks.clear()
    const sentence = this.#look(key)
    this.#looks.set(key, { at, sentence })
    return sentence
  }

  #look(key: string): string | Promise<string> {
    try {
      const page = this.#store.inspect({ prefix: key, exact: true, cursor: undefined, count: 1 })
      return isLater(page)
        ? this.#unlessLate(Promise.resolve(page).then((answer) => sentenceOf(key, answer)))
        : sentenceOf(key, page)
    } catch {
      return ''
    }
  }

  #unlessLate(looked: Promise<string>): Promise<string> {
    return new Promise((resolve) => {
      const timer: Timer = this.#clock.startTimer(LOOK_MS, () => resolve(''))
      timer.keepAlive(true)
      void looked.then(resolve, () => resolve('')).finally(() => timer.stop())
    })
  }
}

interface Look {
  readonly at: number
  readonly sentence: string | Promise<string>
}

function sentenceOf(key: string, { rooms }: RoomPage): string {
  const room = rooms.find((one) => one.key === key)
  const [first, ...more] = room?.holders ?? []
  if (first === undefined) return ''
  const others = more.length === 0 ? '' : `, and by ${more.length} more`
  const owner = shortened(ownerName(parseOwner(first.owner)), LONGEST_NAME)
  return ` It is held by ${owner}, for ${milliseconds(first.heldMs)} now${others}.`
}

/** How long a caller that has waited in vain waits for this. */
const LOOK_MS = 250
/** For so long a look is good enough for the next error. */
const SHARED_MS = 1000
const MOST_LOOKS = 1000
/** The host and the label are foreign text. */
const LONGEST_NAME = 300
