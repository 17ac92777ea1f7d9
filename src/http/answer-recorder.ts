/** The value of a header, as Node.js has it. */
export type HeaderValue = number | string | readonly string[]

/** The part of Node's `ServerResponse` through which every framework answers. */
export interface RawResponse {
  statusCode: number
  readonly headersSent: boolean
  readonly writableEnded: boolean
  readonly destroyed?: boolean
  /** Of HTTP/2. */
  readonly stream?: { close(code: number): void }
  readonly req?: { readonly method?: string | undefined }
  getHeaders(): Readonly<Record<string, HeaderValue | undefined>>
  hasHeader(name: string): boolean
  setHeader(name: string, value: HeaderValue): unknown
  removeHeader(name: string): unknown
  writeHead(...args: unknown[]): unknown
  write(...args: unknown[]): boolean
  end(...args: unknown[]): unknown
  destroy(): unknown
  once(event: 'close' | 'pipe', listener: () => void): unknown
}

/** The answer of a handler. */
export interface RecordedAnswer {
  readonly status: number
  /** Those that the answer had not before its handler began. */
  readonly headers: Readonly<Record<string, HeaderValue>>
  readonly body: Buffer | NotRecorded
}

/** Why there is no body: it has more than 64 KiB, or the client did not get all of it. */
export type NotRecorded = 'too long' | 'broken off'

/** In bytes. A longer body is sent while it is written. */
const MOST_RECORDED = 65_536

/** For a stream that is given up: https://www.rfc-editor.org/rfc/rfc9113#section-7 */
const HTTP2_INTERNAL_ERROR = 2

type Recording =
  /** Nothing has reached the client. */
  | { readonly tag: 'recording'; readonly chunks: Buffer[]; bytes: number }
  /** The body was too long: everything goes to the client at once. */
  | { readonly tag: 'passing' }
  /** The handler has answered, and the client gets the answer with `send`. */
  | { readonly tag: 'answered'; readonly send: () => void }
  | { readonly tag: 'sent' }

/**
 * Keeps the answer of a handler back until it is stored, so that a client never has an answer that a repetition would not get.
 * It replaces the methods of the response, because that is where all frameworks meet.
 */
export class AnswerRecorder {
  /** Resolves when the handler has answered. */
  readonly answered: Promise<RecordedAnswer>
  readonly #response: RawResponse
  readonly #before: Readonly<Record<string, HeaderValue | undefined>>
  /** The headers that were given to `writeHead`. Node.js may not show them. */
  readonly #written: Record<string, HeaderValue> = {}
  /** All headers just before the head was written: others may add some at that moment, as for a compressed body. */
  #atHead: Readonly<Record<string, HeaderValue | undefined>> | undefined
  readonly #original: Pick<RawResponse, 'write' | 'end' | 'writeHead'>
  #isStreamed = false
  #state: Recording = { tag: 'recording', chunks: [], bytes: 0 }
  #tell: (answer: RecordedAnswer) => void = () => {}

  /** `before`: the headers that the framework has set until now. They are set again for a repetition, so they are not recorded. */
  constructor(response: RawResponse, before: Readonly<Record<string, HeaderValue | undefined>>) {
    this.#response = response
    this.#before = { ...before }
    this.answered = new Promise((resolve) => {
      this.#tell = resolve
    })
    this.#original = {
      write: response.write.bind(response),
      end: response.end.bind(response),
      writeHead: response.writeHead.bind(response),
    }
    response.writeHead = (...args) => this.#writeHead(args)
    response.write = (...args) => this.#write(args)
    response.end = (...args) => {
      this.#end(args)
      return response
    }
    response.once('pipe', () => {
      this.#isStreamed = true
    })
    response.once('close', () => this.#onClose())
  }

  /** Gives the answer to the client, if there is one. From now on the response is as it was. */
  send(): void {
    const state = this.#state
    if (state.tag === 'recording') this.#pass(state.chunks)
    else if (state.tag === 'answered') {
      this.#state = { tag: 'sent' }
      state.send()
    }
  }

  #writeHead(args: readonly unknown[]): unknown {
    const response = this.#response
    const { tag } = this.#state
    const headers = headersOf(args.at(-1))
    const atHead = { ...response.getHeaders() }
    // HTTP/1 sends the head together with the body. HTTP/2 sends it at once, so it has to wait here.
    const waits = response.stream !== undefined && (tag === 'recording' || tag === 'answered')
    if (waits) this.#holdHead(Number(args[0]), headers)
    else this.#original.writeHead(...args)
    // Not before: a head that is refused, as with an invalid status, is followed by the head of an error page.
    Object.assign(this.#written, headers)
    this.#atHead ??= atHead
    return response
  }

  #holdHead(status: number, headers: Readonly<Record<string, HeaderValue>>): void {
    const response = this.#response
    if (response.headersSent) throw headIsWritten()
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value)
    response.statusCode = status
    Object.defineProperty(response, 'headersSent', { value: true })
    response.setHeader = () => {
      throw headIsWritten()
    }
  }

  #write(args: readonly unknown[]): boolean {
    const state = this.#state
    switch (state.tag) {
      case 'recording': {
        const { chunk, callback } = chunkOf(args)
        // As without this recorder: after the first chunk, an error handler must not set another head and add its own page.
        if (!this.#response.headersSent) this.#response.writeHead(this.#response.statusCode)
        this.#isStreamed = true
        state.chunks.push(chunk)
        state.bytes += chunk.length
        if (state.bytes > MOST_RECORDED) return this.#pass(state.chunks, callback)
        // The writer may go on: it waits for a full buffer, and not for the client.
        if (callback !== undefined) queueMicrotask(callback)
        return true
      }
      case 'passing':
        return this.#original.write(...args)
      case 'answered':
      case 'sent':
        this.#ignore(args)
        return false
      default:
        return state satisfies never
    }
  }

  #end(args: readonly unknown[]): void {
    const state = this.#state
    switch (state.tag) {
      case 'recording': {
        const { chunk, callback } = chunkOf(args)
        this.#answer(Buffer.concat([...state.chunks, chunk]), callback)
        return
      }
      case 'passing':
        this.#tell({ status: this.#response.statusCode, headers: {}, body: 'too long' })
        this.#state = { tag: 'sent' }
        this.#finish(chunkOf(args))
        return
      case 'answered':
      case 'sent':
        this.#ignore(args)
        return
      default:
        state satisfies never
    }
  }

  #answer(body: Buffer, callback: (() => void) | undefined): void {
    const response = this.#response
    const { statusCode: status } = response
    // The client would take the rest for the begin of the next answer, which may belong to somebody else.
    if (!this.#isWhole(body)) {
      this.#breakOff()
      if (response.stream === undefined) response.destroy()
      else response.stream.close(HTTP2_INTERNAL_ERROR)
      return
    }
    const headers = this.#newHeaders()
    // First of all, as it throws with an invalid status. Then the framework answers with its error page.
    if (!response.headersSent) this.#writeHeadFor(body, status)
    this.#state = {
      tag: 'answered',
      send: () => {
        // Somebody may have set another one since then.
        response.statusCode = status
        Reflect.deleteProperty(response, 'writableEnded')
        this.#finish({ chunk: body, callback })
      },
    }
    // If this is false, Fastify lets a handler answer a second time, fails, and destroys the response.
    Object.defineProperty(response, 'writableEnded', { value: true, configurable: true })
    this.#tell({ status, headers, body: body.length > MOST_RECORDED ? 'too long' : body })
  }

  /** Who answers a second time by mistake finds the head written, as always after an answer. */
  #writeHeadFor(body: Buffer, status: number): void {
    const response = this.#response
    // Node.js cannot count a body that follows its head.
    const isCounted = ['content-length', 'transfer-encoding'].some((name) => response.hasHeader(name))
    const counts = !isCounted && status !== 204 && status !== 304
    if (counts) response.setHeader('content-length', body.length)
    try {
      response.writeHead(status)
    } catch (error) {
      if (counts) response.removeHeader('content-length')
      throw error
    }
  }

  #finish({ chunk, callback }: WrittenChunk): void {
    const { write, end } = this.#original
    // The `end` of HTTP/2 would give its chunk to `write`, which is replaced. On HTTP/1 others may wait for the chunk of `end`.
    if (this.#response.stream === undefined) end(chunk, 'utf8', callback)
    else {
      if (chunk.length > 0) write(chunk)
      end(undefined, undefined, callback)
    }
  }

  /** A stream stops when its response is closed, so `end` may never come. */
  #onClose(): void {
    const { tag } = this.#state
    if (tag === 'passing' || (tag === 'recording' && this.#isStreamed)) this.#breakOff()
  }

  #breakOff(): void {
    this.#state = { tag: 'sent' }
    this.#tell({ status: this.#response.statusCode, headers: {}, body: 'broken off' })
  }

  /** Whether the body has the length that its head says. */
  #isWhole(body: Buffer): boolean {
    const { req, statusCode } = this.#response
    const length = this.#written['content-length'] ?? this.#response.getHeaders()['content-length']
    const isHeadOnly = req?.method === 'HEAD' || statusCode === 304
    return length === undefined || isHeadOnly || Number(length) === body.length
  }

  #newHeaders(): Record<string, HeaderValue> {
    const all = { ...(this.#atHead ?? this.#response.getHeaders()), ...this.#written }
    const added = Object.entries(all).flatMap(([name, value]) =>
      value === undefined ||
      NOT_KEPT.has(name) ||
      name.startsWith(':') ||
      String(value) === String(this.#before[name])
        ? []
        : [[name, value] as const],
    )
    return Object.fromEntries(added)
  }

  /** A writer may wait for its callback, also behind the end of the answer. */
  #ignore(args: readonly unknown[]): void {
    const { callback } = chunkOf(args)
    if (callback !== undefined) queueMicrotask(callback)
  }

  /** `callback`: that of the last chunk. */
  #pass(chunks: readonly Buffer[], callback?: () => void): boolean {
    this.#state = { tag: 'passing' }
    const last = chunks.length - 1
    return chunks.reduce(
      (_, chunk, at) => this.#original.write(chunk, 'utf8', at === last ? callback : undefined),
      true,
    )
  }
}

/** About one connection or one client. A cookie is a secret, and everyone who can read the store can read an answer. */
const NOT_KEPT: ReadonlySet<string> = new Set([
  'connection',
  'content-length',
  'date',
  'keep-alive',
  'set-cookie',
  'trailer',
  'transfer-encoding',
])

/** The arguments of `write` and `end`. */
interface WrittenChunk {
  readonly chunk: Buffer
  readonly callback: (() => void) | undefined
}

function chunkOf(args: readonly unknown[]): WrittenChunk {
  const callback = args.find((arg) => typeof arg === 'function') as (() => void) | undefined
  const [chunk, encoding] = args
  if (typeof chunk === 'string') {
    return {
      chunk: Buffer.from(chunk, typeof encoding === 'string' ? (encoding as BufferEncoding) : 'utf8'),
      callback,
    }
  }
  return { chunk: chunk instanceof Uint8Array ? Buffer.from(chunk) : Buffer.alloc(0), callback }
}

function headIsWritten(): Error {
  return new Error('Cannot set headers after they are sent to the client: the answer has begun.')
}

/** The last argument of `writeHead`: an object, pairs, or names and values in turn. A name may come twice, as `link`. */
function headersOf(given: unknown): Record<string, HeaderValue> {
  const headers: Record<string, HeaderValue> = Object.create(null)
  for (const [name, value] of pairsOf(given)) {
    const lowered = name.toLowerCase()
    const before = headers[lowered]
    headers[lowered] = before === undefined ? value : [before, value].flat().map(String)
  }
  return headers
}

function pairsOf(given: unknown): readonly (readonly [string, HeaderValue])[] {
  if (typeof given !== 'object' || given === null) return []
  if (!Array.isArray(given)) return Object.entries(given)
  if (Array.isArray(given[0])) return given
  return given.flatMap((name, index) => (index % 2 === 0 ? [[name, given[index + 1]]] : []))
}
