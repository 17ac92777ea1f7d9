import { InvalidArgumentError } from '../index.ts'

/** The settings of redlock. All durations are in milliseconds. */
export interface Settings {
  /** Accepted and not used: the deadline of a lock has an allowance of its own. Default: 0.01. */
  readonly driftFactor: number
  /** The longest wait is `retryCount` times `retryDelay`. 0 does not wait, -1 waits for ever. Default: 10. */
  readonly retryCount: number
  /** See `retryCount`; in milliseconds. Default: 200. */
  readonly retryDelay: number
  /** Accepted and not used, as waiters do not poll. Default: 100. */
  readonly retryJitter: number
  /** Accepted and not used: `using` renews at a third of the duration. Default: 500. */
  readonly automaticExtensionThreshold: number
}

export const DEFAULTS: Settings = Object.freeze({
  driftFactor: 0.01,
  retryCount: 10,
  retryDelay: 200,
  retryJitter: 100,
  automaticExtensionThreshold: 500,
})

/** How long redlock would go on trying, in milliseconds; without an end where that is longer than a timer can wait. */
export function windowOf(retryCount: number, retryDelay: number): number {
  if (retryCount === -1 || retryCount === Number.POSITIVE_INFINITY) return Number.POSITIVE_INFINITY
  // 0 times Infinity would be no number.
  const windowMs = retryCount === 0 ? 0 : retryCount * retryDelay
  return windowMs > LONGEST_MS ? Number.POSITIVE_INFINITY : windowMs
}

/** How long to wait for servers that do not answer: as `acquire` does with that window. */
export function silenceOf(retryCount: number, retryDelay: number): number {
  const windowMs = windowOf(retryCount, retryDelay)
  return windowMs === 0 ? ONE_TRY_MS : Math.max(windowMs, LEAST_SILENCE_MS)
}

const ONE_TRY_MS = 5000
const LEAST_SILENCE_MS = 500

/** The longest duration of a lock. Longer ones, meant as "for ever", are cut to it. */
export const LONGEST_MS: number = 24 * 86_400_000
const SHORTEST_MS = 50

export function checkResources(resources: unknown): void {
  if (Array.isArray(resources) && resources.length > 0) return
  const got = Array.isArray(resources) ? 'an empty one' : typeof resources
  throw new InvalidArgumentError(
    `Expected \`resources\` to be an array of names, as redlock 5 takes it, got ${got}.`,
  )
}

export function checkDuration(duration: unknown): void {
  // In the words of redlock, as programs may look for them.
  if (!Number.isInteger(duration)) {
    throw new InvalidArgumentError('Duration must be an integer value in milliseconds.')
  }
  if ((duration as number) >= SHORTEST_MS) return
  throw new InvalidArgumentError(
    `Expected \`duration\` to be ${SHORTEST_MS} ms or more, got ${duration}: a shorter lock is over before it could be used.`,
  )
}

export function parseSettings(settings: unknown): Partial<Settings> {
  if (settings === undefined || settings === null) return {}
  if (typeof settings === 'function') {
    throw new InvalidArgumentError(
      'Expected `settings`, got a function: since redlock 5 the result is a promise, and there are no callbacks.',
    )
  }
  if (typeof settings !== 'object') {
    throw new InvalidArgumentError(`Expected \`settings\` to be an object, got ${String(settings)}.`)
  }
  const parsed: Record<string, number> = {}
  for (const name of Object.keys(DEFAULTS)) {
    const value: unknown = (settings as Record<string, unknown>)[name]
    if (value === undefined) continue
    const isEndless = name === 'retryCount' && value === -1
    if (!isEndless && (typeof value !== 'number' || !(value >= 0))) {
      const what = name === 'retryCount' ? '-1 or a number from 0' : 'a number from 0'
      throw new InvalidArgumentError(`Expected \`${name}\` to be ${what}, got ${String(value)}.`)
    }
    parsed[name] = value as number
  }
  return parsed
}
