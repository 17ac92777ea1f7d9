// Runs the tests on every other version of Node that the package supports, and then the tests of the command with the command
// on Bun and on Deno. Without arguments it runs all tests that depend on the runtime, else the given ones. The runtimes are
// npm packages, installed on first use into test/runtimes.
//
//   npm run test:runtimes [-- test/stores/sqlite …]
import { spawnSync } from 'node:child_process'
import { delimiter, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { installed, otherRuntimes } from '../test/servers/runtimes.ts'

const versions = ['22', '24', '26']
const root = fileURLToPath(new URL('../', import.meta.url))
// Excluded: tests of words and files, and seeded histories on a simulated clock, which do not depend on the runtime.
const everything = ['--exclude=test/tidy/**', '--exclude=test/docs/**', '--exclude=test/simulation/**']
const given = process.argv.slice(2)
const selection = given.length > 0 ? given : everything
const ofCommand = given.length > 0 ? given.filter((path) => path.startsWith('test/cli')) : ['test/cli']
const vitest = join(root, 'node_modules/vitest/vitest.mjs')

for (const version of versions) {
  const node = installed(`node${version}-${process.platform}-${process.arch}/bin/node`)
  console.log(`\nNode ${version}`)
  run(node, [vitest, 'run', ...selection])
}

for (const runtime of ofCommand.length > 0 ? otherRuntimes : []) {
  console.log(`\nThe command on ${runtime}`)
  run(process.execPath, [vitest, 'run', ...ofCommand], { HOLDFAST_TEST_RUNTIME: runtime })
}

function run(command: string, args: readonly string[], env: Readonly<Record<string, string>> = {}): void {
  // First on PATH, so that a child that a test starts as `node` is of the same version.
  const path = [dirname(command), process.env['PATH']].join(delimiter)
  const { status, error } = spawnSync(command, args, {
    cwd: root,
    stdio: ['ignore', 'inherit', 'inherit'],
    env: { ...process.env, ...env, PATH: path },
  })
  if (error !== undefined) throw error
  if (status !== 0) process.exit(status ?? 1)
}
