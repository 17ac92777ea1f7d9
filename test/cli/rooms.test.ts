import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { storeName } from '../../src/cli/store-name.ts'
import { connect, type Locks } from '../../src/index.ts'
import { until } from '../servers/until.ts'
import { Shell } from './holdfast-process.ts'
import { sharedStores, type TestStore } from './stores.ts'

describe.each(sharedStores)('on $name', ({ open }) => {
  let store: TestStore
  let shell: Shell
  let locks: Locks
  beforeAll(async () => {
    store = await open()
  })
  afterAll(() => store[Symbol.asyncDispose]())
  beforeEach(async () => {
    shell = new Shell({ HOLDFAST_STORE: store.url })
    locks = await connect(store.url, { label: 'test' })
  })
  afterEach(async () => {
    await locks.close()
    await shell.close()
  })

  /** Puts a waiter into the queue. */
  async function waiter(key: string) {
    const giveUp = new AbortController()
    const waiting = locks.acquire(key, { signal: giveUp.signal }).catch(() => {})
    await until('it waits', async () => {
      return JSON.parse((await shell.run(['show', '--json', key])).stdout).queue.length === 1
    })
    return {
      async leave() {
        giveUp.abort()
        await waiting
      },
    }
  }

  test('ls lists holders in columns, sorted by key', async () => {
    const leases = [
      await locks.acquire('job:a'),
      await locks.semaphore('job:b', 5).acquire({ units: 2 }),
      await locks.readWrite('job:c').acquireRead(),
      await locks.acquire('other'),
    ]
    const { code, stdout, stderr } = await shell.run(['ls', 'job:'])
    expect([code, stderr]).toEqual([0, ''])
    const [titles, ...lines] = stdout.trimEnd().split('\n')
    expect(titles).toMatch(/^KEY +MODE +HOLDER +HELD +LEFT +FENCE +WAITING$/)
    expect(lines.map((line) => line.split(/ {2,}/).slice(0, 2)).sort()).toEqual([
      ['job:a', 'mutex'],
      ['job:b', '2 of 5'],
      ['job:c', 'shared'],
    ])
    expect(lines.join('\n')).toMatch(
      new RegExp(`job:a .*:${process.pid} \\(test\\) +\\d.* +${leases[0]?.fence} +0$`, 'm'),
    )
    for (const lease of leases) await lease.release()
  })

  test('ls --json gives one object for each key and line, with fences as strings and no limit as null', async () => {
    const leases = [await locks.acquire('a'), await locks.readWrite('b').acquireRead()]
    const { stdout } = await shell.run(['ls', '--json'])
    const rooms = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line))
      .sort((a, b) => (a.key < b.key ? -1 : 1))
    expect(rooms).toMatchObject([
      {
        key: 'a',
        holders: [{ id: leases[0]?.id, fence: String(leases[0]?.fence), limit: 1, state: 'held' }],
        queue: [],
      },
      { key: 'b', holders: [{ limit: null, owner: { pid: process.pid, label: 'test' } }] },
    ])
    for (const lease of leases) await lease.release()
  })

  test('ls without any room prints nothing, says so to people, and is no error', async () => {
    expect(await shell.run(['ls', 'job:'])).toEqual({
      code: 0,
      stdout: '',
      stderr: `holdfast: no key under "job:" is held in ${storeName(store.url)}\n`,
    })
    expect(await shell.run(['ls', '--json'])).toEqual({ code: 0, stdout: '', stderr: '' })
  })

  test('show lists the holders and the waiters, by their ids', async () => {
    const lease = await locks.acquire('backup')
    const queued = await waiter('backup')
    const { code, stdout } = await shell.run(['show', 'backup'])
    expect(code).toBe(0)
    expect(stdout).toMatch(/^backup {2}1 holding, 1 waiting\n/)
    expect(stdout).toMatch(new RegExp(`${lease.fence} +${lease.id}`))
    expect(stdout).toMatch(/^WAITER +MODE +WAITED +ID$/m)
    await queued.leave()
    await lease.release()
    expect(await shell.run(['show', 'backup'])).toEqual({ code: 0, stdout: 'backup  free\n', stderr: '' })
  })

  test('show takes the key as it is and not as a prefix', async () => {
    const lease = await locks.acquire('backup:daily')
    expect((await shell.run(['show', 'backup'])).stdout).toBe('backup  free\n')
    await lease.release()
  })

  test('evict takes the key from its holder, who learns why with its next renewal at the latest', async () => {
    // Longer than a busy machine keeps this process from a renewal.
    const lease = await locks.acquire('backup', { ttl: '6s' })
    const queued = await waiter('backup')
    const { code, stdout } = await shell.run([
      'evict',
      'backup',
      '--id',
      lease.id,
      '--reason',
      'stuck since monday',
    ])
    expect([code, stdout]).toEqual([0, `evicted ${lease.id}\n`])
    await expect.poll(() => lease.state, { timeout: 60_000 }).toBe('lost')
    expect(() => lease.assertHeld()).toThrow('stuck since monday')
    await queued.leave()
  })

  test('evict without an id takes the key from all holders and waiters, and says so to programs', async () => {
    const leases = [await locks.readWrite('doc').acquireRead(), await locks.readWrite('doc').acquireRead()]
    const { code, stdout } = await shell.run(['evict', 'doc', '--reason', 'over', '--json'])
    expect(code).toBe(0)
    const { key, evicted } = JSON.parse(stdout)
    expect([key, evicted.sort()]).toEqual(['doc', leases.map(({ id }) => id).sort()])
  })

  test('evict exits with 1 when there is no ticket to evict', async () => {
    expect(await shell.run(['evict', 'nothing', '--reason', 'x'])).toEqual({
      code: 1,
      stdout: '',
      stderr: `holdfast: nobody holds or waits for "nothing" in ${storeName(store.url)}\n`,
    })
    const json = await shell.run(['evict', 'nothing', '--id', 'x', '--reason', 'x', '--json'])
    expect(json).toEqual({ code: 1, stdout: '{"key":"nothing","evicted":[]}\n', stderr: '' })
  })

  test('a stranger’s text does nothing to the terminal', async () => {
    const key = 'a\x1b[2J\nb\u202ec'
    const stranger = await connect(store.url, { label: '\x1b]0;title\x07' })
    const lease = await stranger.acquire(key)
    for (const args of [['ls'], ['ls', '--json'], ['show', key], ['show', '--json', key]]) {
      const { stdout, stderr } = await shell.run(args)
      expect(stdout + stderr).toMatch(/^[\x20-\x7e\n]+$/)
    }
    expect((await shell.run(['ls'])).stdout.split('\n')).toHaveLength(3)
    const busy = await shell.run(['run', '-n', key, '--', 'true'])
    expect(busy.stderr).toMatch(/^[\x20-\x7e]+\n$/)
    await lease.release()
    await stranger.close()
  })

  test('a closed pipe does not change the exit code of a command that is done', async () => {
    const evicting = shell.terminal(
      'set -o pipefail; eval "$HOLDFAST evict nobody --reason x --json | true"',
      '',
    )
    expect(await evicting.exit).toBe(1)
  })

  test('a closed pipe ends the listing quietly', async () => {
    const leases = await Promise.all(
      Array.from({ length: 300 }, (_, n) => locks.acquire(`${n}-${'k'.repeat(900)}`)),
    )
    const listing = shell.start(['ls'])
    listing.closeOutput()
    expect(await listing.exit).toBe(0)
    expect(listing.stderr).toBe('')
    await Promise.all(leases.map((lease) => lease.release()))
  })
})
