import { test } from 'vitest'
import { memoryStore } from '../../../src/stores/memory/index.ts'
import { followsTheLaw } from '../law-comparison.ts'

test('the memory store follows the law step by step, with time under control', async () => {
  let ms = 0
  const store = memoryStore({ now: () => ({ ms, us: ms * 1000 }) })
  const setTime = (to: number) => {
    ms = to
  }
  await followsTheLaw({ store, setTime, setsBack: true, grants: true, histories: 1_500 }, { timesEach: 100 })
})

test('the memory store follows the law step by step on the clock of the process', async () => {
  await followsTheLaw({ store: memoryStore(), grants: true, histories: 500 }, { timesEach: 30 })
})
