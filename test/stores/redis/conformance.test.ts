import { afterAll, beforeAll, describe, test } from 'vitest'
import { redisStore } from '../../../src/stores/redis/index.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { conformanceCases } from '../conformance-cases.ts'
import { clients } from './clients.ts'

let server: RedisServer
beforeAll(async () => {
  server = await startRedis()
})
afterAll(() => server.close())

describe.each(Object.entries(clients))('the redis store on %s keeps the contract', (_, newClient) => {
  const cases = conformanceCases({
    open: () => redisStore(newClient(server.url)),
    grants: true,
    leftovers: (prefix) => keysLike(prefix),
  })
  for (const { name, run } of cases) test(name, run)
})

async function keysLike(part: string): Promise<string[]> {
  return (await server.command('KEYS', `*${part}*`)) as string[]
}
