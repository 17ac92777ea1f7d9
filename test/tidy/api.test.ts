import { spawnSync } from 'node:child_process'
import { appendFileSync, cpSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { root } from './project.ts'

test('the public names and their signatures are those that api/ shows', () => {
  expect(api(root)).toEqual({ status: 0, stderr: '' })
})

describe('in a copy of the repository', () => {
  let copy: string
  beforeAll(() => {
    copy = mkdtempSync(join(tmpdir(), 'holdfast-api-test-'))
    for (const path of ['api', 'scripts', 'src', 'package.json', 'tsconfig.json', 'tsconfig.build.json']) {
      cpSync(root + path, join(copy, path), { recursive: true })
    }
    symlinkSync(`${root}node_modules`, join(copy, 'node_modules'))
  })
  afterAll(() => rmSync(copy, { recursive: true, force: true }))

  test('a changed signature, a type inside of one and a file too many are named, with the command to run', () => {
    appendFileSync(join(copy, 'src/queue/index.ts'), 'export const added: number = 1\n')
    appendFileSync(
      join(copy, 'src/contract/store.ts'),
      '\nexport interface Ticket { readonly added?: string }\n',
    )
    writeFileSync(join(copy, 'api/gone.txt'), '')
    const { status, stderr } = api(copy)
    expect(status).toBe(1)
    const named = stderr.trim().split('\n').sort()
    expect(named).toEqual(
      ['api/gone.txt', 'api/queue.txt', 'api/store.txt'].map(
        (path) => `${path} differs from the types: run \`npm run api\` and commit it`,
      ),
    )
  })
})

function api(folder: string): { status: number | null; stderr: string } {
  const { status, stderr } = spawnSync(process.execPath, ['--import', 'tsx', 'scripts/api.ts', '--check'], {
    cwd: folder,
    encoding: 'utf8',
  })
  return { status, stderr }
}
