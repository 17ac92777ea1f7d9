import { afterEach, expect, test, vi } from 'vitest'
import { systemClock } from '../../../../src/base/clock.ts'
import { RedisStore } from '../../../../src/stores/redis/redis-store.ts'
import type {
  ClusterLink,
  RawConnection,
  RedisLink,
} from '../../../../src/stores/redis/server/client-link.ts'
import { undisturbed } from '../../../base/measured.ts'
import { releaseOf, ticket } from '../../tickets.ts'

afterEach(() => {
  vi.restoreAllMocks()
})

test('a request that waits for a slot that is moving does not keep the process alive', async () => {
  let refused = 0
  const connection: RawConnection = {
    async send(command) {
      if (command === 'CLUSTER') return [[0, 16_383, ['a', 1]]]
      refused += 1
      throw new Error('TRYAGAIN Multiple keys request during rehashing of slot')
    },
    reasonOf: (error) => error,
    close() {},
  }
  const link = { keyPrefix: '', open: () => connection } as unknown as RedisLink
  const cluster: ClusterLink = { keyPrefix: '', seeds: [{ host: 'a', port: 1 }], linkTo: () => link }
  const started: boolean[] = []
  const { startTimer } = systemClock
  vi.spyOn(systemClock, 'startTimer').mockImplementation((delayMs, fire) => {
    const timer = startTimer(delayMs, fire)
    const index = started.push(false) - 1
    return {
      stop: timer.stop,
      keepAlive(yes) {
        started[index] = yes
        timer.keepAlive(yes)
      },
    }
  })
  const store = new RedisStore(cluster, { prefix: 'holdfast:', replicas: 0 })
  // The request waits for a second. A machine that stands still for as long leaves no time for more tries.
  const tries = await undisturbed(
    (count) => count > 2,
    async () => {
      refused = 0
      await expect(store.release(releaseOf(ticket()))).rejects.toMatchObject({ code: 'store-unavailable' })
      return refused
    },
  )
  expect(tries).toBeGreaterThan(2)
  expect(started.length).toBeGreaterThan(0)
  expect(started).not.toContain(true)
  await store.close()
})
