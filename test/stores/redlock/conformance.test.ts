import { afterAll, beforeAll, describe, test } from 'vitest'
import { conformanceCases } from '../conformance-cases.ts'
import { type Masters, startMasters } from './masters.ts'

let masters: Masters
beforeAll(async () => {
  masters = await startMasters(3)
})
afterAll(() => masters.close())

describe('the redlock store keeps the contract', () => {
  const cases = conformanceCases({
    open: async () => {
      const store = masters.store()
      await masters.meet(store)
      return store
    },
    semaphores: false,
    order: 'best-effort',
    leftovers: async (prefix) => {
      const keys = await Promise.all(masters.servers.map((server) => server.command('KEYS', `*${prefix}*`)))
      return keys.flat() as string[]
    },
  })
  for (const { name, run } of cases) test(name, run)
})
