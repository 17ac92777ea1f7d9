import { checkOptions, expected, parseFunction } from '../../base/arguments.ts'
import { milliseconds } from '../../base/diagnosis.ts'
import { escaped } from '../../base/text.ts'
import { messageOf } from '../../base/thrown.ts'
import { type LockEventName, type LockEvents, type Locks, lockEvents } from '../../index.ts'

/** How important a line is. It is also the name of the logger's method. */
export type LogLevel = 'debug' | 'info' | 'warn' | 'error'

/** Where the lines go: `console`, and the loggers of pino, winston and others. */
export type LockLogger = { readonly [Level in LogLevel]: (line: string) => unknown }

/** Which locks to log, and how much. */
export interface LogOptions {
  /** The locks to log. Default: all locks of this process. */
  readonly locks?: Pick<Locks, 'on'> | undefined
  /**
   * The least important events that are logged. `error`: lost leases. `warn`: also what is not as usual. `info`: also leaders,
   * and leases that go on in another process. `debug`: everything. Default: `debug`.
   */
  readonly level?: LogLevel | undefined
}

/**
 * Writes a readable line for each event of locks: who waits, holds and releases, and what is not as usual. Every event has
 * its level, so the logger can leave out what it does not want.
 *
 * ```ts
 * import { createLocks } from 'holdfast'
 * import { memoryStore } from 'holdfast/memory'
 * import { logLocks } from 'holdfast/observe/log'
 *
 * const stop = logLocks(console)
 * const locks = createLocks(memoryStore())
 * // holdfast: holds "invoice:42" after 0.01 ms, under fence 1795401240000000
 * // holdfast: released "invoice:42" after 12 ms
 * await locks.withLock('invoice:42', async () => {})
 * stop()
 * await locks.close()
 * ```
 *
 * @returns a function that stops it.
 * @throws {InvalidArgumentError} when the logger or an option is not what it should be.
 */
export function logLocks(logger: LockLogger, options: LogOptions = {}): () => void {
  if (typeof logger !== 'object' || logger === null)
    throw expected('logger', 'a logger, such as console', logger)
  checkOptions(options, ['locks', 'level'])
  const { locks = lockEvents, level = 'debug' } = options
  if (!LEVELS.includes(level)) throw expected('level', `one of ${LEVELS.join(', ')}`, level)
  const wanted = LEVELS.slice(LEVELS.indexOf(level))
  for (const one of wanted) parseFunction(`logger.${one}`, logger[one])
  const stops = NAMES.filter((name) => wanted.includes(LINES[name].level)).map((name) =>
    locks.on(name, (event) => {
      const line: Line<never> = LINES[name]
      const said = line.text(event as never)
      // Returned, because the promise of an async logger may reject.
      return said === undefined ? undefined : logger[line.level](`holdfast: ${escaped(said)}`)
    }),
  )
  return () => {
    for (const stop of stops.splice(0)) stop()
  }
}

const LEVELS: readonly LogLevel[] = ['debug', 'info', 'warn', 'error']

interface Line<Event> {
  readonly level: LogLevel
  /** `undefined`: this one is not worth a line. */
  readonly text: (event: Event) => string | undefined
}

/** `working` comes with `acquired`, and has no line of its own. */
type Logged = Exclude<LockEventName, 'working'>

const LINES: { readonly [Name in Logged]: Line<LockEvents[Name]> } = {
  requested: { level: 'debug', text: ({ key, waitMs }) => `asks for ${quoted(key)}${patience(waitMs)}` },
  queued: {
    level: 'debug',
    text: ({ key, ahead }) =>
      `waits for ${quoted(key)}, ${ahead === 0 ? 'as the next in turn' : `behind ${ahead} more`}`,
  },
  busy: { level: 'debug', text: ({ key }) => `did not get ${quoted(key)}, which is held` },
  acquired: {
    level: 'debug',
    text: ({ key, waitedMs, fence }) =>
      `holds ${quoted(key)} after ${milliseconds(waitedMs)}, under fence ${fence}`,
  },
  renewed: {
    level: 'debug',
    text: ({ key, tookMs, remainingMs }) =>
      `renewed ${quoted(key)} in ${milliseconds(tookMs)}, ${milliseconds(remainingMs)} left`,
  },
  released: {
    level: 'debug',
    text: ({ key, heldMs }) => `released ${quoted(key)} after ${milliseconds(heldMs)}`,
  },
  adopted: {
    level: 'info',
    text: ({ key, fence }) => `goes on holding ${quoted(key)}, under fence ${fence}`,
  },
  detached: {
    level: 'info',
    text: ({ key, heldMs }) => `let go of ${quoted(key)} without releasing it, after ${milliseconds(heldMs)}`,
  },
  elected: { level: 'info', text: ({ key, fence }) => `leads ${quoted(key)}, under fence ${fence}` },
  resigned: {
    level: 'info',
    text: ({ key, ledMs, reason }) =>
      `no longer leads ${quoted(key)} after ${milliseconds(ledMs)} (${reason})`,
  },
  timeout: {
    level: 'warn',
    text: ({ key, waitedMs, ahead }) =>
      `gave up ${quoted(key)} after ${milliseconds(waitedMs)}${ahead === undefined ? '' : `, ${ahead} ahead`}`,
  },
  withdrawn: {
    level: 'warn',
    text: ({ key, waitedMs, reason, error }) =>
      // The caller and the end of the process are no trouble.
      reason === 'aborted' || reason === 'closed'
        ? undefined
        : `gave up ${quoted(key)} after ${milliseconds(waitedMs)} (${reason}): ${messageOf(error)}`,
  },
  evicted: {
    level: 'warn',
    text: ({ key, was, reason = 'no reason given' }) =>
      `was evicted from ${quoted(key)} as a ${was}: ${reason}`,
  },
  jeopardy: {
    level: 'warn',
    text: ({ key, remainingMs, error }) =>
      `could not renew ${quoted(key)}, ${milliseconds(remainingMs)} left${error === undefined ? '' : `: ${messageOf(error)}`}`,
  },
  'store-error': {
    level: 'warn',
    text: ({ store, verb, outcome, error, key }) => {
      const about = key === undefined ? '' : ` of ${quoted(key)}`
      const why = error === undefined ? 'no answer in time' : messageOf(error)
      return `the ${store} store failed in ${verb}${about} (${outcome}): ${why}`
    },
  },
  lost: {
    level: 'error',
    text: ({ key, heldMs, fence, reason, error }) =>
      `lost ${quoted(key)} after ${milliseconds(heldMs)}, under fence ${fence} (${reason}): ${error.message}`,
  },
}

const NAMES = Object.keys(LINES) as readonly Logged[]

function quoted(key: string): string {
  return JSON.stringify(key)
}

function patience(waitMs: number): string {
  if (waitMs === 0) return ''
  return waitMs === Number.POSITIVE_INFINITY ? ', without a limit' : `, for up to ${milliseconds(waitMs)}`
}
