import { expect, test } from 'vitest'
import { SharedLook } from '../../src/dashboard/shared-look.ts'

test('a read that throws at once is asked again, like any other', async () => {
  let reads = 0
  const look = new SharedLook(() => {
    reads += 1
    if (reads < 3) throw new Error(`failed ${reads} times`)
    return Promise.resolve(reads)
  }, 3_600_000)
  await look.ready()
  expect(look.latest).toEqual({ value: undefined, message: 'failed 1 times' })
  await look.again()
  await look.again()
  expect(look.latest).toEqual({ value: 3, message: undefined })
})
