import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { Client } from 'pg'
import { expect, test } from 'vitest'
import { connect, diagnose } from '../../../src/index.ts'
import { notifications, transactions } from '../../../src/stores/postgres/doctor.ts'
import { ensurePostgres } from '../../servers/install.ts'
import { startPgBouncer } from '../../servers/pgbouncer.ts'
import { startPostgres } from '../../servers/postgres-server.ts'
import { until } from '../../servers/until.ts'

test('the doctor finds nothing wrong with a primary that keeps what it commits', async () => {
  await using server = await startPostgres()
  const { store, verdict, findings } = await diagnose(server.url)
  expect({ store, verdict }).toEqual({ store: 'postgres', verdict: 'ok' })
  const checks = ['connection', 'round trip', 'messages', 'listing', 'version', 'role', 'pooler']
  expect(findings.map(({ check }) => check)).toEqual([
    ...checks,
    ...['isolation', 'durability', 'connections', 'clock'],
  ])
})

test('the doctor takes no backup for a standby', async () => {
  await using server = await startPostgres()
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-backup-'))
  const backup = spawn(
    join(dirname(ensurePostgres()), 'pg_receivewal'),
    ['--directory', folder, '--no-loop', '--dbname', server.url],
    { stdio: 'ignore' },
  )
  await until('it is connected', async () => {
    const [row] = await server.sql('select count(*)::int as count from pg_stat_replication')
    return row?.['count'] === 1
  })
  expect(await diagnose(server.url)).toMatchObject({ verdict: 'ok' })
  backup.kill()
  await once(backup, 'exit')
  rmSync(folder, { recursive: true })
})

test('the doctor tells of a pooler, of a standby, and of a server that does not wait for its disk', async () => {
  await using server = await startPostgres({ settings: { fsync: 'off' } })
  await using bouncer = await startPgBouncer(server)
  const pooled = await diagnose(bouncer.url)
  expect(pooled.findings).toContainEqual({
    check: 'pooler',
    verdict: 'warning',
    text: expect.stringContaining('Name the server itself'),
  })
  expect(pooled.findings).toContainEqual({
    check: 'durability',
    verdict: 'problem',
    text: expect.stringContaining('Set fsync on'),
  })
  await using standby = await startPostgres({ standbyOf: server })
  expect((await diagnose(standby.url)).findings).toContainEqual({
    check: 'role',
    verdict: 'problem',
    text: expect.stringMatching(/is a standby/),
  })
  expect((await diagnose(server.url)).findings).toContainEqual({
    check: 'fail-over',
    verdict: 'warning',
    text: expect.stringContaining('synchronous_standby_names'),
  })
  await server.sql(`create role app login password 'secret'; grant create on database holdfast to app`)
  const asApp = new URL(server.url)
  asApp.username = 'app'
  asApp.password = 'secret'
  expect((await diagnose(asApp.href)).findings).toContainEqual({
    check: 'fail-over',
    verdict: 'warning',
    text: expect.stringContaining('no member of pg_read_all_stats'),
  })
})

test('the doctor tells of defaults that matter to locks, and of a server that has hardly a connection left', async () => {
  await using server = await startPostgres({
    settings: {
      autovacuum: 'off',
      default_transaction_isolation: 'repeatable read',
      max_connections: '20',
      max_wal_senders: '0',
      superuser_reserved_connections: '12',
      full_page_writes: 'off',
    },
  })
  const others = Array.from({ length: 8 }, () => new Client(server.url))
  await Promise.all(others.map((client) => client.connect()))
  const { verdict, findings } = await diagnose(server.url)
  await Promise.all(others.map((client) => client.end()))
  expect(verdict).toBe('warning')
  const wrong = findings.filter((finding) => finding.verdict !== 'ok')
  expect(wrong).toEqual([
    { check: 'isolation', verdict: 'warning', text: expect.stringContaining('REPEATABLE READ by default') },
    { check: 'durability', verdict: 'warning', text: expect.stringContaining('full_page_writes') },
    { check: 'connections', verdict: 'warning', text: expect.stringContaining('Raise max_connections') },
    { check: 'vacuum', verdict: 'warning', text: expect.stringContaining('Set it on') },
  ])
})

test.each([
  ['lowered', 'set fence = 5', 'problem', /lower fence than a holder has/],
  ['raised to the end of all numbers', 'set fence = 9000000000000000000', 'problem', /hardly any above it/],
  ['raised by an hour', 'set fence = fence + 3600000000', 'warning', /is 60 min ahead/],
] as const)('the doctor finds a last fence that somebody has %s', async (_, change, verdict, text) => {
  await using server = await startPostgres()
  const locks = await connect(server.url)
  const lease = await locks.acquire('key')
  expect((await diagnose(server.url)).verdict).toBe('ok')
  await server.sql(`update holdfast.lock_fences ${change}`)
  expect((await diagnose(server.url)).findings).toContainEqual({
    check: 'last fence',
    verdict,
    text: expect.stringMatching(text),
  })
  await lease.release()
  await locks.close()
})

test('the doctor tells of what makes locks slow after a while', () => {
  expect(notifications({ queueUsage: 0.2 })).toBeUndefined()
  expect(notifications({ queueUsage: 0.7 })).toMatchObject({
    verdict: 'warning',
    text: expect.stringContaining('is 70 % full'),
  })
  expect(transactions({ oldest: { pid: '77', openMs: 60_000 } })).toBeUndefined()
  expect(transactions({ oldest: { pid: '77', openMs: 3_600_000 } })).toMatchObject({
    verdict: 'warning',
    text: expect.stringMatching(/open for 60 min \(process 77\)/),
  })
})

test('the doctor says that it could not look at the server, where the store works', async () => {
  await using server = await startPostgres()
  await server.sql(`create role app login password 'secret'; grant create on database holdfast to app;
    revoke execute on function pg_notification_queue_usage() from public`)
  const asApp = new URL(server.url)
  asApp.username = 'app'
  asApp.password = 'secret'
  const refused = await diagnose(asApp.href)
  expect(refused.verdict).toBe('warning')
  expect(refused.findings).toContainEqual({
    check: 'server',
    verdict: 'warning',
    text: expect.stringMatching(/^The doctor could not look .* denied for function pg_notification_queue/),
  })
  const other = new Client(server.url)
  await other.connect()
  await other.query('begin; lock table holdfast.lock_fences in access exclusive mode')
  const late = await diagnose(server.url)
  await other.end()
  expect(late.findings).toContainEqual({
    check: 'server',
    verdict: 'warning',
    text: expect.stringMatching(/^The doctor could not look .*No answer within 5000 ms/),
  })
})

test('the doctor says why there is no connection, and no secret', async () => {
  const diagnosis = await diagnose('postgres://holdfast:sesame@127.0.0.1:1/holdfast')
  expect(diagnosis.findings).toMatchObject([{ check: 'connection', verdict: 'problem' }])
  expect(JSON.stringify(diagnosis)).not.toContain('sesame')
})
