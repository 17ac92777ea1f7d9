import { checkOptions, expected, parseFlag, parseFunction } from '../base/arguments.ts'
import { type Duration, HOLD_RANGE, parseDuration, TTL_RANGE, WAIT_RANGE } from '../base/duration.ts'
import { callListener } from '../base/listener.ts'
import { reportOf } from '../base/thrown.ts'
import { IdempotencyKeyError, isHoldfastError } from '../errors.ts'
import type { Lease, Locks } from '../index.ts'
import { AnswerRecorder, type HeaderValue, type RawResponse, type RecordedAnswer } from './answer-recorder.ts'
import {
  clientKeyOf,
  fingerprintOf,
  type IncomingRequest,
  lockKeyOf,
  parsedBodyOf,
} from './idempotent-request.ts'
import { bodyOf, type KeptAnswer, keptAnswer } from './kept-answer.ts'
import type { OutgoingResponse } from './request-signal.ts'

/** Which requests are answered once, and for how long their answers are kept. */
export interface IdempotencyOptions<Request extends IncomingRequest = IncomingRequest> {
  /** How long an answer is kept: at least as long as a client may try again. From 50 ms to 24 days. No default. */
  readonly remember: Duration
  /**
   * Whose key it is: the id of the user, of the account. Two scopes may use the same key, and neither gets the answers of the other.
   * It is called after the request was authenticated. No default.
   */
  readonly scope: (request: Request) => string
  /** Whether a request without a key is refused (400). Default: false, and such a request is answered each time. */
  readonly required?: boolean | undefined
  /** The methods that it is about. Requests of other methods pass. Default: POST and PATCH. */
  readonly methods?: readonly string[] | undefined
  /**
   * Which answers are final, by their status. A final answer is kept. After any other answer the next request with the key runs the
   * handler again. Default: below 400. With `() => true` errors are kept, too.
   */
  readonly isFinal?: ((status: number) => boolean) | undefined
  /** What must be the same in a repetition, beside the method and the URL. Default: the parsed body. It may return a promise. */
  readonly payload?: ((request: Request) => unknown) | undefined
  /** How long a repetition waits for the first request that is still running. Default: 0, it is refused at once (409). */
  readonly wait?: Duration | undefined
  /** How soon another process may run the handler when this one has died. Default: that of the locks. */
  readonly ttl?: Duration | undefined
  /** How long a handler may run. After that, a repetition may run it again. Default: 10 min. */
  readonly maxHold?: Duration | undefined
  /** Called when an answer was sent and could not be kept, or its lease was lost. Default: a process warning. */
  readonly onError?: ((error: unknown, context: { readonly key: string }) => void) | undefined
}

/** Middleware of Express, hook of Fastify: `next` runs the handler, or gets the error that is the answer. */
export type IdempotencyMiddleware<Request extends IncomingRequest = IncomingRequest> = (
  request: Request,
  response: OutgoingResponse | FrameworkReply,
  next: (error?: Error) => void,
) => void

/** A reply of Fastify, which keeps headers until it answers. */
export interface FrameworkReply {
  /** The response of Node.js below it. */
  readonly raw: OutgoingResponse
  /** The headers that the framework would send. */
  getHeaders(): Readonly<Record<string, HeaderValue | undefined>>
  /** Says that the answer does not come from the framework. */
  hijack(): unknown
}

/** The key of a request, and the lease under which its handler runs. */
export interface RequestIdempotency {
  /** What the client sent: for the Idempotency-Key of your own requests to others. */
  readonly key: string
  /** Its `signal` aborts when the lease is lost. It does not abort when the client goes away, as the client will ask again. */
  readonly lease: Lease
}

/**
 * The key of a request that is being answered once, and its lease. `null`: the request has no key, or is not answered by
 * `requests.idempotent`.
 *
 * ```ts
 * import type { Request } from 'express'
 * import { requestIdempotency } from 'holdfast/http'
 *
 * export function charge(request: Request): Promise<unknown> {
 *   const { key, lease } = requestIdempotency(request) ?? {}
 *   lease?.assertHeld()
 *   return fetch('https://pay.example/', { method: 'POST', headers: key === undefined ? {} : { 'idempotency-key': key } })
 * }
 * ```
 */
export function requestIdempotency(request: object): RequestIdempotency | null {
  return running.get(request) ?? null
}

const running = new WeakMap<object, RequestIdempotency>()

/** Answers the requests of one route. */
export class Idempotency<Request extends IncomingRequest> {
  readonly #locks: Locks
  readonly #settings: ReturnType<typeof parseIdempotency<Request>>

  constructor(locks: Locks, options: IdempotencyOptions<Request>) {
    this.#locks = locks
    this.#settings = parseIdempotency(options)
  }

  /** Whether a request is answered once. If it is not, its handler runs as always. @throws {IdempotencyKeyError} */
  isFor(request: Request): boolean {
    const { methods, required } = this.#settings
    // A second one of the same route, as of a router and of the application.
    if (!methods.has(request.method ?? '') || running.has(request)) return false
    if (clientKeyOf(request) !== null) return true
    if (!required) return false
    throw new IdempotencyKeyError('Expected a header Idempotency-Key: this request needs one, got none.', {
      reason: 'missing',
    })
  }

  /**
   * Runs the handler, or sends the answer that is kept. Rejects only if the handler has not begun. `signal` ends the wait, which
   * `onBegun` tells the end of.
   */
  async answer(
    request: Request,
    reply: OutgoingResponse | FrameworkReply,
    { signal, onBegun }: { readonly signal: AbortSignal; readonly onBegun: () => void },
  ): Promise<void> {
    const { scope, payload, isFinal, hold, onError } = this.#settings
    const clientKey = clientKeyOf(request) ?? ''
    const key = lockKeyOf(scope(request), clientKey)
    const fingerprint = await fingerprintOf(request, await payload(request))
    let recorder: AnswerRecorder | undefined
    const response = rawOf(reply)
    const wasBegun = response.headersSent
    // Whether somebody else has answered during the wait, as a time-out of the framework does. Then there is nothing to do.
    const isAnswered = () => response.writableEnded || (response.headersSent && !wasBegun)
    try {
      const outcome = await this.#locks.once(key, { ...hold, keepResult: true, signal }, async (lease) => {
        signal.throwIfAborted()
        if (isAnswered()) throw new NotFinal()
        recorder = new AnswerRecorder(response, headersOf(reply))
        running.set(request, { key: clientKey, lease })
        onBegun()
        const answer = await answerOf(recorder, lease, response)
        if (answer === null || !isFinal(answer.status)) throw new NotFinal()
        const kept = await keptAnswer(fingerprint, answer)
        if (kept.body === null) onError(notKept(key, answer), { key })
        return kept
      })
      if (!outcome.ran && !isAnswered()) await replay(reply, fingerprint, outcome.value)
    } catch (error) {
      if (recorder === undefined) {
        if (isAnswered()) return
        throw refusal(error)
      }
      if (!(error instanceof NotFinal)) onError(error, { key })
    } finally {
      recorder?.send()
    }
  }
}

/** Ends `once` without a mark: the next request with the key runs its handler again. */
class NotFinal extends Error {}

/** `null`: the handler has not answered, its client has gone, and its lease is over. Perhaps it never ends. */
async function answerOf(
  recorder: AnswerRecorder,
  { signal }: Lease,
  response: RawResponse,
): Promise<RecordedAnswer | null> {
  const abandoned = Promise.all([
    new Promise<void>((resolve) => {
      if (response.destroyed === true) resolve()
      else response.once('close', resolve)
    }),
    new Promise<void>((resolve) => {
      if (signal.aborted) resolve()
      else signal.addEventListener('abort', () => resolve(), { once: true })
    }),
  ])
  return Promise.race([recorder.answered, abandoned.then(() => null)])
}

async function replay(
  reply: OutgoingResponse | FrameworkReply,
  fingerprint: string,
  kept: KeptAnswer | undefined,
): Promise<void> {
  if (kept?.request !== undefined && kept.request !== fingerprint) {
    throw new IdempotencyKeyError(
      'This Idempotency-Key came with another request before. Use a new key for each request.',
      { reason: 'other-request' },
    )
  }
  if (kept === undefined || kept.body === null) {
    throw new IdempotencyKeyError(
      'The request with this Idempotency-Key was answered before. Its answer was not kept, and it is not done again.',
      { reason: 'answer-not-kept' },
    )
  }
  const body = await bodyOf(kept.body)
  const response = rawOf(reply)
  if ('raw' in reply) {
    reply.hijack()
    setAll(response, reply.getHeaders())
  }
  setAll(response, { ...kept.headers, 'idempotent-replayed': 'true' })
  response.statusCode = kept.status
  response.end(body)
}

function setAll(response: RawResponse, headers: Readonly<Record<string, HeaderValue | undefined>>): void {
  for (const [name, value] of Object.entries(headers))
    if (value !== undefined) response.setHeader(name, value)
}

function refusal(error: unknown): unknown {
  if (!isHoldfastError(error, 'acquire-timeout')) return error
  return new IdempotencyKeyError(
    'The first request with this Idempotency-Key is still being answered. Try again later.',
    { reason: 'running', cause: error },
  )
}

function notKept(key: string, { body }: RecordedAnswer): IdempotencyKeyError {
  const why = body === 'broken off' ? 'broke off' : 'is too long to be kept, even when it is compressed'
  return new IdempotencyKeyError(
    `The answer of ${JSON.stringify(key)} ${why}. Repetitions of the request are refused, as it was done. Answer with the id of the result instead.`,
    { key, reason: 'answer-not-kept' },
  )
}

function rawOf(reply: OutgoingResponse | FrameworkReply): RawResponse {
  return ('raw' in reply ? reply.raw : reply) as OutgoingResponse & RawResponse
}

function headersOf(
  reply: OutgoingResponse | FrameworkReply,
): Readonly<Record<string, HeaderValue | undefined>> {
  return 'raw' in reply ? reply.getHeaders() : rawOf(reply).getHeaders()
}

function parseIdempotency<Request extends IncomingRequest>(options: IdempotencyOptions<Request>) {
  checkOptions(options, NAMES, 'remember')
  const { remember, scope, required, methods = ['POST', 'PATCH'], isFinal = isSuccess } = options
  const { payload = parsedBodyOf, wait = 0, ttl, maxHold = '10m', onError = warnOfError } = options
  if (!Array.isArray(methods) || !methods.every((method) => /^[A-Z]+$/.test(method))) {
    throw expected('methods', "a list of methods such as ['POST', 'PUT']", methods)
  }
  parseFunction('onError', onError)
  return {
    scope: parseFunction('scope', scope),
    required: parseFlag('required', required, false),
    methods: new Set<string>(methods),
    isFinal: parseFunction('isFinal', isFinal),
    payload: parseFunction('payload', payload),
    hold: {
      remember: parseDuration('remember', remember, TTL_RANGE),
      wait: parseDuration('wait', wait, WAIT_RANGE),
      maxHold: parseDuration('maxHold', maxHold, HOLD_RANGE),
      ...(ttl === undefined ? {} : { ttl: parseDuration('ttl', ttl, TTL_RANGE) }),
    },
    onError: (error: unknown, context: { readonly key: string }) =>
      callListener(
        () => onError(error, context),
        (ownError) => warn('`onError` of requests with an Idempotency-Key itself failed.', ownError),
      ),
  }
}

const NAMES: ReadonlySet<string> = new Set<keyof IdempotencyOptions>([
  'remember',
  'scope',
  'required',
  'methods',
  'isFinal',
  'payload',
  'wait',
  'ttl',
  'maxHold',
  'onError',
])

function isSuccess(status: number): boolean {
  return status < 400
}

function warnOfError(error: unknown, { key }: { readonly key: string }): void {
  warn(`The answer of ${JSON.stringify(key)} was sent, and is not sure to be kept. See \`onError\`.`, error)
}

function warn(message: string, error: unknown): void {
  process.emitWarning(message, {
    type: 'HoldfastWarning',
    code: 'HOLDFAST_IDEMPOTENCY',
    detail: reportOf(error),
  })
}
