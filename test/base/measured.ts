/** The processor time of this process so far, in milliseconds. It stands still while other processes have the processor. */
export function cpuMs(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1000
}

/**
 * Measures until a result is below the limit, at most five times, and returns the smallest one. On a busy machine a
 * single measurement says little. But a call that waits for a time-out is slow each time.
 */
export async function shortestMs(limitMs: number, measure: () => Promise<number>): Promise<number> {
  let shortest = Number.POSITIVE_INFINITY
  for (let tries = 0; tries < MOST_TRIES && shortest >= limitMs; tries += 1) {
    shortest = Math.min(shortest, await measure())
  }
  return shortest
}

const MOST_TRIES = 5
