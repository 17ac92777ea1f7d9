import { setTimeout as sleep } from 'node:timers/promises'
import { test } from 'vitest'
import { connect } from '../../src/index.ts'
import { startPostgres } from '../servers/postgres-server.ts'
import { until } from '../servers/until.ts'
import { sharedStores } from './stores.ts'
import { Tmux } from './tmux.ts'

test.each([...sharedStores, { name: 'postgres', open: startPostgres }])(
  'under load on $name top goes on showing holders, waiters and how often keys change hands',
  async ({ open }) => {
    await using store = await open()
    await using locks = await connect(store.url, { label: 'tester' })
    const end = new AbortController()
    let turns = 0
    const load = Array.from({ length: 16 }, async (_, at) => {
      while (!end.signal.aborted) {
        await locks.withLock(`load:${at % 4}`, async () => {
          turns += 1
          await sleep(20)
        })
      }
    })
    await using terminal = new Tmux({ env: { HOLDFAST_STORE: store.url } })
    try {
      terminal.enter('eval "$HOLDFAST top --interval 200ms"; echo exit $?')
      await terminal.shows(/^4 keys, \d held,.* ([89]|1[0-2]) waiting, the longest for /m)
      for (const key of [0, 1, 2, 3])
        await terminal.shows(new RegExp(`^ {2}load:${key} +[HO] +mutex +\\S+ \\(tester\\) .* [1-4] +`, 'm'))
      await terminal.shows(/^[1-9]\d*\.\d hand-overs\/s, 0 expired in a minute; a look takes /m)
      terminal.press('K', 'Enter')
      await terminal.shows(/^load:0\n/m)
      await terminal.shows(/^QUEUE [1-4], in order of arrival$/m)
      terminal.press('Escape')
      await terminal.shows(/^4 keys, /m)
      // `top` only reads, so it does not hold up the load.
      const before = turns
      await until('the load goes on', () => turns > before + 50)
    } finally {
      end.abort()
      await Promise.all(load)
    }
    await terminal.shows('Nobody holds a key.')
    terminal.press('q')
    await terminal.shows('exit 0')
  },
)
