/** Really stops the event loop: no timer, no reply, nothing runs meanwhile. */
export function block(durationMs: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, durationMs)
}
