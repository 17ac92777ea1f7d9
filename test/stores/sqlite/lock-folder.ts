import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll } from 'vitest'
import type { SqliteEngine } from '../../../src/stores/sqlite/sqlite-engine.ts'

/** A folder for lock files that is gone after the test file. */
export function freshFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-sqlite-'))
  afterAll(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

/** The engines there are under this Node.js; the other versions are looked after by `npm run test:runtimes`. */
export const engines: readonly SqliteEngine[] = process.versions.node.startsWith('20.')
  ? ['@photostructure/sqlite']
  : ['node:sqlite', '@photostructure/sqlite']
