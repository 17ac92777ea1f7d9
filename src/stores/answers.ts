import {
  type AcquireAnswer,
  GONE,
  type Gone,
  type HolderView,
  type ReleaseAnswer,
  type RenewAnswer,
} from '../contract/store.ts'

/**
 * Reads what the Lua scripts and SQL functions of a store answer: one line for each ticket, as described at the top of each
 * of them. A server, or what lies in between, may be broken: a line that no script can give is refused.
 */
export interface AnswerReader {
  readonly acquire: (line: string) => AcquireAnswer
  readonly renew: (line: string) => RenewAnswer
  readonly release: (line: string) => ReleaseAnswer
}

/**
 * `unexpected` makes the error for a line that no script can give. `fenceDigits`: of the largest fence that the store can count to. `tellsTime`: whether the line of a
 * waiter ends with the store's time.
 */
export function answerReader(
  unexpected: (line: string) => Error,
  { fenceDigits, tellsTime = false }: { readonly fenceDigits: number; readonly tellsTime?: boolean },
): AnswerReader {
  const heldLine = new RegExp(`^h\\d{1,${fenceDigits}}$`)
  return {
    acquire(line) {
      switch (line[0]) {
        case 'h':
          return held(line)
        case 'q': {
          const [ahead, ...rest] = numbersIn(line, tellsTime ? 3 : 2)
          return { ahead: ahead as number, ...queued(rest) }
        }
        case 'b':
          return { tag: 'busy', retryMs: numbersIn(line, 1)[0] as number }
        default:
          return gone(line)
      }
    },
    renew(line) {
      switch (line[0]) {
        case 'h':
          return held(line)
        case 'q':
          return queued(numbersIn(line, tellsTime ? 2 : 1))
        default:
          return gone(line)
      }
    },
    release(line) {
      const answer = RELEASED[line]
      if (answer === undefined) throw unexpected(line)
      return answer
    },
  }

  function held(line: string): { readonly tag: 'held'; readonly fence: bigint } {
    if (!heldLine.test(line)) throw unexpected(line)
    return { tag: 'held', fence: BigInt(line.slice(1)) }
  }

  function numbersIn(line: string, count: number): readonly number[] {
    const numbers = line.slice(1).split(' ', count + 1)
    if (numbers.length !== count || !numbers.every((number) => /^\d{1,16}$/.test(number)))
      throw unexpected(line)
    return numbers.map(Number)
  }

  function queued([askAgainMs, storeMs]: readonly number[]): Extract<RenewAnswer, { tag: 'queued' }> {
    const queued = { tag: 'queued', askAgainMs: askAgainMs as number } as const
    return storeMs === undefined ? queued : { ...queued, storeMs }
  }

  function gone(line: string): Gone {
    if (line === 'g') return GONE
    if (line[0] !== 'e') throw unexpected(line)
    return { tag: 'gone', evicted: true, reason: reasonIn(line) }
  }

  function reasonIn(line: string): string {
    try {
      return String(JSON.parse(line.slice(1)))
    } catch {
      throw unexpected(line)
    }
  }
}

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
