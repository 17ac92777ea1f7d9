/** A server that speaks the protocol of Redis and answers as a test wants. It stands for a broken or hostile server. */
import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'

export interface FakeRedis extends AsyncDisposable {
  readonly port: number
  readonly url: string
  /** How many commands the server has received. */
  readonly commands: number
}

/** `reply` returns the answer to a command, in the words of the protocol: `+OK\r\n`. */
export async function startFakeRedis(
  reply: (command: readonly string[], connection: Socket) => string,
): Promise<FakeRedis> {
  const sockets = new Set<Socket>()
  let commands = 0
  const server = createServer((socket) => {
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
    socket.on('error', () => {})
    let received = ''
    socket.setEncoding('latin1').on('data', (text) => {
      received += text
      for (;;) {
        const command = firstCommand(received)
        if (command === undefined) return
        received = received.slice(command.length)
        commands += 1
        socket.write(reply(command.words, socket))
      }
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }
  return {
    port,
    url: `redis://127.0.0.1:${port}`,
    get commands() {
      return commands
    },
    async [Symbol.asyncDispose]() {
      const closed = once(server, 'close')
      server.close()
      for (const socket of sockets) socket.destroy()
      await closed
    },
  }
}

export function bulk(text: string): string {
  return `$${Buffer.byteLength(text)}\r\n${text}\r\n`
}

export function list(...replies: readonly string[]): string {
  return `*${replies.length}\r\n${replies.join('')}`
}

function firstCommand(
  text: string,
): { readonly words: readonly string[]; readonly length: number } | undefined {
  const head = /^\*(\d+)\r\n/.exec(text)
  if (head === null) return undefined
  const words: string[] = []
  let at = head[0].length
  for (let word = 0; word < Number(head[1]); word += 1) {
    const size = /^\$(\d+)\r\n/.exec(text.slice(at, at + 20))
    if (size === null) return undefined
    at += size[0].length
    const end = at + Number(size[1])
    if (text.length < end + 2) return undefined
    words.push(text.slice(at, end))
    at = end + 2
  }
  return { words, length: at }
}
