import { chmodSync, closeSync, copyFileSync, mkdtempSync, openSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { undisturbed } from '../base/measured.ts'
import { until } from '../servers/until.ts'
import { PROGRAM, Shell } from './holdfast-process.ts'
import { sharedStores, type TestStore } from './stores.ts'

describe.each(sharedStores)('holdfast run on $name', ({ open }) => {
  let store: TestStore
  let shell: Shell
  beforeAll(async () => {
    store = await open()
  })
  afterAll(() => store[Symbol.asyncDispose]())
  beforeEach(() => {
    shell = new Shell({ HOLDFAST_STORE: store.url })
  })
  afterEach(async () => {
    await shell.close()
    const { stdout, stderr } = await new Shell({ HOLDFAST_STORE: store.url }).run(['ls', '--json'])
    expect({ stdout, stderr }).toEqual({ stdout: '', stderr: '' })
  })

  /** Starts a command that holds the key until the test ends it. */
  async function holder(...options: readonly string[]) {
    const held = shell.start(['run', ...options, 'backup', '--', 'sh', '-c', 'echo holding; exec sleep 60'])
    await held.prints('holding')
    return {
      ...held,
      async end() {
        held.signal('SIGTERM')
        expect(await held.exit).toBe(143)
      },
    }
  }

  test('runs the command with its streams, arguments and exit code', async () => {
    const script = 'cat; echo "$1" >&2; exit 7'
    const ran = await shell.run(['run', 'backup', '--', 'sh', '-c', script, 'sh', 'a  b*'], { input: 'text' })
    expect(ran).toEqual({ code: 7, stdout: 'text', stderr: 'a  b*\n' })
  })

  test('tells the command its key and its fence', async () => {
    const script = 'echo "$HOLDFAST_KEY|$HOLDFAST_FENCE|$HOLDFAST_ID"'
    const outputs: string[] = []
    for (let count = 0; count < 2; count += 1) {
      outputs.push((await shell.run(['run', 'back up', '--', 'sh', '-c', script])).stdout.trim())
    }
    const [[key, fence, id] = [], [, laterFence, laterId] = []] = outputs.map((line) => line.split('|'))
    expect(key).toBe('back up')
    expect(BigInt(laterFence ?? 0)).toBeGreaterThan(BigInt(fence ?? 0))
    expect(id).toMatch(/^[\w-]{16,}$/)
    expect(laterId).not.toBe(id)
  })

  test('does not interpret the command', async () => {
    const { stdout } = await shell.run(['run', 'backup', '--', 'echo', '$HOME', '*', '--', '-n', '--help'])
    expect(stdout).toBe('$HOME * -- -n --help\n')
  })

  test('exits as a shell does when the command cannot be started, and gives the key back', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-run-'))
    const busy = join(folder, 'busy')
    copyFileSync('/bin/true', busy)
    chmodSync(busy, 0o755)
    symlinkSync('loop', join(folder, 'loop'))
    const writer = openSync(busy, 'r+')
    for (const [command, code, errno] of [
      [join(folder, 'none'), 127, 'ENOENT'],
      [folder, 126, 'EACCES'],
      [busy, 126, 'ETXTBSY'],
      [join(busy, 'none'), 126, 'ENOTDIR'],
      [join(folder, 'loop'), 126, 'ELOOP'],
      [join(folder, 'x'.repeat(300)), 126, 'ENAMETOOLONG'],
    ] as const) {
      const stderr = `holdfast: ${JSON.stringify(command)} could not be started (${errno})\n`
      expect(await shell.run(['run', '-n', 'backup', '--', command])).toEqual({ code, stdout: '', stderr })
    }
    closeSync(writer)
    rmSync(folder, { recursive: true })
  })

  test('exits with 128+n when a signal ended the command', async () => {
    expect((await shell.run(['run', 'backup', '--', 'sh', '-c', 'kill -KILL $$'])).code).toBe(137)
    expect((await shell.run(['run', 'backup', '--', 'sh', '-c', 'kill -USR1 $$'])).code).toBe(138)
  })

  test('says in one line which process holds the key, and exits with 75, when it must not wait', async () => {
    const held = await holder('--label', 'nightly')
    const busy = await undisturbed(
      // The command names no holder if the look for one takes too long.
      (ran) => ran.stderr.includes('is held by'),
      () => shell.run(['run', '-n', 'backup', '--', 'echo', 'no']),
    )
    expect(busy).toEqual({
      code: 75,
      stdout: '',
      stderr: expect.stringMatching(/^holdfast: "backup" is held by [^\n]+:\d+ \(nightly\) for \d+[^\n]+\n$/),
    })
    await held.end()
  })

  test.each(['9', '0', '255'])('exits with the busy code %s that it was given', async (code) => {
    const held = await holder()
    expect((await shell.run(['run', '-n', '-E', code, 'backup', '--', 'true'])).code).toBe(Number(code))
    await held.end()
  })

  test('says so when it would wait for itself, and waits for others that it shares the key with', async () => {
    const nested = (...options: readonly string[]) => [
      ...['run', ...options, 'backup', '--', process.execPath, PROGRAM],
      ...['run', ...options, 'backup', '--', 'echo', 'inside'],
    ]
    expect(await shell.run(nested())).toEqual({
      code: 64,
      stdout: '',
      stderr:
        'holdfast: Expected a key that this command does not run under already, got "backup": it would wait for itself. See holdfast run --help.\n',
    })
    const between = ['run', 'other', '--', process.execPath, PROGRAM]
    expect(await shell.run([...nested().slice(0, 5), ...between, ...nested().slice(5)])).toMatchObject({
      code: 64,
      stdout: '',
    })
    expect(await shell.run(nested('--shared'))).toMatchObject({ code: 0, stdout: 'inside\n' })
    const other = await holder('--permits', '2')
    const waiting = shell.start(nested('--permits', '2'))
    await queueOf('backup', 1)
    await other.end()
    expect(await waiting.exit).toBe(0)
  })

  test('gives up after the wait, and leaves the queue', async () => {
    const held = await holder()
    const startedAt = performance.now()
    const late = await shell.run(['run', '--wait', '300ms', 'backup', '--', 'echo', 'no'])
    expect(performance.now() - startedAt).toBeGreaterThan(300)
    expect(late).toMatchObject({
      code: 75,
      stdout: '',
      stderr: expect.stringContaining('was not free within 300ms'),
    })
    const { stdout } = await shell.run(['show', '--json', 'backup'])
    expect(JSON.parse(stdout).queue).toEqual([])
    await held.end()
  })

  test('waits in order, without an end when no wait is given, and is served at the release', async () => {
    const held = await holder()
    const waiting = []
    for (const name of ['first', 'second']) {
      const waiter = shell.start(['run', 'backup', '--', 'sh', '-c', `echo ${name} $(date +%s%N); sleep 0.1`])
      waiting.push(waiter)
      await queueOf('backup', waiting.length)
    }
    await held.end()
    expect(await Promise.all(waiting.map((waiter) => waiter.exit))).toEqual([0, 0])
    const [first, second] = waiting.map((waiter) => Number(waiter.stdout.split(' ')[1]))
    expect(first).toBeLessThan(second ?? 0)
  })

  test('holds the key together with others that share it, and not with an exclusive one', async () => {
    const reader = await holder('--shared')
    expect((await shell.run(['run', '-s', '-n', 'backup', '--', 'true'])).code).toBe(0)
    expect((await shell.run(['run', '-n', 'backup', '--', 'true'])).code).toBe(75)
    await reader.end()
  })

  test('takes permits while there are enough', async () => {
    const first = await holder('--permits', '3')
    expect(
      (await shell.run(['run', '-n', '--permits', '3', '--units', '2', 'backup', '--', 'true'])).code,
    ).toBe(0)
    expect(
      (await shell.run(['run', '-n', '--permits', '3', '--units', '3', 'backup', '--', 'true'])).code,
    ).toBe(75)
    await first.end()
  })

  test.each([
    ['127 when there is no such command', 127, ['no-such-command-anywhere']],
    ['126 when it cannot be executed', 126, [import.meta.dirname]],
  ])('exits with %s, and the key is free', async (_, code, command) => {
    const ran = await shell.run(['run', 'backup', '--', ...command])
    expect(ran).toMatchObject({ code, stderr: expect.stringMatching(/^holdfast: [^\n]+\n$/) })
    expect((await shell.run(['run', '-n', 'backup', '--', 'true'])).code).toBe(0)
  })

  test('keeps the key for its minimum hold, and not for longer', async () => {
    expect((await shell.run(['run', '--min-hold', '1h', 'backup', '--', 'true'])).code).toBe(0)
    expect((await shell.run(['run', '-n', 'backup', '--', 'true'])).code).toBe(75)
    expect((await shell.run(['evict', 'backup', '--reason', 'the test goes on'])).code).toBe(0)
    expect((await shell.run(['run', '--min-hold', '1s', 'backup', '--', 'true'])).code).toBe(0)
    expect((await shell.run(['run', '-w', '30s', 'backup', '--', 'true'])).code).toBe(0)
  })

  test('leaves alone the processes that the command left in the background', async () => {
    const ran = shell.start(['run', 'backup', '--', 'sh', '-c', 'sleep 60 >/dev/null 2>&1 & echo $!'])
    expect(await ran.exit).toBe(0)
    const background = Number(ran.stdout)
    // The guardian ends a moment after the process that it has guarded.
    await until('only that one is left', () => shell.processes().join() === String(background))
    process.kill(background, 'SIGKILL')
  })

  async function queueOf(key: string, length: number): Promise<void> {
    await until(`${length} wait for ${key}`, async () => {
      const { stdout } = await shell.run(['show', '--json', key])
      return JSON.parse(stdout).queue.length === length
    })
  }
})
