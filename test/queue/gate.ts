/** A promise that the test opens itself. A task that waits for it runs exactly as long as the test wants. */
export interface Gate<T = void> {
  readonly opened: Promise<T>
  readonly open: (value: T) => void
}

export function gate<T = void>(): Gate<T> {
  let open: (value: T) => void = () => {}
  const opened = new Promise<T>((resolve) => {
    open = resolve
  })
  return { opened, open }
}

/** Resolves after everything that can happen without input or timers. */
export function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}

/** The code of the error with which a promise rejects, or the value with which it resolves. */
export async function outcomeOf(promise: Promise<unknown>): Promise<unknown> {
  try {
    return { value: await promise }
  } catch (error) {
    if (error instanceof Error && 'code' in error && typeof error.code === 'string') return error.code
    return { error }
  }
}
