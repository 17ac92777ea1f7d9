import type { IncomingMessage, ServerResponse } from 'node:http'
import { expected } from '../base/arguments.ts'
import { reportOf } from '../base/thrown.ts'
import { isHoldfastError } from '../errors.ts'
import type { Locks } from '../index.ts'
import { watchRooms } from '../room-watch/room-watch.ts'
import { Access } from './access.ts'
import { JobsLook } from './jobs-look.ts'
import { Live, type Question } from './live.ts'
import { type DashboardOptions, parseOptions, type Settings } from './options.ts'
import { files } from './page/files.generated.ts'
import { bodyOf, refuse, send, sendFile } from './replies.ts'
import { isSortName, sharedView, type ViewRequest, viewOf } from './view.ts'

/** Answers requests; mount it like any handler of `node:http`. */
export interface Dashboard {
  (request: IncomingMessage, response: ServerResponse): void
  /**
   * Ends the connections of those who look, looks at the store no more, and answers nobody any more, so that the server can
   * end. The locks stay open.
   */
  close(): void
}

/**
 * A page that shows who holds what and who waits, as it changes: for `node:http`, Express and Fastify. While nobody has it
 * open the store is not asked. It changes nothing, unless `allowEvict` is on.
 *
 * ```ts
 * import { createServer } from 'node:http'
 * import { connect } from 'holdfast'
 * import { createDashboard } from 'holdfast/dashboard'
 *
 * const locks = await connect('redis://localhost:6379')
 * const dashboard = createDashboard(locks, { token: process.env['DASHBOARD_TOKEN'] })
 * createServer(dashboard).listen(7575, '127.0.0.1')
 * ```
 *
 * Who may look is decided by `token`, or by `authorize`, or else only browsers on this machine are answered.
 *
 * @throws {InvalidArgumentError} when an option is not what it should be.
 */
export function createDashboard(locks: Locks, options: DashboardOptions = {}): Dashboard {
  if (typeof locks?.inspect !== 'function') {
    throw expected('locks', 'what createLocks() or connect() returns', locks)
  }
  const desk = new Desk(locks, parseOptions(options))
  return Object.assign(
    (request: IncomingMessage, response: ServerResponse): void => {
      desk.answer(request, response).catch((error: unknown) => {
        // Whoever has left needs no answer.
        if (!response.destroyed) desk.fail(response, error)
      })
    },
    { close: () => desk.close() },
  )
}

class Desk {
  readonly #locks: Locks
  readonly #settings: Settings
  readonly #access: Access
  readonly #live: Live
  readonly #jobs: JobsLook | undefined
  #isClosed = false

  constructor(locks: Locks, settings: Settings) {
    this.#locks = locks
    this.#settings = settings
    this.#access = new Access(settings)
    const { prefix, jobs } = settings
    this.#live = new Live((onSnapshot) => watchRooms(locks, { prefix, onSnapshot }))
    this.#jobs = jobs === undefined ? undefined : new JobsLook(jobs)
  }

  async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    // A page comes back at once, and over a connection that is open already: the server would never end.
    if (this.#isClosed) {
      const headers = request.httpVersionMajor === 1 ? { Connection: 'close' } : {}
      return refuse(response, 503, 'The dashboard is closed.', headers)
    }
    const place = placeOf(request, this.#settings.path)
    if (place === undefined) return refuse(response, 404, 'There is nothing here.')
    if (place.name.startsWith('api/')) return this.#answerApi(request, response, place)
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      return refuse(response, 405, 'Only GET and HEAD work here.', { Allow: 'GET, HEAD' })
    }
    if (place.name !== '') return sendFile(response, files, place.name)
    const token = place.query.get('token')
    if (place.redirect === undefined && token === null) return sendFile(response, files, 'index.html')
    // Relative, and without what was asked for: it leads nowhere else, and the token leaves the address bar.
    const cookie =
      token !== null && this.#access.isToken(token) ? { 'Set-Cookie': this.#access.cookieFor(request) } : {}
    const target = place.redirect ?? './'
    const isLost = place.redirect !== undefined && token !== null
    send(response, 303, '', { ...cookie, Location: isLost ? `${target}${place.search}` : target })
  }

  fail(response: ServerResponse, error: unknown): void {
    if (response.headersSent) return void response.destroy()
    const isOurs = isHoldfastError(error)
    const status = isHoldfastError(error, 'invalid-argument') ? 400 : isOurs ? 503 : 500
    refuse(
      response,
      status,
      isOurs ? error.message : 'Something went wrong; the log of the server tells what.',
    )
    // A mistake of ours, or of `authorize`.
    if (isOurs) return
    process.emitWarning('The dashboard could not answer a request.', {
      type: 'HoldfastWarning',
      code: 'HOLDFAST_DASHBOARD',
      detail: reportOf(error),
    })
  }

  close(): void {
    this.#isClosed = true
    this.#live.close()
  }

  async #answerApi(request: IncomingMessage, response: ServerResponse, place: Place): Promise<void> {
    const route = ROUTES[place.name]
    if (route === undefined) return refuse(response, 404, 'There is nothing here.')
    if (request.method !== route) {
      return refuse(response, 405, `Only ${route} works here.`, { Allow: route })
    }
    const standing = await this.#access.standingOf(request)
    // While the application was asked.
    if (this.#isClosed) return this.answer(request, response)
    switch (standing) {
      case 'foreign':
        return refuse(response, 403, 'Another site has sent this request.')
      case 'outside':
        return refuse(
          response,
          403,
          'Without a token only browsers on the same machine are answered. Start the dashboard with one.',
        )
      case 'unknown':
        if (place.name === 'api/session') return this.#openSession(request, response)
        return refuse(response, 401, 'Who may look is asked for a token.', { 'WWW-Authenticate': 'Bearer' })
      case 'granted':
        break
      default:
        standing satisfies never
    }
    switch (place.name) {
      case 'api/session':
        return this.#openSession(request, response)
      case 'api/evict':
        return this.#evict(request, response)
      case 'api/live':
        if (this.#live.isFull) return refuse(response, 503, 'Too many are looking at this moment.')
        return this.#live.join(response, this.#questionOf(place.query))
      default: {
        const { view } = this.#questionOf(place.query)
        send(response, 200, JSON.stringify(view(await this.#live.looked())), JSON_TYPE)
      }
    }
  }

  /** Somebody has typed the token into the page. */
  async #openSession(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { token } = await bodyOf(request)
    if (typeof token !== 'string' || !this.#access.isToken(token)) {
      return refuse(response, 401, 'This is not the token.')
    }
    send(response, 200, '{}', { ...JSON_TYPE, 'Set-Cookie': this.#access.cookieFor(request) })
  }

  async #evict(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (!this.#settings.allowEvict) {
      return refuse(response, 403, 'This dashboard only shows. Evicting has to be switched on.')
    }
    const { key, id, reason } = (await bodyOf(request)) as {
      key: string
      id: string | undefined
      reason: string
    }
    if (typeof key !== 'string' || !key.startsWith(this.#settings.prefix)) {
      return refuse(response, 400, 'Expected `key` to be one of those shown here.')
    }
    const evicted = await this.#locks.evict(key, id, { reason })
    const { watch } = this.#live
    watch.noteEviction(key, evicted, reason)
    watch.lookNow()
    send(response, 200, JSON.stringify({ evicted }), JSON_TYPE)
  }

  #questionOf(query: URLSearchParams): Question {
    const { allowEvict, title } = this.#settings
    const site = { title, allowEvict, hasJobs: this.#jobs !== undefined }
    if (query.get('view') === 'jobs') {
      return { name: 'jobs', view: (watch) => ({ site, ...sharedView(watch), ...this.#jobs?.view }) }
    }
    const wanted = viewRequestOf(query)
    return { name: JSON.stringify(wanted), view: (watch) => ({ site, ...viewOf(watch, wanted) }) }
  }
}

const ROUTES: Readonly<Record<string, 'GET' | 'POST' | undefined>> = {
  'api/view': 'GET',
  'api/live': 'GET',
  'api/evict': 'POST',
  'api/session': 'POST',
}

const JSON_TYPE = { 'Content-Type': 'application/json; charset=utf-8' }

interface Place {
  /** Below where it is mounted, without a slash in front. */
  readonly name: string
  readonly query: URLSearchParams
  readonly search: string
  /** Set where the address lacks its slash at the end, without which the page's own addresses lead astray. */
  readonly redirect: string | undefined
}

/** Express takes off what it is mounted at, and keeps the whole in `originalUrl`. */
function placeOf(request: IncomingMessage & { originalUrl?: string }, mount: string): Place | undefined {
  const [whole, search] = splitAddress(request.originalUrl ?? request.url ?? '')
  const [pathname] = splitAddress(request.url ?? '')
  const isBelow = mount !== '' && `${whole}/`.startsWith(`${mount}/`)
  if (mount !== '' && !isBelow && request.originalUrl === undefined) return undefined
  const name = (isBelow ? whole.slice(mount.length) : pathname).replace(/^\//, '')
  const redirect = name === '' && !whole.endsWith('/') ? `./${whole.split('/').at(-1)}/` : undefined
  return { name, query: new URLSearchParams(search), search, redirect }
}

/** As it was sent: what is no address, or goes up on its way, is found nowhere. */
function splitAddress(address: string): [path: string, search: string] {
  const [path = ''] = address.split('?', 1)
  return [path, address.slice(path.length)]
}

function viewRequestOf(query: URLSearchParams): ViewRequest {
  const key = query.get('key')
  if (key !== null) return { view: 'key', key }
  if (query.get('view') === 'contention') return { view: 'contention' }
  const sort = query.get('sort') ?? 'key'
  const show = query.get('show')
  return {
    view: 'keys',
    search: query.get('search') ?? '',
    show: show === 'contended' || show === 'elections' ? show : 'all',
    sort: isSortName(sort) ? sort : 'key',
    page: Math.max(0, Number.parseInt(query.get('page') ?? '0', 10) || 0),
  }
}
