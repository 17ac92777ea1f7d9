/**
 * The history of a run: what each process wrote down, line by line. Types only: the processes write it and the checker reads
 * it, and they share nothing else. Times are milliseconds since the start of the run, on the clock of the machine.
 */
export type WorkerRecord =
  | { readonly tag: 'start'; readonly at: number; readonly worker: number; readonly slot: number }
  /** A call asks for a key. No request has been sent yet. */
  | {
      readonly tag: 'asked'
      readonly at: number
      readonly id: string
      readonly key: string
      readonly units: number
      /** `null`: no limit, as for readers. */
      readonly limit: number | null
    }
  /** The store has answered that the request has a place in the queue. */
  | { readonly tag: 'queued'; readonly at: number; readonly id: string }
  /** The call has a lease. */
  | { readonly tag: 'granted'; readonly at: number; readonly id: string; readonly fence: string }
  /**
   * The lease was held at this moment: the process read the clock first, and then `assertHeld()` did not throw. `leftMs`: how
   * long the lease lasts from then without a renewal, as the library says.
   */
  | { readonly tag: 'held'; readonly at: number; readonly id: string; readonly leftMs: number }
  /** A line was written to the registers, and after that the lease was still held, or not. */
  | { readonly tag: 'wrote'; readonly id: string; readonly nth: number; readonly held: boolean }
  /** `assertHeld()` threw: the holder knows of the loss, and uses the lease no more. */
  | { readonly tag: 'refused'; readonly at: number; readonly id: string }
  /** The signal of the lease has aborted. */
  | { readonly tag: 'lost'; readonly at: number; readonly id: string; readonly reason: string }
  /** The holder is done, and the store was asked to release the key. */
  | { readonly tag: 'released'; readonly at: number; readonly id: string }
  /** The call ended without a lease. */
  | { readonly tag: 'gave-up'; readonly at: number; readonly id: string; readonly why: string }
  /** The event loop did not run from `from` until `at`. */
  | { readonly tag: 'gap'; readonly from: number; readonly at: number }
  /** The history has reached its bound: a loop of this process begins no further task. */
  | { readonly tag: 'full'; readonly at: number }
  /** The last round, after all faults: whether this process got the key. */
  | { readonly tag: 'took-last'; readonly at: number; readonly key: string; readonly error: string | null }

export type FaultKind = 'kill' | 'pause' | 'cut' | 'outage' | 'clock' | 'server'

export type NemesisRecord =
  | { readonly tag: 'hired'; readonly at: number; readonly worker: number; readonly slot: number }
  | { readonly tag: 'gone'; readonly at: number; readonly worker: number; readonly how: string }
  | FaultBegins
  | { readonly tag: 'fault-ended'; readonly at: number; readonly nth: number }
  /** All faults are over. */
  | { readonly tag: 'calm'; readonly at: number }
  /** The event loop of the proxies did not run. */
  | { readonly tag: 'gap'; readonly from: number; readonly at: number }

export interface FaultBegins {
  readonly tag: 'fault'
  readonly at: number
  readonly nth: number
  readonly kind: FaultKind
  /** The place of the process that it strikes; `null`: all of them. */
  readonly slot: number | null
  readonly how: string
}

/** A line of a register: a write of a holder. The kernel orders the lines. */
export interface RegisterLine {
  readonly id: string
  readonly nth: number
  /** `enter` only raises the fence: the first thing that a holder does. */
  readonly what: 'enter' | 'write'
  /** Decimal. */
  readonly fence: string
  /** The last write that the writer saw in the register that knows no fences, as `id nth`; empty for none. */
  readonly saw: string
  /** The same in the register that refuses older fences. */
  readonly sawFenced: string
}
