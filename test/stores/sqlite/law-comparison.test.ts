import { test } from 'vitest'
import { sqliteStore } from '../../../src/stores/sqlite/index.ts'
import { SqliteStore } from '../../../src/stores/sqlite/sqlite-store.ts'
import { followsTheLaw } from '../law-comparison.ts'
import { engines, freshFolder } from './lock-folder.ts'

const folder = freshFolder()
const [engine = '@photostructure/sqlite'] = engines

/**
 * The law answers about the tickets of a list one after the other. Waiters in a group are asked about at once, which differs if they
 * come late, or if their holder is in the list, too. `groups-histories` compares groups with waiters that are alone.
 */
const ALONE = { leastGroup: Number.POSITIVE_INFINITY }

test('the sqlite store follows the law step by step, with time under control', async () => {
  let ms = 0
  const path = `${folder}/timed.db`
  const store = new SqliteStore(
    { path, engine, boot: 'simulated', now: () => ({ ms, us: ms * 1000 }) },
    ALONE,
  )
  const setTime = (to: number) => {
    ms = to
  }
  await followsTheLaw({ store, setTime, grants: true, histories: 1_000 }, { timesEach: 50 })
  await store.close()
}, 600_000)

test('the sqlite store follows the law step by step on the clock of the machine', async () => {
  const store = sqliteStore(`${folder}/machine.db`)
  await followsTheLaw({ store, grants: true, histories: 300 }, { timesEach: 15 })
  await store.close()
}, 600_000)
