import type { InspectedRoom, Locks } from '../index.ts'
import { findRoom } from './room.ts'
import { ownerOf } from './room-text.ts'
import { age, cut } from './text.ts'

/**
 * Tells a person for whom a command waits, on one line of the terminal that changes and goes away. It shows nothing where
 * standard error is no terminal: cron would send it by mail.
 */
export class WaitingLine {
  readonly #locks: Locks
  readonly #key: string
  readonly #startedAt = performance.now()
  readonly #stopListening: () => void
  /** The ticket that waits. `undefined` before the store has queued it, and where no ticket waits. */
  #id: string | undefined
  #timer: NodeJS.Timeout | undefined
  #isShown = false
  #isOver = false

  constructor(locks: Locks, key: string) {
    this.#locks = locks
    this.#key = key
    this.#stopListening = locks.on('queued', ({ id }) => {
      this.#id = id
    })
    if (process.stderr.isTTY && process.env['TERM'] !== 'dumb') this.#lookIn(FIRST_LOOK_MS)
  }

  end(): void {
    this.#isOver = true
    clearTimeout(this.#timer)
    this.#stopListening()
    if (this.#isShown) process.stderr.write(`\r${CLEAR_LINE}`)
  }

  #lookIn(delayMs: number): void {
    this.#timer = setTimeout(() => void this.#look(), delayMs)
  }

  async #look(): Promise<void> {
    const begunAt = performance.now()
    // While the store is away, the line says what was last known.
    const room = await findRoom(this.#locks, this.#key).catch(() => undefined)
    if (this.#isOver) return
    if (room !== undefined) this.#show(room)
    // Where a look takes long, most of the time is spent not looking.
    this.#lookIn(Math.max(BETWEEN_LOOKS_MS, 10 * (performance.now() - begunAt)))
  }

  #show(room: InspectedRoom): void {
    const line = `holdfast: ${waitingText(room, this.#id)}, ${age(performance.now() - this.#startedAt)}`
    this.#isShown = true
    // The terminal shows a Ctrl-C as `^C`, which must not begin another line.
    process.stderr.write(`\r${cut(line, (process.stderr.columns || 80) - 3)}${CLEAR_LINE}`)
  }
}

/** `waiting for web-1:4711 (backup.sh), 2 ahead`. `id`: the ticket whose place in the queue it tells. */
export function waitingText({ holders, queue, closedMs }: InspectedRoom, id: string | undefined): string {
  const [holder] = holders
  const more = holders.length > 1 ? ` and ${holders.length - 1} more` : ''
  const lockDelay = closedMs > 0 ? 'the end of a lock-delay' : 'the key'
  const place = queue.findIndex((waiter) => waiter.id === id)
  // Without a place: the waiters that were there before.
  const ahead = place === -1 ? queue.length : place
  return `waiting for ${holder === undefined ? lockDelay : `${ownerOf(holder)}${more}`}, ${ahead} ahead`
}

/** A key that is free sooner needs no line. */
const FIRST_LOOK_MS = 200
const BETWEEN_LOOKS_MS = 1000
const CLEAR_LINE = '\u001b[K'
