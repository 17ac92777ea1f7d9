import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { chmodSync, chownSync, copyFileSync, existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { until } from '../servers/until.ts'
import { PROGRAM } from './holdfast-process.ts'

const NOBODY = 65_534
const isPossible = process.platform === 'linux' && process.getuid?.() === 0

/** `holdfast run` of nobody. It may read the repository, wherever that is, and may signal no other user's processes. */
interface RunOfNobody {
  readonly process: ChildProcess
  readonly exit: Promise<unknown>
  readonly store: readonly string[]
  said(): string
  /** Resolves with the numbers that the command prints. */
  printed(): Promise<readonly number[]>
}

/** As with sudo: the script can run commands as root, by `$0`. */
async function underNobody(
  options: readonly string[],
  script: string,
  work: (run: RunOfNobody) => Promise<void>,
): Promise<void> {
  if (!isPossible) return console.log('Not running as several users: that needs root on Linux.')
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-user-'))
  const asRoot = join(folder, 'as-root')
  copyFileSync('/usr/bin/setpriv', asRoot)
  chmodSync(asRoot, 0o4755)
  chownSync(folder, NOBODY, NOBODY)
  const reading = ['--inh-caps', '+dac_read_search', '--ambient-caps', '+dac_read_search']
  const asNobody = ['--reuid', `${NOBODY}`, '--regid', `${NOBODY}`, '--clear-groups', ...reading]
  const store = ['--store', `sqlite:${folder}/locks.db`]
  const command = ['run', ...store, ...options, 'backup', '--', 'sh', '-c', script, asRoot]
  const running = spawn('setpriv', [...asNobody, process.execPath, PROGRAM, ...command], {
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let printed = ''
  let said = ''
  running.stdout.on('data', (text) => {
    printed += text
  })
  running.stderr.on('data', (text) => {
    said += text
  })
  const exit = new Promise((resolve) => running.once('exit', resolve))
  const numbers = () => printed.trim().split(/\s+/).map(Number)
  try {
    await work({
      process: running,
      exit,
      store,
      said: () => said,
      printed: async () => {
        await until('the command runs', () => printed.includes('\n'))
        return numbers()
      },
    })
  } finally {
    for (const pid of printed === '' ? [] : numbers()) {
      try {
        process.kill(pid, 'SIGKILL')
      } catch {
        // It has ended.
      }
    }
    running.kill('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
  }
}

test('a command that became another user’s is not said to have ended, and its key stays taken', () =>
  underNobody(
    [],
    'exec "$0" --reuid 0 --clear-groups sh -c \'echo "$PPID $$"; exec sleep 60\'',
    async (run) => {
      const [guardian = 0, command = 0] = await run.printed()
      process.kill(guardian, 'SIGKILL')
      expect(await run.exit).toBe(76)
      expect(run.said()).toMatch(/it may still run.*"backup" stays taken for \d/)
      expect(() => process.kill(command, 0)).not.toThrow()
      const shown = execFileSync(process.execPath, [PROGRAM, 'show', '--json', ...run.store, 'backup'])
      expect(JSON.parse(shown.toString()).holders).toHaveLength(1)
    },
  ))

test('neither is a script that ends while a command of another user goes on', () =>
  underNobody(
    ['--ttl', '6s', '--grace', '3s'],
    '"$0" --reuid 0 --clear-groups sh -c \'echo "$$ $PPID"; exec sleep 60\' & wait',
    async (run) => {
      const [command = 0, script = 0] = await run.printed()
      // It renews no more, so the guardian ends the script in time.
      run.process.kill('SIGSTOP')
      await until('the script has ended', () => !existsSync(`/proc/${script}`))
      run.process.kill('SIGCONT')
      expect(await run.exit).toBe(76)
      expect(run.said()).toContain('it may still run')
      expect(() => process.kill(command, 0)).not.toThrow()
    },
  ))
