import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { bundled } from '../../servers/bundled.ts'
import { startMasters } from './masters.ts'

const PROGRAM = await bundled(new URL('processes/use-and-leave.mjs', import.meta.url))

test('no connection keeps a process alive that has nothing to do, also while one server hangs and another one is gone', async () => {
  await using masters = await startMasters(5)
  await masters.servers[1]?.pause()
  await masters.servers[3]?.kill()
  const { stdout } = await promisify(execFile)(process.execPath, [PROGRAM, `redlock:${masters.urls}`], {
    timeout: 120_000,
    killSignal: 'SIGKILL',
  })
  expect(stdout).toBe('done\n')
  for (const server of [masters.servers[0], masters.servers[2], masters.servers[4]]) {
    expect(await server?.command('KEYS', 'holdfast:{*')).toEqual([])
  }
})
