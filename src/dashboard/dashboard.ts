import type { IncomingMessage, ServerResponse } from 'node:http'
import { expected } from '../base/arguments.ts'
import { reportOf } from '../base/thrown.ts'
import { isHoldfastError } from '../errors.ts'
import type { Locks } from '../index.ts'
import { watchRooms } from '../room-watch/room-watch.ts'
import { Access } from './access.ts'
import { askedHoldersIn, askedTicketsIn, evictHolders, evictTickets } from './evictions.ts'
import { exportedList } from './export.ts'
import { exported, isExportFormat } from './export-file.ts'
import { changeJobs } from './job-changes.ts'
import { JobsLook } from './jobs-look.ts'
import { jobsRequestIn } from './jobs-request.ts'
import { LiveViewers, type ViewQuery } from './live.ts'
import { type DashboardOptions, type DashboardSettings, parseOptions } from './options.ts'
import { files } from './page/files.generated.ts'
import { RecordFile } from './record-file.ts'
import { bodyOf, refuse, send, sendFile } from './replies.ts'
import { type RequestTarget, requestTargetOf } from './request-target.ts'
import { sharedView, viewOf } from './view.ts'
import type { SiteJson } from './view-json.ts'
import { viewRequestOf } from './view-request.ts'

/** Answers requests; mount it like any handler of `node:http`. */
export interface Dashboard extends AsyncDisposable {
  (request: IncomingMessage, response: ServerResponse): void
  /**
   * Ends all open live streams, stops reading the store, closes the file of the history, and refuses further requests, so that
   * the server can close. The locks stay open.
   */
  close(): Promise<void>
}

/**
 * A page that shows who holds what and who waits, as it changes: for `node:http`, Express and Fastify. It reads the store only
 * while a page is open, unless `record` is on, and changes nothing unless `allowEvict` or `allowJobChanges` is on.
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
 * `token` or `authorize` decides who may look. Without both, only browsers on this machine are answered.
 *
 * @throws {InvalidArgumentError} when an option is invalid.
 */
export function createDashboard(locks: Locks, options: DashboardOptions = {}): Dashboard {
  if (typeof locks?.inspect !== 'function') {
    throw expected('locks', 'what createLocks() or connect() returns', locks)
  }
  const handler = new DashboardHandler(locks, parseOptions(options))
  const close = async (): Promise<void> => handler.close()
  return Object.assign(
    (request: IncomingMessage, response: ServerResponse): void => {
      handler.answer(request, response).catch((error: unknown) => {
        // The browser has left: there is nothing to answer.
        if (!response.destroyed) handler.fail(response, error)
      })
    },
    { close, [Symbol.asyncDispose]: close },
  )
}

class DashboardHandler {
  readonly #locks: Locks
  readonly #settings: DashboardSettings
  readonly #access: Access
  readonly #file: RecordFile | undefined
  readonly #live: LiveViewers
  readonly #jobs: JobsLook | undefined
  #isClosed = false

  constructor(locks: Locks, settings: DashboardSettings) {
    this.#locks = locks
    this.#settings = settings
    this.#access = new Access(settings)
    const { prefix, jobs, record } = settings
    this.#file = record?.file === undefined ? undefined : new RecordFile(record.file, record)
    const kept =
      record === undefined ? {} : { history: { ...RECORDED, keepMs: record.keepMs }, file: this.#file }
    this.#live = new LiveViewers((onSnapshot) => watchRooms(locks, { prefix, onSnapshot, ...kept }), {
      isRecording: record !== undefined,
    })
    this.#jobs = jobs === undefined ? undefined : new JobsLook(jobs)
  }

  async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    // An open page reconnects at once over its kept-alive connection, which would keep the server from closing.
    if (this.#isClosed) {
      const headers = request.httpVersionMajor === 1 ? { Connection: 'close' } : {}
      return refuse(response, 503, 'The dashboard is closed.', headers)
    }
    const target = requestTargetOf(request, this.#settings.path)
    if (target === undefined) return refuse(response, 404, 'There is nothing here.')
    if (target.name.startsWith('api/')) return this.#answerApi(request, response, target)
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      return refuse(response, 405, 'Only GET and HEAD work here.', { Allow: 'GET, HEAD' })
    }
    if (target.name !== '') return sendFile(response, files, target.name)
    const token = target.query.get('token')
    if (target.redirect === undefined && token === null) return sendFile(response, files, 'index.html')
    // Relative, so that it leads to no other site, and without the query, so that the token leaves the address bar.
    if (target.redirect !== undefined) {
      // The token comes along: a cookie of this address would be one of the folder above.
      return send(response, 303, '', { Location: `${target.redirect}${token === null ? '' : target.search}` })
    }
    const cookie =
      token !== null && this.#access.isToken(token) ? { 'Set-Cookie': this.#access.cookieFor(request) } : {}
    send(response, 303, '', { ...cookie, Location: './' })
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
    // A mistake in this code or in `authorize`.
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
    this.#file?.close()
  }

  async #answerApi(request: IncomingMessage, response: ServerResponse, target: RequestTarget): Promise<void> {
    const route = ROUTES[target.name]
    if (route === undefined) return refuse(response, 404, 'There is nothing here.')
    if (request.method !== route) {
      return refuse(response, 405, `Only ${route} works here.`, { Allow: route })
    }
    const decision = await this.#access.decide(request)
    // Closed while `authorize` was asked.
    if (this.#isClosed) return this.answer(request, response)
    switch (decision) {
      case 'foreign':
        return refuse(response, 403, 'Another site has sent this request.')
      case 'outside':
        return refuse(
          response,
          403,
          'Without a token only browsers on the same machine are answered, and not through a proxy. Start the dashboard with one.',
        )
      case 'unauthorized':
        return refuse(response, 403, 'Your session does not allow this, or has ended.')
      case 'unknown':
        if (target.name === 'api/session') return this.#openSession(request, response)
        return refuse(response, 401, 'The dashboard needs a token.', { 'WWW-Authenticate': 'Bearer' })
      case 'granted':
        break
      default:
        decision satisfies never
    }
    switch (target.name) {
      case 'api/session':
        return this.#openSession(request, response)
      case 'api/evict':
        return this.#evict(request, response)
      case 'api/jobs':
        return this.#changeJobs(request, response)
      case 'api/export':
        return this.#export(response, target.query)
      case 'api/live': {
        if (this.#live.isFull) return refuse(response, 503, TOO_MANY)
        const { query, ready } = this.#queryOf(target.query)
        await ready()
        if (this.#isClosed) return this.answer(request, response)
        if (this.#live.isFull) return refuse(response, 503, TOO_MANY)
        return this.#live.join(response, query)
      }
      default: {
        const { query, ready } = this.#queryOf(target.query)
        await ready()
        if (this.#isClosed) return this.answer(request, response)
        send(response, 200, JSON.stringify(query.view(await this.#live.looked())), JSON_TYPE)
      }
    }
  }

  /** The token was typed into the page. */
  async #openSession(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { token } = await bodyOf(request)
    if (this.#isClosed) return this.answer(request, response)
    if (typeof token !== 'string' || !this.#access.isToken(token)) {
      return refuse(response, 401, 'This is not the token.')
    }
    send(response, 200, '{}', { ...JSON_TYPE, 'Set-Cookie': this.#access.cookieFor(request) })
  }

  async #evict(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (!this.#settings.allowEvict) {
      return refuse(response, 403, 'This dashboard only shows. Evicting has to be switched on.')
    }
    const body = await bodyOf(request)
    if (this.#isClosed) return this.answer(request, response)
    if (body['holders'] !== undefined) return this.#evictHolders(response, body)
    const { key, ids, reason } = body as { key: string; ids: unknown; reason: string }
    if (typeof key !== 'string' || !key.startsWith(this.#settings.prefix)) {
      return refuse(response, 400, 'Expected `key` to be one of those shown here.')
    }
    const { watch } = this.#live
    const note = (evicted: readonly string[]): void => watch.noteEviction(key, evicted, reason)
    const evicted = await evictTickets(this.#locks, { key, ids: askedTicketsIn(ids), reason }, note)
    watch.lookNow()
    send(response, 200, JSON.stringify({ evicted }), JSON_TYPE)
  }

  async #evictHolders(response: ServerResponse, body: Readonly<Record<string, unknown>>): Promise<void> {
    const { watch } = this.#live
    const evictions = await evictHolders(
      this.#locks,
      askedHoldersIn(body['holders'], this.#settings.prefix),
      {
        reason: reasonIn(body),
        onEvicted: (key, ids) => watch.noteEviction(key, ids, reasonIn(body)),
      },
    )
    watch.lookNow()
    send(response, 200, JSON.stringify(evictions), JSON_TYPE)
  }

  /** The whole list that a page shows a part of, as a file. */
  async #export(response: ServerResponse, query: URLSearchParams): Promise<void> {
    const format = query.get('format')
    if (!isExportFormat(format)) return refuse(response, 400, 'Expected `format` to be json or csv.')
    const list = await exportedList({ live: this.#live, jobs: this.#jobs }, query)
    if (list === undefined)
      return refuse(response, 400, 'Expected `view` to be a list that this dashboard shows.')
    const { text, type } = exported(list, format)
    const name = `${query.get('view') ?? 'keys'}-${new Date().toISOString().slice(0, 19).replaceAll(':', '-')}.${format}`
    send(response, 200, text, {
      'Content-Type': `${type}; charset=utf-8`,
      'Content-Disposition': `attachment; filename="${name}"`,
    })
  }

  async #changeJobs(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { jobs, allowJobChanges } = this.#settings
    if (!allowJobChanges || jobs === undefined) {
      return refuse(response, 403, 'This dashboard only shows jobs. Changing them has to be switched on.')
    }
    const body = await bodyOf(request)
    if (this.#isClosed) return this.answer(request, response)
    try {
      const changed = await changeJobs(jobs, body)
      send(response, 200, JSON.stringify({ changed }), JSON_TYPE)
    } finally {
      // Also after an error, as some of the jobs may be changed.
      if (!this.#isClosed) await this.#jobs?.refresh()
      this.#live.sendAll()
    }
  }

  #queryOf(query: URLSearchParams): { readonly query: ViewQuery; readonly ready: () => Promise<void> } {
    const { allowEvict, allowJobChanges, title, prefix, record } = this.#settings
    const jobs = this.#jobs
    const site: SiteJson = {
      title,
      prefix,
      allowEvict,
      hasJobs: jobs !== undefined,
      allowJobChanges,
      recordMs: record?.keepMs,
    }
    const ofJobs = jobsRequestIn(query)
    if (ofJobs !== undefined) {
      const view: ViewQuery['view'] = (watch) => ({ site, ...sharedView(watch), ...jobs?.view(ofJobs) })
      return {
        query: { name: JSON.stringify(ofJobs), view },
        ready: async () => jobs?.ready(ofJobs),
      }
    }
    const wanted = viewRequestOf(query)
    return {
      query: { name: JSON.stringify(wanted), view: (watch) => ({ site, ...viewOf(watch, wanted) }) },
      ready: async () => {},
    }
  }
}

/** `evict` says what is wrong with a reason that is no text. */
function reasonIn({ reason }: Readonly<Record<string, unknown>>): string {
  return reason as string
}

const TOO_MANY = 'Too many are looking at this moment.'

/** Together these need some 60 MB at most. */
const RECORDED = { entries: 1000, total: 200_000 }

const ROUTES: Readonly<Record<string, 'GET' | 'POST' | undefined>> = {
  'api/view': 'GET',
  'api/live': 'GET',
  'api/export': 'GET',
  'api/evict': 'POST',
  'api/jobs': 'POST',
  'api/session': 'POST',
}

const JSON_TYPE = { 'Content-Type': 'application/json; charset=utf-8' }
