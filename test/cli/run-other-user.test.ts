import { execFileSync, spawn } from 'node:child_process'
import { chmodSync, chownSync, copyFileSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { until } from '../servers/until.ts'
import { PROGRAM } from './holdfast-process.ts'

const NOBODY = 65_534
const isPossible = process.platform === 'linux' && process.getuid?.() === 0

/**
 * As with sudo: nobody starts the command, and it runs as root. The one who starts it may read the repository, wherever it is, and
 * may signal no other user's processes.
 */
test('a command that became another user’s is not said to have ended, and its key stays taken', async () => {
  if (!isPossible) return console.log('Not running as several users: that needs root on Linux.')
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-user-'))
  const asRoot = join(folder, 'as-root')
  copyFileSync('/usr/bin/setpriv', asRoot)
  chmodSync(asRoot, 0o4755)
  chownSync(folder, NOBODY, NOBODY)
  const reading = ['--inh-caps', '+dac_read_search', '--ambient-caps', '+dac_read_search']
  const asNobody = ['--reuid', `${NOBODY}`, '--regid', `${NOBODY}`, '--clear-groups', ...reading]
  const store = ['--store', `sqlite:${folder}/locks.db`]
  const script = 'echo "$PPID $$"; exec sleep 60'
  const command = [asRoot, '--reuid', '0', '--clear-groups', 'sh', '-c', script]
  const running = spawn(
    'setpriv',
    [...asNobody, process.execPath, PROGRAM, 'run', ...store, 'backup', '--', ...command],
    { stdio: ['ignore', 'pipe', 'pipe'] },
  )
  let printed = ''
  let said = ''
  running.stdout.on('data', (text) => (printed += text))
  running.stderr.on('data', (text) => (said += text))
  const exit = new Promise((resolve) => running.once('exit', resolve))
  let pid = 0
  try {
    await until('the command runs', () => printed.includes('\n'))
    const [guardian = 0, sleep = 0] = printed.split(' ').map(Number)
    pid = sleep
    process.kill(guardian, 'SIGKILL')
    expect(await exit).toBe(76)
    expect(said).toMatch(/it may still run.*"backup" stays taken for \d/)
    expect(() => process.kill(pid, 0)).not.toThrow()
    const shown = execFileSync(process.execPath, [PROGRAM, 'show', '--json', ...store, 'backup'])
    expect(JSON.parse(shown.toString()).holders).toHaveLength(1)
  } finally {
    if (pid > 0) process.kill(pid, 'SIGKILL')
    running.kill('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
  }
})
