import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { connect, type Locks } from '../../src/index.ts'
import { type RedisServer, startRedis } from '../servers/redis-server.ts'
import { type FaultProxy, startProxy } from '../servers/tcp-proxy.ts'
import { Shell } from './holdfast-process.ts'

let redis: RedisServer
let proxy: FaultProxy
let locks: Locks
let shell: Shell
beforeAll(async () => {
  redis = await startRedis()
})
afterAll(() => redis.close())
beforeEach(async () => {
  proxy = await startProxy({ targetPort: redis.port })
  locks = await connect(redis.url)
  shell = new Shell({ HOLDFAST_STORE: `redis://127.0.0.1:${proxy.port}` })
})
afterEach(async () => {
  redis.resume()
  await locks.close()
  await proxy.close()
  await shell.close()
})

const commands = [['ls'], ['show', 'key'], ['evict', 'key', '--reason', 'a test']]

test('ls, show and evict end with one sentence when the server hangs from the start', async () => {
  await redis.pause()
  await Promise.all(commands.map(endsInTime))
})

test('ls, show and evict end with one sentence when the server hangs after they have connected', async () => {
  // The commands that look at keys, and the first line of the script that evicts. Connecting runs others.
  proxy.silenceAt(/\r\n(?:scan|type)\r\n|Removes one ticket of a room by force/i)
  await Promise.all(commands.map(endsInTime))
})

async function endsInTime(args: readonly string[]): Promise<void> {
  const startedAt = performance.now()
  const ended = await shell.run(args)
  expect(ended).toEqual({
    code: 69,
    stdout: '',
    // If it hangs on one connection alone, the store opens another one.
    stderr: expect.stringMatching(
      /^holdfast: The [^\n]+ (?:did not answer within|could not be reached)[^\n]+\n$/i,
    ),
  })
  expect(performance.now() - startedAt).toBeLessThan(60_000)
}
