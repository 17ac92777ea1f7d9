import { test } from 'vitest'
import { sqliteStore } from '../../../src/stores/sqlite/index.ts'
import { followsTheLaw } from '../law-comparison.ts'
import { freshFolder } from './lock-folder.ts'

const folder = freshFolder()

test('the sqlite store follows the law step by step, with time under control', async () => {
  let ms = 0
  const store = sqliteStore({
    path: `${folder}/timed.db`,
    now: () => ({ ms, us: ms * 1000 }),
    boot: 'simulated',
  })
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
