import type { IncomingMessage } from 'node:http'
import { checkOptions, expected, parseFlag, parseFunction } from '../base/arguments.ts'
import { type Duration, LONGEST_MS, parseDuration } from '../base/duration.ts'
import { InvalidArgumentError } from '../errors.ts'
import type { Jobs } from '../jobs/index.ts'

/** Who may look, what they see, and what they may do. */
export interface DashboardOptions {
  /**
   * A secret of at least 16 characters that lets its bearer look. Give it once as `?token=…` or type it into the page, and
   * the browser keeps a cookie; programs send `Authorization: Bearer …`. Without `token` and `authorize` only browsers on
   * this machine are answered, and nothing that a proxy has passed on.
   */
  readonly token?: string | undefined
  /** Lets the application decide, by its own sessions. Called for every request of data, but not while a stream is open. */
  readonly authorize?: ((request: IncomingMessage) => boolean | Promise<boolean>) | undefined
  /** Whether viewers may evict holders and waiters. Default: false. */
  readonly allowEvict?: boolean | undefined
  /** The mount point, if `request.url` still begins with it, as in Fastify and plain `node:http`: `/locks`. */
  readonly path?: string | undefined
  /** Shows only keys that begin with it; no other key can be evicted here. Default: all keys. */
  readonly prefix?: string | undefined
  /** The jobs to show beside the locks. Whoever may look sees their payloads and errors, too. */
  readonly jobs?:
    | Pick<Jobs, 'cancel' | 'count' | 'countOverTime' | 'find' | 'list' | 'remove' | 'retry'>
    | undefined
  /** Whether viewers may retry, cancel and remove jobs. Default: false. */
  readonly allowJobChanges?: boolean | undefined
  /**
   * Whether to look at the store all the time, also while no page is open, and to keep what was seen. Without it the history
   * begins when somebody looks. `true`: for 24 hours, in memory. Default: false.
   */
  readonly record?: boolean | RecordOptions | undefined
  /** The heading of the page. Default: `Locks`. */
  readonly title?: string | undefined
  /** Origins from which browsers may send requests, where a proxy changes the `Host`: `['https://locks.example']`. */
  readonly origins?: readonly string[] | undefined
}

/** For how long the dashboard keeps what it has seen, and where. */
export interface RecordOptions {
  /** How far the history goes back, from 1 minute to 24 days. Default: `'24h'`. */
  readonly keep?: Duration | undefined
  /**
   * An SQLite file that keeps the history when the process ends. It is made where there is none. Give each dashboard a file of
   * its own. Default: memory only.
   */
  readonly file?: string | undefined
  /**
   * The name of the store, without a secret, such as `'redis cache:6379'`. The file keeps it, and is refused for a store of
   * another name. Default: none, and nothing is compared.
   */
  readonly store?: string | undefined
}

export interface DashboardSettings {
  readonly token: string | undefined
  readonly authorize: DashboardOptions['authorize']
  readonly allowEvict: boolean
  readonly path: string
  readonly prefix: string
  readonly jobs: DashboardOptions['jobs']
  readonly allowJobChanges: boolean
  readonly title: string
  readonly origins: readonly string[]
  /** `undefined`: the history lasts while somebody looks. */
  readonly record: RecordSettings | undefined
}

export interface RecordSettings {
  readonly keepMs: number
  readonly file: string | undefined
  readonly store: string | undefined
}

export function parseOptions(options: DashboardOptions): DashboardSettings {
  checkOptions(options, NAMES)
  const { token, authorize, path = '', prefix = '', jobs, title = 'Locks' } = options
  const { origins = [] } = options
  if (token !== undefined && (typeof token !== 'string' || !/^[!-~]{16,}$/.test(token))) {
    // The message does not quote the value: it may be nearly the token.
    throw new InvalidArgumentError(
      'Expected `token` to be at least 16 characters of ASCII without spaces, got something else.',
    )
  }
  if (authorize !== undefined) parseFunction('authorize', authorize)
  if (token !== undefined && authorize !== undefined)
    throw new InvalidArgumentError('Expected one of `token` and `authorize`, got both.')
  const allowEvict = parseFlag('allowEvict', options.allowEvict, false)
  if (typeof path !== 'string' || !/^(\/[^/?#]+)*\/?$/.test(path))
    throw expected('path', 'like /locks, or empty', path)
  if (typeof prefix !== 'string') throw expected('prefix', 'a string', prefix)
  if (typeof title !== 'string') throw expected('title', 'a string', title)
  if (jobs !== undefined && typeof jobs?.list !== 'function')
    throw expected('jobs', 'what createJobs() or openJobs() returns', jobs)
  const allowJobChanges = parseFlag('allowJobChanges', options.allowJobChanges, false)
  if (allowJobChanges && jobs === undefined)
    throw new InvalidArgumentError('Expected `jobs` together with `allowJobChanges`, got none.')
  const misplaced = Array.isArray(origins) ? origins.find((origin) => !isOrigin(origin)) : origins
  if (misplaced !== undefined) throw expected('origins', 'an array such as ["https://a.example"]', misplaced)
  const record = recordIn(options.record)
  return {
    ...{ token, authorize, allowEvict, path: path.replace(/\/$/, ''), prefix },
    ...{ jobs, allowJobChanges, title, origins, record },
  }
}

function recordIn(record: DashboardOptions['record']): RecordSettings | undefined {
  if (record === undefined || record === false) return undefined
  const options = record === true ? {} : record
  if (typeof options !== 'object' || options === null)
    throw expected('record', 'a boolean, or an object such as { keep: "24h", file: "history.db" }', record)
  checkOptions(options, RECORD_NAMES)
  const { keep = '24h', file, store } = options
  if (file !== undefined && (typeof file !== 'string' || file === ''))
    throw expected('record.file', 'the path of a file', file)
  if (store !== undefined && (typeof store !== 'string' || store === ''))
    throw expected('record.store', 'the name of the store', store)
  return { keepMs: parseDuration('record.keep', keep, KEEP_RANGE), file, store }
}

const KEEP_RANGE = { leastMs: 60_000, mostMs: LONGEST_MS, endless: false }
const RECORD_NAMES: ReadonlySet<string> = new Set(['keep', 'file', 'store'] satisfies (keyof RecordOptions)[])

const NAMES: ReadonlySet<string> = new Set([
  'token',
  'authorize',
  'allowEvict',
  'allowJobChanges',
  'path',
  'prefix',
  'jobs',
  'title',
  'origins',
  'record',
] satisfies (keyof DashboardOptions)[])

function isOrigin(text: unknown): boolean {
  return typeof text === 'string' && URL.canParse(text) && new URL(text).origin === text
}
