/**
 * Calls a function of the user's that nobody waits for. What it throws goes to `failed`, and so does what its promise
 * rejects with: a listener may be an async function, and an unhandled rejection ends the process. `failed` must not throw.
 */
export function callListener(call: () => unknown, failed: (error: unknown) => void): void {
  try {
    const result = call()
    if (isPromise(result)) result.then(undefined, failed)
  } catch (error) {
    failed(error)
  }
}

function isPromise(result: unknown): result is PromiseLike<unknown> {
  return typeof (result as { then?: unknown } | null | undefined)?.then === 'function'
}
