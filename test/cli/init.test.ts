import { afterEach, beforeEach, expect, test } from 'vitest'
import { freePort } from '../servers/free-port.ts'
import { type RedisServer, startRedis } from '../servers/redis-server.ts'
import { Shell } from './holdfast-process.ts'

let servers: RedisServer[]
let shell: Shell
beforeEach(async () => {
  servers = await Promise.all([startRedis(), startRedis(), startRedis()])
  shell = new Shell({ HOLDFAST_STORE: `redlock:${servers.map(({ url }) => url).join(',')}` })
})
afterEach(async () => {
  await shell.close()
  for (const server of servers) await server[Symbol.asyncDispose]()
})

test('new servers give the first lock at once', async () => {
  expect(await shell.run(['init'])).toEqual({ code: 0, stdout: 'The 3 servers are ready.\n', stderr: '' })
  expect(await shell.run(['run', '-n', 'key', '--', 'echo', 'ran'])).toEqual({
    code: 0,
    stdout: 'ran\n',
    stderr: '',
  })
  expect(await shell.run(['init'])).toMatchObject({ code: 0, stdout: 'The 3 servers were ready before.\n' })
  expect((await shell.run(['init', '--json'])).stdout).toBe('{"servers":3,"written":false}\n')
})

test('servers that were used before are refused, with 69', async () => {
  expect((await shell.run(['ls'])).code).toBe(0)
  expect(await shell.run(['init'])).toEqual({
    code: 69,
    stdout: '',
    stderr: expect.stringMatching(/^holdfast: [^\n]+\n$/),
  })
})

test('a server that does not answer is an error, with 69', async () => {
  const url = `redlock:${servers[0]?.url},${servers[1]?.url},redis://127.0.0.1:${await freePort()}`
  expect((await shell.run(['init', '-w', '500ms', '--store', url])).code).toBe(69)
})

test.each([
  [[], 'got one that begins with "redis"'],
  [['more'], 'options only, got "more"'],
])('a wrong call is said in one sentence', async (args, sentence) => {
  const { code, stderr } = await shell.run(['init', ...args], { env: { HOLDFAST_STORE: servers[0]?.url } })
  expect(code).toBe(64)
  expect(stderr).toContain(sentence)
})

test('whoever waits long enough gets the first lock of servers that nobody has initialised', async () => {
  const url = `redlock:${servers.map((server) => server.url).join(',')}`
  const run = (wait: string, maxTtl: string) => {
    const options = ['-w', wait, '--ttl', '1s', '--store', `${url}?maxTtl=${maxTtl}`]
    return shell.run(['run', ...options, 'key', '--', 'echo', 'ran'])
  }
  const impatient = await run('1s', '10m')
  expect(impatient).toMatchObject({
    code: 69,
    stdout: '',
    stderr: expect.stringMatching(
      /^holdfast: The votes of 3 of the 3 Redis servers do not count yet[^\n]+\n$/,
    ),
  })
  const patient = await run('10m', '3s')
  expect(patient).toMatchObject({ code: 0, stdout: 'ran\n' })
  expect(patient.stderr).not.toContain('HoldfastWarning')
})
