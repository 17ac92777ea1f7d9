import {
  type AcquireAnswer,
  GONE,
  type Gone,
  type HolderView,
  type ReleaseAnswer,
  type RenewAnswer,
  type Wake,
} from '../contract/store.ts'

/**
 * Reads what the Lua scripts and SQL functions of a store answer: one line for each ticket, as described at the top of each
 * of them. A server, or what lies in between, may be broken: a line that no script can give is refused.
 */
export class AnswerReader {
  readonly #unexpected: (line: string) => Error
  readonly #heldLine: RegExp
  readonly #tellsTime: boolean

  /**
   * `unexpected` makes the error for a line that no script can give. `fenceDigits`: the most digits of a fence of this store.
   * `tellsTime`: whether `q` lines end with the store's time in milliseconds. Default: false.
   */
  constructor(
    unexpected: (line: string) => Error,
    { fenceDigits, tellsTime = false }: { readonly fenceDigits: number; readonly tellsTime?: boolean },
  ) {
    this.#unexpected = unexpected
    this.#heldLine = new RegExp(`^h\\d{1,${fenceDigits}}$`)
    this.#tellsTime = tellsTime
  }

  // The verbs are fields, because stores pass them on as functions.
  readonly acquire = (line: string): AcquireAnswer => {
    switch (line[0]) {
      case 'h':
        return this.#held(line)
      case 'q': {
        const [ahead = 0, askAgainMs = 0, storeMs] = this.#numbersIn(line, this.#tellsTime ? 3 : 2)
        return storeMs === undefined
          ? { tag: 'queued', ahead, askAgainMs }
          : { tag: 'queued', ahead, askAgainMs, storeMs }
      }
      case 'b':
        return { tag: 'busy', retryMs: this.#numbersIn(line, 1)[0] as number }
      default:
        return this.#gone(line)
    }
  }

  readonly renew = (line: string): RenewAnswer => {
    switch (line[0]) {
      case 'h':
        return this.#held(line)
      case 'q': {
        const [askAgainMs = 0, storeMs] = this.#numbersIn(line, this.#tellsTime ? 2 : 1)
        return storeMs === undefined ? { tag: 'queued', askAgainMs } : { tag: 'queued', askAgainMs, storeMs }
      }
      default:
        return this.#gone(line)
    }
  }

  readonly release = (line: string): ReleaseAnswer => {
    const answer = RELEASED[line]
    if (answer === undefined) throw this.#unexpected(line)
    return answer
  }

  #held(line: string): { readonly tag: 'held'; readonly fence: bigint } {
    if (!this.#heldLine.test(line)) throw this.#unexpected(line)
    return { tag: 'held', fence: BigInt(line.slice(1)) }
  }

  #numbersIn(line: string, count: number): readonly number[] {
    if (!NUMBERS[count]?.test(line)) throw this.#unexpected(line)
    return line.slice(1).split(' ').map(Number)
  }

  #gone(line: string): Gone {
    if (line === 'g') return GONE
    if (line[0] !== 'e') throw this.#unexpected(line)
    return { tag: 'gone', evicted: true, reason: this.#reasonIn(line) }
  }

  #reasonIn(line: string): string {
    try {
      return String(JSON.parse(line.slice(1)))
    } catch {
      throw this.#unexpected(line)
    }
  }
}

/** Lines of one, two and three numbers behind their letter. */
const NUMBERS: readonly (RegExp | undefined)[] = [
  undefined,
  /^.\d{1,16}$/,
  /^.\d{1,16} \d{1,16}$/,
  /^.\d{1,16} \d{1,16} \d{1,16}$/,
]

const RELEASED: Readonly<Record<string, ReleaseAnswer>> = {
  h: { was: 'held' },
  q: { was: 'queued' },
  u: { was: 'unknown' },
}

/** The state of a holder, by its letter in what a store keeps or answers. */
export const HOLDER_STATES: Readonly<Record<string, HolderView['state']>> = {
  h: 'held',
  o: 'offered',
  l: 'leaving',
}

/**
 * A message to one ticket as the text `<id>` or `<id> <fence> <storeMs>`: a hint, or the lease itself. `storeMs` may have a
 * fraction.
 */
export function messageOf(wake: Exclude<Wake, { tag: 'all' }>): string {
  return wake.tag === 'ticket' ? wake.id : `${wake.id} ${wake.fence} ${wake.storeMs}`
}

/**
 * Reads such a text. Other programs may write to the same channel. What they write is taken for an id under which no ticket waits
 * here.
 */
export function wakeOf(message: string): Exclude<Wake, { tag: 'all' }> {
  const [, id, fence, storeMs] = LEASE.exec(message) ?? []
  if (id === undefined) return { tag: 'ticket', id: message }
  return { tag: 'granted', id, fence: BigInt(fence as string), storeMs: Number(storeMs) }
}

const LEASE = /^(\S{1,1000}) (\d{1,19}) (\d{1,16}(?:\.\d{1,20})?)$/
