import { show } from '../base/duration.ts'
import { IdempotencyKeyError, InvalidArgumentError } from '../errors.ts'

/** The part that the requests of Express, Fastify and Node.js have in common. */
export interface IncomingRequest {
  /** `POST`, as Node.js gives it. */
  readonly method?: string | undefined
  /** The path with its query, as Node.js gives it. */
  readonly url?: string | undefined
  /** The whole URL, in a router of Express. */
  readonly originalUrl?: string | undefined
  /** By lower-case name. */
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>
  /** The body as the framework has parsed it. */
  readonly body?: unknown
}

/**
 * The key that a client has sent: a text of 1 to 255 visible characters, with or without the double quotes of a structured header.
 * `null`: the request has none.
 *
 * @throws {IdempotencyKeyError} `malformed`
 */
export function clientKeyOf({ headers }: IncomingRequest): string | null {
  const header = headers['idempotency-key']
  if (header === undefined) return null
  const text = typeof header === 'string' ? header.trim() : header.join(', ')
  const key = /^"((?:[^"\\]|\\["\\])*)"$/.exec(text)?.[1]?.replace(/\\(["\\])/g, '$1') ?? text
  // A client that sends the header twice is not understood: Node.js joins the two by a comma and a space.
  if (/^[!-~]{1,255}$/.test(key) && (key === text || !/^"/.test(key))) return key
  throw new IdempotencyKeyError(
    `Expected the header Idempotency-Key to be one text of 1 to 255 visible ASCII characters, got ${show(text)}.`,
    { reason: 'malformed' },
  )
}

/** The key of the lock. A scope cannot reach into another one, as its `:` is encoded. Nor can a key name the mark of another key. */
export function lockKeyOf(scope: unknown, clientKey: string): string {
  if (typeof scope === 'string' && scope !== '' && !/\p{Surrogate}/u.test(scope)) {
    return `idempotency:${encodeURIComponent(scope)}:${encodeURIComponent(clientKey)}`
  }
  throw new InvalidArgumentError(
    `Expected \`scope\` to return a text with at least one character, got ${show(scope)}. Without a scope one user could get the answer of another.`,
  )
}

/** What a repetition has in common with the first request: a hash of the method, the URL and the body. */
export async function fingerprintOf(request: IncomingRequest, body: unknown): Promise<string> {
  const head = Buffer.from(`${request.method} ${request.originalUrl ?? request.url}\n`)
  const hash = await crypto.subtle.digest('SHA-256', Buffer.concat([head, bytesOf(body)]))
  return Buffer.from(hash).toString('base64url')
}

/**
 * The parsed body.
 *
 * @throws {InvalidArgumentError} when nobody has parsed it, or only the fields beside its files, as two bodies would seem to be the same.
 */
export function parsedBodyOf({ body, headers }: IncomingRequest): unknown {
  const type = String(headers['content-type'] ?? '')
  const length = headers['content-length']
  // HTTP/2 has no `transfer-encoding`, and a body need not say how long it is.
  const isStream =
    headers['transfer-encoding'] !== undefined || (headers[':method'] !== undefined && type !== '')
  const hasBody = length === undefined ? isStream : Number(length) > 0
  if (!hasBody) return body
  if (/^multipart\//i.test(type) && !(body instanceof Uint8Array || typeof body === 'string')) {
    throw new InvalidArgumentError(
      'Expected `payload` for a multipart body, whose files are not in `request.body`. Return from `payload` what must be the same in a repetition.',
    )
  }
  // The body-parser of Express 4 leaves an empty object where it has parsed nothing.
  const isLeftOut = isEmptyObject(body) && !/^application\/([\w.-]+\+)?json\b/i.test(type)
  if (body !== undefined && !isLeftOut) return body
  throw new InvalidArgumentError(
    'Expected a parsed body in `request.body`, got a request whose body was not read. Parse it before, as by express.json(), or give `payload`.',
  )
}

function isEmptyObject(body: unknown): boolean {
  return typeof body === 'object' && body !== null && !isLost(body) && Object.keys(body).length === 0
}

function bytesOf(body: unknown): Uint8Array {
  if (body === undefined || body === null) return Buffer.alloc(0)
  if (body instanceof Uint8Array) return body
  return Buffer.from(typeof body === 'string' ? body : (JSON.stringify(body, inOrder) ?? ''))
}

/** Names in order, as the same client may send the members of an object in another order when it tries again. */
function inOrder(name: string, value: unknown): unknown {
  if (isLost(value)) {
    throw new InvalidArgumentError(
      `Expected \`request.body\`, or what \`payload\` returns, to be bytes, a text or JSON, got ${show(value)}${name && ` at \`${name}\``}. Return from \`payload\` what must be the same in a repetition.`,
    )
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
  return Object.fromEntries(Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1)))
}

/** Whether JSON would have null, nothing or `{}` for it, so that two different requests seem to be the same. */
function isLost(value: unknown): boolean {
  if (typeof value === 'number') return !Number.isFinite(value)
  if (typeof value !== 'object') return ['bigint', 'function', 'symbol'].includes(typeof value)
  // Such as FormData, a Map or a Promise.
  return (
    value !== null && !Array.isArray(value) && Object.prototype.toString.call(value) !== '[object Object]'
  )
}
