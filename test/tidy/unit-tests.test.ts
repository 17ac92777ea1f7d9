import { expect, test } from 'vitest'
import { unitTests } from '../unit-tests.ts'

test('the unit tests are those that start no process and use no build, directly or through what they import', () => {
  const chosen = unitTests()
  expect(chosen).toEqual(
    expect.arrayContaining([
      'test/engine/waiting.test.ts',
      'test/law/law.test.ts',
      'test/primitives/mutex.test.ts',
      'test/queue/task-queue.test.ts',
      'test/stores/memory/conformance.test.ts',
    ]),
  )
  const others = [
    'test/stores/redis/conformance.test.ts',
    'test/cli/run.test.ts',
    'test/cli/guardian.test.ts',
  ]
  expect(chosen.filter((path) => others.includes(path))).toEqual([])
})
