import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { bundled } from '../servers/bundled.ts'
import { root } from '../tidy/project.ts'

test('a schedule keeps its process alive, whatever its work waits for, until it is stopped', async () => {
  const program = await bundled(new URL('alive-process.ts', import.meta.url))
  const { stdout, stderr } = await promisify(execFile)(process.execPath, [program], {
    cwd: root,
    timeout: 120_000,
    killSignal: 'SIGKILL',
  })
  expect({ stdout, stderr }).toEqual({ stdout: 'worked\nstopped\n', stderr: '' })
})
