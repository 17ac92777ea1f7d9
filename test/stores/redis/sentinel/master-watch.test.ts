import { expect, test } from 'vitest'
import { MasterWatch } from '../../../../src/stores/redis/sentinel/master-watch.ts'
import type { RedisLink } from '../../../../src/stores/redis/server/client-link.ts'

test('a Sentinel that knows the master counts, although a majority has said before that it knows none', async () => {
  let answerLate = (): void => {}
  const late = new Promise<void>((resolve) => {
    answerLate = resolve
  })
  const told: string[] = []
  const sentinels = [
    sentinel(async () => {
      told.push('nothing')
      return null
    }),
    sentinel(async () => {
      told.push('nothing')
      return null
    }),
    sentinel(async () => {
      await late
      return ['10.0.0.1', '6379']
    }),
  ]
  const watch = new MasterWatch({ name: 'mymaster', sentinels })
  const found = expect(watch.find()).resolves.toEqual({ host: '10.0.0.1', port: 6379 })
  await new Promise(setImmediate)
  expect(told).toEqual(['nothing', 'nothing'])
  answerLate()
  await found
  watch.close()
})

test('a master that no Sentinel knows is refused, although one Sentinel does not answer', async () => {
  const sentinels = [
    sentinel(async () => null),
    sentinel(async () => null),
    sentinel(() => Promise.reject(new Error('connect ECONNREFUSED'))),
  ]
  const watch = new MasterWatch({ name: 'mymaster', sentinels })
  await expect(watch.find()).rejects.toMatchObject({ code: 'store-refused' })
  watch.close()
})

function sentinel(addressOfMaster: () => Promise<string[] | null>): RedisLink {
  return {
    keyPrefix: '',
    open: () => ({
      send: async (_, [question]) =>
        question === 'MASTER' ? ['config-epoch', '1'] : await addressOfMaster(),
      reasonOf: (error) => error,
      close() {},
    }),
    openChannels: () => ({ add: () => new Promise(() => {}), remove() {}, close() {} }),
  }
}
