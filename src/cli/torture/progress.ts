import { type Paint, print } from '../terminal.ts'
import { age, json } from '../text.ts'
import type { NemesisRecord } from './record.ts'

export interface ProgressOptions {
  readonly asJson: boolean
  readonly durationMs: number
  readonly now: () => number
  readonly paint: Paint
}

/** Says what happens while a run goes on: one line for each fault. */
export class Progress {
  readonly #options: ProgressOptions
  readonly #hasScreen: boolean
  readonly #timer: NodeJS.Timeout
  #state = 'starting'

  constructor(options: ProgressOptions) {
    this.#options = options
    this.#hasScreen = !options.asJson && process.stdout.isTTY === true
    this.#timer = setInterval(() => this.#draw(), DRAW_MS)
    this.#timer.unref()
  }

  tell(record: NemesisRecord): void {
    if (record.tag === 'gap') return
    if (record.tag === 'fault') this.#state = record.how
    if (record.tag === 'fault-ended') this.#state = 'no fault'
    if (this.#options.asJson) print(json(record))
    else if (record.tag === 'fault') this.#line(faultLine(record, this.#options.paint))
  }

  settling(): void {
    this.#state = 'every process takes every key once more'
    if (!this.#options.asJson)
      this.#line(
        this.#options.paint('dim', `${time(this.#options.now())}  the faults are over: ${this.#state}`),
      )
  }

  end(): void {
    clearInterval(this.#timer)
    if (this.#hasScreen) process.stdout.write(CLEAR)
  }

  #line(text: string): void {
    if (this.#hasScreen) process.stdout.write(CLEAR)
    print(text)
  }

  /** Only in a terminal: the last line says how far it is. */
  #draw(): void {
    if (!this.#hasScreen) return
    const { now, durationMs, paint } = this.#options
    const left = Math.max(0, durationMs - now())
    const state = left > 0 ? `${age(left)} to go · ${this.#state}` : this.#state
    process.stdout.write(`${CLEAR}${paint('dim', state.slice(0, (process.stdout.columns ?? 80) - 1))}`)
  }
}

const DRAW_MS = 500
const CLEAR = '\r\x1b[K'

function faultLine(record: Extract<NemesisRecord, { tag: 'fault' }>, paint: Paint): string {
  const { at, kind, slot, how } = record
  const whom = slot === null ? 'everybody' : `place ${slot + 1}`
  return `${time(at)}  ${paint('yellow', kind.padEnd(6))}  ${whom.padEnd(9)}  ${how}`
}

function time(at: number): string {
  return `${(at / 1000).toFixed(1).padStart(7)}s`
}
