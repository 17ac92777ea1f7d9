/** Really blocks the event loop: meanwhile no timer fires, and no reply is read. */
export function block(durationMs: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, durationMs)
}

/**
 * Calls the function after this many turns of the microtask queue. Promises settle in that queue, and no timer fires.
 */
export function afterTurns(turns: number, run: () => void): void {
  if (turns === 0) run()
  else queueMicrotask(() => afterTurns(turns - 1, run))
}
