import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { installPackages } from './install-packages.ts'

/** The Node.js that runs the tests, and the runtimes that are no Node.js. */
export type Runtime = 'node' | 'bun' | 'deno'

export const runtimes: readonly Runtime[] = ['node', 'bun', 'deno']
/** The runtimes that are no Node.js. */
export const otherRuntimes: readonly Runtime[] = ['bun', 'deno']

const folder = fileURLToPath(new URL('../runtimes', import.meta.url))
const packages = join(folder, 'node_modules')

export interface RuntimeOptions extends SpawnOptions {
  /** What Deno may do. Default: everything, as on the other runtimes. */
  readonly rights?: readonly string[]
}

/** For Deno: where to keep what it has compiled, and not to ask for newer versions of itself. */
export const runtimeEnvironment: Readonly<Record<string, string>> = {
  DENO_DIR: join(packages, '.deno'),
  DENO_NO_UPDATE_CHECK: '1',
}

/** Installs the runtimes that are missing, which may take minutes. */
export function ensureRuntimes(): void {
  for (const runtime of otherRuntimes) commandOf(runtime)
}

/** Starts a program under a runtime. TypeScript runs as it is on Bun and Deno, and through tsx on Node.js. */
export function startUnder(
  runtime: Runtime,
  [program, ...args]: readonly [string | URL, ...string[]],
  { rights, env = process.env, ...options }: RuntimeOptions = {},
): ChildProcess {
  const path = program instanceof URL ? fileURLToPath(program) : program
  const [file, ...flags] = commandOf(runtime, rights)
  if (runtime === 'node' && path.endsWith('.ts')) flags.push('--import', 'tsx')
  return spawn(file, [...flags, path, ...args], { ...options, env: { ...env, ...runtimeEnvironment } })
}

/** Runs a program to its end. */
export async function runUnder(
  runtime: Runtime,
  program: readonly [string | URL, ...string[]],
  options: RuntimeOptions = {},
): Promise<{ readonly code: unknown; readonly stdout: string; readonly stderr: string }> {
  const child = startUnder(runtime, program, { ...options, stdio: ['ignore', 'pipe', 'pipe'] })
  if (child.stdout === null || child.stderr === null) throw new Error('Expected pipes')
  const [stdout, stderr, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'exit'),
  ])
  return { code, stdout, stderr }
}

/** The command without the program and its arguments. Bun and Deno are installed into test/runtimes on first use. */
export function commandOf(
  runtime: Runtime,
  rights: readonly string[] = ['-A'],
): readonly [string, ...string[]] {
  switch (runtime) {
    case 'node':
      return [process.execPath]
    case 'bun':
      return [installed(`bun-${process.platform}-${process.arch}/bin/bun`), '--no-install']
    case 'deno':
      return [
        installed(`deno-${process.platform}-${process.arch}/deno`),
        'run',
        '--no-lock',
        '--no-prompt',
        ...rights,
      ]
    default:
      return runtime satisfies never
  }
}

/** The path of a program in one of the packages of test/runtimes. */
export function installed(program: string): string {
  // A missing runtime fails, as a missing server does: a test without its runtime is not a test.
  return installPackages(folder, program)
}
