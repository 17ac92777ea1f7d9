import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { connect, type Locks } from '../../src/index.ts'
import { undisturbed } from '../base/measured.ts'
import { freePort } from '../servers/free-port.ts'
import { startRedis } from '../servers/redis-server.ts'
import { Shell } from './holdfast-process.ts'
import { sharedStores, type TestStore } from './stores.ts'

describe.each(sharedStores)('holdfast wait on $name', ({ open }) => {
  let store: TestStore
  let shell: Shell
  let locks: Locks
  beforeAll(async () => {
    store = await open()
  })
  afterAll(() => store[Symbol.asyncDispose]())
  beforeEach(async () => {
    shell = new Shell({ HOLDFAST_STORE: store.url })
    locks = await connect(store.url, { label: 'tester' })
  })
  afterEach(async () => {
    await locks.close()
    await shell.close()
  })

  test('ends at once where the key is free', async () => {
    expect(await shell.run(['wait', 'migration'])).toEqual({ code: 0, stdout: '', stderr: '' })
  })

  test('ends when the key becomes free, and leaves it free', async () => {
    const held = await locks.acquire('migration')
    const waiting = shell.start(['wait', 'migration', '-w', '60'])
    expect((await shell.run(['wait', '-w', '0', 'migration'])).code).toBe(75)
    expect(waiting.running).toBe(true)
    await held.release()
    expect(await waiting.exit).toBe(0)
    expect((await shell.run(['show', 'migration'])).stdout).toBe('migration  free\n')
  })

  test('says who holds the key that was not free in time, with 75, and never joins the queue', async () => {
    const held = await locks.acquire('migration')
    const { code, stderr } = await undisturbed(
      // The command names no holder if the look for one takes too long.
      (waited) => waited.stderr.includes('is held by'),
      async () => {
        const waiting = shell.start(['wait', 'migration', '--timeout', '5s'])
        expect(JSON.parse((await shell.run(['show', '--json', 'migration'])).stdout).queue).toEqual([])
        return { code: await waiting.exit, stderr: waiting.stderr }
      },
    )
    expect(code).toBe(75)
    expect(stderr).toMatch(
      /^holdfast: "migration" is held by \S+:\d+ \(tester\) for \S+ and was not free within 5\.0s\n$/,
    )
    await held.release()
  })

  test('ends with the code of the signal that ended it', async () => {
    const held = await locks.acquire('migration')
    const waiting = shell.start(['wait', 'migration'])
    // It has looked when another one, started later, has.
    await shell.run(['wait', '-w', '0', 'migration'])
    waiting.signal('SIGTERM')
    expect(await waiting.exit).toBe(143)
    await held.release()
  })
})

test('a store that is away is an error, however long the wait', async () => {
  const shell = new Shell({ HOLDFAST_STORE: `redis://127.0.0.1:${await freePort()}` })
  expect((await shell.run(['wait', 'migration'])).code).toBe(69)
  await shell.close()
})

test('a key that a newer version holds is never called free', async () => {
  await using redis = await startRedis()
  const shell = new Shell({ HOLDFAST_STORE: redis.url })
  await redis.command('SET', 'holdfast:{migration}', '3 of a newer layout', 'PX', '60000')
  const refused = {
    code: 69,
    stdout: '',
    stderr: expect.stringMatching(/^holdfast: [^\n]+ newer version of Holdfast \(layout 3\)[^\n]+\n$/),
  }
  for (const words of [['wait'], ['wait', '-w', '0'], ['show'], ['show', '--json']])
    expect(await shell.run([...words, 'migration'])).toEqual(refused)
  expect((await shell.run(['ls'])).code).toBe(0)
  await shell.close()
})
