import { once } from 'node:events'
import { createServer } from 'node:net'
import { createClient } from 'redis'
import { createClient as createClient4 } from 'redis4'
import { createClient as createClient6 } from 'redis6'
import { describe, expect, test } from 'vitest'
import { type NodeRedisClient, nodeRedisLink } from '../../../../src/stores/redis/server/node-redis.ts'
import { bulk, startFakeRedis } from '../../../servers/fake-redis.ts'
import { until } from '../../../servers/until.ts'

const clients: Readonly<Record<string, (url: string) => NodeRedisClient>> = {
  'redis 4': (url) => createClient4({ url }),
  'redis 5': (url) => createClient({ url }),
  'redis 6': (url) => createClient6({ url }),
}

/** A decoder of version 4 falls silent at such a byte, and its connection is replaced like any silent one. */
const { 'redis 4': _, ...sinceFive } = clients

test.each(Object.entries(sinceFive))(
  'through %s, no request gets the reply to another one after a byte that is no RESP type',
  async (_, newClient) => {
    await using server = await startFakeRedis(([command, word = '']) => {
      if (command !== 'GET') return '+OK\r\n'
      return word === 'first' ? '?\r\n' : bulk(word)
    })
    let isLost = false
    const connection = nodeRedisLink(newClient(server.url)).open(() => {
      isLost = true
    })
    const first = expect(connection.send('GET', ['first'])).rejects.toThrow()
    await until('the client has read the byte', () => isLost)
    expect(await connection.send('GET', ['second'])).toBe('second')
    await first
    connection.close()
  },
)

test.each(Object.entries(clients))(
  'through %s, a request right after a reset of the connection opens another one',
  async (_, newClient) => {
    await using server = await startFakeRedis(([command, word = ''], connection) => {
      if (word === 'reset') connection.resetAndDestroy()
      return command === 'GET' ? bulk(word) : '+OK\r\n'
    })
    const connection = nodeRedisLink(newClient(server.url)).open(() => {})
    const get = (word: string): Promise<unknown> => connection.send('GET', [word])
    expect(await get('first').then(() => get('reset').catch(() => get('second')))).toBe('second')
    for (const word of ['third', 'fourth']) expect(await get(word)).toBe(word)
    connection.close()
  },
)

describe.each(Object.entries(clients))('through %s, no connection is left', (_, newClient) => {
  test.each(['', ':sesame@'])('if it is closed while its socket is connecting to %shost', async (access) => {
    await using server = await startCountingServer()
    const connection = nodeRedisLink(newClient(`redis://${access}${server.address}`)).open(() => {})
    const sent = expect(connection.send('GET', ['key'])).rejects.toThrow()
    connection.close()
    connection.close()
    await sent
    await until('it is gone', () => server.accepted === 1 && server.open === 0)
  })

  test('if it is closed while it subscribes to its first channel', async () => {
    await using server = await startCountingServer()
    const channels = nodeRedisLink(newClient(`redis://:sesame@${server.address}`)).openChannels({
      onMessage: () => {},
      onLost: () => {},
    })
    const added = expect(channels.add('channel')).rejects.toThrow()
    channels.close()
    await added
    await until('it is gone', () => server.accepted === 1 && server.open === 0)
  })
})

/** Answers nothing but `+OK`, and counts its connections. */
async function startCountingServer() {
  let accepted = 0
  let open = 0
  const server = createServer((socket) => {
    accepted += 1
    open += 1
    socket.on('error', () => {})
    socket.on('close', () => {
      open -= 1
    })
    socket.on('data', () => socket.write('+OK\r\n'))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }
  return {
    address: `127.0.0.1:${port}`,
    get accepted() {
      return accepted
    },
    get open() {
      return open
    },
    async [Symbol.asyncDispose]() {
      server.close()
    },
  }
}
