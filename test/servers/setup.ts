import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { ensureBinary, ensureEtcd, ensurePostgres } from './install.ts'

/** Once before all tests: a missing server is installed or fails the run, and never skips a test. */
export default function setup(): () => void {
  ensureBinary('redis-server')
  ensurePostgres()
  ensureBinary('pgbouncer')
  ensureEtcd()
  // For what people look at in a browser.
  ensureBinary('chromium')
  ensureBinary('tmux')
  // For the test that cuts real networks, which says so where it cannot.
  if (process.platform === 'linux' && process.getuid?.() === 0)
    ensureBinary('ip', { packageName: 'iproute2' })
  // Where the first file that needs PostgreSQL leaves its new cluster, for the others to copy.
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-clusters-'))
  process.env['HOLDFAST_TEST_CLUSTERS'] = folder
  return () => rmSync(folder, { recursive: true, force: true })
}
