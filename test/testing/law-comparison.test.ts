import { describe, expect, test } from 'vitest'
import type { Store } from '../../src/contract/store.ts'
import { InvalidArgumentError } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { lawComparison } from '../../src/testing/index.ts'
import { boundStore } from '../stores/bound-store.ts'

test('what is no store is refused in one sentence', async () => {
  const refused = lawComparison({} as never)
  await expect(refused).rejects.toThrow(
    new InvalidArgumentError('Expected `store` to be a store, got undefined.'),
  )
})

test.each([
  [{ histories: 0 }, 'Expected `histories` to be a whole number from 1 to 1000000, got 0.'],
  [{ histories: Number.NaN }, 'Expected `histories` to be a whole number from 1 to 1000000, got NaN.'],
  [{ histories: -1 }, 'Expected `histories` to be a whole number from 1 to 1000000, got -1.'],
  [{ steps: Number.NaN }, 'Expected `steps` to be a whole number from 1 to 1000000, got NaN.'],
  [{ setTime: 5 }, 'Expected `setTime` to be a function, got 5.'],
])('%o is refused in one sentence', async (options, message) => {
  const refused = lawComparison({ store: memoryStore(), grants: true, ...options } as never)
  await expect(refused).rejects.toThrow(new InvalidArgumentError(message))
})

test('a store whose messages are leases needs `grants`', async () => {
  const played = lawComparison({ store: memoryStore(), seed: 'grants' })
  await expect(played).rejects.toThrow(/the store: .*"held".*\n.*the law: .*"offered"/)
  await lawComparison({ store: memoryStore(), seed: 'grants', grants: true })
})

describe('a store that differs from the law', () => {
  test('is reported with the seed and the shortest history that shows it', async () => {
    const failure = lawComparison({
      grants: true,
      store: but({ release: () => ({ was: 'held' }) }),
      seed: 'short',
    })
    const message = await failure.catch((error: Error) => error.message)
    expect(message).toMatch(/^The store differs from the law \(seed short\):\n {2}\w: room/)
    expect(message).toMatch(/\n {2}1\. (release|cancel) \w\n {2}answer\.was "held" instead of "unknown"/)
    expect(message).not.toMatch(/\n {2}2\. /)
  })

  test('is reported the same way when the seed is played again', async () => {
    const play = async () => {
      const store = but({ evict: async () => [] })
      const message = await lawComparison({ grants: true, store, seed: 'again' }).catch(
        (error: Error) => error.message,
      )
      return String(message).replace(/[0-9a-f]{8}-[0-9a-f-]{27}|\d{16,}n|"\w+Ms":[\d.]+/g, '…')
    }
    const first = await play()
    expect(first).toMatch(/^The store differs/)
    expect(await play()).toBe(first)
  })

  test('is found out over a single millisecond, when its clock is under control', async () => {
    const { store, setTime } = withTime()
    const late = but({ inspect: async (request) => olderBy(1, await store.inspect(request)) }, store)
    await expect(lawComparison({ grants: true, store: late, setTime })).rejects.toThrow(
      /heldMs \d+ instead of \d+/,
    )
  })

  test('is found out over a time that is far off, when its clock is its own', async () => {
    const store = memoryStore()
    const late = but({ inspect: async (request) => olderBy(30_000, await store.inspect(request)) }, store)
    await expect(lawComparison({ grants: true, store: late })).rejects.toThrow(/heldMs [\d.]+ instead of/)
    const near = but({ inspect: async (request) => olderBy(10, await store.inspect(request)) }, store)
    await expect(lawComparison({ grants: true, store: near })).resolves.toBeDefined()
  })

  test('is found out when it gives one fence twice, wakes no waiter, or wakes one once too often', async () => {
    const { store, setTime } = withTime()
    const deaf = but({ listen: async () => () => {} }, store)
    await expect(lawComparison({ store: deaf, setTime })).rejects.toThrow('was woken 0 times instead of 1')
    const chatty = but(
      {
        listen: (onWake) =>
          store.listen?.((wake) => {
            onWake(wake)
            onWake(wake)
          }) ?? Promise.reject(new Error('no wakes')),
      },
      store,
    )
    await expect(lawComparison({ grants: true, store: chatty, setTime })).rejects.toThrow(
      'was woken 2 times instead of 1',
    )
    const stuck = but(
      {
        async acquire(ticket) {
          const answer = await store.acquire(ticket)
          return answer.tag === 'held' ? { tag: 'held', fence: 2n ** 60n } : answer
        },
      },
      store,
    )
    await expect(lawComparison({ grants: true, store: stuck, setTime })).rejects.toThrow(
      'has changed, is out of order, or is below',
    )
  })
})

test('a store without wakes is compared without them', async () => {
  const { listen, ...silent } = but({}, memoryStore())
  expect(listen).toBeTypeOf('function')
  await expect(lawComparison({ grants: true, store: silent, histories: 20 })).resolves.toMatchObject({
    seed: /./,
  })
})

/** The memory store with some of its methods replaced. */
function but(change: Partial<Store>, store: Store = memoryStore()): Store {
  return { ...boundStore(store), ...change }
}

function withTime() {
  let ms = 0
  return {
    store: memoryStore({ now: () => ({ ms, us: ms * 1000 }) }),
    setTime: (to: number) => {
      ms = to
    },
  }
}

function olderBy(ms: number, page: Awaited<ReturnType<Store['inspect']>>) {
  const rooms = page.rooms.map((room) => ({
    ...room,
    holders: room.holders.map((holder) => ({ ...holder, heldMs: holder.heldMs + ms })),
  }))
  return { ...page, rooms }
}
