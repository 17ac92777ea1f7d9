import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { ensureBinary, ensureEtcd, ensurePostgres } from './install.ts'

/** Runs once before all tests. A missing server is installed or fails the run; it never skips a test. */
export default function setup(): () => void {
  ensureBinary('redis-server')
  ensurePostgres()
  ensureBinary('pgbouncer')
  ensureEtcd()
  // The browser, for the tests of pages.
  ensureBinary('chromium-headless-shell')
  ensureBinary('tmux')
  // `ip`, for the test that cuts real networks. Where it cannot, that test says so.
  if (process.platform === 'linux' && process.getuid?.() === 0)
    ensureBinary('ip', { packageName: 'iproute2' })
  // The folder of a new PostgreSQL cluster. The first file that needs one makes it, and the others copy it.
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-clusters-'))
  process.env['HOLDFAST_TEST_CLUSTERS'] = folder
  // Beside the packages, because the programs import them.
  const programs = mkdtempSync(
    fileURLToPath(new URL('../../node_modules/.holdfast-programs-', import.meta.url)),
  )
  process.env['HOLDFAST_TEST_PROGRAMS'] = programs
  return () => {
    for (const made of [folder, programs]) rmSync(made, { recursive: true, force: true })
  }
}
