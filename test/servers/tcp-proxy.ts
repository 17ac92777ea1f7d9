import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { Http2Frames, isAnswer, PREFACE } from './http2-frames.ts'

export interface ProxyOptions {
  /** The server's port on 127.0.0.1. */
  readonly targetPort: number
}

/** The treatment of the bytes of one direction: passed on, kept until `normal()`, or swallowed. */
type Flow = 'forward' | 'hold' | 'drop'

export interface FaultProxy extends AsyncDisposable {
  readonly port: number
  /** How many connections are open now, as the client sees it. */
  readonly connections: number
  /** How many chunks were swallowed so far. A test waits for it to rise before it lets a drop end. */
  readonly swallowed: number
  /** Delays the bytes of each direction by this much; their order is kept. */
  delay(by: { readonly requestMs?: number; readonly replyMs?: number }): void
  /** Swallows replies. The server receives the requests and carries them out. */
  dropReplies(): void
  /** Swallows requests. What the server still sends comes through. */
  dropRequests(): void
  /** Keeps all replies until `normal()`. */
  holdReplies(): void
  /** Keeps all requests until `normal()`. */
  holdRequests(): void
  /** Accepts connections and leaves them open, but passes no byte in either direction. */
  halfOpen(): void
  /** Accepts the next connection and leaves it open, but passes no byte of it. All other connections work. */
  silenceNext(): void
  /**
   * Does the same to those open connections that have sent `match`, in any case of letters. Returns how many there are.
   */
  silence(match: string): number
  /**
   * Does the same to each connection from its first request on that matches. So a server seems to hang at a certain request.
   */
  silenceAt(match: RegExp): void
  /**
   * Leaves the present connections open, but never passes a byte on them again. New connections work. A firewall that
   * has forgotten its connections behaves like this.
   */
  strand(): void
  /** Destroys all connections. New connections work. */
  cut(): void
  /** Destroys all connections, and resets every new one. */
  refuse(): void
  /**
   * Delivers the next request (that contains `match`). When the server has answered the request, the proxy cuts the
   * client's connection instead of passing the reply on. Resolves when that has happened. On HTTP/2 the proxy waits for the
   * answer to this request. Elsewhere it does not know which reply belongs to which request, so the connection should have
   * nothing else in flight.
   */
  loseNextReply(match?: string): Promise<void>
  /** Cuts the client's connection instead of delivering the next request (that contains `match`). */
  loseNextRequest(match?: string): Promise<void>
  /**
   * Passes everything again, held bytes first. Destroys connections that lost bytes: TCP cannot lose bytes and go on. A
   * client that reads the reply to another request would be a fault that no network has.
   */
  normal(): void
  /** May be called again. */
  close(): Promise<void>
}

/** A TCP proxy on a free loopback port. A test switches its faults while connections are open. */
export async function startProxy({ targetPort }: ProxyOptions): Promise<FaultProxy> {
  const links = new Set<Link>()
  let refusing = false
  let silencing = false
  let swallowed = 0
  const faults: Faults = {
    requests: 'forward',
    replies: 'forward',
    requestMs: 0,
    replyMs: 0,
    trap: undefined,
    silenceAt: undefined,
    onSwallow() {
      swallowed += 1
    },
  }

  const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    if (refusing) {
      client.on('error', () => {})
      client.resetAndDestroy()
      return
    }
    const link = openLink(client, targetPort, faults, { onClose: (link) => links.delete(link) })
    links.add(link)
    if (silencing) link.silence()
    silencing = false
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }

  return {
    port,
    get connections() {
      return [...links].filter((link) => link.isOpen()).length
    },
    get swallowed() {
      return swallowed
    },
    delay: ({ requestMs = 0, replyMs = 0 }) => change({ requestMs, replyMs }),
    dropReplies: () => change({ replies: 'drop' }),
    dropRequests: () => change({ requests: 'drop' }),
    holdReplies: () => change({ replies: 'hold' }),
    holdRequests: () => change({ requests: 'hold' }),
    halfOpen: () => change({ requests: 'drop', replies: 'drop' }),
    silenceNext() {
      silencing = true
    },
    silence(match) {
      const silenced = [...links].filter((link) => link.isOpen() && link.hasSent(match.toLowerCase()))
      for (const link of silenced) link.silence()
      return silenced.length
    },
    silenceAt(match) {
      faults.silenceAt = match
    },
    strand() {
      for (const link of links) link.silence()
      change({ requests: 'forward', replies: 'forward' })
    },
    cut,
    refuse() {
      refusing = true
      cut()
    },
    loseNextReply: (match) => setTrap(match, 'reply'),
    loseNextRequest: (match) => setTrap(match, 'request'),
    normal() {
      refusing = false
      silencing = false
      for (const link of links) if (link.hasLostBytes()) link.destroy()
      change({
        requests: 'forward',
        replies: 'forward',
        requestMs: 0,
        replyMs: 0,
        trap: undefined,
        silenceAt: undefined,
      })
    },
    close,
    [Symbol.asyncDispose]: close,
  }

  function change(to: Partial<Faults>): void {
    Object.assign(faults, to)
    for (const link of links) link.flush()
  }

  function cut(): void {
    for (const link of links) link.destroy()
  }

  function setTrap(match: string | undefined, loses: Trap['loses']): Promise<void> {
    return new Promise((sprung) => {
      faults.trap = { match, loses, sprung }
    })
  }

  async function close(): Promise<void> {
    if (!server.listening) return
    const closed = once(server, 'close')
    server.close()
    cut()
    await closed
  }
}

interface Faults {
  requests: Flow
  replies: Flow
  requestMs: number
  replyMs: number
  trap: Trap | undefined
  silenceAt: RegExp | undefined
  readonly onSwallow: () => void
}

interface Trap {
  readonly match: string | undefined
  readonly loses: 'request' | 'reply'
  readonly sprung: () => void
}

interface Link {
  isOpen(): boolean
  hasLostBytes(): boolean
  hasSent(match: string): boolean
  silence(): void
  flush(): void
  destroy(): void
}

function openLink(
  client: Socket,
  targetPort: number,
  faults: Faults,
  { onClose }: { onClose: (link: Link) => void },
): Link {
  const upstream = connect({ port: targetPort, host: '127.0.0.1', allowHalfOpen: true, noDelay: true })
  let losesNextReply: { readonly trap: Trap; readonly stream: number | undefined } | undefined
  let http2: { readonly asked: Http2Frames; readonly told: Http2Frames } | undefined
  let isSilent = false
  let sent = ''
  const requests = openPipe(client, upstream, {
    onSwallow: faults.onSwallow,
    flow: () => (isSilent ? 'drop' : faults.requests),
    delayMs: () => faults.requestMs,
    intercept: (bytes) => {
      sent = (sent + bytes.toString('latin1')).slice(-MOST_REMEMBERED)
      const { trap, silenceAt } = faults
      if (silenceAt?.test(bytes.toString('latin1'))) isSilent = true
      if (bytes.includes(PREFACE))
        http2 = { asked: new Http2Frames({ from: 'client' }), told: new Http2Frames({ from: 'server' }) }
      const parts = http2?.asked.read(bytes)
      if (trap === undefined || (trap.match !== undefined && !bytes.includes(trap.match))) return 'pass'
      faults.trap = undefined
      if (trap.loses === 'reply') {
        const at = trap.match === undefined ? 0 : bytes.indexOf(trap.match)
        losesNextReply = { trap, stream: parts?.find(({ end }) => at < end)?.stream }
        return 'pass'
      }
      cutClient(trap)
      return 'swallow'
    },
  })
  const replies = openPipe(upstream, client, {
    onSwallow: faults.onSwallow,
    flow: () => (isSilent ? 'drop' : faults.replies),
    delayMs: () => faults.replyMs,
    intercept: (bytes) => {
      const parts = http2?.told.read(bytes)
      if (losesNextReply === undefined) return 'pass'
      const { trap, stream } = losesNextReply
      if (parts !== undefined && !parts.some((part) => part.stream === stream && isAnswer(part)))
        return 'pass'
      cutClient(trap)
      return 'swallow'
    },
  })
  const link: Link = {
    isOpen: () => !client.destroyed,
    hasLostBytes: () => requests.hasLostBytes() || replies.hasLostBytes(),
    hasSent: (match) => sent.toLowerCase().includes(match),
    silence() {
      isSilent = true
      link.flush()
    },
    flush() {
      requests.flush()
      replies.flush()
    },
    destroy() {
      client.destroy()
      upstream.destroy()
    },
  }
  for (const socket of [client, upstream]) {
    // An error is always followed by a close, which is passed on.
    socket.on('error', () => {})
    socket.on('close', () => {
      if (client.destroyed && upstream.destroyed) onClose(link)
    })
  }
  return link

  function cutClient(trap: Trap): void {
    client.destroy()
    trap.sprung()
  }
}

/** The last bytes that each connection has sent, up to this many. */
const MOST_REMEMBERED = 20_000

interface PipeOptions {
  readonly flow: () => Flow
  readonly delayMs: () => number
  readonly intercept: (bytes: Buffer) => 'pass' | 'swallow'
  readonly onSwallow: () => void
}

interface Pipe {
  hasLostBytes(): boolean
  flush(): void
}

/**
 * One direction of a connection. The bytes of the source, and how it ended, wait in a queue, each with the time at
 * which it is due.
 */
function openPipe(source: Socket, sink: Socket, options: PipeOptions): Pipe {
  const { flow, delayMs, intercept, onSwallow } = options
  const queue: { readonly dueAt: number; readonly pass: () => void }[] = []
  let lostBytes = false
  let timer: NodeJS.Timeout | undefined

  source.on('data', (bytes) => {
    if (intercept(bytes) === 'swallow') return
    enqueue(() => sink.write(bytes))
  })
  // The connection is ended and never reset: a reset could make the server forget a request that it has not read yet.
  source.on('end', () => enqueue(() => sink.end()))
  source.on('close', () => enqueue(() => sink.end()))

  return { hasLostBytes: () => lostBytes, flush }

  function enqueue(pass: () => void): void {
    // A partition loses the end of a connection, too: the other side goes on believing in a connection that is gone.
    if (flow() === 'drop') swallow()
    else queue.push({ dueAt: performance.now() + delayMs(), pass })
    flush()
  }

  function flush(): void {
    clearTimeout(timer)
    for (;;) {
      const head = queue[0]
      if (head === undefined || flow() === 'hold') return
      const waitMs = head.dueAt - performance.now()
      if (waitMs > 0) {
        timer = setTimeout(flush, waitMs)
        return
      }
      queue.shift()
      if (flow() === 'drop') swallow()
      else if (!sink.destroyed) head.pass()
    }
  }

  function swallow(): void {
    lostBytes = true
    onSwallow()
  }
}
