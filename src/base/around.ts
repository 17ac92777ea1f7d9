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

/** Runs the work inside of what listeners wrap around it. `tell`: gives them the function to do so. */
export function runAround<T>(
  work: () => T,
  attempt: (step: () => void) => void,
  tell: (around: (wrap: Wrap) => void) => void,
): T {
  let inside = work
  tell((wrap) => {
    inside = wrapped(inside, wrap, attempt)
  })
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
