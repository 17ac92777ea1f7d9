import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/**
 * How to run a TypeScript file, by the name of the runtime: the Node.js that runs the tests, and the runtimes that are
 * no Node.js.
 */
export type Runtime = 'node' | 'bun' | 'deno'

const folder = fileURLToPath(new URL('../runtimes', import.meta.url))
const packages = join(folder, 'node_modules')

/** The command without the script and its arguments. Bun and Deno are installed into test/runtimes on first use. */
export function commandOf(runtime: Runtime): readonly [string, ...string[]] {
  switch (runtime) {
    case 'node':
      return [process.execPath, '--import', 'tsx']
    case 'bun':
      return [installed(`bun-${process.platform}-${process.arch}/bin/bun`), '--no-install']
    case 'deno':
      return [installed(`deno-${process.platform}-${process.arch}/deno`), 'run', '--no-lock', '--no-prompt']
    default:
      return runtime satisfies never
  }
}

/** The path of a program in one of the packages of test/runtimes. */
export function installed(program: string): string {
  const path = join(packages, program)
  if (existsSync(path)) return path
  // A missing runtime fails, as a missing server does: a test without its runtime is not a test.
  const { error, status, stderr } = spawnSync('npm', ['ci', '--prefix', folder], { encoding: 'utf8' })
  if (existsSync(path)) return path
  const reason = error?.message ?? stderr.trim().split('\n').at(-1)
  throw new Error(
    `Expected npm ci to install ${program} into test/runtimes, it ended with ${status}: ${reason}`,
  )
}
