import { expect, test } from 'vitest'
import { RequestBatches } from '../../../src/stores/postgres/request-batches.ts'
import { ticket } from '../tickets.ts'

test('a ticket does not overtake the tickets of its key that fill a call', async () => {
  const sent: number[] = []
  const answered: (() => void)[] = []
  const batches = new RequestBatches(2, {
    acquire: (batch) => {
      sent.push(batch.length)
      return new Promise((resolve) => {
        answered.push(() => {
          for (const request of batch) request.resolve({ tag: 'busy', retryMs: 1 })
          resolve()
        })
      })
    },
    release: () => Promise.resolve(),
  })
  const first = Array.from({ length: 100 }, () => batches.acquire(ticket({ key: 'key' })))
  await new Promise(setImmediate)
  const second = batches.acquire(ticket({ key: 'key' }))
  await new Promise(setImmediate)
  expect(sent).toEqual([100])
  answered[0]?.()
  await Promise.all(first)
  await new Promise(setImmediate)
  expect(sent).toEqual([100, 1])
  answered[1]?.()
  await second
})
