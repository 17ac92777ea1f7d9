// Runs the tests on every other version of Node that the package supports; without arguments all that depend on the
// runtime, else the given ones. The runtimes are npm packages, installed on first use into test/runtimes.
//
//   npm run test:runtimes [-- test/stores/sqlite …]
import { spawnSync } from 'node:child_process'
import { delimiter, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { installed } from '../test/servers/runtimes.ts'

const versions = ['22', '24', '26']
const root = fileURLToPath(new URL('../', import.meta.url))
// Excluded: tests of words and files, and seeded histories on a simulated clock, which do not depend on the runtime.
const everything = ['--exclude=test/tidy/**', '--exclude=test/docs/**', '--exclude=test/simulation/**']
const selection = process.argv.length > 2 ? process.argv.slice(2) : everything

for (const version of versions) {
  const node = installed(`node${version}-${process.platform}-${process.arch}/bin/node`)
  console.log(`\nNode ${version}`)
  run(node, [join(root, 'node_modules/vitest/vitest.mjs'), 'run', ...selection])
}

function run(command: string, args: readonly string[]): void {
  // First on PATH, so that a child that a test starts as `node` is of the same version.
  const path = [dirname(command), process.env['PATH']].join(delimiter)
  const { status, error } = spawnSync(command, args, {
    cwd: root,
    stdio: ['ignore', 'inherit', 'inherit'],
    env: { ...process.env, PATH: path },
  })
  if (error !== undefined) throw error
  if (status !== 0) process.exit(status ?? 1)
}
