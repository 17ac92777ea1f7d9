import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { Client, Pool } from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createJobs, type Jobs, openJobs } from '../../src/jobs/index.ts'
import { type PostgresServer, startPostgres } from '../servers/postgres-server.ts'
import { until } from '../servers/until.ts'

const ROLES = ['jobs_owner', 'shop', 'jobs_worker', 'jobs_viewer'] as const
type Role = (typeof ROLES)[number]

const opened: Jobs[] = []
let server: PostgresServer
let database: string

/** The grants are read from the page, so the page cannot drift from the rights that are needed. */
const page = readFileSync(new URL('../../docs/jobs.md', import.meta.url), 'utf8')
const fences = [...page.matchAll(/^```sql\n(.*?)^```$/gms)].map(([, sql = '']) => sql)

function fenceOf(role: Role): string {
  const fence = fences.find((sql) => sql.startsWith(`-- ${role} `))
  if (fence === undefined) throw new Error(`docs/jobs.md has no rights of ${role}.`)
  return fence
}

function urlOf(role: Role): string {
  const url = new URL(database)
  url.username = role
  return url.href
}

async function as(role: Role): Promise<Jobs> {
  const jobs = await openJobs(urlOf(role))
  opened.push(jobs)
  return jobs
}

async function run(url: string, sql: string): Promise<unknown> {
  const client = new Client({ connectionString: url })
  await client.connect()
  try {
    return await client.query(sql)
  } finally {
    await client.end()
  }
}

/** Checks that each statement is refused because of a missing right, and for no other reason. */
async function expectDenied(role: Role, statements: readonly string[]): Promise<void> {
  for (const sql of statements)
    await expect(run(urlOf(role), sql), `${role}: ${sql}`).rejects.toMatchObject({ code: '42501' })
}

beforeAll(async () => {
  server = await startPostgres()
  database = await server.createDatabase('shop')
  for (const role of ROLES) await run(database, `create role ${role} login`)
  await run(database, fenceOf('jobs_owner'))
  await (await as('jobs_owner')).migrate()
  for (const role of ROLES.slice(1)) await run(urlOf('jobs_owner'), fenceOf(role))
})
afterAll(async () => {
  for (const jobs of opened) await jobs.close({ grace: 0 })
  await server?.close()
})

const CHANGES = [
  'create table holdfast.mine ()',
  'drop table holdfast.jobs',
  'truncate holdfast.jobs',
  'alter function holdfast.jobs_tidy(bigint, bigint) rename to mine',
  `update holdfast.holdfast_versions set version = 0`,
]

test('the page names the rights of these roles and no others', () => {
  const named = fences.map((sql) => /^-- (\w+) /.exec(sql)?.[1])
  expect(named).toEqual([...ROLES])
})

test('the role that enqueues does so, in its own transactions too, and can do nothing else', async () => {
  const jobs = await as('shop')
  await jobs.migrate()
  expect(await jobs.enqueue('a', 1, { key: 'k', delay: '1h' })).not.toBeNull()
  expect(await jobs.enqueue('a', 1, { key: 'k', delay: '1h' })).toBeNull()
  expect(
    await jobs.enqueueAll([
      { name: 'a', delay: '1h' },
      { name: 'a', delay: '1h', group: 'g' },
    ]),
  ).toHaveLength(2)
  const pool = new Pool({ connectionString: urlOf('shop') })
  const client = await pool.connect()
  await client.query('begin')
  const id = (await jobs.enqueue('a', 1, { transaction: client, delay: '1h' })) ?? ''
  await client.query('commit')
  client.release()
  const own = createJobs(pool)
  opened.push(own)
  expect(await own.enqueue('a', 1, { delay: '1h' })).not.toBeNull()
  for (const payload of [1, 2])
    await jobs.enqueue('b', payload, { key: 'k', uniqueFor: '1h', ifTaken: 'postpone', delay: '1h' })
  await run(
    urlOf('shop'),
    `select holdfast.enqueue('b', '3', '{"key": "k", "ifTaken": "postpone", "delay": "2h"}')`,
  )
  const dead = (await jobs.enqueue('dead', 1, { delay: '1h' })) ?? ''
  await (await as('jobs_worker')).cancel(dead, { reason: 'x' })
  expect(await jobs.enqueue('b', 1, { children: [id, dead] })).not.toBeNull()
  const denied = { code: 'store-refused', message: expect.stringContaining('docs/jobs.md') }
  await jobs.enqueue('ready')
  await expect(jobs.claim('ready')).rejects.toMatchObject(denied)
  await expect(jobs.cancel(id, { reason: 'x' })).rejects.toMatchObject(denied)
  await expect(jobs.retry(id)).rejects.toMatchObject(denied)
  await expect(jobs.remove(id)).rejects.toMatchObject(denied)
  await expect(jobs.cleanUp()).rejects.toMatchObject(denied)
  await expect(jobs.count()).rejects.toMatchObject(denied)
  await expectDenied('shop', [
    'update holdfast.jobs set priority = 1',
    'delete from holdfast.jobs',
    'select payload from holdfast.ended_jobs',
    ...CHANGES,
  ])
  await pool.end()
})

test('the role that works claims, runs, settles and repairs jobs, and can change no table', async () => {
  const enqueuer = await as('shop')
  const jobs = await as('jobs_worker')
  await jobs.migrate()
  const ids = await enqueuer.enqueueAll(
    ['done', 'again', 'dead', 'group', 'group'].map((name) => ({
      name,
      key: name === 'again' ? 'k' : undefined,
      group: name === 'group' ? 'g' : undefined,
      maxAttempts: name === 'dead' ? 1 : 2,
      backoff: 1,
    })),
  )
  const failed = (job: { attempt: number; name: string }): void => {
    if (job.attempt === 1) throw new Error(job.name)
  }
  const errors: unknown[] = []
  const worker = jobs.work(
    { done: () => {}, again: failed, dead: failed, group: () => {} },
    { onFailure: () => {}, onError: (error) => errors.push(error), ttl: '6s', pollInterval: 100 },
  )
  await until('all are over', async () => {
    const states = await Promise.all(ids.map(async (id) => (await jobs.find(id ?? ''))?.state))
    return states.every((state) => state === 'completed' || state === 'dead')
  })
  await worker.stop()
  expect(errors).toEqual([])
  expect(await jobs.retry(ids[2] ?? '')).toEqual([ids[2]])
  const [claimed] = await jobs.claim('dead', { ttl: '3s' })
  await until('a claim ends what is overdue', async () => {
    await jobs.claim('nothing')
    return (await jobs.find(claimed?.id ?? ''))?.state === 'dead'
  })
  expect(await jobs.retry(ids[2] ?? '')).toEqual([ids[2]])
  expect(await jobs.cancel(ids[2] ?? '', { reason: 'x' })).toEqual([ids[2]])
  expect(await jobs.remove(ids[2] ?? '')).toEqual([ids[2]])
  await jobs.cleanUp()
  expect(await jobs.count()).not.toEqual([])
  await expect(jobs.enqueue('a')).rejects.toMatchObject({ code: 'store-refused' })
  await expectDenied('jobs_worker', CHANGES)
})

test('the role that looks sees all jobs, by the command line too, and changes none', async () => {
  const id = (await (await as('shop')).enqueue('seen', { of: 'all' }, { delay: '1h' })) ?? ''
  const jobs = await as('jobs_viewer')
  await jobs.migrate()
  expect(await jobs.find(id)).toMatchObject({ state: 'delayed', payload: { of: 'all' } })
  expect(await jobs.count()).toContainEqual(expect.objectContaining({ name: 'seen', count: 1 }))
  const seen: string[] = []
  for await (const job of jobs.inspect({ name: 'seen' })) seen.push(job.id)
  expect(seen).toEqual([id])
  const main = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url))
  const cli = (...words: string[]) =>
    promisify(execFile)(process.execPath, [
      '--import',
      'tsx',
      main,
      'jobs',
      ...words,
      '--store',
      urlOf('jobs_viewer'),
    ])
  expect((await cli('ls', '--name', 'seen')).stdout).toContain('seen')
  await expect(cli('cancel', id, '--reason', 'x')).rejects.toMatchObject({
    stderr: expect.stringContaining('docs/jobs.md'),
  })
  const denied = { code: 'store-refused' }
  await expect(jobs.enqueue('a')).rejects.toMatchObject(denied)
  await expect(jobs.claim('seen')).rejects.toMatchObject(denied)
  await expect(jobs.retry(id)).rejects.toMatchObject(denied)
  await expect(jobs.cancel(id, { reason: 'x' })).rejects.toMatchObject(denied)
  await expect(jobs.remove(id)).rejects.toMatchObject(denied)
  await expectDenied('jobs_viewer', [
    'update holdfast.jobs set priority = 1',
    'delete from holdfast.ended_jobs',
    `select nextval('holdfast.job_ids')`,
    ...CHANGES,
  ])
})
