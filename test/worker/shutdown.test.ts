import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { bundled } from '../servers/bundled.ts'
import { until } from '../servers/until.ts'
import { root } from '../tidy/project.ts'

const PROGRAM = await bundled(new URL('worker-program.ts', import.meta.url))

describe.concurrent('a process with a worker', () => {
  test('stays alive for the worker; at a signal it ends the work first and then itself, as the signal would have', async () => {
    await using program = await Program.start('one worker')
    // The worker alone keeps the process alive.
    program.child.kill('SIGTERM')
    expect(await program.end()).toBe('SIGTERM')
    expect(program.lines.slice(-5)).toEqual([
      'stop a',
      'a is stopping',
      'stopped a',
      'a is releasing',
      'a is stopped',
    ])
  })

  test('takes no notice of more signals while it ends its work', async () => {
    await using program = await Program.start('one worker')
    program.child.kill('SIGTERM')
    await program.says('stop a')
    program.child.kill('SIGTERM')
    program.child.kill('SIGINT')
    expect(await program.end()).toBe('SIGTERM')
    expect(program.lines.filter((line) => line === 'stop a')).toHaveLength(1)
    expect(program.lines.at(-1)).toBe('a is stopped')
  })

  test('ends when its last worker has ended', async () => {
    await using program = await Program.start('two workers')
    await program.says('b is working')
    program.child.kill('SIGTERM')
    expect(await program.end()).toBe('SIGTERM')
    expect(program.lines).toContain('a is stopped')
    expect(program.lines.at(-1)).toBe('b is stopped')
  })

  test('ends as its own handler of the signal wants it, if it has one', async () => {
    await using program = await Program.start('a handler of its own')
    program.child.kill('SIGTERM')
    expect(await program.end()).toBe(7)
    expect(program.lines.slice(-2)).toEqual(['a is stopped', 'cleaned up'])
  })

  test('ends although it loads a package that listens, and that alone would end it', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-shutdown-'))
    try {
      await using program = await Program.start('a package that listens', { argument: join(folder, 'file') })
      expect(readdirSync(folder)).toEqual(['file.lock'])
      program.child.kill('SIGTERM')
      expect(await program.end()).toBe('SIGTERM')
      expect(program.lines.at(-1)).toBe('a is stopped')
      expect(readdirSync(folder)).toEqual([])
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  })

  test('stays for work that does not end, and does not wait for that work at a signal', async () => {
    await using program = await Program.start('work that does not end')
    await program.says('still here')
    program.child.kill('SIGTERM')
    expect(await program.end()).toBe('SIGTERM')
  })

  test('ends also when it is the first process of a container, which signals do not end', async () => {
    // Without namespaces the test says so and ends. What a signal does there is the same as elsewhere.
    const missing = pidNamespacesMissing()
    if (missing !== undefined) return console.warn(`Not tried: ${missing}`)
    await using program = await Program.start('one worker', { through: IN_A_NAMESPACE })
    const [first] = readFileSync(
      `/proc/${program.child.pid}/task/${program.child.pid}/children`,
      'utf8',
    ).split(' ')
    process.kill(Number(first), 'SIGTERM')
    expect(await program.end()).toBe(128 + 15)
    expect(program.lines.at(-1)).toBe('a is stopped')
  })

  test('ends by itself once the worker is stopped', async () => {
    await using program = await Program.start('stopped by itself')
    program.child.kill('SIGUSR2')
    expect(await program.end()).toBe(0)
    expect(program.lines.at(-1)).toBe('a is stopped')
  })
})

/** Starts a command in a namespace in which its process has the id 1. */
const IN_A_NAMESPACE = ['unshare', '--pid', '--fork', '--kill-child', '--']

function pidNamespacesMissing(): string | undefined {
  const [command = '', ...args] = [...IN_A_NAMESPACE, 'true']
  const { status, error, stderr } = spawnSync(command, args, { encoding: 'utf8' })
  return status === 0
    ? undefined
    : `this machine makes no process namespaces (${error?.message ?? stderr.trim()})`
}

class Program implements AsyncDisposable {
  readonly child: ChildProcess
  readonly lines: string[] = []

  static async start(
    name: string,
    { argument = '', through = [] }: { argument?: string; through?: readonly string[] } = {},
  ): Promise<Program> {
    const [command = '', ...args] = [...through, process.execPath, PROGRAM, name, argument]
    const program = new Program(spawn(command, args, { cwd: root, stdio: ['ignore', 'pipe', 'inherit'] }))
    try {
      await program.says('a is working')
    } catch (error) {
      await program[Symbol.asyncDispose]()
      throw error
    }
    return program
  }

  constructor(child: ChildProcess) {
    this.child = child
    let text = ''
    child.stdout?.on('data', (piece) => {
      text += piece
      const lines = text.split('\n')
      text = lines.pop() ?? ''
      this.lines.push(...lines)
    })
  }

  says(line: string): Promise<unknown> {
    return until(`it says: ${line}`, () => this.lines.includes(line))
  }

  /** The exit code, or the signal that ended the process. By then all output has arrived. */
  async end(): Promise<number | string | null> {
    if (this.child.exitCode === null && this.child.signalCode === null) await once(this.child, 'close')
    return this.child.signalCode ?? this.child.exitCode
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.child.kill('SIGKILL')
    await this.end()
  }
}
