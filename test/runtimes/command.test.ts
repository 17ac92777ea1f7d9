import { afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { PROGRAM, Shell } from '../cli/holdfast-process.ts'
import { openSqlite, type TestStore } from '../cli/stores.ts'
import { ensureRuntimes, otherRuntimes, runUnder } from '../servers/runtimes.ts'
import { until } from '../servers/until.ts'

beforeAll(ensureRuntimes, 600_000)

// `npm run test:runtimes` also runs all tests of the command on these runtimes.
describe.each(otherRuntimes)('the command on %s', (runtime) => {
  let store: TestStore
  let shell: Shell
  beforeEach(async () => {
    store = await openSqlite()
    shell = new Shell({ HOLDFAST_STORE: store.url }, runtime)
  })
  afterEach(async () => {
    await shell.close()
    await store[Symbol.asyncDispose]()
  })

  /** Holds the key until the process is told to end. */
  async function holder(...options: readonly string[]) {
    const script = 'echo holding; exec sleep 60'
    const held = shell.start(['run', ...options, 'backup', '--', 'sh', '-c', script])
    await held.prints('holding')
    return held
  }

  async function holdersPid(): Promise<number | undefined> {
    const { stdout } = await shell.run(['ls', '--json'])
    return stdout === '' ? undefined : JSON.parse(stdout).holders[0]?.owner.pid
  }

  test('runs a command with its streams, its exit code and its fence', async () => {
    const script = 'cat; echo "$HOLDFAST_KEY" "$HOLDFAST_FENCE" >&2; exit 7'
    const ran = await shell.run(['run', 'backup', '--', 'sh', '-c', script], { input: 'text' })
    expect(ran).toEqual({ code: 7, stdout: 'text', stderr: expect.stringMatching(/^backup \d{16}\n$/) })
  })

  test('lists the holder, keeps others out, and passes a signal on', async () => {
    const held = await holder()
    expect(await holdersPid()).toBe(held.pid)
    const onNode = new Shell({ HOLDFAST_STORE: store.url }, 'node')
    for (const other of [shell, onNode])
      expect((await other.run(['run', '-n', 'backup', '--', 'true'])).code).toBe(75)
    held.signal('SIGTERM')
    expect(await held.exit).toBe(143)
    expect((await shell.run(['ls', '--json'])).stdout).toBe('')
  })

  test('checks the store', async () => {
    const { code, stdout } = await shell.run(['doctor'])
    expect({ code, stdout }).toEqual({ code: 0, stdout: expect.stringContaining('All is well.') })
  })

  test('killed by SIGKILL takes its command along', async () => {
    const held = await holder()
    held.signal('SIGKILL')
    expect(await held.exit).toBe(137)
    // The end of the test shows that no process is left.
  })

  test('whose guardian dies before it has read its order ends, and leaves the key to its ttl', async () => {
    const first = await holder()
    const second = shell.start(['run', 'backup', '--', 'true'])
    await until('the second waits', async () => (await shell.run(['ls'])).stdout.trim().endsWith(' 1'))
    const guardian = await second.guardian()
    process.kill(guardian, 'SIGSTOP')
    first.signal('SIGTERM')
    expect(await first.exit).toBe(143)
    await until('the second holds the key', async () => (await holdersPid()) === second.pid)
    process.kill(guardian, 'SIGKILL')
    expect(await second.exit).toBe(76)
    expect(second.stderr).toContain('"backup" stays taken for')
  })

  test('killed by SIGKILL with a report of its guardian unread leaves no guardian behind', async () => {
    const held = await holder()
    const guardian = await held.guardian()
    const command = shell.processes().find((pid) => pid !== held.pid && pid !== guardian)
    if (command === undefined) throw new Error('Expected a command')
    held.signal('SIGSTOP')
    process.kill(command, 'SIGKILL')
    await until('the guardian knows of it', () => !isThere(command))
    held.signal('SIGKILL')
    expect(await held.exit).toBe(137)
  })
})

test('holdfast run on Deno without the right to call the C library is refused in one sentence', async () => {
  const rights = ['--allow-read', '--allow-env', '--allow-sys']
  const args = ['run', '--store', 'memory:', 'backup', '--', 'true']
  expect(await runUnder('deno', [PROGRAM, ...args], { rights })).toEqual({
    code: 64,
    stdout: '',
    stderr:
      'holdfast: This command needs the clock that all processes of the machine share, and process.hrtime() of this runtime counts from the start of the process. Use Node.js; or, on Linux, Bun, or Deno with --allow-ffi. See holdfast run --help.\n',
  })
})

/** Also while nobody has asked how it ended. */
function isThere(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}
