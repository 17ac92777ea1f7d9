import { createClient } from 'redis'
import { createClient as createClient6 } from 'redis6'
import { expect, test } from 'vitest'
import { type NodeRedisClient, nodeRedisLink } from '../../../../src/stores/redis/server/node-redis.ts'
import { bulk, startFakeRedis } from '../../../servers/fake-redis.ts'
import { until } from '../../../servers/until.ts'

/** A decoder of version 4 falls silent at such a byte, and its connection is replaced like any silent one. */
const sinceFive: Readonly<Record<string, (url: string) => NodeRedisClient>> = {
  'redis 5': (url) => createClient({ url }),
  'redis 6': (url) => createClient6({ url }),
}

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
