import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { bundled } from '../../servers/bundled.ts'
import { startPostgres } from '../../servers/postgres-server.ts'
import { enableTls } from '../../servers/postgres-tls.ts'
import { until } from '../../servers/until.ts'

const script = await bundled(new URL('processes/hold-and-leave.ts', import.meta.url))

test.each([
  ['pg', 'without TLS', ''],
  ['postgres', 'without TLS', ''],
  ['pg', 'over TLS', '?sslmode=no-verify'],
  ['postgres', 'over TLS', '?sslmode=require'],
])('on %s, a process with idle connections %s ends by itself', async (name, _, parameters) => {
  await using server = await startPostgres()
  if (parameters !== '') await enableTls(server)
  const args = [script, `${server.url}${parameters}`, name, 'k']
  // Rejects if the process is still there after this time.
  const { stdout } = await promisify(execFile)('node', args, { timeout: 120_000 })
  expect(stdout).toBe('acquire-timeout\n')
  await until('its sessions are gone', async () => {
    const rows = await server.sql(`select 1 from pg_stat_activity where application_name like 'holdfast%'`)
    return rows.length === 0
  })
  const holders = await server.sql('select count(*)::int as count from holdfast.lock_holders')
  expect(holders).toEqual([{ count: 1 }])
})
