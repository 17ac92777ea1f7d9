import { expect, test } from 'vitest'
import { sqliteStore } from '../../../src/stores/sqlite/index.ts'
import { lawComparison } from '../../../src/testing/index.ts'
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
  const { answers } = await lawComparison({ store, setTime, histories: 1_000 })
  expect(Math.min(...Object.values(answers))).toBeGreaterThan(50)
  await store.close()
}, 60_000)

test('the sqlite store follows the law step by step on the clock of the machine', async () => {
  const store = sqliteStore(`${folder}/machine.db`)
  const { answers } = await lawComparison({ store, histories: 300 })
  expect(Math.min(...Object.values(answers))).toBeGreaterThan(15)
  await store.close()
}, 60_000)
