import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'

/** A server that accepts connections and says nothing, as a server that hangs does. */
const connected = new Set<Socket>()
const mute = createServer((socket) => {
  connected.add(socket.on('error', () => {}))
})
beforeAll(async () => {
  mute.listen(0, '127.0.0.1')
  await once(mute, 'listening')
})
afterAll(() => {
  for (const socket of connected) socket.destroy()
  mute.close()
})

// A script has nothing else to do. If nothing keeps its process alive, it ends with exit code 13.
test.concurrent.each<[string, string, (host: string) => string]>([
  ['openRedis', 'redis', (host) => `redis://${host}`],
  ['openRedisSentinel', 'redis', (host) => `redis+sentinel://${host}/main`],
  ['openRedisCluster', 'redis', (host) => `redis+cluster://${host}`],
  ['openRedlock', 'redlock', (host) => `redlock:${[1, 2, 3].map((number) => `redis://${host}/${number}`)}`],
  ['openPostgres', 'postgres', (host) => `postgres://user:word@${host}/base`],
  ['openEtcd', 'etcd', (host) => `etcd://${host}`],
])('a script that awaits %s at its top level hears of a server that hangs', async (name, folder, urlOf) => {
  const entry = new URL(`../../dist/stores/${folder}/index.js`, import.meta.url).href
  const url = urlOf(`127.0.0.1:${(mute.address() as AddressInfo).port}`)
  const program = `
    import { ${name} } from ${JSON.stringify(entry)}
    await ${name}(${JSON.stringify(url)}).catch((error) => console.log(error.code))
  `
  const ended = await new Promise<{ code: unknown; stdout: string }>((resolve) => {
    const args = ['--input-type=module', '--eval', program]
    execFile(process.execPath, args, { timeout: 120_000 }, (error, stdout) => {
      resolve({ code: error === null ? 0 : error.code, stdout })
    })
  })
  expect(ended).toEqual({ code: 0, stdout: 'store-unavailable\n' })
})
