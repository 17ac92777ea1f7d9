import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { packTarball, runIn } from './empty-project.ts'

let tarball: ReturnType<typeof packTarball>
let folder: string
beforeAll(() => {
  tarball = packTarball()
  folder = mkdtempSync(join(tmpdir(), 'holdfast-install-'))
})
afterAll(() => {
  rmSync(folder, { recursive: true, force: true })
  tarball[Symbol.dispose]()
})

test('installed by npm and nothing else, the command takes a lock on a bare machine', async () => {
  writeFileSync(join(folder, 'package.json'), '{}')
  const quiet = ['--prefer-offline', '--no-audit', '--no-fund', '--ignore-scripts']
  expect(await runIn(folder, 'npm', ['install', ...quiet, tarball.path])).not.toContain('ended with')
  const environment = { HOME: folder, XDG_STATE_HOME: undefined, HOLDFAST_STORE: undefined }
  const args = ['--no-install', 'holdfast', 'run', 'k', '--', 'echo', 'under the lock']
  expect(await runIn(folder, 'npx', args, environment)).toBe('under the lock\n')
})
