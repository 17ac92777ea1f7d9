/** What the listener of an event passes, to run work inside an async context of its own. It must call `run` at once. */
export type Wrap = (run: () => void) => void

/**
 * Runs the work inside of `wrap`, and exactly once, whatever `wrap` does. `attempt` calls a function, and deals with what it throws.
 */
function wrapped<T>(work: () => T, wrap: Wrap, attempt: (step: () => void) => void): () => T {
  return () => {
    let hasBegun = false
    let repeatEnd: () => T = notEnded
    const run = () => {
      // `wrap` may call `run` twice, and so may the work itself before it has ended.
      if (hasBegun) return
      hasBegun = true
      repeatEnd = outcomeOf(work)
    }
    attempt(() => wrap(run))
    run()
    return repeatEnd()
  }
}

/**
 * Runs the work inside of what listeners wrap around it. Each of `tells` gives them the function to do so. The wraps of the first one
 * are outermost.
 */
export function runAround<T>(
  work: () => T,
  attempt: (step: () => void) => void,
  tells: readonly ((around: (wrap: Wrap) => void) => void)[],
): T {
  const wraps: Wrap[][] = []
  for (const tell of tells) {
    const own: Wrap[] = []
    wraps.push(own)
    tell((wrap) => own.push(wrap))
  }
  let inside = work
  for (const own of wraps.reverse()) {
    for (const wrap of own) inside = wrapped(inside, wrap, attempt)
  }
  return inside()
}

function notEnded(): never {
  throw new Error('A callback was run and has no end.')
}

/** Repeats how the work ended. */
function outcomeOf<T>(work: () => T): () => T {
  try {
    const value = work()
    return () => value
  } catch (error) {
    return () => {
      throw error
    }
  }
}
