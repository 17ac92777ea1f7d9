import { readdirSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { parse } from 'yaml'
import { type PostgresServer, startPostgres } from '../servers/postgres-server.ts'
import { type RedisServer, startRedis } from '../servers/redis-server.ts'
import { until } from '../servers/until.ts'
import { readProjectFile, root } from '../tidy/project.ts'
import { programs, type Running, saveAll, start, textOf } from './cookbook-programs.ts'
import { startFeed } from './feed-server.ts'

let redis: RedisServer
let postgres: PostgresServer
let saved: ReturnType<typeof saveAll>
const tried = new Set<string>()

beforeAll(async () => {
  ;[redis, postgres] = await Promise.all([startRedis(), startPostgres()])
  saved = saveAll({
    ...DRIVERS,
    holdfast: `#!/bin/sh\nexec "${process.execPath}" "${root}dist/cli/main.js" "$@"\n`,
  })
})
afterAll(async () => {
  await Promise.all([redis.close(), postgres.close()])
  saved.remove()
})

/** Starts a program of the cookbook, with the stores where it looks for them. */
function run(program: string, env: NodeJS.ProcessEnv = {}): Promise<Running> {
  tried.add(program)
  const stores = {
    STORE: redis.url,
    REDIS_URL: redis.url,
    DATABASE_URL: postgres.url,
    HOLDFAST_STORE: redis.url,
  }
  return start(join(saved.folder, program), { ...stores, ...env })
}

/** Runs a program of the cookbook under a few lines that call what it exports, and reads the JSON that they print. */
async function drive(program: string, driver: keyof typeof DRIVERS): Promise<unknown> {
  tried.add(program)
  await using driven = await run(driver)
  expect(await driven.end()).toBe(0)
  return JSON.parse(driven.lines().join(''))
}

test('the nightly job runs each tick in one of two processes', async () => {
  const env = { REPORT_AT: '* * * * * *' }
  await using one = await run('nightly-report.ts', env)
  await using other = await run('nightly-report.ts', env)
  const reports = () => [...one.lines(), ...other.lines()].map((line) => line.split(' ')[2])
  await until('there are five reports', () => reports().length >= 5)
  expect(await Promise.all([one.end('SIGTERM'), other.end('SIGTERM')])).toEqual([0, 0])
  expect(new Set(reports()).size).toBe(reports().length)
})

test('the migrations run once, though three instances start at once', async () => {
  const instances = await Promise.all([1, 2, 3].map(() => run('migrate.ts')))
  expect(await Promise.all(instances.map((instance) => instance.end()))).toEqual([0, 0, 0])
  expect(instances.flatMap((instance) => instance.lines())).toEqual([
    'migration 1 is done',
    'migration 2 is done',
  ])
  const client = new pg.Client({ connectionString: postgres.url })
  await client.connect()
  const { rows } = await client.query('SELECT id FROM migration ORDER BY id')
  expect(rows).toEqual([{ id: 1 }, { id: 2 }])
  await client.query('SELECT email FROM customer')
  await client.end()
})

test('the consumer of a stream is followed by the next one, which goes on behind the last order', async () => {
  const client = new Redis(redis.url)
  const add = async (from: number, to: number) => {
    for (let order = from; order <= to; order += 1) await client.xadd('orders', '*', 'order', `no. ${order};`)
  }
  const ordersOf = (from: number, to: number) =>
    Array.from({ length: to - from + 1 }, (_, index) => `order no. ${from + index};`)
  await using first = await run('consumer.ts')
  await add(1, 10)
  await first.untilSays('no. 10;')
  await using second = await run('consumer.ts')
  expect(await first.end('SIGTERM')).toBe(0)
  await add(11, 20)
  await second.untilSays('no. 20;')
  expect(await second.end('SIGTERM')).toBe(0)
  expect([first.lines(), second.lines()]).toEqual([ordersOf(1, 10), ordersOf(11, 20)])
  client.disconnect()
})

test('the backup is made by one of three hosts', async () => {
  const [source, target] = [join(saved.folder, 'source'), join(saved.folder, 'target')]
  await Promise.all([mkdir(source), mkdir(target)])
  const env = { SOURCE: source, TARGET: target, PATH: `${saved.folder}:${process.env['PATH']}` }
  const hosts = await Promise.all([1, 2, 3].map(() => run('backup.sh', env)))
  const codes = await Promise.all(
    hosts.map(async ({ child }) => until('it ends', () => child.exitCode ?? undefined)),
  )
  expect(codes).toEqual([0, 0, 0])
  expect(readdirSync(target)).toEqual([expect.stringMatching(/^\d{4}-\d\d-\d\d\.tar\.gz$/)])
})

test('a cached report is computed once for all who ask', async () => {
  await using one = await run('report-server.ts')
  await using other = await run('report-server.ts')
  for (const server of [one, other]) await server.untilSays('listening')
  const asked = Array.from({ length: 20 }, (_, index) => get(index % 2 === 0 ? one : other, '/42'))
  const answers = new Set((await Promise.all(asked)).map(({ text }) => text))
  expect([...answers]).toEqual([expect.stringContaining('report 42 of ')])
  expect([...one.lines(), ...other.lines()].filter((line) => line === 'computing 42')).toHaveLength(1)
})

test('a webhook that is delivered six times is handled once', async () => {
  await using one = await run('webhooks.ts')
  await using other = await run('webhooks.ts')
  for (const server of [one, other]) await server.untilSays('listening')
  const body = JSON.stringify({ id: 'evt_1', order: 42 })
  const deliveries = [one, other, one, other, one, other].map((server) =>
    get(server, '/', { method: 'POST', body }),
  )
  const answers = (await Promise.all(deliveries)).map(({ text }) => text).sort()
  expect(answers).toEqual(['handled', ...Array.from({ length: 5 }, () => 'handled before')])
  const shipped = [...one.lines(), ...other.lines()].filter((line) => line.startsWith('order 42 is shipped'))
  expect(shipped).toHaveLength(1)
})

test('a user who exports too often is told when to come back, and another one is not', async () => {
  await using server = await run('exports.ts')
  await server.untilSays('listening')
  const refused = await until('a request is refused', async () => {
    const answer = await get(server, '/users/ada/export')
    return answer.status === 429 && answer
  })
  expect(refused.text).toBe('too many: rate')
  expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0)
  expect((await get(server, '/users/bob/export')).status).toBe(200)
})

test('a route of Next.js pays one at a time, and answers 409 while another one pays', async () => {
  const { paid, busy } = (await drive('app/api/invoices/[id]/pay/route.ts', 'next.ts')) as Record<
    string,
    unknown
  >
  expect(paid).toEqual([
    [200, expect.stringContaining('invoice 42 is paid')],
    [200, expect.stringContaining('invoice 42 is paid')],
  ])
  expect(busy).toEqual([409, 'busy'])
})

test('withdrawals in transactions of Prisma never take more than there is', async () => {
  expect(await drive('withdraw.ts', 'prisma-driver.ts')).toEqual({ succeeded: 3, cents: 10 })
})

test('the feed has one reader, and the next one when that goes', async () => {
  await using feed = await startFeed()
  await using first = await run('feed.ts', { FEED: feed.url })
  await first.untilSays('reads the feed')
  await using second = await run('feed.ts', { FEED: feed.url })
  feed.send('1.09')
  await first.untilSays('price 1.09')
  await first.end('SIGTERM')
  await second.untilSays('reads the feed')
  feed.send('1.10')
  await second.untilSays('price 1.10')
  // A connection that breaks is made again.
  feed.drop()
  await until('it reads again', () => second.lines().filter((line) => line.startsWith('reads')).length === 2)
})

test('the leader hands over when its pod ends, within the grace period of the manifest', async () => {
  await using first = await run('leader.ts')
  await first.untilSays('leads under fence')
  await using second = await run('leader.ts')
  await second.untilSays('listening')
  expect([(await get(first, '/leader')).status, (await get(second, '/leader')).status]).toEqual([200, 503])
  expect((await get(second, '/livez')).text).toBe('alive')
  expect(await first.end('SIGTERM')).toBe(0)
  await second.untilSays('leads under fence')
  expect(await second.end('SIGTERM')).toBe(0)

  const { spec } = parse(textOf('leader.yaml')).spec.template
  const [, graceSeconds] = /grace: '(\d+)s'/.exec(textOf('leader.ts')) ?? []
  expect(spec.terminationGracePeriodSeconds).toBeGreaterThan(Number(graceSeconds) + 5)
})

test('of two invocations in Lambda one pays', async () => {
  const { both, later } = (await drive('pay.ts', 'lambda.ts')) as Record<string, { statusCode: number }[]>
  expect(both?.map(({ statusCode }) => statusCode).sort()).toEqual([200, 409])
  expect(later).toMatchObject({ statusCode: 200 })
})

test('each program of the cookbook was run, and each recipe is in its table', () => {
  expect([...tried].filter((name) => programs.includes(name)).sort()).toEqual([...programs].sort())
  const rows = readProjectFile('docs/cookbook.md').match(/^\|.*\]\(cookbook-.*$/gm) ?? []
  expect(rows).toHaveLength(programs.length)
})

async function get(
  { port }: Running,
  path: string,
  init: RequestInit = {},
): Promise<{ status: number; text: string; headers: Headers }> {
  const response = await fetch(`http://127.0.0.1:${port}${path}`, init)
  return { status: response.status, text: await response.text(), headers: response.headers }
}

// In double quotes, so that no import of this file is seen in them.
const DRIVERS = {
  'next.ts': `
    import { POST } from "./route.ts"
    const call = async (id) => {
      const request = new Request('http://localhost/', { method: 'POST' })
      const response = await POST(request, { params: Promise.resolve({ id }) })
      return [response.status, response.status === 200 ? await response.json() : await response.text()]
    }
    const paid = await Promise.all([call('42'), call('42')])
    const locks = await globalThis.locks
    const lease = await locks.acquire('invoice:43')
    const busy = await call('43')
    await lease.release()
    await locks.close()
    console.log(JSON.stringify({ paid, busy }))
  `,
  'lambda.ts': `
    import { handler } from "./pay.ts"
    const invoke = () => handler({ invoice: '42' }, { getRemainingTimeInMillis: () => 60_000 })
    const both = await Promise.all([invoke(), invoke()])
    console.log(JSON.stringify({ both, later: await invoke() }))
  `,
  // What a transaction of Prisma offers here, over a real server: its own engine is not among our packages.
  'prisma.ts': `
    import pg from 'pg'
    export const pool = new pg.Pool({ connectionString: process.env['DATABASE_URL'] })
    export const prisma = {
      async $transaction(work) {
        const client = await pool.connect()
        const rows = async (text, ...values) => (await client.query(text, values)).rows
        try {
          await client.query('BEGIN')
          const value = await work({
            $queryRawUnsafe: rows,
            account: {
              findUniqueOrThrow: async ({ where }) => (await rows('SELECT * FROM account WHERE id = $1', where.id))[0],
              update: async ({ where, data }) =>
                (await rows('UPDATE account SET cents = cents - $2 WHERE id = $1 RETURNING *', where.id, data.cents.decrement))[0],
            },
          })
          await client.query('COMMIT')
          return value
        } catch (error) {
          await client.query('ROLLBACK')
          throw error
        } finally {
          client.release()
        }
      },
    }
  `,
  'prisma-driver.ts': `
    import { pool } from "./prisma.ts"
    import { withdraw } from "./withdraw.ts"
    await pool.query('CREATE TABLE account (id int PRIMARY KEY, cents int NOT NULL)')
    await pool.query('INSERT INTO account VALUES (42, 100)')
    const outcomes = await Promise.allSettled(Array.from({ length: 8 }, () => withdraw(42, 30)))
    const { rows } = await pool.query('SELECT cents FROM account')
    await pool.end()
    const succeeded = outcomes.filter(({ status }) => status === 'fulfilled').length
    console.log(JSON.stringify({ succeeded, cents: rows[0].cents }))
  `,
} as const
