import {
  existsSync,
  lstatSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { startRedis } from '../servers/redis-server.ts'
import { until } from '../servers/until.ts'
import { Shell } from './holdfast-process.ts'
import { sharedStores, type TestStore } from './stores.ts'

let folder: string
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-lease-'))
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

describe.each(sharedStores)('a lease across two commands, on $name', ({ open }) => {
  let store: TestStore
  let shell: Shell
  beforeAll(async () => {
    store = await open()
  })
  afterAll(() => store[Symbol.asyncDispose]())
  beforeEach(() => {
    shell = new Shell({ HOLDFAST_STORE: store.url })
  })
  afterEach(() => shell.close())

  async function acquired(...options: readonly string[]) {
    const { code, stdout, stderr } = await shell.run(['acquire', 'deploy', '--ttl', '10m', ...options])
    expect(code).toBe(0)
    return { lease: stdout.trimEnd(), stderr }
  }

  async function isTaken(): Promise<boolean> {
    const { code } = await shell.run(['run', '-n', 'deploy', '--', 'true'])
    return code === 75
  }

  async function somebodyWaits(): Promise<void> {
    await until('somebody waits', async () => {
      const { code, stdout, stderr } = await shell.run(['show', '--json', 'deploy'])
      expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
      return JSON.parse(stdout).queue.length === 1
    })
  }

  test('is held after acquire has ended, and until release', async () => {
    const { lease, stderr } = await acquired()
    expect(JSON.parse(lease)).toMatchObject({
      key: 'deploy',
      ttlMs: 600_000,
      fence: expect.stringMatching(/^\d+$/),
    })
    expect(stderr).toMatch(
      /^holdfast: "deploy" stays taken for \d+m \d+s, and nobody renews it: holdfast extend, or holdfast release\n$/,
    )
    expect(await isTaken()).toBe(true)
    expect((await shell.run(['show', 'deploy'])).stdout).toContain('(holdfast acquire)')
    expect(await shell.run(['release', lease])).toEqual({ code: 0, stdout: '', stderr: '' })
    expect(await isTaken()).toBe(false)
  })

  test('is kept for longer by extend, which prints it anew', async () => {
    const { lease } = await acquired('--ttl', '1m')
    const extended = await shell.run(['extend', lease, '--ttl', '1h'])
    expect(extended).toMatchObject({ code: 0, stderr: expect.stringContaining('stays taken for 5') })
    expect(JSON.parse(extended.stdout)).toEqual({ ...JSON.parse(lease), ttlMs: 3_600_000 })
    const { stdout } = await shell.run(['show', '--json', 'deploy'])
    expect(JSON.parse(stdout).holders[0].remainingMs).toBeGreaterThan(600_000)
    expect((await shell.run(['release', extended.stdout])).code).toBe(0)
  })

  test('is kept in a file that only its owner can read', async () => {
    const path = join(folder, 'deploy.lease')
    expect((await acquired('--lease-file', path)).lease).toBe('')
    expect(statSync(path).mode & 0o777).toBe(0o600)
    const file = ['--lease-file', path]
    expect(await shell.run(['extend', ...file, '--ttl', '20m'])).toMatchObject({ code: 0, stdout: '' })
    expect(JSON.parse(readFileSync(path, 'utf8')).ttlMs).toBe(1_200_000)
    // Somebody who does not get the key leaves the file alone.
    expect((await shell.run(['acquire', 'deploy', '-n', '--ttl', '1m', ...file])).code).toBe(75)
    expect((await shell.run(['release', ...file])).code).toBe(0)
    expect(await isTaken()).toBe(false)
  })

  test('is written into a new file, in the place of an old file or link', async () => {
    const [path, other] = [join(folder, 'open.lease'), join(folder, 'other')]
    writeFileSync(path, 'old', { mode: 0o644 })
    writeFileSync(other, 'of somebody else')
    const first = await acquired('--lease-file', path)
    expect([first.lease, statSync(path).mode & 0o777]).toEqual(['', 0o600])
    symlinkSync(other, join(folder, 'link'))
    renameSync(join(folder, 'link'), path)
    const again = await shell.run(['acquire', 'second', '--ttl', '1m', '--lease-file', path])
    expect(again.code).toBe(0)
    expect(readFileSync(other, 'utf8')).toBe('of somebody else')
    expect(JSON.parse(readFileSync(path, 'utf8')).key).toBe('second')
    expect(lstatSync(path).isFile()).toBe(true)
    for (const key of ['deploy', 'second']) await shell.run(['evict', key, '--reason', 'the test goes on'])
    const options = '--ttl 1m --lease-file /dev/stdout 2> /dev/null'
    const piped = shell.terminal(`eval "$HOLDFAST acquire deploy ${options} | cat"`, '')
    expect(await piped.exit).toBe(0)
    expect((await shell.run(['release', piped.stdout])).code).toBe(0)
    expect(readdirSync(folder).filter((name) => name.startsWith('.holdfast-'))).toEqual([])
  })

  test.each([
    ['a folder of /dev', '/dev/shm', 'deploy.lease'],
    ['a file with the longest name', tmpdir(), 'l'.repeat(255)],
  ])('is read by its owner only in %s', async (_, parent, name) => {
    if (!existsSync(parent)) return
    const own = mkdtempSync(join(parent, 'holdfast-lease-'))
    try {
      const path = join(own, name)
      writeFileSync(path, 'old', { mode: 0o644 })
      await acquired('--lease-file', path)
      expect(statSync(path).mode & 0o777).toBe(0o600)
      expect(readdirSync(own)).toEqual([name])
      expect((await shell.run(['release', '--lease-file', path])).code).toBe(0)
    } finally {
      rmSync(own, { recursive: true, force: true })
    }
  })

  test('is written through a link to a device, which stays', async () => {
    const link = join(folder, 'device')
    symlinkSync('/dev/full', link)
    const refused = await shell.run(['acquire', 'deploy', '--ttl', '1m', '--lease-file', link])
    expect([refused.code, lstatSync(link).isSymbolicLink()]).toEqual([74, true])
    expect(await isTaken()).toBe(false)
    rmSync(link)
  })

  test('stays taken where extend cannot write it', async () => {
    const { lease } = await acquired()
    const full = shell.terminal('eval "$HOLDFAST extend \\"\\$LEASE\\" > /dev/full"', '', { LEASE: lease })
    expect(await full.exit).toBe(74)
    expect(full.stdout).toContain(
      'holdfast: the key is extended, but the new lease cannot be written (ENOSPC): the lease that you have still works for extend and release',
    )
    expect(await isTaken()).toBe(true)
    expect((await shell.run(['release', lease])).code).toBe(0)
    expect(await isTaken()).toBe(false)
  })

  test('that is over is said by release and by extend, with 76', async () => {
    const { lease } = await acquired()
    await shell.run(['evict', 'deploy', '--reason', 'the test goes on'])
    for (const command of ['extend', 'release']) {
      expect(await shell.run([command, lease])).toEqual({
        code: 76,
        stdout: '',
        stderr: expect.stringMatching(/^holdfast: The lease on "deploy" cannot be continued: [^\n]+\.\n$/),
      })
    }
  })

  test('is not taken where it cannot be handed on', async () => {
    const nowhere = ['--lease-file', join(folder, 'no', 'such', 'folder')]
    expect(await shell.run(['acquire', 'deploy', '--ttl', '1h', ...nowhere])).toEqual({
      code: 74,
      stdout: '',
      stderr: 'holdfast: the lease cannot be written (ENOENT), so "deploy" was released again\n',
    })
    const closed = shell.terminal('eval "$HOLDFAST acquire deploy --ttl 1h > /dev/full"', '')
    expect(await closed.exit).toBe(74)
    expect(await isTaken()).toBe(false)
  })

  test('can be shared, a permit, and waited for', async () => {
    const readers = [(await acquired('--shared')).lease, (await acquired('--shared')).lease]
    expect(await isTaken()).toBe(true)
    const waiting = shell.start(['acquire', 'deploy', '--ttl', '1m', '-w', '1m'])
    await somebodyWaits()
    for (const lease of readers) expect((await shell.run(['release', lease])).code).toBe(0)
    expect(await waiting.exit).toBe(0)
    expect((await shell.run(['release', waiting.stdout])).code).toBe(0)
    const permit = (await acquired('--permits', '2')).lease
    expect((await shell.run(['run', '-n', '--permits', '2', 'deploy', '--', 'true'])).code).toBe(0)
    expect((await shell.run(['release', permit])).code).toBe(0)
  })

  test('of somebody who is told to end while waiting is not taken', async () => {
    const { lease } = await acquired()
    const path = join(folder, 'never')
    const waiting = shell.start(['acquire', 'deploy', '--ttl', '1h', '--lease-file', path])
    await somebodyWaits()
    waiting.signal('SIGTERM')
    expect(await waiting.exit).toBe(143)
    expect((await shell.run(['release', lease])).code).toBe(0)
    expect(await isTaken()).toBe(false)
    expect(existsSync(path)).toBe(false)
  })
})

test('a release that is not answered is no success', async () => {
  await using redis = await startRedis()
  const shell = new Shell({ HOLDFAST_STORE: redis.url })
  const { stdout: lease } = await shell.run(['acquire', 'deploy', '--ttl', '10m'])
  await redis.pause()
  const released = await shell.run(['release', lease])
  redis.resume()
  expect(released).toMatchObject({
    code: 69,
    stdout: '',
    stderr: expect.stringMatching(/^holdfast: [^\n]+\n$/),
  })
  expect((await shell.run(['release', lease])).code).toBe(0)
  await shell.close()
})
