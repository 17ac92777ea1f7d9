/**
 * The engine's view of time. It is passed in, so that tests and the simulation can run the engine on simulated time.
 */
export interface Clock {
  /** Milliseconds from an arbitrary origin that never step back. May stand still while the machine is suspended. */
  monotonicMs(): number
  /** Milliseconds since 1970 as the machine believes. May jump both ways, but goes on during a suspend. */
  wallMs(): number
  /** Calls `fire` once after `delayMs`. The timer does not keep the process alive unless it is told to. */
  startTimer(delayMs: number, fire: () => void): Timer
}

/** A call that a {@link Clock} is going to make. */
export interface Timer {
  /** Prevents the call, if it has not happened yet. Safe to call twice. */
  stop(): void
  /** Whether the timer keeps the process alive, because a caller awaits what it leads to. */
  keepAlive(yes: boolean): void
}
