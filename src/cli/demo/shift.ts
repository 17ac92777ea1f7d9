import { setTimeout as sleep } from 'node:timers/promises'
import type { Lease } from '../../index.ts'
import { monotonicMs } from '../machine-time.ts'
import type { FencedRegister } from './register.ts'
import type { Tell } from './worker-messages.ts'

export interface ShiftOptions {
  readonly worker: number
  readonly register: FencedRegister
  readonly tell: Tell
  /** The shift takes this long, or up to twice as long. */
  readonly shortestMs: number
  /** Ends the shift early. */
  readonly signal: AbortSignal
}

/** What a worker does under one lease, from the grant to the release. */
export class Shift {
  readonly #lease: Lease
  readonly #options: ShiftOptions
  #nth = 0
  #writes = 0
  #deadlineMs = 0
  #served = false

  constructor(lease: Lease, options: ShiftOptions) {
    this.#lease = lease
    this.#options = options
  }

  async serve(): Promise<void> {
    const { tell, register, shortestMs, signal } = this.#options
    const until = monotonicMs() + shortestMs * (1 + Math.random())
    // Raise the fence before reading: from here on no earlier holder can change what this one reads.
    this.#append('enter', this.#heldAtUs())
    tell({ tag: 'acquired', fence: String(this.#lease.fence) })
    tell({ tag: 'working', value: register.value })
    this.#deadlineMs = this.#deadline()
    while (monotonicMs() < until && !signal.aborted) {
      this.#write(this.#heldAtUs())
      this.#noteRenewal()
      await sleep(STEP_MS, undefined, { signal }).catch(() => {})
    }
    this.#append('leave', this.#heldAtUs())
    this.#served = true
  }

  async end(): Promise<void> {
    const atMs = monotonicMs()
    await this.#lease.release()
    // Reported once the store has answered, with the time of the request: a hand-over is counted from there.
    if (this.#served) this.#options.tell({ tag: 'released', writes: this.#writes }, atMs)
  }

  /** A write without a check, as from a process that was stopped between its check and its write. */
  writeLate(): void {
    const fence = String(this.#lease.fence)
    this.#options.tell({ tag: 'late-write', fence, counted: this.#write(null) })
  }

  #write(heldAtUs: number | null): boolean {
    const counted = this.#append('write', heldAtUs)
    if (counted) this.#writes += 1
    return counted
  }

  #append(what: 'enter' | 'write' | 'leave', heldAtUs: number | null): boolean {
    const { worker, register } = this.#options
    const { id: ticket, fence } = this.#lease
    const base = register.value
    this.#nth += 1
    const nth = this.#nth
    return register.append({
      worker,
      ticket,
      nth,
      fence: String(fence),
      what,
      heldAtUs,
      base,
      value: base + 1,
    })
  }

  /** Reads the clock first and checks the lease after that, so the key was held at the instant read. */
  #heldAtUs(): number {
    const atUs = Math.floor(monotonicMs() * 1000)
    this.#lease.assertHeld()
    return atUs
  }

  #noteRenewal(): void {
    const before = this.#deadlineMs
    this.#deadlineMs = this.#deadline()
    if (this.#deadlineMs - before < RENEWED_BY_MS) return
    this.#options.tell({ tag: 'renewing', remainingMs: this.#lease.remainingMs })
  }

  #deadline(): number {
    return monotonicMs() + this.#lease.remainingMs
  }
}

const STEP_MS = 50
/** A smaller difference is the wall clock's rounding, and no renewal. */
const RENEWED_BY_MS = 5
