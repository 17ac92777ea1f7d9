import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll } from 'vitest'

/** A folder for lock files that is gone after the test file. */
export function freshFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-sqlite-'))
  afterAll(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}
