import { closeSync, fstatSync, openSync, readSync, writeSync } from 'node:fs'

/**
 * A resource that several processes write to, guarded by fences alone: a file to which every write is appended. The kernel
 * orders the writes (O_APPEND), and a write counts only if no higher fence stands before it. So it does not matter how long
 * a writer was stopped between reading and writing. The same file is the record by which a run is judged.
 */
export class FencedRegister {
  readonly #file: number
  #fold: RegisterState = EMPTY
  #readTo = 0
  #unread = ''

  constructor(path: string) {
    this.#file = openSync(path, 'a+')
  }

  /** The value after all writes that have reached the file. */
  get value(): number {
    this.#catchUp(undefined)
    return this.#fold.value
  }

  /** Whether the write counts. */
  append(entry: RegisterEntry): boolean {
    // One write call. It begins with a line end, so that a writer killed in the middle of a write spoils only its own line.
    writeSync(this.#file, `\n${JSON.stringify(entry)}\n`)
    return this.#catchUp(entry)
  }

  close(): void {
    closeSync(this.#file)
  }

  /** Reads what was appended since. Returns whether the wanted entry among it counts. */
  #catchUp(wanted: RegisterEntry | undefined): boolean {
    const size = fstatSync(this.#file).size
    const bytes = Buffer.alloc(size - this.#readTo)
    const count = readSync(this.#file, bytes, 0, bytes.length, this.#readTo)
    this.#readTo += count
    const lines = (this.#unread + bytes.toString('latin1', 0, count)).split('\n')
    this.#unread = lines.pop() ?? ''
    let counted = false
    for (const entry of entriesOf(lines)) {
      const { fold, accepted } = apply(this.#fold, entry)
      this.#fold = fold
      if (entry.ticket === wanted?.ticket && entry.nth === wanted.nth) counted = accepted
    }
    return counted
  }
}

/** One line of the file. */
export interface RegisterEntry {
  readonly worker: number
  /** The id of the lease. */
  readonly ticket: string
  /** Numbers the entries of one ticket. */
  readonly nth: number
  /** Decimal. */
  readonly fence: string
  /** `enter` and `leave` only raise the fence: the first thing that a holder does, and the last. */
  readonly what: 'enter' | 'write' | 'leave'
  /**
   * An instant at which the writer held the key, by the monotonic clock in microseconds: the writer read the clock first and
   * found the lease held after that. `null` when the writer knew that it did not hold the key.
   */
  readonly heldAtUs: number | null
  /** Of a write: the value that the writer read, and the new one. */
  readonly base: number
  readonly value: number
}

export interface RegisterState {
  readonly fence: bigint
  readonly value: number
}

export const EMPTY: RegisterState = { fence: 0n, value: 0 }

export function apply(fold: RegisterState, entry: RegisterEntry): { fold: RegisterState; accepted: boolean } {
  const fence = BigInt(entry.fence)
  if (fence < fold.fence) return { fold, accepted: false }
  return { fold: { fence, value: entry.what === 'write' ? entry.value : fold.value }, accepted: true }
}

export function entriesOf(lines: readonly string[]): RegisterEntry[] {
  return lines
    .filter((line) => line.startsWith('{') && line.endsWith('}'))
    .map((line) => JSON.parse(line) as RegisterEntry)
}
