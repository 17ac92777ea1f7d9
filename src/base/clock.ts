import type { Clock, Timer } from '../contract/clock.ts'
import { outsideOfCallers } from './async-context.ts'

/** The machine's clocks. The only place of the engine that touches them. */
export const systemClock: Clock = {
  monotonicMs: () => performance.now(),
  wallMs: () => Date.now(),
  startTimer(delayMs: number, fire: () => void): Timer {
    // The timer takes along the context that it is started in.
    const timeout = outsideOfCallers(() => setTimeout(fire, Math.min(delayMs, LONGEST_TIMEOUT_MS)))
    timeout.unref()
    return {
      stop: () => clearTimeout(timeout),
      keepAlive: (yes) => {
        if (yes) timeout.ref()
        else timeout.unref()
      },
    }
  },
}

/** Above this Node.js fires at once. Whoever waits longer looks at the clock when it fires, and sleeps again. */
const LONGEST_TIMEOUT_MS = 2 ** 31 - 1
