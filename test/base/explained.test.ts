import { expect, test } from 'vitest'
import { explained } from '../../src/base/explained.ts'

test('an error is told with the causes that say more than it does', () => {
  const refused = new Error('connect ECONNREFUSED 127.0.0.1:6379')
  const silent = new Error('The redis store did not answer within 5000 ms.', { cause: refused })
  expect(explained(silent)).toBe(
    'The redis store did not answer within 5000 ms. Cause: connect ECONNREFUSED 127.0.0.1:6379',
  )
  const twice = new Error(`Nothing was acquired. ${silent.message}`, { cause: silent })
  expect(explained(twice)).toBe(
    'Nothing was acquired. The redis store did not answer within 5000 ms. Cause: connect ECONNREFUSED 127.0.0.1:6379',
  )
})

test('the first of several attempts is told as the cause', () => {
  const attempts = ['::1', '127.0.0.1'].map((host) => new Error(`connect ECONNREFUSED ${host}:6379`))
  const silent = new Error('Nobody answered.', { cause: new AggregateError(attempts, 'all failed') })
  expect(explained(silent)).toBe('Nobody answered. Cause: all failed: connect ECONNREFUSED ::1:6379')
})

test('a circle of causes ends', () => {
  const error = new Error('one')
  error.cause = new Error('two', { cause: error })
  expect(explained(error)).toBe('one Cause: two')
})

test('a cause is told by its first line, without the list of modules that Node.js puts below', () => {
  const missing = new Error("Cannot find module 'pg'\nRequire stack:\n- /app/index.js")
  const failed = new Error('The connection failed.', { cause: missing })
  const error = new Error('The package is missing.', { cause: failed })
  expect(explained(error)).toBe(
    "The package is missing. Cause: The connection failed: Cannot find module 'pg'",
  )
})
