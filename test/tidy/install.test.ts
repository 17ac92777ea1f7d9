import { spawnSync } from 'node:child_process'
import { expect, test } from 'vitest'
import { readProjectFile, root } from './project.ts'

test('npm ci warns of no package that wants another Node.js, and of no script that nobody has approved', () => {
  const { status, stdout, stderr } = spawnSync('npm', ['ci', '--dry-run'], { cwd: root, encoding: 'utf8' })
  const warnings = stderr
    .split('\n')
    .filter((line) => /^npm warn (EBADENGINE|install-scripts|deprecated)/.test(line))
  expect({ status, warnings }, stdout).toEqual({ status: 0, warnings: [] })
})

test('no package is deprecated', () => {
  const { packages } = JSON.parse(readProjectFile('package-lock.json')) as {
    packages: Record<string, { deprecated?: string }>
  }
  const deprecated = Object.keys(packages).filter((path) => packages[path]?.deprecated !== undefined)
  expect(deprecated).toEqual([])
})
