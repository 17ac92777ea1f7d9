import type { IncomingMessage } from 'node:http'
import { checkOptions, expected, parseFlag, parseFunction } from '../base/arguments.ts'
import { InvalidArgumentError } from '../errors.ts'
import type { Jobs } from '../jobs/index.ts'

export interface DashboardOptions {
  /**
   * Who knows it may look: at least 16 characters. It is given once as `?token=…`, typed into the page, or sent as
   * `Authorization: Bearer …`; the browser then keeps a cookie. Without `token` and `authorize` only browsers on this
   * machine are answered, and nothing that a proxy has passed on.
   */
  readonly token?: string | undefined
  /** Lets the application decide instead, by its own sessions. Asked for every request of data. */
  readonly authorize?: ((request: IncomingMessage) => boolean | Promise<boolean>) | undefined
  /** Whether those who look may take keys away from holders and waiters. Default: no. */
  readonly allowEvict?: boolean | undefined
  /** Where it is mounted, if `request.url` still has that in front, as with Fastify and plain http: `/locks`. */
  readonly path?: string | undefined
  /** Shows only keys that begin with it. Others cannot be evicted here, either. Default: all. */
  readonly prefix?: string | undefined
  /** The jobs to show beside the locks. */
  readonly jobs?: Pick<Jobs, 'count' | 'inspect'> | undefined
  /** What people read at the top. Default: `Locks`. */
  readonly title?: string | undefined
  /** Origins from which browsers may send requests, where a proxy changes the `Host`: `['https://locks.example']`. */
  readonly origins?: readonly string[] | undefined
}

export interface Settings {
  readonly token: string | undefined
  readonly authorize: DashboardOptions['authorize']
  readonly allowEvict: boolean
  readonly path: string
  readonly prefix: string
  readonly jobs: DashboardOptions['jobs']
  readonly title: string
  readonly origins: readonly string[]
}

export function parseOptions(options: DashboardOptions): Settings {
  checkOptions(options, NAMES)
  const { token, authorize, path = '', prefix = '', jobs, title = 'Locks' } = options
  const { origins = [] } = options
  if (token !== undefined && (typeof token !== 'string' || !/^[!-~]{16,}$/.test(token))) {
    // Not what was given: it is nearly a token.
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
  if (jobs !== undefined && typeof jobs?.inspect !== 'function')
    throw expected('jobs', 'what createJobs() or openJobs() returns', jobs)
  const misplaced = Array.isArray(origins) ? origins.find((origin) => !isOrigin(origin)) : origins
  if (misplaced !== undefined) throw expected('origins', 'an array such as ["https://a.example"]', misplaced)
  return { token, authorize, allowEvict, path: path.replace(/\/$/, ''), prefix, jobs, title, origins }
}

const NAMES: ReadonlySet<string> = new Set([
  'token',
  'authorize',
  'allowEvict',
  'path',
  'prefix',
  'jobs',
  'title',
  'origins',
] satisfies (keyof DashboardOptions)[])

function isOrigin(text: unknown): boolean {
  return typeof text === 'string' && URL.canParse(text) && new URL(text).origin === text
}
