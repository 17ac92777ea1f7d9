import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { openRedis } from '../../../src/stores/redis/index.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { startProxy } from '../../servers/tcp-proxy.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'

let server: RedisServer
beforeAll(async () => {
  server = await startRedis({ password: 'sesame' })
})
afterAll(() => server.close())

describe('a store that is opened by its url', () => {
  test('works, and closes the connections that it has opened', async () => {
    await using proxy = await startProxy({ targetPort: server.port })
    const store = await openRedis(`redis://:sesame@127.0.0.1:${proxy.port}/3`)
    const mine = ticket()
    fenceOf(await store.acquire(mine))
    await store.listen?.(() => {})
    expect(String(await server.command('INFO', 'keyspace'))).toMatch(/db3:keys=2/)
    await store.release(releaseOf(mine))
    await store.close()
    await until('nothing is connected', () => proxy.connections === 0)
  })

  test.each([
    [
      'a wrong password',
      () => server.url.replace('sesame', 'sesami'),
      'store-refused',
      /user name and password/,
    ],
    [
      'a port where nobody is',
      () => 'redis://:sesame@127.0.0.1:1',
      'store-unavailable',
      /could not be reached/,
    ],
    [
      'a host that is not there',
      () => 'redis://:sesame@no-such-host.invalid',
      'store-unavailable',
      /reached/,
    ],
  ])('says in one sentence what is wrong with %s', async (_, url, code, message) => {
    await expect(openRedis(url())).rejects.toMatchObject({ code, message: expect.stringMatching(message) })
    await expect(openRedis(url())).rejects.not.toMatchObject({ message: expect.stringMatching(/sesam/) })
  })

  test.each([
    ['no url', 'redis', /^Expected `url` to be like redis:.*, got something that is not a URL\.$/],
    ['another scheme', 'http://:sesame@host', /, got one that begins with http:$/],
    ['no host', 'redis:///0', /, got one without a host\.$/],
    ['a database that is no number', 'redis://:sesame@host/locks', /is not the number of a database\.$/],
  ])('says in one sentence that it got %s', async (_, url, message) => {
    await expect(openRedis(url)).rejects.toMatchObject({
      code: 'invalid-argument',
      message: expect.stringMatching(message),
    })
    await expect(openRedis(url)).rejects.not.toMatchObject({ message: expect.stringMatching(/sesam/) })
  })
})

describe('a process', () => {
  test.each([
    ['with both packages', ''],
    ['with redis alone', 'ioredis'],
    ['with ioredis alone', 'redis'],
  ])('%s holds a key, waits for another, and ends by itself', async (_, hidden) => {
    await server.command('FLUSHALL')
    expect(await run('open-and-leave', { args: [server.url], hidden })).toBe('held\nacquire-timeout\n')
  })

  test.each([
    ['SIGKILL', 'redis', 'ioredis'],
    ['SIGKILL', 'ioredis', 'redis'],
    ['SIGSTOP', 'redis', 'ioredis'],
    ['SIGSTOP', 'ioredis', 'redis'],
  ])(
    'whose server got %s ends by itself, although nothing was closed, with %s',
    async (signal, _, hidden) => {
      await using lost = await startRedis()
      const args = [lost.url, String(lost.pid), signal]
      const output = await run('open-and-lose', { args, hidden })
      expect(output).toMatch(/^acquire-timeout\n(store-unavailable|lease-lost)\n$/)
    },
  )

  test('that exits while it releases a key to a server that has not seen such a request before leaves the key free', async () => {
    await using fresh = await startRedis()
    await using proxy = await startProxy({ targetPort: fresh.port })
    // The process is gone before it hears that the server did not know the script.
    proxy.delay({ replyMs: 200 })
    const url = `redis://127.0.0.1:${proxy.port}`
    expect(await run('release-and-leave', { args: [url] })).toBe('held\n')
    await until('the key is free', async () => (await fresh.command('EXISTS', 'holdfast:{key}')) === 0)
  })

  test('with neither package the error says which one to install', async () => {
    expect(await run('open-and-leave', { args: [server.url], hidden: 'ioredis,redis' })).toMatch(
      /^InvalidArgumentError invalid-argument Expected the package `ioredis` or `redis` .* `npm install ioredis`\.\n$/,
    )
  })
})

/** Runs a program until it ends by itself, and returns its output. */
async function run(
  program: string,
  { args, hidden = '' }: { readonly args: readonly string[]; readonly hidden?: string },
): Promise<string> {
  const file = (name: string) => fileURLToPath(new URL(`processes/${name}.mjs`, import.meta.url))
  const imports = ['--import', 'tsx', '--import', file('hide-packages')]
  const child = spawn(process.execPath, [...imports, file(program), ...args], {
    env: { ...process.env, HIDDEN_PACKAGES: hidden },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  onTestFinished(() => {
    child.kill('SIGKILL')
  })
  let output = ''
  child.stdout.setEncoding('utf8').on('data', (text) => {
    output += text
  })
  const [code] = await once(child, 'close', { signal: AbortSignal.timeout(120_000) })
  expect(code).toBe(0)
  return output
}
