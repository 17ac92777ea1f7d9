import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterAll, expect, test } from 'vitest'
import { Shell } from '../cli/holdfast-process.ts'
import { hostileText, runs, wellFormed } from './fuzzing.ts'

const shells: Shell[] = []
/** What a command writes goes here, and not to the folder of whoever runs the tests. */
const folder = mkdtempSync(join(tmpdir(), 'holdfast-hostile-'))
afterAll(async () => {
  await Promise.all(shells.map((shell) => shell.close()))
  rmSync(folder, { recursive: true })
})

/** What a shell can pass on: no zero byte, and no half of a character. */
const word = hostileText.map((text) => wellFormed(text.replaceAll('\0', '')).slice(0, 2000))

test('whatever stands in the arguments and in the environment, the command ends with a code of its list and prints plain lines', async () => {
  const verbs = fc.constantFrom(
    'ls',
    'show',
    'evict',
    'run',
    'lease',
    'doctor',
    'jobs',
    'schedules',

    'top',
    'init',
    '',
  )
  const environment = fc.dictionary(
    fc.constantFrom(
      'HOLDFAST_STORE',
      'HOLDFAST_KEY',
      'HOLDFAST_ID',
      'HOLDFAST_FENCE',
      'HOLDFAST_PASSWORD',
      'NO_COLOR',
      'TERM',
      'COLUMNS',
    ),
    word,
    { maxKeys: 3 },
  )
  const options = fc.array(
    fc.oneof(
      word,
      fc
        .tuple(
          fc.constantFrom('--ttl', '--wait', '--permits', '--reason', '--id', '--json', '--once', '-n'),
          word,
        )
        .map(([name, value]) => `${name}=${value}`),
    ),
    { maxLength: 3 },
  )
  await fc.assert(
    fc.asyncProperty(environment, verbs, options, async (env, verb, args) => {
      const shell = new Shell({ HOLDFAST_STORE: 'memory:', HOME: folder, XDG_STATE_HOME: folder, ...env })
      shells.push(shell)
      const { code, stdout, stderr } = await shell.run([verb, ...args], { cwd: folder })
      // 1: a finding, 64: bad usage, 69: no store, 75: busy, 76: lost.
      expect([0, 1, 64, 69, 70, 75, 76]).toContain(code)
      expect(stdout + stderr).not.toMatch(/[\p{Cf}\p{Zl}\p{Zp}]|[^\P{Cc}\n\t]/u)
      expect(stderr).not.toMatch(/^\s+at .*:\d+/m)
      expect((stdout + stderr).length).toBeLessThan(30_000)
    }),
    runs(6),
  )
})
