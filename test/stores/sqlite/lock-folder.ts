import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll } from 'vitest'
import type { SqliteEngine } from '../../../src/stores/sqlite/sqlite-engine.ts'

/** A folder for lock files. It is removed after the test file. */
export function freshFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-sqlite-'))
  afterAll(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

/** The engines that exist under this Node.js. `npm run test:runtimes` covers the other versions. */
export const engines: readonly SqliteEngine[] = process.versions.node.startsWith('20.')
  ? ['@photostructure/sqlite']
  : ['node:sqlite', '@photostructure/sqlite']
