/**
 * Calls a function of the user's without waiting for it. `failed` gets the error that the function throws or that its
 * promise rejects with. A listener may be an async function, and an unhandled rejection would end the process. `failed`
 * must not throw.
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
