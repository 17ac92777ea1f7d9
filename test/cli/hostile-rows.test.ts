import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Store } from '../../src/contract/index.ts'
import { connect } from '../../src/index.ts'
import { openRedis } from '../../src/stores/redis/index.ts'
import { openSqlite as openSqliteStore } from '../../src/stores/sqlite/index.ts'
import { startRedis } from '../servers/redis-server.ts'
import { Shell } from './holdfast-process.ts'
import { openSqlite, type TestStore } from './stores.ts'

const MEGABYTES = 2 * 2 ** 20
/** This text clears the screen, turns the direction of writing, and ends the line. */
const HOSTILE = 'x\x1b[2J\u202e\n'
const ROWS = 8

describe.each([
  ['sqlite', openSqlite, (url: string) => openSqliteStore(url.replace('sqlite:', ''))],
  ['redis', startRedis, (url: string) => openRedis(url)],
] as [string, () => Promise<TestStore>, (url: string) => Promise<Store>][])(
  'texts of megabytes that another program has written into %s',
  (_, start, open) => {
    let place: TestStore
    let shell: Shell
    beforeAll(async () => {
      place = await start()
      shell = new Shell({ HOLDFAST_STORE: place.url })
      const store = await open(place.url)
      const text = HOSTILE.repeat(MEGABYTES / HOSTILE.length)
      for (let row = 0; row < ROWS; row += 1) {
        const owner = row % 2 === 0 ? text : JSON.stringify({ host: 'h', pid: 1, label: text })
        for (const id of ['holds', 'waits'])
          await store.acquire(ticket({ key: `k${row}`, id: `${id}${row}`, owner }))
      }
      await store.close()
    })
    afterAll(async () => {
      await shell.close()
      await place[Symbol.asyncDispose]()
    })

    test.each([
      ['ls', ['ls']],
      ['ls --json', ['ls', '--json']],
      ['show', ['show', 'k1']],
      ['show --json', ['show', '--json', 'k0']],
      ['top', ['top', '--once']],
      ['top --json', ['top', '--once', '--json']],
      ['run', ['run', '-n', 'k0', '--', 'true']],
    ])('are shown in part by %s, and steer no terminal', async (_name, args) => {
      const { stdout, stderr } = await shell.run(args)
      const shown = stdout + stderr
      expect(shown).toContain('k')
      expect(shown.length).toBeLessThan(ROWS * 2 * 20_000)
      expect(shown).not.toMatch(/[\p{Cf}]|[^\P{Cc}\n]/u)
      expect(shown.split('\n').length).toBeLessThan(ROWS + 10)
    })
  },
)

test('a label that is longer than people read is refused where it is given', async () => {
  await expect(connect('memory:', { label: 'x'.repeat(501) })).rejects.toThrow(
    /^Expected `label` to be a text of at most 500 characters, got "x+…" \(501 characters\)\.$/,
  )
  await (await connect('memory:', { label: 'x'.repeat(500) })).close()
})

function ticket({ key, id, owner }: { key: string; id: string; owner: string }) {
  return {
    ...{ key, id, owner },
    ...{ units: 1, limit: 1, ttlMs: 600_000, acceptMs: 600_000, patienceMs: 600_000 },
    ...{ minHoldMs: 0, lockDelayMs: 0 },
  }
}
