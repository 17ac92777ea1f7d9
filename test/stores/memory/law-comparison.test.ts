import { expect, test } from 'vitest'
import { memoryStore } from '../../../src/stores/memory/index.ts'
import { lawComparison } from '../../../src/testing/index.ts'

const EVERY_ANSWER = [
  'acquire busy',
  'acquire evicted',
  'acquire gone',
  'acquire held',
  'acquire queued',
  'evict removed',
  'release held',
  'release queued',
  'release unknown',
  'renew evicted',
  'renew gone',
  'renew held',
  'renew queued',
]

test('the memory store follows the law step by step, with time under control', async () => {
  let ms = 0
  const store = memoryStore({ now: () => ({ ms, us: ms * 1000 }) })
  const setTime = (to: number) => {
    ms = to
  }
  const { answers } = await lawComparison({ store, setTime, setsBack: true, histories: 1_500 })
  expect(Object.keys(answers).sort()).toEqual(EVERY_ANSWER)
  expect(Math.min(...Object.values(answers))).toBeGreaterThan(100)
})

test('the memory store follows the law step by step on the clock of the process', async () => {
  const { answers } = await lawComparison({ store: memoryStore(), histories: 500 })
  expect(Object.keys(answers).sort()).toEqual(EVERY_ANSWER)
  expect(Math.min(...Object.values(answers))).toBeGreaterThan(30)
})
