import { setTimeout as sleep } from 'node:timers/promises'
import { monotonicMs } from '../machine-time.ts'
import type { WorkerEvent } from './worker-messages.ts'

/** An event of the demo, told by a worker or seen by the demo itself. */
export type DemoEvent =
  | (WorkerEvent & { readonly worker: number })
  | ({ readonly atMs: number; readonly worker: number } & (
      | { readonly tag: 'hired'; readonly pid: number }
      | { readonly tag: 'struck'; readonly fault: Fault; readonly pid: number }
      | { readonly tag: 'continued'; readonly stoppedMs: number }
      | {
          readonly tag: 'took-over'
          readonly from: number
          readonly after: HandOver
          readonly tookMs: number
        }
      | { readonly tag: 'gone'; readonly how: string }
    ))

/** What the demo does to a holder: SIGKILL; SIGSTOP and much later SIGCONT; SIGTERM. */
export type Fault = 'kill' | 'stop' | 'term'

/** What ended the hold before: its worker released the key, or something happened to that worker. */
export type HandOver = 'release' | Fault

/** An event that had to come did not come in time. */
export class Stalled extends Error {
  override readonly name = 'Stalled'
}

/** Sorts the events of all processes by the clock that they share, and passes them on to listeners. */
export class Chronicle {
  readonly #listeners = new Set<(event: DemoEvent) => void>()
  #held: DemoEvent[] = []
  #timer: NodeJS.Timeout | undefined

  listen(listener: (event: DemoEvent) => void): void {
    this.#listeners.add(listener)
  }

  add(event: DemoEvent): void {
    this.#held.push(event)
    this.#timer ??= setTimeout(() => this.#settle(), SETTLE_MS)
  }

  /** Passes on at once an event derived from the current one, before any later event. */
  tell(event: DemoEvent): void {
    for (const listener of [...this.#listeners]) listener(event)
  }

  /** Resolves with the next event that `wanted` accepts; rejects with {@link Stalled} when it does not come in time. */
  async next(
    what: string,
    wanted: (event: DemoEvent) => boolean,
    { withinMs, signal }: { readonly withinMs: number; readonly signal: AbortSignal },
  ): Promise<DemoEvent> {
    const over = new AbortController()
    let listener: (event: DemoEvent) => void = () => {}
    const seen = new Promise<DemoEvent>((resolve) => {
      listener = (event) => {
        if (wanted(event)) resolve(event)
      }
      this.#listeners.add(listener)
    })
    const late = sleep(withinMs, undefined, { signal: AbortSignal.any([signal, over.signal]) }).then(() => {
      throw new Stalled(`Waited ${Math.round(withinMs)} ms in vain until ${what}.`)
    })
    try {
      return await Promise.race([seen, late])
    } finally {
      this.#listeners.delete(listener)
      late.catch(() => {})
      over.abort()
    }
  }

  /** No event comes any more: passes on those that are still held back. */
  finish(): void {
    clearTimeout(this.#timer)
    for (const event of inOrder(this.#held)) this.tell(event)
    this.#held = []
  }

  #settle(): void {
    this.#timer = undefined
    const settled = monotonicMs() - SETTLE_MS
    const due = this.#held.filter(({ atMs }) => atMs <= settled)
    this.#held = this.#held.filter(({ atMs }) => atMs > settled)
    if (this.#held.length > 0) this.#timer = setTimeout(() => this.#settle(), SETTLE_MS / 3)
    for (const event of inOrder(due)) this.tell(event)
  }
}

/** How much later than another process's event an event may arrive through its pipe. */
const SETTLE_MS = 30

function inOrder(events: readonly DemoEvent[]): DemoEvent[] {
  return [...events].sort((one, other) => one.atMs - other.atMs)
}
