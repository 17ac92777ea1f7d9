/** The processor time of this process so far, in milliseconds. It stands still while other processes have the processor. */
export function cpuMs(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1000
}

/**
 * Measures until a result is below the limit, at most ten times, and returns the smallest one. On a busy machine a
 * single measurement says little. But a call that waits for a time-out is slow each time.
 */
export async function shortestMs(limitMs: number, measure: () => Promise<number>): Promise<number> {
  let shortest = Number.POSITIVE_INFINITY
  for (let tries = 0; tries < MOST_TRIES && shortest >= limitMs; tries += 1) {
    shortest = Math.min(shortest, await measure())
  }
  return shortest
}

/**
 * Repeats a scene in which every process has to be in time, until its result is as expected, at most five times. Returns
 * the last result. A busy machine spoils one scene or another, but a fault of the product spoils all of them.
 */
export async function undisturbed<T>(isExpected: (result: T) => boolean, play: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    const result = await play()
    if (isExpected(result) || tries === MOST_REPEATS) return result
  }
}

/**
 * Runs the work again, four times at most, if it failed while this machine was late, and `isOfLateness` says that the error may
 * come of that. A server that gets no processor time looks like one that hangs.
 */
export async function unlessLate<T>(
  work: () => Promise<T>,
  isOfLateness: (error: unknown) => boolean,
): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    const meter = latenessMeter()
    try {
      return await work()
    } catch (error) {
      if (tries === MOST_REPEATS || meter.longestMs() < LATE_MS || !isOfLateness(error)) throw error
    } finally {
      meter.stop()
    }
  }
}

/**
 * How long the work took, without the time for which this process stood still. It still counts each time for which the work
 * waits.
 */
export async function awakeMs(work: () => Promise<unknown>): Promise<number> {
  const meter = latenessMeter()
  const startedAt = performance.now()
  try {
    await work()
    return performance.now() - startedAt - meter.sumMs()
  } finally {
    meter.stop()
  }
}

/** Measures by how much the timers of this process are late. */
function latenessMeter(): { longestMs(): number; sumMs(): number; stop(): void } {
  let [longest, sum] = [0, 0]
  let dueAt = performance.now() + TICK_MS
  const tick = (): void => {
    const now = performance.now()
    const late = Math.max(0, now - dueAt - TICK_MS)
    longest = Math.max(longest, late)
    sum += late
    dueAt = now + TICK_MS
  }
  const timer = setInterval(tick, TICK_MS)
  return {
    longestMs() {
      tick()
      return longest
    },
    sumMs() {
      tick()
      return sum
    },
    stop: () => clearInterval(timer),
  }
}

const MOST_TRIES = 10
const MOST_REPEATS = 5
const TICK_MS = 20
/** On a machine that is not busy no timer is so late. */
const LATE_MS = 100
