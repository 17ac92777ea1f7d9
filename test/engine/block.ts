/** Really stops the event loop: no timer, no reply, nothing runs meanwhile. */
export function block(durationMs: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, durationMs)
}

/** Runs it after so many turns of the microtask queue, in which promises are settled and no timer fires. */
export function afterTurns(turns: number, run: () => void): void {
  if (turns === 0) run()
  else queueMicrotask(() => afterTurns(turns - 1, run))
}
