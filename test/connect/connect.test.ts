import { execFile } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { connect, InvalidArgumentError } from '../../src/index.ts'
import { freePort } from '../servers/free-port.ts'
import { type PostgresServer, startPostgres } from '../servers/postgres-server.ts'
import { type RedisServer, startRedis } from '../servers/redis-server.ts'
import { until } from '../servers/until.ts'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-connect-'))
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

describe('connect', () => {
  test('to memory: gives locks of their own', async () => {
    const [one, other] = [await connect('memory:'), await connect('MEMORY:')]
    const lease = await one.acquire('k')
    expect(await one.tryAcquire('k')).toBeNull()
    expect((await other.tryAcquire('k'))?.state).toBe('held')
    await lease.release()
    await one.close()
    await other.close()
  })

  test.each([
    ['an absolute path', (path: string) => `sqlite:${path}`],
    ['a path behind an empty host', (path: string) => `sqlite://${path}`],
  ])('to sqlite: opens the file at %s', async (_, urlOf) => {
    const path = join(folder, 'locks with % and é.db')
    const [one, other] = [await connect(urlOf(path)), await connect(`sqlite:${path}`)]
    const lease = await one.acquire('k')
    expect(existsSync(path)).toBe(true)
    expect(await other.tryAcquire('k')).toBeNull()
    await lease.release()
    await one.close()
    await other.close()
  })

  test('to sqlite: takes a relative path from the working folder', async () => {
    const before = process.cwd()
    process.chdir(folder)
    try {
      const locks = await connect('sqlite:./locks.db')
      await locks.withLock('k', () => {})
      await locks.close()
    } finally {
      process.chdir(before)
    }
    expect(existsSync(join(folder, 'locks.db'))).toBe(true)
  })

  test('hands the options on', async () => {
    const locks = await connect('memory:', { label: 'billing', ttl: '5s' })
    const lease = await locks.acquire('k')
    expect(lease.toJSON().ttlMs).toBe(5000)
    for await (const { holders } of locks.inspect()) expect(holders[0]?.owner.label).toBe('billing')
    await locks.close()
  })

  test('is used up after close()', async () => {
    const locks = await connect('memory:')
    await locks.close()
    await locks.close()
    await expect(locks.acquire('k')).rejects.toMatchObject({ code: 'closed' })
  })

  test.each([
    [
      'an unknown scheme',
      'mongodb://user:secret@host',
      '`url` to begin with memory:, sqlite:, redis:, rediss:, redis+sentinel:, rediss+sentinel:, redis+cluster:, rediss+cluster:, redlock:, postgres:, postgresql:, etcd: or etcds:, got mongodb:.',
    ],
    ['no scheme', './locks.db', 'got no scheme.'],
    ['a drive letter', 'C:\\locks.db', 'got c:.'],
    ['nothing', '', 'got no scheme.'],
    ['no text', undefined, '`url` to be a string, got undefined.'],
    ['something behind memory:', 'memory:secret', 'to have nothing behind the colon'],
    ['a password that is not encoded', 'redis://:secret%zz@host', 'not written as %25.'],
    ['sqlite: without a path', 'sqlite:', 'to name a file'],
    ['sqlite: with a host', 'sqlite://host/locks.db', 'to name a file'],
    ['sqlite: in memory', 'sqlite::memory:', ':memory:'],
  ])('refuses %s in one sentence that does not repeat the url', async (_, url, sentence) => {
    const refusal = await connect(url as string).then(
      () => undefined,
      (error: unknown) => error,
    )
    expect(refusal).toBeInstanceOf(InvalidArgumentError)
    expect((refusal as Error).message).toMatch(/^Expected [^\n]+\.$/)
    expect((refusal as Error).message).toContain(sentence)
    expect((refusal as Error).message).not.toContain('secret')
  })
})

describe('connect to redis:', () => {
  let redis: RedisServer
  beforeAll(async () => {
    redis = await startRedis({ password: 'pass/word' })
  })
  afterAll(() => redis.close())

  const connections = async () =>
    String(await redis.command('CLIENT', 'LIST'))
      .trim()
      .split('\n').length

  test('gives locks that other processes share, and close() closes the client, too', async () => {
    const before = await connections()
    const [one, other] = [await connect(redis.url), await connect(redis.url)]
    const lease = await one.acquire('k')
    expect(await other.tryAcquire('k')).toBeNull()
    await lease.release()
    expect(await connections()).toBeGreaterThan(before)
    await one.close()
    await other.close()
    await until('the connections are closed', async () => (await connections()) === before)
  })

  test('is waited for by a program that does nothing else, and whose end nothing delays', async () => {
    const entry = new URL('../../dist/index.js', import.meta.url).href
    const program = `
      import { connect } from ${JSON.stringify(entry)}
      const locks = await connect(${JSON.stringify(redis.url)})
      console.log((await locks.tryAcquire('alone')).state)
      await locks.close()
    `
    const { stdout } = await promisify(execFile)(
      process.execPath,
      ['--input-type=module', '--eval', program],
      { timeout: 120_000 },
    )
    expect(stdout).toBe('held\n')
  })

  test('says that the password is wrong, and leaves no connection', async () => {
    const before = await connections()
    const url = `redis://:wrong-secret@127.0.0.1:${redis.port}`
    const refusal = await connect(url).then(
      (locks) => locks.tryAcquire('k').finally(() => locks.close()),
      (error: unknown) => error,
    )
    expect(refusal).toMatchObject({ code: 'store-refused' })
    expect((refusal as Error).message).not.toContain('secret')
    await until('the connections are closed', async () => (await connections()) === before)
  })

  test('says that no server answers', async () => {
    const url = `redis://:secret@127.0.0.1:${await freePort()}`
    const refusal = await connect(url).then(
      (locks) => locks.tryAcquire('k').finally(() => locks.close()),
      (error: unknown) => error,
    )
    expect(refusal).toMatchObject({ code: 'store-unavailable' })
    expect((refusal as Error).message).not.toContain('secret')
  })

  test('says within seconds that a server hangs', async () => {
    await using hung = await startRedis()
    await hung.pause()
    await expect(connect(hung.url)).rejects.toMatchObject({
      code: 'store-unavailable',
      message: expect.stringContaining('did not answer within 5 s'),
    })
    hung.resume()
  })

  test('closes the client when the options are wrong', async () => {
    const before = await connections()
    await expect(connect(redis.url, { tll: '5s' } as object)).rejects.toThrow('got `tll`')
    await until('the connections are closed', async () => (await connections()) === before)
  })
})

describe('connect to postgres:', () => {
  let server: PostgresServer
  beforeAll(async () => {
    server = await startPostgres({ access: ['host all app 127.0.0.1/32 scram-sha-256'] })
    await server.sql(`create role app login password 'pass/word'; grant create on database holdfast to app`)
  })
  afterAll(() => server?.close())

  const urlOf = (password: string) =>
    `postgresql://app:${encodeURIComponent(password)}@127.0.0.1:${server.port}/holdfast`
  const sessions = () => server.sql(`select 1 from pg_stat_activity where usename = 'app'`)

  test('gives locks that other processes see, and closes its connections', async () => {
    const [one, other] = [await connect(urlOf('pass/word')), await connect(urlOf('pass/word'))]
    const lease = await one.acquire('k')
    expect(await other.tryAcquire('k')).toBeNull()
    await lease.release()
    expect((await other.tryAcquire('k'))?.state).toBe('held')
    await one.close()
    await other.close()
    await until('nobody is connected', async () => (await sessions()).length === 0)
  })

  test('says in one sentence what is wrong, without the url, and leaves nothing behind', async () => {
    const wrong = connect(urlOf('wrong-secret'))
    await expect(wrong).rejects.toMatchObject({
      code: 'store-refused',
      message: expect.stringMatching(/did not accept the user name and password/),
    })
    await expect(wrong).rejects.not.toMatchObject({ message: expect.stringContaining('secret') })
    const nobody = connect(`postgres://app:wrong-secret@127.0.0.1:${await freePort()}/holdfast`)
    await expect(nobody).rejects.toMatchObject({ code: 'store-unavailable' })
    const unknown = connect(urlOf('pass/word').replace('/holdfast', '/absent'))
    await expect(unknown).rejects.toMatchObject({
      code: 'store-refused',
      message: expect.stringContaining('database that the client names does not exist'),
    })
    await expect(connect('postgres://app:secret%zz@host/db')).rejects.toThrow('not written as %25.')
    await until('nobody is connected', async () => (await sessions()).length === 0)
  })
})
