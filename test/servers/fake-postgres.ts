import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'

/** What a fake server answers to a query: a table of texts. */
export interface FakeTable {
  readonly columns: readonly string[]
  readonly rows: readonly (readonly string[])[]
}

/** A server that speaks the protocol of PostgreSQL, lets everybody in, and answers each query with the table of `answer`. */
export async function startFakePostgres(
  answer: () => FakeTable,
): Promise<AsyncDisposable & { readonly url: string }> {
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => {}).on('close', () => sockets.delete(socket))
    let received = Buffer.alloc(0)
    let isStarted = false
    socket.on('data', (bytes) => {
      received = Buffer.concat([received, bytes])
      for (;;) {
        const head = isStarted ? 1 : 0
        if (received.length < head + 4) return
        const length = head + received.readInt32BE(head)
        if (received.length < length) return
        const kind = isStarted ? String.fromCharCode(received[0] as number) : 'start'
        const isSsl = !isStarted && length === 8
        received = received.subarray(length)
        if (isSsl) socket.write('N')
        else socket.write(Buffer.concat(wordsFor(kind)))
        isStarted ||= !isSsl
      }
    })
  })

  function wordsFor(kind: string): Buffer[] {
    switch (kind) {
      case 'start':
        return [
          message('R', int32(0)),
          message('S', text('server_version'), text('15.0')),
          message('Z', Buffer.from('I')),
        ]
      case 'P':
        return [message('1')]
      case 'B':
        return [message('2')]
      case 'D':
      case 'E':
        return []
      case 'S':
      case 'Q':
        return [...table(), message('Z', Buffer.from('I'))]
      default:
        return []
    }
  }

  function table(): Buffer[] {
    const { columns, rows } = answer()
    const fields = columns.flatMap((column) => [
      text(column),
      int32(0),
      int16(0),
      int32(25),
      int16(-1),
      int32(-1),
      int16(0),
    ])
    const lines = rows.map((row) => {
      const cells = row.map((cell) => Buffer.from(cell))
      return message('D', int16(row.length), ...cells.flatMap((cell) => [int32(cell.length), cell]))
    })
    return [
      message('T', int16(columns.length), ...fields),
      ...lines,
      message('C', text(`SELECT ${rows.length}`)),
    ]
  }

  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }
  return {
    url: `postgres://user@127.0.0.1:${port}/database`,
    async [Symbol.asyncDispose]() {
      const closed = once(server, 'close')
      server.close()
      for (const socket of sockets) socket.destroy()
      await closed
    },
  }
}

function message(kind: string, ...parts: readonly Buffer[]): Buffer {
  const body = Buffer.concat(parts)
  return Buffer.concat([Buffer.from(kind), int32(body.length + 4), body])
}

function text(words: string): Buffer {
  return Buffer.from(`${words}\0`)
}

function int32(number: number): Buffer {
  const bytes = Buffer.alloc(4)
  bytes.writeInt32BE(number)
  return bytes
}

function int16(number: number): Buffer {
  const bytes = Buffer.alloc(2)
  bytes.writeInt16BE(number)
  return bytes
}
