// Ten minutes of silence for every kind of connection, at the same time on all stores and clients. It takes twelve minutes, which
// is why it is no part of `npm test`. docs/promises.md names the date of the last run.
//
//   npm run faults:long
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../', import.meta.url))
const vitest = `${root}node_modules/vitest/vitest.mjs`
const { status } = spawnSync(
  process.execPath,
  // Every place waits at the same time.
  [vitest, 'run', 'test/faults/silent-outage.test.ts', '--maxConcurrency=64'],
  { cwd: root, stdio: ['ignore', 'inherit', 'inherit'], env: { ...process.env, HOLDFAST_LONG: '1' } },
)
process.exitCode = status ?? 1
