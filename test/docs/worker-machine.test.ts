import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { readProjectFile, root } from '../tidy/project.ts'

test('the picture of the lock worker shows the machine as it is', () => {
  expect(draw('--check')).toMatchObject({ status: 0, stderr: '' })
  expect(readProjectFile('docs/worker.md')).toContain('trying --> working : granted')
})

test('a picture of another machine is found out, and drawn anew', () => {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-picture-'))
  try {
    const page = join(folder, 'worker.md')
    const right = readProjectFile('docs/worker.md')
    writeFileSync(page, right.replace('trying --> waiting : busy\n', ''))
    expect(draw('--check', page)).toMatchObject({ status: 1, stderr: expect.stringContaining(page) })
    expect(draw(page).status).toBe(0)
    expect(readFileSync(page, 'utf8')).toBe(right)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})

function draw(...args: string[]): { status: number | null; stderr: string } {
  const options = ['--import', 'tsx', 'scripts/draw-worker-machine.ts', ...args]
  return spawnSync(process.execPath, options, { cwd: root, encoding: 'utf8' })
}
