/**
 * Sends one command on one connection, in Redis's wire protocol. It is an observer that shares no code with the clients
 * under test.
 */
import { connect } from 'node:net'

export type RespValue = string | number | null | RespValue[]

export interface RespTarget {
  readonly port: number
  readonly username?: string | undefined
  readonly password?: string | undefined
  /** Default: 5,000. A stopped server must fail a test rather than hang it. */
  readonly timeoutMs?: number | undefined
}

/** Resolves with the reply; an error reply rejects with its own text (`NOAUTH …`, `LOADING …`, `READONLY …`). */
export async function sendCommand(
  target: RespTarget,
  args: readonly (string | number)[],
): Promise<RespValue> {
  const { port, username, password, timeoutMs = 5000 } = target
  const commands = [args]
  if (password !== undefined) {
    commands.unshift(username === undefined ? ['AUTH', password] : ['AUTH', username, password])
  }
  const replies = await new Promise<RespReply[]>((resolve, reject) => {
    const socket = connect(port, '127.0.0.1')
    let received = Buffer.alloc(0)
    // After a standstill, this process runs its timers before it reads a reply that has long arrived.
    socket.setTimeout(timeoutMs, () =>
      setImmediate(() => settle(new Error(`No reply from port ${port} in ${timeoutMs} ms`))),
    )
    socket.on('error', settle)
    socket.on('close', () => settle(new Error(`Port ${port} closed the connection before it replied`)))
    socket.on('data', (chunk) => {
      received = Buffer.concat([received, chunk])
      const parsed = parseReplies(received, commands.length)
      if (parsed !== undefined) settle(parsed)
    })
    socket.write(commands.map(encode).join(''))

    function settle(outcome: Error | RespReply[]): void {
      socket.destroy()
      if (outcome instanceof Error) reject(outcome)
      else resolve(outcome)
    }
  })
  for (const reply of replies) if (reply instanceof RespError) throw reply
  return replies.at(-1) as RespValue
}

/** An error reply of the server. Its message is the text of the reply. */
class RespError extends Error {
  override readonly name = 'RespError'
}

type RespReply = RespValue | RespError

function encode(args: readonly (string | number)[]): string {
  const parts = args.map((arg) => `$${Buffer.byteLength(String(arg))}\r\n${arg}\r\n`)
  return `*${args.length}\r\n${parts.join('')}`
}

/** The first `count` replies. Undefined until the last of them has arrived completely. */
function parseReplies(bytes: Buffer, count: number): RespReply[] | undefined {
  const replies: RespReply[] = []
  let offset = 0
  while (replies.length < count) {
    const parsed = parseReply(bytes, offset)
    if (parsed === undefined) return undefined
    replies.push(parsed.reply)
    offset = parsed.end
  }
  return replies
}

function parseReply(bytes: Buffer, start: number): { reply: RespReply; end: number } | undefined {
  const lineEnd = bytes.indexOf('\r\n', start)
  if (lineEnd === -1) return undefined
  const kind = String.fromCharCode(bytes[start] ?? 0)
  const line = bytes.toString('utf8', start + 1, lineEnd)
  const end = lineEnd + 2
  if (kind === '+') return { reply: line, end }
  if (kind === '-') return { reply: new RespError(line), end }
  if (kind === ':') return { reply: Number(line), end }
  const length = Number(line)
  if (length === -1) return { reply: null, end }
  if (kind === '$') {
    if (bytes.length < end + length + 2) return undefined
    return { reply: bytes.toString('utf8', end, end + length), end: end + length + 2 }
  }
  if (kind !== '*') throw new Error(`Expected a RESP2 reply, got one that starts with "${kind}"`)
  const items: RespValue[] = []
  let next = end
  while (items.length < length) {
    const item = parseReply(bytes, next)
    if (item === undefined) return undefined
    items.push(item.reply instanceof RespError ? item.reply.message : item.reply)
    next = item.end
  }
  return { reply: items, end: next }
}
