import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http'
import { InvalidArgumentError } from '../errors.ts'

export function send(
  response: ServerResponse,
  status: number,
  body: string,
  headers: OutgoingHttpHeaders = {},
): void {
  response.writeHead(status, { ...GUARDS, ...headers, 'Content-Length': Buffer.byteLength(body) })
  response.end(response.req.method === 'HEAD' ? '' : body)
}

/** Answers with one sentence, for people and programs. */
export function refuse(
  response: ServerResponse,
  status: number,
  message: string,
  headers: OutgoingHttpHeaders = {},
): void {
  send(response, status, JSON.stringify({ message }), {
    'Content-Type': 'application/json; charset=utf-8',
    ...headers,
  })
}

export function sendFile(
  response: ServerResponse,
  files: Readonly<Record<string, string>>,
  name: string,
): void {
  const text = Object.hasOwn(files, name) ? files[name] : undefined
  if (text === undefined) return refuse(response, 404, 'There is nothing here.')
  const type = TYPES[name.split('.').at(-1) ?? '']
  send(response, 200, text, { 'Content-Type': `${type}; charset=utf-8` })
}

/**
 * The body, which has to be a JSON object with `Content-Type: application/json`: a form of another site cannot send that
 * type. Where a parser of the application has read the body already, `request.body` has it.
 *
 * @throws {InvalidArgumentError} when the type or the body is something else.
 */
export async function bodyOf(
  request: IncomingMessage & { readonly body?: unknown },
): Promise<Readonly<Record<string, unknown>>> {
  if (!/^application\/json\b/i.test(request.headers['content-type'] ?? '')) {
    throw new InvalidArgumentError('Expected the body to be application/json, got something else.')
  }
  const body = request.body ?? parsed(await textOf(request))
  if (typeof body === 'object' && body !== null) return body as Record<string, unknown>
  throw new InvalidArgumentError('Expected the body to be an object of JSON, got something else.')
}

async function textOf(request: IncomingMessage): Promise<string> {
  const parts: Buffer[] = []
  let size = 0
  for await (const part of request as AsyncIterable<Buffer>) {
    size += part.length
    // Too large a body is still read to its end: stopping closes the connection before the client reads the refusal.
    if (size <= LARGEST_BODY) parts.push(part)
  }
  if (size > LARGEST_BODY)
    throw new InvalidArgumentError(`Expected the body to have at most ${LARGEST_BODY} bytes, got more.`)
  return Buffer.concat(parts).toString()
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

const LARGEST_BODY = 16_384

const TYPES: Readonly<Record<string, string>> = {
  html: 'text/html',
  css: 'text/css',
  js: 'text/javascript',
  svg: 'image/svg+xml',
}

/** The page runs nothing but its own files, may not be framed, and is not cached. */
export const GUARDS: Readonly<Record<string, string>> = {
  'Content-Security-Policy': [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join('; '),
  'X-Content-Type-Options': 'nosniff',
  'X-Frame-Options': 'DENY',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Cache-Control': 'no-store',
}
