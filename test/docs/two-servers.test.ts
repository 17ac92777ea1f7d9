import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { connect } from '../../src/index.ts'
import { freePort } from '../servers/free-port.ts'
import { type RedisServer, startRedis } from '../servers/redis-server.ts'
import { until } from '../servers/until.ts'
import { readProjectFile, root } from '../tidy/project.ts'

const program = 'examples/two-servers/server.mjs'
let redis: RedisServer
let folder: string

beforeAll(async () => {
  redis = await startRedis()
  folder = mkdtempSync(join(tmpdir(), 'holdfast-two-servers-'))
})
afterAll(async () => {
  await redis.close()
  rmSync(folder, { recursive: true, force: true })
})

test('the page that everybody reads first shows this very program', () => {
  expect(readProjectFile('docs/getting-started.md')).toContain(`\`\`\`ts\n${readProjectFile(program)}\`\`\``)
})

test('the Redis for those who have Docker is where the page looks for it, and on this machine alone', () => {
  const { services } = parse(readProjectFile('examples/two-servers/docker-compose.yml'))
  expect(services).toEqual({
    redis: { image: expect.stringMatching(/^redis:\d/), ports: ['127.0.0.1:6379:6379'] },
  })
  const page = readProjectFile('docs/getting-started.md')
  expect(page).toContain('docker compose up -d')
  expect(page).toContain('STORE=redis://localhost:6379 node server.mjs 3001')
})

// The program runs as a reader runs it: against the built package, in an empty folder.
describe.concurrent.each(['embedded', 'redis'])('two servers over the %s store', (kind) => {
  test('the other one takes over when the holder is ended by Ctrl-C, and when it is killed', async () => {
    const env = kind === 'redis' ? { STORE: redis.url } : { STORE: 'sqlite:./locks.db' }
    const servers: Server[] = []
    const start = async () => {
      const server = await startServer(env)
      servers.push(server)
      return server
    }
    try {
      const first = await start()
      await first.untilSays('working', first)
      const second = await start()
      await second.untilSays('waiting', first)
      await until('the second has printed for whom it waits', () =>
        second.said().includes(`${second.name} waits: the mailer is ${first.name}\n`),
      )
      expect(first.said()).not.toContain('waits')

      first.child.kill('SIGINT')
      await second.untilSays('working', second)
      await until('the first has ended', () => first.child.signalCode === 'SIGINT')
      expect(first.said()).toContain('works no more: stopped')

      const third = await start()
      await third.untilSays('waiting', second)
      second.child.kill('SIGKILL')
      await third.untilSays('working', third)
      for (const server of servers) expect(server.complaints()).toBe('')
    } finally {
      for (const { child } of servers) child.kill('SIGKILL')
      for (const { child } of servers)
        await until('it has ended', () => child.exitCode !== null || child.signalCode !== null)
    }
  })
})

describe.concurrent('a server', () => {
  test('stays when its store is away, says so, and works again when it is back', async () => {
    const store = await startRedis()
    const server = await startServer({ STORE: store.url })
    try {
      await server.untilSays('working', server)
      await store.kill()
      const response = await fetch(`http://127.0.0.1:${server.port}`)
      expect([response.status, await response.text()]).toEqual([
        503,
        expect.stringMatching(
          /^I am server \d+, and .*\. Who the mailer is: StoreError: The Redis server could not/,
        ),
      ])
      await store.restart()
      await server.untilSays('working', server)
      expect(server.child.exitCode).toBe(null)
    } finally {
      server.child.kill('SIGKILL')
      await store.close()
    }
  })

  test('whose port is taken ends, and keeps the key from no other', async () => {
    const store = await startRedis()
    const taken = createServer().listen(0, '127.0.0.1')
    try {
      await once(taken, 'listening')
      const { port } = taken.address() as AddressInfo
      const { child, complaints } = spawnServer(port, { STORE: store.url })
      await until('it has ended', () => child.exitCode !== null)
      expect(complaints()).toContain('EADDRINUSE')
      await using locks = await connect(store.url)
      expect((await locks.inspect().next()).done).toBe(true)
    } finally {
      taken.close()
      await store.close()
    }
  })
})

interface Server {
  readonly port: number
  readonly child: ChildProcess
  readonly name: string
  said(): string
  complaints(): string
  /** Resolves when the server reports this state of itself, and this holder. */
  untilSays(state: string, holder: Pick<Server, 'name'>): Promise<void>
}

async function startServer(env: NodeJS.ProcessEnv): Promise<Server> {
  const port = await freePort()
  const { child, said, complaints } = spawnServer(port, env)
  const name = `server ${port}`
  await until('it listens', () => {
    if (child.exitCode !== null) throw new Error(complaints())
    return said().includes('listens')
  })
  return {
    port,
    child,
    name,
    said,
    complaints,
    async untilSays(state, holder) {
      const expected = `I am ${name}, and ${state}. The mailer is ${holder.name}.\n`
      await until(
        `it says: ${expected}`,
        async () => {
          const response = await fetch(`http://127.0.0.1:${port}`)
          return (await response.text()) === expected
        },
        { everyMs: 50 },
      )
    },
  }
}

function spawnServer(port: number, env: NodeJS.ProcessEnv): Pick<Server, 'child' | 'said' | 'complaints'> {
  const child = spawn(process.execPath, ['--no-warnings', join(root, program), String(port)], {
    cwd: folder,
    env: { ...process.env, ...env },
  })
  let said = ''
  let complaints = ''
  child.stdout.on('data', (text) => {
    said += text
  })
  child.stderr.on('data', (text) => {
    complaints += text
  })
  return { child, said: () => said, complaints: () => complaints }
}
