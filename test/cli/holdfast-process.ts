import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { constants } from 'node:os'
import { fileURLToPath } from 'node:url'
import { commandOf, type Runtime, runtimeEnvironment, startUnder } from '../servers/runtimes.ts'
import { until } from '../servers/until.ts'

export const PROGRAM: string = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url))

/** `npm run test:runtimes` runs the tests of the command a second time, with the command on Bun or on Deno. */
export const DEFAULT_RUNTIME: Runtime = (process.env['HOLDFAST_TEST_RUNTIME'] ?? 'node') as Runtime

/** One `holdfast …` command of the built package, started as a person starts it. */
export interface HoldfastProcess {
  readonly pid: number
  readonly stdout: string
  readonly stderr: string
  readonly running: boolean
  /** The exit code of the process. If a signal has ended the process: 128+n, as a shell would say. */
  readonly exit: Promise<number>
  signal(name: NodeJS.Signals): void
  /** Closes the standard output, as `head` does when it has enough. */
  closeOutput(): void
  /** Closes the error output, as a closed terminal does. */
  closeErrors(): void
  /** Resolves once the output contains a text. */
  prints(text: string): Promise<void>
  /** Resolves with the id of the process that guards the command. */
  guardian(): Promise<number>
}

export interface Surroundings {
  readonly env?: Readonly<Record<string, string | undefined>>
  readonly input?: string
  readonly cwd?: string
}

/** Starts commands. At the end it says which of their processes are still there. */
export class Shell {
  /**
   * An environment variable with this value marks every process that is started here. Children inherit it, so all of
   * them are found.
   */
  readonly #mark: string = randomUUID()
  readonly #env: Readonly<Record<string, string | undefined>>
  readonly #runtime: Runtime

  constructor(env: Readonly<Record<string, string | undefined>> = {}, runtime: Runtime = DEFAULT_RUNTIME) {
    this.#env = env
    this.#runtime = runtime
  }

  start(args: readonly string[], { env = {}, input, cwd }: Surroundings = {}): HoldfastProcess {
    const child = startUnder(this.#runtime, [PROGRAM, ...args], {
      stdio: [input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
      env: { ...process.env, HOLDFAST_STORE: undefined, ...this.#env, ...env, HOLDFAST_TEST: this.#mark },
      cwd,
    })
    if (input !== undefined) child.stdin?.end(input)
    return watch(child)
  }

  /** Runs a script of bash with job control, in a terminal. `typed` is typed there; `$HOLDFAST` is the program. */
  terminal(
    script: string,
    typed: string,
    env: Readonly<Record<string, string | undefined>> = {},
  ): HoldfastProcess {
    const words = [...commandOf(this.#runtime), PROGRAM]
    const program = words.map((word) => JSON.stringify(word)).join(' ')
    const child = spawn('script', ['--quiet', '--return', '--command', `set -m; ${script}`, '/dev/null'], {
      stdio: 'pipe',
      env: {
        ...process.env,
        ...runtimeEnvironment,
        HOLDFAST_STORE: undefined,
        ...this.#env,
        ...env,
        HOLDFAST: program,
        HOLDFAST_TEST: this.#mark,
        SHELL: '/bin/bash',
      },
    })
    child.stdin.end(typed)
    return watch(child)
  }

  async run(
    args: readonly string[],
    surroundings: Surroundings = {},
  ): Promise<{ code: number; stdout: string; stderr: string }> {
    const started = this.start(args, surroundings)
    const code = await started.exit
    return { code, stdout: started.stdout, stderr: started.stderr }
  }

  /** Every living process that was started from here, directly or not. */
  processes(): number[] {
    return execFileSync('ps', ['axeww', '-o', 'pid=,command='], { encoding: 'utf8', maxBuffer: 2 ** 28 })
      .split('\n')
      .filter((line) => line.includes(`HOLDFAST_TEST=${this.#mark}`))
      .map((line) => Number.parseInt(line, 10))
  }

  /** Rejects when a process is left behind, and kills that process. */
  async close(): Promise<void> {
    try {
      await until('no process is left behind', () => this.processes().length === 0, { everyMs: 50 })
    } finally {
      for (const pid of this.processes()) process.kill(pid, 'SIGKILL')
    }
  }
}

function watch(child: ChildProcess): HoldfastProcess {
  let stdout = ''
  let stderr = ''
  let running = true
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    stdout += text
  })
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    stderr += text
  })
  const closed = new Promise((resolve) => child.once('close', resolve))
  const exit = new Promise<number>((resolve) => {
    child.once('exit', (code, signal) => {
      running = false
      resolve(code ?? 128 + constants.signals[signal ?? 'SIGKILL'])
    })
  }).then(async (code) => {
    // A process that the command leaves in the background may keep the pipes open.
    // Many short pauses: after one long pause in which this process stood still, nothing would have been read.
    for (let pauses = 0; pauses < 20; pauses += 1)
      await Promise.race([closed, new Promise((resolve) => setTimeout(resolve, 10))])
    return code
  })
  return {
    pid: child.pid ?? 0,
    get stdout() {
      return stdout
    },
    get stderr() {
      return stderr
    },
    get running() {
      return running
    },
    exit,
    signal: (name) => {
      child.kill(name)
    },
    closeOutput: () => {
      child.stdout?.destroy()
    },
    closeErrors: () => {
      child.stderr?.destroy()
    },
    async prints(text) {
      await until(`it prints ${JSON.stringify(text)}`, () => {
        if (stdout.includes(text) || stderr.includes(text)) return true
        if (!running) throw new Error(`It ended without printing ${JSON.stringify(text)}: ${stdout}${stderr}`)
        return false
      })
    },
    guardian: () => until('its guardian is there', () => childrenOf(child.pid ?? 0)[0]),
  }
}

export function childrenOf(pid: number): number[] {
  return execFileSync('ps', ['ax', '-o', 'pid=,ppid='], { encoding: 'utf8' })
    .split('\n')
    .map((line) => line.trim().split(/\s+/).map(Number))
    .filter(([, parent]) => parent === pid)
    .map(([child = 0]) => child)
}
