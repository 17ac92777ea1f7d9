import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { shortestMs } from '../base/measured.ts'
import { startRedis } from '../servers/redis-server.ts'
import { until } from '../servers/until.ts'
import { type HoldfastProcess, Shell } from './holdfast-process.ts'
import { sharedStores, type TestStore } from './stores.ts'

/** Longer than a busy machine keeps a process from its renewal. */
const TTL_MS = 6000
const ROUNDS = 24

let folder: string
let shell: Shell
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-loss-'))
})
afterEach(async () => {
  await shell.close()
  rmSync(folder, { recursive: true, force: true })
})

/**
 * A command whose child writes its fence to the end of a file, again and again, and ignores every request to end. The
 * order of the lines is the evidence: the kernel decides it, and no clock is in it.
 */
function writer(options: readonly string[] = []): HoldfastProcess {
  const write = `trap "" TERM; while :; do echo "$HOLDFAST_FENCE"; sleep 0.01; done >> "$0"`
  const script = `trap "echo told" TERM; sh -c '${write}' "$0" & while :; do wait; done`
  const command = ['sh', '-c', script, join(folder, 'record')]
  return shell.start(['run', '--ttl', `${TTL_MS}ms`, ...options, 'backup', '--', ...command])
}

function record(): string[] {
  try {
    return readFileSync(join(folder, 'record'), 'utf8').split('\n').filter(Boolean)
  } catch {
    return []
  }
}

function writes(fence?: string): Promise<string> {
  return until('somebody writes', () => record().find((line) => line !== fence))
}

/** Checks that no process wrote under the first fence once the second one had come. */
async function expectOneAfterTheOther(first: string): Promise<void> {
  const second = await writes(first)
  const count = record().length
  await until('the second goes on', () => record().length > count + 20)
  const fences = record()
  expect(fences.indexOf(second)).toBe(fences.lastIndexOf(first) + 1)
  expect(new Set(fences)).toEqual(new Set([first, second]))
}

/** Kills `holdfast run` together with its command, which ignores everything else. */
async function end(running: HoldfastProcess): Promise<void> {
  running.signal('SIGKILL')
  expect(await running.exit).toBe(137)
}

describe.each(sharedStores)('holdfast run on $name', ({ open }) => {
  let store: TestStore
  beforeEach(async () => {
    store = await open()
    shell = new Shell({ HOLDFAST_STORE: store.url })
  })
  afterEach(() => store[Symbol.asyncDispose]())

  test('killed with SIGKILL takes its command along, and the next gets the key within the ttl', async () => {
    const first = writer()
    const fence = await writes()
    const second = writer()
    await until('the second waits', () => waitingFor('backup'))
    first.signal('SIGKILL')
    const killedAt = performance.now()
    await writes(fence)
    // The second one takes it from the store's message, or asks again at the end of the ttl. It never waits for another ttl.
    expect(performance.now() - killedAt).toBeLessThan(2 * TTL_MS)
    await expectOneAfterTheOther(fence)
    await end(second)
  })

  test('killed at whatever moment of its life leaves no process behind', async () => {
    const start = (key: string) => shell.start(['run', key, '--', 'sh', '-c', 'echo ready; sleep 60 & wait'])
    const startedAt = performance.now()
    const measured = start('measured')
    await measured.prints('ready')
    const startUpMs = performance.now() - startedAt
    await end(measured)

    const ready: boolean[] = []
    // The machine may be less busy, or more, than while the start was measured.
    for (let nth = 0; nth < ROUNDS || (new Set(ready).size < 2 && nth < 4 * ROUNDS); nth += 1) {
      const running = start(`key-${nth}`)
      await new Promise((resolve) => setTimeout(resolve, (nth / ROUNDS) * 2 * startUpMs))
      await end(running)
      ready.push(running.stdout !== '')
      await until('nobody is left', () => shell.processes().length === 0)
    }
    // The loop has killed some runs before the command was there, and some after it. The moments in question are in
    // between.
    expect(new Set(ready)).toEqual(new Set([false, true]))
  })

  test('stopped past the ttl has lost its command before the next one starts, and exits with 76', async () => {
    const first = writer()
    const fence = await writes()
    const second = writer()
    await until('the second waits', () => waitingFor('backup'))
    first.signal('SIGSTOP')
    await expectOneAfterTheOther(fence)
    first.signal('SIGCONT')
    expect(await first.exit).toBe(76)
    expect(first.stderr).toMatch(/^holdfast: "backup" was lost, and the command was ended[^\n]+\n$/)
    await end(second)
  })

  test('evicted kills its command at once, exits with 76, and says why', async () => {
    // The next renewal would come after 200 s.
    const first = writer(['--ttl', '10m'])
    await writes()
    const evictedAt = performance.now()
    expect((await shell.run(['evict', 'backup', '--reason', 'maintenance \x1b[2J\u202e'])).code).toBe(0)
    expect(await first.exit).toBe(76)
    expect(performance.now() - evictedAt).toBeLessThan(100_000)
    expect(first.stderr).toContain('maintenance \\x1b[2J\\u{202e}')
    expect(first.stdout).not.toContain('told')
  })

  test('whose guardian is killed ends its command and releases the key', async () => {
    const first = writer(['--ttl', '60s'])
    const fence = await writes()
    const second = writer()
    await until('the second waits', () => waitingFor('backup'))
    process.kill(await first.guardian(), 'SIGKILL')
    expect(await first.exit).toBe(76)
    await expectOneAfterTheOther(fence)
    await end(second)
  })

  test('whose guardian dies while it starts the command leaves the key to its ttl', async () => {
    const first = writer()
    await writes()
    const second = shell.start(['run', '--ttl', '60s', 'backup', '--', 'true'])
    await until('the second waits', () => waitingFor('backup'))
    const guardian = await second.guardian()
    process.kill(guardian, 'SIGSTOP')
    await end(first)
    await until('the second has the key', holdsIt)
    process.kill(guardian, 'SIGKILL')
    expect(await second.exit).toBe(76)
    expect(second.stderr).toMatch(
      /^holdfast: [^\n]+ the command may still run\. "backup" stays taken for [^\n]+\n$/,
    )
    expect(await holdsIt()).toBe(true)

    async function holdsIt(): Promise<boolean> {
      const { stdout } = await shell.run(['show', '--json', 'backup'])
      return JSON.parse(stdout).holders[0]?.owner.pid === second.pid
    }
  })

  test('whose guardian is stopped ends its command in time all the same', async () => {
    const first = writer()
    await writes()
    process.kill(await first.guardian(), 'SIGSTOP')
    expect((await shell.run(['evict', 'backup', '--reason', 'maintenance'])).code).toBe(0)
    expect(await first.exit).toBe(76)
  })

  async function waitingFor(key: string): Promise<boolean> {
    const { stdout } = await shell.run(['show', '--json', key])
    return JSON.parse(stdout).queue.length > 0
  }
})

test('with a server that hangs, the command is told to end, and is gone before the server could expire the key', async () => {
  await using redis = await startRedis()
  shell = new Shell({ HOLDFAST_STORE: redis.url })
  const wroteForMs = await shortestMs(TTL_MS, async () => {
    const first = writer(['--grace', '500ms'])
    await writes()
    await redis.pause()
    const pausedAt = Date.now()
    await first.prints('told')
    expect(await first.exit).toBe(76)
    const { mtimeMs } = statSync(join(folder, 'record'))
    redis.resume()
    rmSync(join(folder, 'record'))
    return mtimeMs - pausedAt
  })
  // The server can have seen no renewal later than the pause.
  expect(wroteForMs).toBeLessThan(TTL_MS)
})
