import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { Client } from 'pg'
import { describe, expect, test } from 'vitest'
import { startPgBouncer } from './pgbouncer.ts'
import { startPostgres } from './postgres-server.ts'
import { until } from './until.ts'

describe('a real PostgreSQL server for tests', () => {
  test('answers, makes databases, and keeps what it answered over a restart and a kill', async () => {
    await using server = await startPostgres({ settings: { statement_timeout: '30s' } })
    const { port, pid } = server
    expect(await server.sql('show fsync')).toEqual([{ fsync: 'on' }])
    expect(await server.sql('show statement_timeout')).toEqual([{ statement_timeout: '30s' }])
    await server.sql(`create table kept (value text); insert into kept values ('ü')`)
    await server.restart()
    expect(server.port).toBe(port)
    expect(server.pid).not.toBe(pid)
    await server.kill()
    await expect(server.sql('select 1')).rejects.toThrow('ECONNREFUSED')
    await server.restart()
    expect(await server.sql('select value from kept')).toEqual([{ value: 'ü' }])

    const client = new Client(await server.createDatabase('other'))
    await client.connect()
    expect((await client.query('select current_database() as name')).rows).toEqual([{ name: 'other' }])
    await client.end()
  })

  test('leaves no shared memory behind, although it is killed at the end', async () => {
    const server = await startPostgres()
    const [row] = await server.sql<{ folder: string }>(`select current_setting('data_directory') as folder`)
    const pidFile = readFileSync(join(row?.folder ?? '', 'postmaster.pid'), 'utf8')
    const segment = pidFile.split('\n')[6]?.trim().split(/\s+/)[1]
    expect(segments()).toContain(segment)
    await server.close()
    await until('the kernel has dropped the segment', () => !segments().includes(segment))
  })

  test('hangs while it is paused, and goes on afterwards', async () => {
    await using server = await startPostgres()
    const client = new Client({ connectionString: server.url, query_timeout: 200 })
    await client.connect()
    await client.query('select 1')
    await server.pause()
    await expect(client.query('select 1')).rejects.toThrow('timeout')
    server.resume()
    await client.end()
    expect(await server.sql('select 1 as one')).toEqual([{ one: 1 }])
    await server.pause()
    await server.stop()
    expect(() => server.resume()).toThrow('Expected postgres to be running')
  })

  test('asks for the password where it is told to', async () => {
    await using server = await startPostgres({ access: ['host all app 127.0.0.1/32 scram-sha-256'] })
    await server.sql(`create role app login password 's3cret'`)
    const url = new URL(server.url)
    url.username = 'app'
    const wrong = new Client(url.href.replace('app@', 'app:wrong@'))
    await expect(wrong.connect()).rejects.toThrow('password authentication failed')
    const right = new Client(url.href.replace('app@', 'app:s3cret@'))
    await right.connect()
    await right.end()
  })

  test('streams to a standby that takes no writes', async () => {
    await using primary = await startPostgres()
    await using standby = await startPostgres({ standbyOf: primary })
    await primary.sql('create table copied (value text)')
    await until('the standby has it', async () => {
      const [row] = await standby.sql<{ found: boolean }>(`select to_regclass('copied') is not null as found`)
      return row?.found
    })
    await expect(standby.sql(`insert into copied values ('x')`)).rejects.toThrow('read-only')
  })

  test('says what the server said when it does not start', async () => {
    await expect(startPostgres({ settings: { no_such_setting: '1' } })).rejects.toThrow('no_such_setting')
  })

  test('leaves no process and no folder behind, also when closed while paused, twice', async () => {
    const server = await startPostgres()
    const folder = await folderOf(server)
    const { pid } = server
    await server.pause()
    await server.close()
    await server.close()
    expect(isAlive(pid)).toBe(false)
    expect(existsSync(folder)).toBe(false)
  })

  test('leaves neither process nor folder when the test process exits without closing it', async () => {
    const { pid, folder } = await startInChild('process.exit(1)')
    await until('the server is gone', () => !isAlive(pid))
    expect(existsSync(folder)).toBe(false)
  })

  // Only Linux can end a process with its parent; elsewhere there is nothing to test.
  if (process.platform === 'linux') {
    test('leaves no process when the test process is killed', async () => {
      const { pid, folder } = await startInChild('process.kill(process.pid, "SIGKILL")')
      await until('the server is gone', () => !isAlive(pid))
      rmSync(folder, { recursive: true, force: true })
    })
  }
})

describe('a real PgBouncer for tests', () => {
  test('shares few connections among many clients', async () => {
    await using server = await startPostgres()
    await using pooler = await startPgBouncer(server, { poolSize: 1 })
    const clients = [new Client(pooler.url), new Client(pooler.urlOf(await server.createDatabase('other')))]
    for (const client of clients) await client.connect()
    const third = new Client(pooler.url)
    await third.connect()
    clients.push(third)
    const backends = await Promise.all(
      clients.map(async (client) => (await client.query('select pg_backend_pid() as pid')).rows[0].pid),
    )
    expect(backends[2]).toBe(backends[0])
    expect(backends[1]).not.toBe(backends[0])
    for (const client of clients) await client.end()
  })
})

async function folderOf(server: {
  sql: (text: string) => Promise<Record<string, unknown>[]>
}): Promise<string> {
  const [row] = await server.sql(`select current_setting('data_directory') as folder`)
  return String(row?.['folder']).replace(/\/cluster$/, '')
}

/** Starts a server in a process of its own. `ending` is how that process ends. */
async function startInChild(ending: string): Promise<{ pid: number; folder: string }> {
  const program = `
    const { startPostgres } = await import(${JSON.stringify(import.meta.resolve('./postgres-server.ts'))})
    const server = await startPostgres()
    const [row] = await server.sql("select current_setting('data_directory') as folder")
    const folder = row.folder.replace(/\\/cluster$/, '')
    process.stdout.write(JSON.stringify({ pid: server.pid, folder }), () => ${ending})
  `
  const child = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '--eval', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const [output] = await Promise.all([text(child.stdout), once(child, 'exit')])
  return JSON.parse(output)
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

/** The ids of all segments of System V shared memory. */
function segments(): readonly (string | undefined)[] {
  const [, ...lines] = readFileSync('/proc/sysvipc/shm', 'utf8').trim().split('\n')
  return lines.map((line) => line.trim().split(/\s+/)[1])
}
